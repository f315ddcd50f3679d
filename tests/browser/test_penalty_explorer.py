"""The penalty figure in Chromium against `minigpt`: distributions, editing by keyboard and mouse, text, presets."""

import math
import random
import re

import pytest
import torch
from figures import HOSTILE, check_fits, check_nothing_ran, check_tab_stops, mount, press_preset, set_state

from minigpt import generate
from minigpt.explorers import PenaltyExplorer, distributions
from minigpt.sampling import SamplingParams, apply, bind

FIGURES = (PenaltyExplorer,)
SETTINGS = 120  # random ones
SEED = 4
NAMES = [source["name"] for source in distributions.catalogue()["sources"] if "prompt_length" in source]
OFF = {
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "no_repeat_ngram_size": None,
    "sign": "by-sign",
    "history": None,
    "prompt_length": None,
}

# The whole distribution after the penalties: logits by id, probabilities by rank.
RUN = """([source, settings, ids, promptLength]) => {
  const { run, steps, softmax } = nextToken.sampler;
  const state = run(nextToken.ready[source].state, steps(settings), { ids, promptLength });
  return { ids: Array.from(state.ids), z: Array.from(state.ids, (id) => state.z[id]), p: Array.from(softmax(state)) };
}"""

# Cells of the picture whose text does not fit; whether the choice of sign stands clear of the sliders above it.
CUT = """() => [...document.querySelectorAll(".nt-row > span:not(.nt-token)")].filter((cell) =>
  cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"""
GAPS = """() => [...document.querySelectorAll(".nt-chips")].map((chips) =>
  chips.getBoundingClientRect().top - chips.previousElementSibling.getBoundingClientRect().bottom >= 8)"""


def random_state(pick, source):
    """Penalties, some of them off, and a text: the source's own or an edited one."""
    tokens, logits = distributions.distribution(source)
    state = OFF | {"source": source}
    if pick.random() < 0.6:
        state["repetition_penalty"] = pick.choice((0.5, 1.2, 2.0, round(pick.uniform(0.3, 3), 3)))
    if pick.random() < 0.5:
        state["frequency_penalty"] = pick.choice((-2.0, 0.5, 2.0, round(pick.uniform(-2, 2), 3)))
    if pick.random() < 0.5:
        state["presence_penalty"] = round(pick.uniform(-2, 2), 3)
    if pick.random() < 0.5:
        state["no_repeat_ngram_size"] = pick.randrange(1, 7)
    if pick.random() < 0.2:
        state["sign"] = "divide"
    if pick.random() < 0.7:
        likely = logits.argsort(descending=True)[:20].tolist()
        state["history"] = [pick.choice(likely) for _ in range(pick.randrange(15))]
        state["prompt_length"] = pick.randrange(16)
    return state


def in_python(state):
    """Logits before and after by `minigpt`, and the counts in prompt and answer."""
    explorer = PenaltyExplorer(**state)
    ids, length = explorer.text()
    before, after = explorer.penalised()
    text = ids[0].tolist()
    return before, after, text, length


def test_penalties_are_minigpts(page):
    """Random texts and penalties: banned tokens, probabilities, counts, logits, the sentence."""
    mount(page, PenaltyExplorer(source="toy-loop"))
    pick, all_banned = random.Random(SEED), 0
    for i in range(SETTINGS):
        source = NAMES[i % len(NAMES)]
        tokens, _ = distributions.distribution(source)
        state = random_state(pick, source)
        before, after, text, length = in_python(state)
        shown = set_state(page, **state)
        if not after.isfinite().any():
            assert shown["words"].startswith("Every token is banned")
            all_banned += 1
            continue
        p, q = before.double().softmax(-1), after.double().softmax(-1)
        if state["sign"] == "by-sign":
            settings = {name: state[name] for name in OFF if name.endswith(("penalty", "size"))}
            answer = page.evaluate(RUN, [source, settings, text, length])
            ids = torch.tensor(answer["ids"])
            assert torch.equal(ids.sort().values, after.isfinite().nonzero()[:, 0]), state
            assert torch.equal(torch.tensor(answer["z"]), after[ids]), state  # bit for bit
            assert torch.allclose(torch.tensor(answer["p"], dtype=torch.float64), q[ids], rtol=0, atol=1e-6), state
            order = after.argsort(descending=True, stable=True)
            assert torch.equal(ids, order[: len(ids)])
        named = [line for line in shown["rows"] if line[1]]
        assert {int(line[1]) for line in named} >= {int(before.argmax()), int(after.argmax())}
        for token, i, in_prompt, in_answer, z, penalised, was, now in named:
            i = int(i)
            assert token == tokens[i]
            assert (int(in_prompt), int(in_answer)) == (text[:length].count(i), text[length:].count(i))
            assert float(z) == pytest.approx(float(before[i]), abs=1e-5)
            assert float(penalised) == pytest.approx(float(after[i]), rel=1e-6, abs=1e-5)
            assert float(was) == pytest.approx(float(p[i]), abs=1e-6)
            assert float(now) == pytest.approx(float(q[i]), abs=1e-6)
        for column in (6, 7):
            assert sum(float(line[column]) for line in shown["rows"]) == pytest.approx(1, abs=1e-9)
        changed = int((before != after).sum())
        assert shown["words"].startswith(f"{changed:,} of {len(tokens):,} logits" if changed else "No logit changes")
        banned = len(tokens) - int(after.isfinite().sum())
        assert (f", {banned} to −∞" in shown["words"]) == (banned > 0)
    assert all_banned > 0


