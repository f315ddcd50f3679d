"""The order lab in Chromium against `minigpt`: kept sets of four orders, moving by mouse and by keyboard, words."""

import json
import math
import random

import pytest
import torch
from figures import (
    HOSTILE,
    check_fits,
    check_nothing_ran,
    check_rendered_once,
    check_tab_stops,
    kept,
    press_preset,
    random_temperature,
    random_value,
    sources,
)

from minigpt import SamplingParams
from minigpt.explorers import OrderExplorer, distributions
from minigpt.explorers.order import CARDS
from minigpt.sampling import ORDERS, RULES, apply

FIGURES = (OrderExplorer,)
SETTINGS = 120  # random ones, each under three engines' orders and one of the reader's
SEED = 5
COLUMNS = ("huggingface", "vllm", "llama.cpp", "yours")

LAB = """
globalThis.lab = {
  // Besides what every figure shows: the marked rows, the stages of each order, the cards in their order.
  read: () => {
    const text = (node) => node.textContent, all = (query, from = probe.figure) => [...from.querySelectorAll(query)];
    return {
      ...probe.read(),
      grid: all(".nt-orders tbody tr").map((line) => [...line.cells].map((cell) => cell.className)),
      lanes: all(".nt-lanes ol").map((lane) => all("li", lane).map((stage) => [...stage.children].map(text))),
      cards: all(".nt-handle").map((handle) => handle.lastChild.textContent),
    };
  },
  async set(changes) {
    await probe.set(changes);
    return lab.read();
  },
};
"""


@pytest.fixture
def page(page):
    """A page whose labs can be read."""
    page.evaluate(LAB)
    return page


def mount(page, **traits):
    """Mount a lab that the tests can look into."""
    page.evaluate("([name, state]) => probe.mount(name, state)", ["order", OrderExplorer(**traits).state])
    return page.evaluate("lab.read()")


def value_of(pick, rule):
    """A legal value of a card's slider, or anything near it."""
    if rule == "temperature":
        return random_temperature(pick)
    if rule == "repetition_penalty":
        return pick.choice((1, 1.1, pick.uniform(0.5, 2)))
    return random_value(pick, next(m for m in distributions.catalogue()["methods"] if m["setting"] == rule))


def text_before(source):
    """Ids of the source's prompt, (1, P)."""
    return torch.tensor([distributions.real()["prompts"].get(source, [])], dtype=torch.int64)


def by_engine(settings, engine):
    """The processors of a request with these settings, without what the engine lacks."""
    known = {name: value for name, value in settings.items() if name in ORDERS[engine]}
    return SamplingParams(**known, order=engine).pipeline()


def by_reader(settings, order):
    """The processors in any order at all; temperature 0 is greedy wherever it stands."""
    if settings.get("temperature") == 0:
        order = ["repetition_penalty", "temperature"]
    return [RULES[name](settings[name]) for name in order if name in settings]


def expected(processors, source):
    """Kept (V,) bool and probabilities (V,), and the number of tokens alive after each processor."""
    logits, counts = distributions.distribution(source)[1][None], []
    for processor in processors:
        logits = apply([processor], text_before(source), logits)
        counts.append(int(logits.isfinite().sum()))
    return logits[0].isfinite(), logits[0].double().softmax(-1), counts


def test_orders_are_minigpts(page):
    """Random settings, sources and orders: all four kept sets, every number of the table, the counts of each stage."""
    mount(page, source="toy")
    pick, differing = random.Random(SEED), 0
    for _ in range(SETTINGS):
        source, own = pick.choice(sources()), pick.sample(CARDS, len(CARDS))
        settings = {rule: value_of(pick, rule) for rule in CARDS if pick.random() < 0.4}
        state = {"source": source, "settings": settings, "order": own}
        shown = page.evaluate("(state) => lab.set(state)", state)
        tokens, logits = distributions.distribution(source)
        before = logits.double().softmax(-1)
        pipelines = {engine: by_engine(settings, engine) for engine in ORDERS} | {"yours": by_reader(settings, own)}
        results = {name: expected(processors, source) for name, processors in pipelines.items()}
        for column, name in enumerate(COLUMNS):
            alive, probs, counts = results[name]
            order = [rule for rule in ORDERS.get(name, own) if rule in CARDS]
            ids, p, _ = kept(page, source=source, settings=settings, order=order)
            assert torch.equal(ids.sort().values, alive.nonzero()[:, 0]), (name, settings)
            assert torch.allclose(p, probs[ids], rtol=0, atol=1e-6), (name, settings)
            *lines, count, mass = [(line[:3], line[3 + column]) for line in shown["rows"]]
            assert (count[0][0], int(count[1])) == ("tokens kept", int(alive.sum()))
            assert float(mass[1]) == pytest.approx(float(before[alive].sum()), abs=1e-6)
            for (text, i, p_before), cell in lines:
                if not i:  # all others
                    continue
                i = int(i)
                assert (text, cell == "cut") == (tokens[i], not alive[i]), (name, settings)
                assert float(p_before) == pytest.approx(float(before[i]), abs=1e-6)
                assert cell == "cut" or float(cell) == pytest.approx(float(probs[i]), abs=1e-6)
            assert sum(float(cell) for _, cell in lines if cell != "cut") == pytest.approx(1, abs=1e-6)
            left = [int(stage[1].replace(",", "")) for stage in shown["lanes"][column] if len(stage) == 2]
            if settings.get("temperature") != 1:  # which SamplingParams leaves out
                assert left == counts, (name, settings)
        differing += check_words(shown, settings, results, tokens)
    assert differing > SETTINGS / 3


