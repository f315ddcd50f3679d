"""The playground in Chromium against `minigpt`: texts, picks, ways back, counts, links, keyboard, width."""

import json
import random
import re
from urllib.parse import quote

import pytest
import torch
from figures import HOSTILE, check_fits, check_nothing_ran, check_rendered_once, check_tab_stops, mount, press_preset

from minigpt import generate, load
from minigpt.costs import tokens_through_model
from minigpt.explorers import PlaygroundExplorer
from minigpt.explorers.distributions import JS
from minigpt.explorers.weights import write
from minigpt.sampling import ORDERS

FIGURES = (PlaygroundExplorer,)
SETTINGS = 12  # random ones

READ = """() => {
  const { figure } = probe, text = [...figure.querySelectorAll(".nt-play > [data-step]")];
  const cells = (line) => [...line.cells].map((cell) => cell.textContent);
  return {
    text: text.map((span) => span.textContent.replace("↵\\n", "\\n")).join(""),
    titles: text.map((span) => span.title),
    loops: text.filter((span) => span.classList.contains("nt-loop")).length,
    counts: Object.fromEntries([...figure.querySelectorAll(".nt-counts tbody tr")].map(cells)
      .map(([name, ...rest]) => [name, rest])),
    notice: figure.querySelector(".nt-notice").textContent,
    words: figure.querySelector(".nt-readout").textContent,
  };
}"""


@pytest.fixture(scope="module", autouse=True)
def weights():
    """The scripts that hold the models."""
    write()


def read(page):
    return page.evaluate(READ)


def steps(page, n):
    """Press Step n times, each time as soon as the next distribution is there."""
    page.evaluate(
        """async (n) => {
          const step = [...probe.figure.querySelectorAll("button")].find((b) => b.textContent === "Step");
          for (let i = 0; i < n; i++) {
            for (let wait = 0; step.disabled && wait < 500; wait++) await new Promise((done) => setTimeout(done, 2));
            step.click();
          }
        }""",
        n,
    )
    settle(page)
    return read(page)


def settle(page):
    page.wait_for_function(
        """() => probe.figure.getAttribute("aria-busy") === "false" &&
        ![...probe.figure.querySelectorAll("button")].find((b) => b.textContent === "Step").disabled"""
    )


def expected(explorer, n):
    """What `generate` writes with the figure's settings."""
    model, tokenizer = load(explorer.model)
    ids = torch.tensor([tokenizer.encode(explorer.prompt)])
    return tokenizer.decode(generate(model, ids, max_new_tokens=n, params=explorer.params).new_token_ids[0].tolist())


def random_explorer(pick, cached):
    order = pick.choice(list(ORDERS))
    settings = {
        "prompt": pick.choice(("ROMEO:\n", "My lord,", "To be, or not to be")),
        "model": pick.choice(("shakespeare", "shakespeare-early")),
        "temperature": pick.choice((0.0, 0.5, 0.8, 1.0, 1.5)),
        "top_k": pick.choice((0, 3, 20)),
        "top_p": pick.choice((1.0, 0.9, 0.5)),
        "min_p": pick.choice((0.0, 0.05)),
        "repetition_penalty": pick.choice((1.0, 1.2)),
        "frequency_penalty": pick.choice((0.0, 0.3)),
        "presence_penalty": pick.choice((0.0, -0.4)),
        "seed": pick.randrange(2**32),
    }
    return PlaygroundExplorer(**settings, order=order, cached=cached)


def test_the_text_is_generates(page):
    """Random settings: 30 characters as `generate` writes them, with the counts of the formula."""
    pick = random.Random(6)
    for i in range(SETTINGS):
        explorer = random_explorer(pick, cached=i % 2 == 0)
        mount(page, explorer)
        settle(page)
        found = steps(page, 30)
        assert found["text"] == expected(explorer, 30), explorer.state
        tokens = f"{tokens_through_model(len(explorer.prompt), 30, cached=explorer.cached):,}"
        assert found["counts"]["tokens through the model"] == [tokens, tokens]
        other = tokens_through_model(len(explorer.prompt), 30, cached=not explorer.cached)
        name = "without a cache" if explorer.cached else "with a cache"
        assert found["counts"][name] == ["", f"{other:,}"]
        page.evaluate("probe.dispose()")


def test_run_stop_back_and_from_the_prompt(page):
    """Run writes until Stop, and then nothing more; back and from the prompt; the same seed gives the same text."""
    explorer = PlaygroundExplorer(model="shakespeare", temperature=0.9, seed=5)
    mount(page, explorer)
    settle(page)
    page.evaluate("probe.press('Run')")
    page.wait_for_function("probe.figure.querySelectorAll('.nt-play > [data-step]').length > 40")
    page.evaluate("probe.press('Stop')")
    settle(page)
    first = read(page)["text"]
    page.wait_for_timeout(200)
    assert read(page)["text"] == first and len(first) >= 40
    page.evaluate("probe.press('Back one')")
    settle(page)
    assert read(page)["text"] == first[:-1]
    page.evaluate("probe.press('From the prompt')")
    settle(page)
    assert read(page)["text"] == ""
    n = min(len(first), 60)
    assert steps(page, n)["text"] == first[:n]