def test_division_whatever_the_sign(page):
    """The code of the CTRL paper lifts a token of negative logit; the figure says by how much."""
    mount(page, PenaltyExplorer(source="toy-loop", repetition_penalty=2.0, frequency_penalty=0.0))
    right = {line[0]: float(line[5]) for line in page.evaluate("probe.read()")["rows"]}
    wrong = {line[0]: float(line[5]) for line in set_state(page, sign="divide")["rows"]}
    assert right == {"␣cat": 1, "␣mat": 1.5, "␣sat": 0.25, "␣on": -1, "␣the": -2}
    assert wrong == {"␣cat": 1, "␣mat": 1.5, "␣sat": 0.25, "␣on": -0.25, "␣the": -0.5}


@pytest.mark.smollm2
def test_the_looping_text_is_smollm2s_own(smollm2):
    """The answer in the source "loop" is what the model says greedily after its prompt."""
    model, tokenizer = smollm2
    source = distributions.entry("sources", "loop")
    ids = tokenizer.encode(source["prompt"])
    start = torch.tensor([ids[: source["prompt_length"]]])
    made = generate(model, start, max_new_tokens=len(ids) - start.size(1), params=SamplingParams(temperature=0))
    assert made.token_ids[0].tolist() == ids
    assert distributions.real()["prompts"]["loop"] == ids
    for name in ("script", "records"):  # all prompt
        source = distributions.entry("sources", name)
        assert len(tokenizer.encode(source["prompt"])) == source["prompt_length"]


def chips(page):
    """The text as it stands: `(token, in the prompt)`, and which one is chosen."""
    buttons = page.locator(".nt-history button")
    made = buttons.evaluate_all("nodes => nodes.map((n) => [n.textContent, n.className === 'nt-prompt'])")
    pressed = buttons.evaluate_all("nodes => nodes.findIndex((n) => n.getAttribute('aria-pressed') === 'true')")
    return [token for token, _ in made], sum(prompt for _, prompt in made), pressed