def check_words(shown, settings, results, tokens):
    """The sentence and the marked rows fit the sets; gives whether they differ."""
    votes = torch.stack([alive for alive, _, _ in results.values()]).sum(0)
    differ = int(((votes > 0) & (votes < len(COLUMNS))).sum())
    if settings.get("temperature") == 0:
        assert "truncation is skipped" in shown["words"] and differ == 0
    elif differ:
        numbers = [int(alive.sum()) for alive, _, _ in results.values()]
        assert shown["words"].startswith(f"transformers keeps {numbers[0]:,} of {len(tokens):,} tokens")
        assert (
            f"vLLM {numbers[1]:,}, llama.cpp {numbers[2]:,}, your order {numbers[3]:,}; {differ:,} token"
            in (shown["words"])
        )
    else:
        assert f"All four orders keep the same {int(votes.count_nonzero()):,} of {len(tokens):,}" in shown["words"]
    for engine, label in zip(ORDERS, ("transformers", "vLLM", "llama.cpp"), strict=True):
        lacks = any(rule not in ORDERS[engine] for rule in settings)
        assert (f" {label} has no " in shown["words"]) == (lacks and settings.get("temperature") != 0)
    if not differ:
        assert not any(len(set(row[2:])) > 1 for row in shown["grid"][:-1])
    return bool(differ)


@pytest.mark.parametrize(
    ("preset", "counts"),
    [("one token or two", [1, 1, 2, 1]), ("eleven or one", [11, 11, 1, 11]), ("hot, with three cuts", [6, 4, 2, 6])],
)
def test_presets_make_their_point(page, preset, counts):
    """Temperature before or after the cut: the two hand-made cases and a real one; the preset is marked."""
    mount(page, source="toy")
    press_preset(page, preset)
    assert [int(n) for n in page.evaluate("lab.read()")["rows"][-2][3:]] == counts


def test_temperature_last_is_llamas(page):
    """Moving the temperature to the end by keyboard turns the reader's set into llama.cpp's: {0, 1} instead of {0}."""
    mount(page, source="toy-three", settings={"temperature": 0.5, "top_p": 0.8})
    assert [line[3:] for line in page.evaluate("lab.read()")["rows"][-2:]][0] == ["1", "1", "2", "1"]
    page.locator(".nt-handle", has_text="temperature").focus()
    page.keyboard.press("End")
    shown = page.evaluate("lab.set({})")
    assert shown["rows"][-2][3:] == ["1", "1", "2", "2"] and shown["cards"][-1] == "temperature"
    assert [cells[2:] for cells in shown["grid"]] == [
        ["nt-in"] * 4,
        ["nt-out", "nt-out", "nt-in", "nt-in"],
        ["nt-out"] * 4,
    ]


def drag(page, name, over):
    """Drag a card by its name onto another."""
    boxes = [page.locator(".nt-handle", has_text=text).bounding_box() for text in (name, over)]
    (x, y), (to_x, to_y) = [(box["x"] + 20, box["y"] + 10) for box in boxes]
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 9):
        page.mouse.move(x + (to_x - x) * step / 8, y + (to_y - y) * step / 8)
    page.mouse.up()


def test_mouse_and_keyboard_give_the_same_order(page):
    """Cards dragged and cards moved with arrows end in the same place, with the same kept sets."""
    pick = random.Random(SEED)
    for _ in range(6):
        start = pick.sample(CARDS, len(CARDS))
        name, over = pick.sample(range(len(CARDS)), 2)
        settings = {"temperature": 1.5, "top_k": 40, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.9}
        ends = []
        for way in ("mouse", "keyboard"):
            page.evaluate("() => probe.dispose?.()")
            cards = mount(page, source="capital", settings=settings, order=start)["cards"]
            if way == "mouse":
                drag(page, cards[name], cards[over])
            else:
                page.locator(".nt-handle", has_text=cards[name]).focus()
                for _ in range(abs(over - name)):
                    page.keyboard.press("ArrowRight" if over > name else "ArrowLeft")
            ends.append(page.evaluate("lab.set({})"))
            moved = list(start)
            moved.insert(over, moved.pop(name))
            assert page.evaluate("probe.model.get('order')") == moved
        assert ends[0] == ends[1]
        alive, *_ = expected(by_reader(settings, moved), "capital")
        assert int(ends[0]["rows"][-2][6]) == int(alive.sum())


