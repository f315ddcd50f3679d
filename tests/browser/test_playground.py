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
RUN = 600  # characters that one press of Run writes

READ = """() => {
  const { figure } = probe, text = [...figure.querySelectorAll(".nt-play > [data-step]")];
  const cells = (line) => [...line.cells].map((cell) => cell.textContent);
  return {
    text: text.map((span) => span.textContent.replace("↵\\n", "\\n")).join(""),
    loops: text.filter((span) => span.classList.contains("nt-loop")).length,
    counts: Object.fromEntries([...figure.querySelectorAll(".nt-counts tbody tr")].map(cells)
      .map(([name, ...rest]) => [name, rest])),
    notice: figure.querySelector(".nt-notice").textContent,
    about: figure.querySelector(".nt-about").textContent,
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
          const bars = probe.figure.querySelector(".nt-rows");
          for (let i = 0; i < n; i++) {
            while (bars.ariaBusy === "true") await new Promise((done) => setTimeout(done, 2));
            probe.press("Step");
          }
        }""",
        n,
    )
    settle(page)
    return read(page)


def settle(page):
    page.wait_for_function(
        "[probe.figure, probe.figure.querySelector('.nt-rows')].every((node) => node.ariaBusy === 'false')"
    )


def finish(page):
    """Wait until Run has written all it writes."""
    page.wait_for_function("probe.button('Run')")
    settle(page)
    return read(page)


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
        "no_repeat_ngram_size": pick.choice((0, 5)),
        "typical_p": pick.choice((1.0, 0.9)),
        "epsilon": pick.choice((0.0, 0.01)),
        "eta": pick.choice((0.0, 0.02)),
        "top_n_sigma": pick.choice((0.0, 1.5)),
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
        tokens = [f"{tokens_through_model(len(explorer.prompt), 30, cached=c):,}" for c in (True, False)]
        assert found["counts"]["by the formula"] == tokens
        counted = [n if c == explorer.cached else "" for n, c in zip(tokens, (True, False), strict=True)]
        assert found["counts"]["tokens through the model"] == counted
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


def test_picking_a_character(page):
    """One that is picked below the bars is written, whatever the seed would have drawn; the text says whose it is."""
    mount(page, PlaygroundExplorer(model="shakespeare", temperature=1.0, seed=2))
    settle(page)
    offer = page.locator(".nt-vocabulary button")
    name = offer.nth(3).text_content()
    offer.nth(3).click()
    settle(page)
    page.locator(".nt-play > [data-step='0']").click()
    found = read(page)
    assert found["text"] == name.replace("↵", "\n").replace("␣", " ")
    said = {"↵": "the line end", "␣": "a space"}.get(name, f"“{name}”")
    assert re.match(rf"Character 1, {re.escape(said)}: .+% from the model, picked by you\.", found["about"])


def test_the_bars_show_what_step_writes(page):
    """The row that is outlined, twenty times, is that of the next character, or of the others."""
    mount(page, PlaygroundExplorer(model="shakespeare", temperature=1.5, seed=8))
    settle(page)
    marked = set()
    for i in range(20):
        outlined = page.locator(".nt-row.nt-chosen .nt-token").all_text_contents()
        text = steps(page, 1)["text"]
        (name,) = outlined
        shown = {"\n": "↵", " ": "␣"}.get(text[i], text[i])
        assert name in (shown, "65 others")
        marked.add(name == shown)
    assert True in marked


def about(explorer, n, step):
    """What the figure says of a character: its probability in the model, and what else could have come."""
    model, tokenizer = load(explorer.model)
    ids = torch.tensor([tokenizer.encode(explorer.prompt)])
    ids = generate(model, ids, max_new_tokens=n, params=explorer.params).token_ids
    place = ids.size(1) - n + step
    with torch.no_grad():
        p = model(ids[:, :place])[0, -1].double().softmax(-1)
    likeliest = [i for i in p.argsort(descending=True).tolist()[:5] if i != ids[0, place]][:4]
    names = [tokenizer.token_text(i) for i in likeliest]
    return float(p[ids[0, place]]), [
        f"{name} {100 * p[i]:.1f}\u202f%" for name, i in zip(names, likeliest, strict=True)
    ]