def test_picking_and_going_back_by_the_text(page):
    """A character picked is written; one pressed in the text takes back what follows; another seed goes elsewhere."""
    explorer = PlaygroundExplorer(model="shakespeare", temperature=1.0, seed=2)
    mount(page, explorer)
    settle(page)
    offer = page.locator(".nt-vocabulary button")
    name = offer.nth(3).text_content()
    offer.nth(3).click()
    settle(page)
    found = read(page)
    assert found["text"] == name.replace("↵", "\n").replace("␣", " ") and found["titles"][0].endswith("picked by you")
    longer = steps(page, 20)
    assert re.fullmatch(r".+, .+%; instead: .+%", longer["titles"][5])
    page.locator(".nt-play > [data-step='10']").click()
    settle(page)
    back = read(page)
    assert back["text"] == longer["text"][:10] and int(back["counts"]["taken back"][0]) == 11
    page.evaluate("probe.model.set('seed', 99)")
    settle(page)
    other = steps(page, 11)["text"]
    assert other[:10] == longer["text"][:10] and other != longer["text"]


def test_the_loop_and_its_ends(page):
    """The first preset loops and says so; either knob breaks it."""
    mount(page, PlaygroundExplorer())
    for name, loops in (("a loop", True), ("broken by temperature", False), ("broken by a penalty", False)):
        press_preset(page, name)
        settle(page)
        page.evaluate("probe.press('Run')")
        page.wait_for_function("probe.figure.querySelectorAll('.nt-play > [data-step]').length > 700")
        page.evaluate("probe.press('Stop')")
        settle(page)
        found = read(page)
        assert ("It loops" in found["words"]) == loops, name
        if loops:
            assert found["loops"] > 350


def test_the_end_of_the_context(page):
    """Stopped, it is full and says so; Step can do no more."""
    mount(page, PlaygroundExplorer(slide=False, prompt="x" * 250))
    settle(page)
    page.evaluate("probe.press('Run')")
    page.wait_for_function("probe.figure.querySelector('.nt-readout').textContent.includes('The context is full.')")
    assert len(read(page)["text"]) == 6
    assert page.get_by_role("button", name="Step").is_disabled()


def test_strange_prompts(page):
    """What the model does not know is named, a long paste cut, an empty prompt explained; hostile text stays text."""
    mount(page, PlaygroundExplorer())
    for prompt, words in (
        ("naïve 日本", "does not know them: ï 日 本"),
        ("To be, or not to be. " * 238, "its first 4,743 characters are not read"),
        ("", "The prompt is empty"),
        ("日本", "The prompt is empty"),
        (HOSTILE, "does not know them: < / > ="),
    ):
        page.evaluate("(prompt) => probe.set({ prompt })", prompt)
        page.wait_for_timeout(100)
        assert words in read(page)["notice"], prompt
    check_nothing_ran(page)


def test_a_link_carries_everything(page, show):
    """Copied and opened, a link sets what it was copied from; what has no place in it is passed over."""
    explorer = PlaygroundExplorer(prompt="A <b>rose</b> & more", model="shakespeare", temperature=0.7, top_k=7, seed=12)
    mount(page, explorer)
    settle(page)
    page.evaluate("probe.press('Copy link')")
    address = page.evaluate("probe.figure.dataset.link")
    page.evaluate("(hash) => { location.hash = hash; }", address.partition("#")[2])
    mount(page, PlaygroundExplorer())
    settle(page)
    carried = page.evaluate("(keys) => keys.map((key) => probe.model.get(key))", list(explorer.state))
    assert carried == list(explorer.state.values())

    wrong = {
        "prompt": HOSTILE,
        "temperature": "hot",
        "top_p": 7,
        "model": "gpt",
        "seed": -1,
        "__proto__": 1,
        "run": "x",
    }
    for text in (json.dumps(wrong), "{", "null", "[1]"):
        page.evaluate("(hash) => { location.hash = hash; }", "play=" + quote(text))
        mount(page, PlaygroundExplorer(temperature=0.3))
        settle(page)
        assert page.evaluate("probe.model.get('temperature')") == 0.3
        assert page.evaluate("[probe.model.get('model'), probe.model.get('top_p'), probe.model.get('seed')]") == [
            *("shakespeare-early", 1, 1)
        ]
    check_nothing_ran(page)


def test_attention_can_be_shown(page):
    """The text takes on the weights of a head: they change with the head, and the last token's row is theirs."""
    mount(page, PlaygroundExplorer(model="shakespeare", prompt="ROMEO:\nWhat light"))
    settle(page)
    shown = []
    for value in ("0", "13"):
        page.locator("select").filter(has_text="attention").select_option(value)
        spans = page.locator(".nt-play > span")
        shown.append(spans.evaluate_all("(spans) => spans.map((span) => span.getAttribute('style'))"))
    assert shown[0] != shown[1] and all(any("--nt-share: 1" in (style or "") for style in styles) for styles in shown)


def test_keyboard(page):
    """Everything can be reached and has a name; Enter writes a step."""
    mount(page, PlaygroundExplorer())
    settle(page)
    assert check_tab_stops(page) >= 25
    page.get_by_role("button", name="Step").focus()
    page.keyboard.press("Enter")
    settle(page)
    assert len(read(page)["text"]) == 1


@pytest.mark.parametrize("dark", [False, True])
def test_narrow_screens(show, dark):
    page = show(PlaygroundExplorer().to_html(), width=390, dark=dark)
    check_fits(page, 390)
    assert page.log.complaints == []


def test_rendered_again_and_again(page):
    check_rendered_once(page, PlaygroundExplorer())


def test_where_the_weights_cannot_be_loaded(show, tmp_path):
    """The figure says so."""
    folder = tmp_path / "js"
    folder.mkdir()
    for path in JS.glob("*.[jc]s*"):
        if not path.name.startswith("shakespeare"):
            (folder / path.name).write_bytes(path.read_bytes())
    page = show(PlaygroundExplorer().to_html(), folder=folder)
    page.wait_for_function("document.querySelector('.nt-figure').textContent.includes('could not be read')")