def test_keyboard_moves_and_says_so(page):
    """Arrows, Home and End move the card that has the focus, which stays on it; a polite voice says where it is."""
    mount(page, source="toy")
    handle = page.locator(".nt-handle", has_text="top-k")
    handle.focus()
    spoken = page.locator("[aria-live=assertive]")
    for key, place, words in [
        ("ArrowLeft", 2, "top-k is now at place 2 of 9, after repetition, before temperature."),
        ("ArrowDown", 3, "after temperature, before top-p."),
        ("Home", 1, "top-k is now at place 1 of 9, before repetition."),
        ("ArrowUp", 1, "at place 1 of 9"),
        ("End", 9, "top-k is now at place 9 of 9, after top-nσ."),
    ]:
        page.keyboard.press(key)
        assert words in spoken.text_content()
        assert handle.get_attribute("aria-label").startswith(f"top-k, place {place} of 9")
        assert page.evaluate("document.activeElement.lastChild.textContent") == "top-k"


def test_engines_order_the_cards(page):
    """A chip shows an engine's order and what it lacks; moving a card then makes that order the reader's own."""
    mount(page, source="toy", settings={"temperature": 2.0, "typical_p": 0.5, "top_p": 0.9})
    page.get_by_text("vLLM", exact=True).first.click()
    shown = page.evaluate("lab.set({})")
    assert shown["cards"][:5] == ["repetition", "temperature", "min-p", "top-k", "top-p"]
    assert page.locator(".nt-card", has_text="typical").locator(".nt-note").text_content() == "not in vLLM"
    assert shown["lanes"][1][-1] == ["no typical"] and len(shown["lanes"][2]) == 3
    page.locator(".nt-handle", has_text="min-p").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("[probe.model.get('shown'), probe.model.get('order').slice(0, 5)]") == [
        "yours",
        ["repetition_penalty", "temperature", "top_k", "min_p", "top_p"],
    ]


def test_switches_remember_and_reset_restores(page):
    """A rule switched off and on again has its value; Reset brings the first state back."""
    first = mount(page, source="capital")
    switch = page.get_by_label("use top-k")
    page.get_by_label("top-k k", exact=True).fill("100")
    value = page.evaluate("probe.model.get('settings').top_k")
    assert value != 50
    switch.uncheck()
    assert "top_k" not in page.evaluate("lab.set({}) && probe.model.get('settings')")
    switch.check()
    assert page.evaluate("probe.model.get('settings').top_k") == value
    page.locator(".nt-handle", has_text="min-p").focus()
    page.keyboard.press("Home")
    page.evaluate("probe.press('Reset')")
    assert page.evaluate("lab.set({})") == first


def test_hostile_text_stays_text(page):
    """A token that looks like HTML is shown, not run."""
    source = {"name": "hostile", "label": HOSTILE, "tokens": [HOSTILE, HOSTILE + "2"], "logits": [1, 0]}
    state = {**OrderExplorer().state, "source": "hostile", "settings": {"top_k": 1}}
    page.evaluate("(source) => { nextToken.catalogue.sources.push(source); }", source)
    page.evaluate("(state) => probe.mount('order', state)", state)
    assert page.locator(".nt-orders tbody th").first.text_content() == HOSTILE
    check_nothing_ran(page)


def test_keyboard_reaches_every_control(show):
    """Tab stops at everything that can be used, each has a name."""
    check_tab_stops(show(OrderExplorer(source="toy").to_html()))


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_fits(show, width, dark):
    """No wider than the screen, no text outside, no complaint."""
    rules = {"temperature": 1.5, "top_k": 5000, "typical_p": 0.95, "epsilon": 1e-5, "repetition_penalty": 1.25}
    page = show(
        OrderExplorer().to_html(), OrderExplorer(source="chat", settings=rules).to_html(), width=width, dark=dark
    )
    check_fits(page, width, nodes="span, b, li, td, button, output, label")
    assert page.log.complaints == []


def test_one_figure_after_three_renderings(page):
    """No listener and no node is left behind."""
    check_rendered_once(page, OrderExplorer(source="toy"))


def test_state_is_json():
    """What a page carries is the traits, and no number that JSON lacks."""
    lab = OrderExplorer(source="toy-sure", settings={"temperature": 2, "min_p": 0.05})
    assert json.loads(json.dumps(lab.state, allow_nan=False)) == lab.state
    with pytest.raises(ValueError, match="temperature=nan must be"):
        OrderExplorer(settings={"temperature": math.nan})