def test_what_else_could_have_come(page):
    """Pointed at, a character tells it; pressed, it offers the others and the way back; another seed goes elsewhere."""
    explorer = PlaygroundExplorer(model="shakespeare", temperature=1.0, seed=2)
    mount(page, explorer)
    settle(page)
    longer = steps(page, 20)
    p, others = about(explorer, 20, 10)
    character = page.locator(".nt-play > [data-step='10']")
    character.hover()
    said = read(page)["about"]
    assert said.startswith("Character 11, ") and f"{100 * p:.2f}" in said and said.endswith("".join(others))
    assert page.locator(".nt-about button").count() == 0
    character.click()
    assert page.locator(".nt-about button").all_text_contents() == [*others, "Take it and the rest back"]

    page.locator(".nt-about button").nth(1).click()
    settle(page)
    token = others[1][0]
    branch = longer["text"][:10] + {"↵": "\n", "␣": " "}.get(token, token)
    assert read(page)["text"] == branch
    assert steps(page, 3)["text"].startswith(branch)

    page.locator(".nt-play > [data-step='10']").click()
    page.evaluate("probe.press('Take it and the rest back')")
    settle(page)
    back = read(page)
    assert back["text"] == longer["text"][:10] and back["counts"]["taken back or read again"] == ["14", ""]
    page.evaluate("probe.model.set('seed', 99)")
    settle(page)
    other = steps(page, 11)["text"]
    assert other[:10] == longer["text"][:10] and other != longer["text"]


def test_the_loop_and_its_ends(page):
    """The first preset runs into a loop and says so; either of the next two breaks it."""
    mount(page, PlaygroundExplorer())
    for name, loops in (("a loop", True), ("broken by temperature", False), ("broken by a penalty", False)):
        press_preset(page, name)
        found = finish(page)
        assert len(found["text"]) == RUN
        assert ("It loops" in found["words"]) == loops, name
        if loops:
            assert found["loops"] > 350
            page.locator(".nt-play > [data-step] > .nt-blank").last.hover()
            assert ", the line end: " in read(page)["about"]


def test_a_setting_changes_what_runs(page):
    """While it runs, a knob holds from the next character on; with the cache off the text begins again and goes on."""
    mount(page, PlaygroundExplorer())
    page.evaluate("probe.press('Run')")
    page.wait_for_function("probe.figure.querySelectorAll('.nt-play > [data-step]').length > 100")
    page.locator(".nt-play").focus()
    for key in ("End", *["ArrowRight"] * 10, "Home", "ArrowLeft"):
        page.keyboard.press(key)
    page.evaluate("probe.model.set('frequency_penalty', 0.5)")
    assert "It loops" not in finish(page)["words"]
    page.evaluate("probe.press('From the prompt')")
    page.evaluate("probe.press('Run')")
    page.evaluate("probe.model.set('cached', false)")
    page.wait_for_function("probe.figure.querySelectorAll('.nt-play > [data-step]').length > 20")
    page.evaluate("probe.press('Stop')")
    settle(page)
    found = read(page)
    explorer = PlaygroundExplorer(frequency_penalty=0.5, cached=False)
    assert found["text"] == expected(explorer, len(found["text"]))
    tokens = f"{tokens_through_model(7, len(found['text']), cached=False):,}"
    assert [found["counts"][name][1] for name in ("tokens through the model", "by the formula")] == [tokens, tokens]


def test_rules_that_an_engine_lacks(page):
    """They are greyed, say why, and do nothing; the others count as on."""
    mount(page, PlaygroundExplorer(temperature=1.0, typical_p=0.5, no_repeat_ngram_size=3, top_k=9, order="vllm"))
    settle(page)
    page.locator("summary").click()
    for label, says in (("typical τ", "not in vLLM"), ("no-repeat n", "not in vLLM"), ("top-k", "9")):
        slider = page.get_by_role("slider", name=label)
        assert slider.get_attribute("aria-valuetext") == says and slider.is_disabled() == (says != "9")
    assert page.locator("summary").text_content() == "More rules (1 on)"
    assert "9 of 75 characters can come" in read(page)["words"]
    page.evaluate("probe.model.set('order', 'huggingface')")
    settle(page)
    assert page.get_by_role("slider", name="typical τ").is_enabled()
    assert "9 of 75 characters can come" not in read(page)["words"]
    page.evaluate("probe.model.set('temperature', 0)")
    settle(page)
    assert page.get_by_role("slider", name="typical τ").get_attribute("aria-valuetext") == "not at T = 0"
    assert page.get_by_role("slider", name="no-repeat n").is_enabled()