def test_editing_by_keyboard(show):
    """Arrows choose a token, with shift they move it, Delete takes it out; Tab enters the text once."""
    page = show(PenaltyExplorer(source="toy-loop").to_html())
    first = "␣the ␣cat ␣sat ␣on ␣the ␣cat ␣the ␣cat ␣the".split()
    assert chips(page) == (first, 4, 8)
    page.locator(".nt-history button[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert chips(page)[2] == 1
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_function("document.querySelectorAll('.nt-history button')[1].textContent === '␣sat'")
    assert chips(page)[2] == 2 and chips(page)[0][:4] == ["␣the", "␣sat", "␣cat", "␣on"]
    page.keyboard.press("Delete")
    page.wait_for_function("document.querySelectorAll('.nt-history button').length === 8")
    assert chips(page) == (["␣the", "␣sat", "␣on", *first[4:]], 3, 2)  # one of the prompt is gone
    assert page.evaluate("document.activeElement.closest('.nt-history') !== null")  # the focus stays in the text
    for _ in range(8):
        page.keyboard.press("Backspace")
        page.wait_for_timeout(20)
    assert chips(page)[0] == [] and "No logit changes" in page.locator(".nt-readout").text_content()
    page.get_by_role("button", name="First text").click()
    page.wait_for_function("document.querySelectorAll('.nt-history button').length === 9")
    assert page.get_by_role("button", name="First text").is_disabled()
    assert page.log.complaints == []


def test_editing_by_mouse(show):
    """The same with buttons; a word of the list is added at the end, as answer; a slider moves the prompt's end."""
    page = show(PenaltyExplorer(source="toy-loop", frequency_penalty=1.0, repetition_penalty=1.0).to_html())
    page.locator(".nt-vocabulary button", has_text="mat").click()
    page.wait_for_function("document.querySelectorAll('.nt-history button').length === 10")
    assert chips(page)[0][-1] == "␣mat" and chips(page)[1:] == (4, 9)
    page.get_by_role("button", name="← earlier").click()
    page.wait_for_function("document.querySelectorAll('.nt-history button')[8].textContent === '␣mat'")
    page.locator(".nt-history button").nth(0).click()
    assert page.get_by_role("button", name="← earlier").is_disabled()
    page.get_by_role("button", name="Remove").click()
    page.wait_for_function("document.querySelectorAll('.nt-history button').length === 9")
    assert chips(page)[1] == 3
    slider = page.get_by_label("prompt, tokens", exact=True)
    slider.focus()
    page.keyboard.press("End")
    page.wait_for_function("document.querySelector('.nt-readout').textContent.startsWith('No logit changes')")
    assert chips(page)[1] == 9
    assert page.log.complaints == []


def test_keyboard_reaches_every_control(show):
    """Tab stops at everything that can be used, once in the text, and each stop has a name."""
    page = show(PenaltyExplorer(source="toy-loop", history=[0, 1, 0], prompt_length=1).to_html())
    check_tab_stops(page)


def test_presets_make_their_point(page):
    """Each is marked while shown, and its sentence says what its name says."""
    mount(page, PenaltyExplorer(source="toy-loop"))
    for name, words in [
        ("a loop, broken", r"“␣ever” goes from \d"),
        ("a dialogue, broken", r"1 to −∞. “:” goes from 99\.\d+.% to 0; now"),
        ("JSON, broken", r"“age” goes from 96\.\d+.% to .*; now “gender” is the likeliest"),
        ("repetition counts the prompt", "4 of 5 logits change"),
        ("frequency does not", "No logit changes"),
        ("the wrong sign", "4 of 5 logits change"),
    ]:
        assert re.search(words, press_preset(page, name)), name


def test_resets(page):
    """The arrow of each slider takes its penalty off, and gives the prompt its first length back."""
    state = {"repetition_penalty": 1.5, "frequency_penalty": 0.7, "presence_penalty": -0.3, "no_repeat_ngram_size": 3}
    mount(page, PenaltyExplorer(source="toy-loop", prompt_length=2, **state))
    for button in page.locator(".nt-reset").all():
        button.click()
        page.wait_for_timeout(30)
    assert set_state(page)["words"].startswith("No logit changes: “␣cat” is the likeliest next token")
    assert chips(page)[1] == 4
    assert page.locator(".nt-reset:disabled").count() == 5


def test_hostile_text_stays_text(page):
    """A token that looks like HTML is shown, not run."""
    page.evaluate(
        "(hostile) => { nextToken.catalogue.sources.find((s) => s.name === 'toy-loop').tokens[1] = hostile; }", HOSTILE
    )
    mount(page, PenaltyExplorer(source="toy-loop"))
    assert HOSTILE in page.locator(".nt-history").text_content()
    check_nothing_ran(page)


def test_defaults_need_no_state(show):
    """A figure written by hand into a page shows what Python's does."""
    page = show('<div class="nt-explorer" data-explorer="penalties"></div>', PenaltyExplorer().to_html())
    words = page.locator(".nt-readout").all_text_contents()
    assert words[0] == words[1] and "“␣ever” goes from" in words[0]
    assert page.log.complaints == [] and page.log.outside == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_fits(show, width, dark):
    """Not wider than the screen, and nothing hangs out of the figure."""
    figures = (PenaltyExplorer(), PenaltyExplorer(source="records", no_repeat_ngram_size=2))
    page = show(*(figure.to_html() for figure in figures), width=width, dark=dark)
    check_fits(page, width)
    assert page.evaluate(CUT) == []  # heads and numbers; a long token may end in an ellipsis
    assert all(page.evaluate(GAPS))


def test_sentence_of_a_bound_pipeline():
    """The figure's Python is `SamplingParams` bound to the prompt: no rule of its own, but for the wrong sign."""
    explorer = PenaltyExplorer(source="toy-loop", repetition_penalty=1.3, frequency_penalty=0.4, no_repeat_ngram_size=4)
    ids, length = explorer.text()
    params = SamplingParams(repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0, no_repeat_ngram_size=4)
    before, after = explorer.penalised()
    assert torch.equal(apply(bind(params.pipeline(), length), ids, before[None])[0], after)
    assert math.isinf(float(after[1]))  # "the cat the cat the": a third "cat" is banned