def test_switching_the_cache_writes_the_same_text_again(page):
    """With what the reader picked in it; the two columns then stand side by side."""
    mount(page, PlaygroundExplorer(model="shakespeare", temperature=0.8, seed=4))
    settle(page)
    steps(page, 10)
    page.locator(".nt-vocabulary button").nth(4).click()
    settle(page)
    first = steps(page, 10)["text"]
    page.evaluate("probe.model.set('cached', false)")
    page.wait_for_function("probe.button('Stop')")
    found = finish(page)
    assert found["text"] == first and len(first) == 21
    tokens = [str(tokens_through_model(7, 21, cached=cached)) for cached in (True, False)]
    assert found["counts"]["tokens through the model"] == found["counts"]["by the formula"] == tokens
    page.evaluate("probe.model.set('seed', 5)")
    settle(page)
    assert read(page)["counts"]["tokens through the model"] == ["", tokens[1]]
    page.evaluate("for (const cached of [true, false, true]) probe.model.set('cached', cached);")
    page.evaluate("new Promise((done) => setTimeout(done, 20)).then(() => probe.model.set('cached', false))")
    found = finish(page)
    assert found["text"] == first  # whatever the seed is now
    page.locator(".nt-play > [data-step='10']").click()
    assert read(page)["about"].partition(".Instead")[0].endswith("picked by you")


def test_the_limit_is_moved_in_place(page):
    """A text that has not come to the end stays as it is; one that stopped there goes on; one past it is cut back."""
    mount(page, PlaygroundExplorer(prompt="x" * 250, slide=False))
    settle(page)
    steps(page, 3)
    page.evaluate("probe.model.set('slide', true)")
    settle(page)
    assert len(read(page)["text"]) == 3 and page.evaluate("!!probe.button('Run')")
    page.evaluate("probe.model.set('slide', false)")
    page.evaluate("probe.press('Run')")
    assert len(finish(page)["text"]) == 6
    page.evaluate("probe.model.set('slide', true)")
    longer = steps(page, 4)["text"]
    page.evaluate("probe.model.set('slide', false)")
    page.wait_for_function("probe.figure.querySelector('.nt-readout').textContent.includes('The context is full.')")
    assert read(page)["text"] == longer[:6]


def test_back_over_the_end_of_the_context(page):
    """What is read again because of it is counted apart: the count stays the formula's."""
    mount(page, PlaygroundExplorer(prompt="x" * 250))
    settle(page)
    steps(page, 12)
    for _ in range(8):
        page.evaluate("probe.press('Back one')")
        settle(page)
    found = steps(page, 2)["counts"]
    assert found["tokens through the model"][0] == found["by the formula"][0] == str(250 + 6 - 1)
    assert int(found["taken back or read again"][0]) > 250


def test_steps_are_counted_however_fast(page):
    """Thirty presses of Step in one go write thirty characters, also without a cache."""
    mount(page, PlaygroundExplorer(cached=False))
    settle(page)
    page.evaluate("for (let i = 0; i < 30; i++) probe.press('Step');")
    page.wait_for_function("probe.figure.querySelectorAll('.nt-play > [data-step]').length === 30")


def test_rules_that_leave_nothing(page):
    """Said, with the way out; Step and Run can do no more until a rule is off."""
    mount(page, PlaygroundExplorer(no_repeat_ngram_size=1))
    settle(page)
    page.evaluate("probe.press('Run')")
    found = finish(page)
    assert len(set(found["text"])) == len(found["text"]) == 75 - len(set("ROMEO:\n"))
    assert "The rules leave no character" in found["words"]
    assert (
        page.get_by_role("button", name="Step").is_disabled() and page.get_by_role("button", name="Run").is_disabled()
    )
    page.evaluate("probe.model.set('no_repeat_ngram_size', 0)")
    settle(page)
    assert page.get_by_role("button", name="Run").is_enabled()


def test_focus_stays_where_the_reader_works(page):
    """A pick leaves it on the picker, a branch on the text, a reset on its slider, the end on the way back."""
    mount(page, PlaygroundExplorer(prompt="x" * 250, slide=False, temperature=0.5))
    settle(page)
    pick = page.locator(".nt-vocabulary button").nth(2)
    pick.focus()
    page.keyboard.press("Enter")
    settle(page)
    focused = "(node) => node === document.activeElement"
    assert pick.evaluate(focused)
    text = page.locator(".nt-play")
    page.locator(".nt-play > [data-step='0']").click()
    page.locator(".nt-about button").first.focus()
    page.keyboard.press("Enter")
    settle(page)
    assert text.evaluate(focused)
    page.get_by_role("button", name="Reset temperature T").click()
    settle(page)
    assert page.get_by_role("slider", name="temperature T").evaluate(focused)
    page.get_by_role("button", name="Step").focus()
    for _ in range(5):
        page.keyboard.press("Enter")
    page.wait_for_function("probe.figure.querySelector('.nt-readout').textContent.includes('The context is full.')")
    assert page.get_by_role("button", name="From the prompt").evaluate(focused)


def test_seeds_that_are_none(page):
    """They are named, change nothing, and give way to the seed in use."""
    mount(page, PlaygroundExplorer(seed=7))
    settle(page)
    seed = page.locator("input[type=number]")
    seed.fill("-5")
    assert "A seed is a whole number from 0" in read(page)["notice"] and page.evaluate("probe.model.get('seed')") == 7
    page.get_by_role("button", name="Step").focus()
    assert seed.input_value() == "7" and read(page)["notice"] == ""


def test_work_comes_in_slices(page):
    """By a clock that ticks once a look, no turn of the page's loop runs longer than a slice; after Stop none runs."""
    mount(page, PlaygroundExplorer(cached=False, prompt="To be, or not to be. " * 11, slide=False))
    settle(page)
    turns = page.evaluate("""async () => {
      const { Model } = nextToken.engine, forward = Model.prototype.forward, later = window.setTimeout;
      let now = 0, tokens = 0;
      const turns = [];
      performance.now = () => ++now;
      Model.prototype.forward = function (...given) { tokens++; return forward.apply(this, given); };
      window.setTimeout = (run, ...rest) => later(() => {
        tokens = 0;
        run();
        if (tokens) turns.push(tokens);
      }, ...rest);
      probe.press("Run");
      while (turns.length < 40) await new Promise((resolve) => later(resolve, 1));
      probe.press("Stop");
      tokens = 0;
      await new Promise((resolve) => later(resolve, 300));
      const written = probe.figure.querySelectorAll(".nt-play > [data-step]").length;
      await new Promise((resolve) => later(resolve, 300));
      return { turns, more: probe.figure.querySelectorAll(".nt-play > [data-step]").length - written };
    }""")
    assert max(turns["turns"]) <= 14 and turns["more"] == 0, turns


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
    page.evaluate("probe.catchCopies()")
    page.evaluate("probe.press('Copy link')")
    address = page.evaluate("copied")
    page.evaluate("(hash) => { location.hash = hash; }", address.partition("#")[2])
    mount(page, PlaygroundExplorer())
    settle(page)
    carried = page.evaluate("(keys) => keys.map((key) => probe.model.get(key))", list(explorer.state))
    assert carried == list(explorer.state.values())

    page.evaluate(
        "(hash) => { location.hash = hash; }", "play=" + quote(json.dumps({"prompt": "Ay,", "top_n_sigma": 1}))
    )
    settle(page)
    assert page.evaluate("[probe.model.get('prompt'), probe.model.get('top_n_sigma')]") == ["Ay,", 1]

    wrong = {
        "prompt": HOSTILE,
        "temperature": "hot",
        "top_p": 7,
        "model": "gpt",
        "seed": -1,
        "__proto__": 1,
        "run": "x",
    }
    for text in (json.dumps(wrong), "{", "null", "[1]", '{"top_p": [0.5], "temperature": "0.5"}'):
        page.evaluate("(hash) => { location.hash = hash; }", "play=" + quote(text))
        mount(page, PlaygroundExplorer(temperature=0.3))
        settle(page)
        assert page.evaluate("probe.model.get('temperature')") == 0.3
        assert page.evaluate("[probe.model.get('model'), probe.model.get('top_p'), probe.model.get('seed')]") == [
            *("shakespeare-early", 1, 1)
        ]
    check_nothing_ran(page)


def test_attention_can_be_shown(page):
    """The text takes on the weights of a head: they change with the head, and go back as far as the text does."""
    mount(page, PlaygroundExplorer(model="shakespeare", prompt="ROMEO:\nWhat light"))
    settle(page)
    shown = []
    for value in ("0", "13"):
        page.locator("select").filter(has_text="attention").select_option(value)
        spans = page.locator(".nt-play > span")
        shown.append(spans.evaluate_all("(spans) => spans.map((span) => span.getAttribute('style'))"))
    assert shown[0] != shown[1] and all(any("--nt-share: 1" in (style or "") for style in styles) for styles in shown)
    steps(page, 60)
    page.locator(".nt-play > [data-step='3']").click()
    page.evaluate("probe.press('Take it and the rest back')")
    settle(page)
    styles = page.locator(".nt-play > span").evaluate_all("(spans) => spans.map((span) => span.getAttribute('style'))")
    assert any("--nt-share: 1" in (style or "") for style in styles)


def test_keyboard(page):
    """Everything can be reached and has a name."""
    mount(page, PlaygroundExplorer())
    settle(page)
    page.locator("summary").click()
    assert check_tab_stops(page) >= 35


def test_a_minute_by_keyboard_alone(page):
    """Make it loop, break the loop with one knob, see what the cache saves, and look at one character."""
    mount(page, PlaygroundExplorer())
    settle(page)
    page.get_by_role("button", name="Run").focus()
    page.keyboard.press("Enter")
    assert "It loops" in finish(page)["words"]
    page.get_by_role("slider", name="temperature T").focus()
    for _ in range(16):
        page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="From the prompt").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Run").focus()
    page.keyboard.press("Enter")
    found = finish(page)
    assert "It loops" not in found["words"]
    first = found["text"][:30]

    text = page.locator(".nt-play")
    text.focus()
    for keys, place in (("End", RUN), ("ArrowLeft", RUN - 1), ("Home", 1), ("ArrowLeft", 1), ("ArrowRight", 2)):
        page.keyboard.press(keys)
        assert read(page)["about"].startswith(f"Character {place:,}, "), keys
    page.keyboard.press("Escape")
    assert read(page)["about"].startswith("Warm:")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    settle(page)
    assert read(page)["text"] == ""

    page.get_by_role("button", name="Step").focus()
    for n in range(1, 31):
        page.keyboard.press("Enter")
        page.wait_for_function("(n) => probe.figure.querySelectorAll('.nt-play > [data-step]').length === n", arg=n)
    page.locator("input[value=on]").focus()
    page.keyboard.press("ArrowRight")
    found = finish(page)
    assert found["text"] == first
    tokens = [str(tokens_through_model(7, 30, cached=cached)) for cached in (True, False)]
    assert found["counts"]["tokens through the model"] == found["counts"]["by the formula"] == tokens


def test_the_small_form(page):
    """It runs, loops and is broken like the whole one; its link leads there with its settings."""
    mount(page, PlaygroundExplorer(small=True))
    settle(page)
    press_preset(page, "a loop")
    assert "It loops" in finish(page)["words"]
    page.get_by_role("slider", name="frequency f").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    address = page.get_by_role("link").get_attribute("href")
    page.evaluate("(hash) => { location.hash = hash; }", address.partition("#")[2])
    assert address.startswith("playground.html#play=")
    mount(page, PlaygroundExplorer())
    settle(page)
    assert page.evaluate("probe.model.get('frequency_penalty')") == 0.5
    assert check_tab_stops(page) >= 20


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("dark", [False, True])
def test_narrow_screens(show, dark, small):
    page = show(PlaygroundExplorer(small=small).to_html(), width=390, dark=dark)
    check_fits(page, 390)
    assert page.log.complaints == []


def test_rendered_again_and_again(page):
    check_rendered_once(page, PlaygroundExplorer())


def test_where_the_weights_cannot_be_loaded(show, tmp_path):
    """The figure says so, and Run asks for them once more."""
    folder = tmp_path / "js"
    folder.mkdir()
    for path in JS.glob("*.[jc]s*"):
        if not path.name.startswith("shakespeare"):
            (folder / path.name).write_bytes(path.read_bytes())
    page = show(PlaygroundExplorer().to_html(), folder=folder)
    page.wait_for_function("document.querySelector('.nt-figure').textContent.includes('could not be read')")
    page.get_by_role("button", name="Run").click()
    page.wait_for_timeout(300)
    assert page.get_by_role("button", name="Run").is_enabled() and page.get_by_role("button", name="Step").is_disabled()
    for path in JS.glob("shakespeare*"):
        (folder / path.name).write_bytes(path.read_bytes())
    page.get_by_role("button", name="Run").click()
    page.wait_for_function("document.querySelectorAll('.nt-play > [data-step]').length === 600")
