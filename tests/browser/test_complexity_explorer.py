"""The complexity chart in Chromium against `minigpt.costs`: every FLOP of random settings, what is said and drawn."""

import math
import random

import pytest
from figures import (
    HOSTILE,
    check_fits,
    check_nothing_ran,
    check_rendered_once,
    check_tab_stops,
    mount,
    press_preset,
    set_state,
)

from minigpt.costs import decode_flops, generation_flops, tokens_through_model
from minigpt.explorers import ComplexityExplorer
from minigpt.explorers.complexity import plain_shape
from minigpt.shapes import MODELS

FIGURES = (ComplexityExplorer,)
SETTINGS = 120  # random ones
SEED = 9
EXACT = 1e-12  # relative: beyond 2**53 a number of the browser has no last digits
SIDES = {"naive": False, "cached": True}
DEFAULT = "prompt of 183, 64 new"

# What is drawn: places of the marks on the logarithmic axis, as powers of ten, and the rows of counts.
DRAWN = """() => {
  const at = (node, name) => Number(node.getAttribute(name));
  const [top, bottom] = ((all) => [all.at(-1), all[0]])([...probe.figure.querySelectorAll("[data-power]")]);
  const power = (y) => Number(bottom.dataset.power)
    + ((at(bottom, "y") - 3.5 - y) * (top.dataset.power - bottom.dataset.power)) / (at(bottom, "y") - at(top, "y"));
  const of = (kind, f) =>
    Object.fromEntries([...probe.figure.querySelectorAll(kind)].map((node) => [node.dataset.side, f(node)]));
  return {
    dots: of(".nt-cost-dot", (node) => power(at(node, "cy"))),
    passes: of(".nt-cost-passes", (node) => Number(node.dataset.n)),
    counts: Object.fromEntries([...probe.figure.querySelectorAll("[data-count]")].map((row) =>
      [row.dataset.count, [...row.querySelectorAll("td")].map((cell) => cell.textContent)])),
  };
}"""


def random_settings(pick):
    """A model or sizes of one's own; lengths spread evenly on a log scale, at either end now and then."""
    length = lambda top: pick.choice((1, 2, round(math.exp(pick.uniform(0, math.log(top))))))  # noqa: E731
    known = ComplexityExplorer().state["models"]
    return {
        "prompt": pick.choice((length(5000), length(100_000))),
        "new_tokens": pick.choice((length(3000), length(3000), length(3000), pick.randint(1, 12))),
        "model": pick.choice(("plain", "plain", *known)),
        "d_model": pick.choice((64, 16_384, pick.randint(64, 16_384))),
        "layers": pick.randint(1, 128),
        "convention": pick.choice(("full", "causal")),
    }


def shape_of(settings):
    """The `ModelShape` of some settings."""
    plain = settings["model"] == "plain"
    return plain_shape(settings["d_model"], settings["layers"]) if plain else MODELS[settings["model"]]


def expected(settings, N):
    """Side → tokens, linear, attention, both, by `minigpt.costs`."""
    P, sides = settings["prompt"], {}
    for side, cached in SIDES.items():
        f = generation_flops(shape_of(settings), P, N, cached=cached, convention=settings["convention"])
        tokens = tokens_through_model(P, N, cached=cached)
        sides[side] = [tokens, f.linear, f.attention, f.linear + f.attention]
    return sides


def number(text):
    """The value of a number as the figure writes it, such as `1.23 × 10⁴` or `12,345`."""
    digits = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
    mantissa, _, power = text.replace("\u00a0", "").replace(",", "").translate(digits).partition("×10")
    return float(mantissa) * 10 ** int(power or 0)


def test_numbers_are_those_of_costs(page):
    """Random settings: the line of the table, the counts, the sentence and the dots of the chart."""
    mount(page, ComplexityExplorer())
    pick, plain = random.Random(SEED), 0
    for _ in range(SETTINGS):
        settings = random_settings(pick)
        N, shown = settings["new_tokens"], set_state(page, **settings)
        right, drawn = expected(settings, N), page.evaluate(DRAWN)
        (line,) = [[float(cell) for cell in row] for row in shown["rows"] if row[0] == str(N)]
        assert line[1:9] == pytest.approx([*right["naive"], *right["cached"]], rel=EXACT), settings
        assert [line[1], line[5]] == [right["naive"][0], right["cached"][0]]
        ratios = [a / b for a, b in zip(right["naive"], right["cached"], strict=True)]
        assert line[9:] == pytest.approx(ratios[1:], rel=1e-5)
        for i, row in enumerate(drawn["counts"].values()):
            naive, cached, times = map(number, row)
            assert [naive, cached] == pytest.approx([right[side][i] for side in SIDES], rel=5.01e-3, abs=0.5)
            assert times == pytest.approx(ratios[i], abs=0.0501 if ratios[i] < 999 else 0.501)
        for side in SIDES:
            assert drawn["dots"][side] == pytest.approx(math.log10(right[side][3]), abs=0.02)
        words = shown["words"].replace("\u00a0", " ")
        if N == 1:
            assert words.startswith("One new token is the prefill alone") and ratios == [1, 1, 1, 1]
        else:
            tokens, linear, attention, both = (row[2] for row in drawn["counts"].values())
            assert words.startswith(f"Without the cache {tokens} times as many tokens go through the model")
            assert f"{right['naive'][0]:,} against {right['cached'][0]:,}." in words
            assert f"linear layers cost {linear} times the FLOPs, attention {attention} times (" in words
            assert f"both together {both} times" in words
        assert ("(full square)" in words) == (N > 1 and settings["convention"] == "full")
        plain += settings["model"] == "plain"
    assert 10 < plain < SETTINGS - 10


@pytest.mark.parametrize(("model", "convention"), [("Llama-3-70B", "full"), ("Mistral-7B", "causal")])
def test_the_longest_generation(page, model, convention):
    """At the ends of both sliders the closed forms still are the sums of `minigpt.costs`, with a window and without."""
    settings = {"prompt": 100_000, "new_tokens": 100_000, "model": model, "convention": convention}
    line = [float(cell) for cell in mount(page, ComplexityExplorer(**settings))["rows"][-1]]
    right = expected(settings, 100_000)
    assert line[:9] == pytest.approx([100_000, *right["naive"], *right["cached"]], rel=EXACT)


def test_where_attention_overtakes(page):
    """The marks are the first N at which attention costs what the linear layers do; so is the balance of one step."""
    mount(page, ComplexityExplorer())
    pick, found = random.Random(SEED), 0
    for _ in range(20):
        settings = random_settings(pick) | {"d_model": pick.choice((64, 96, 128, 256)), "prompt": pick.randint(1, 300)}
        settings["model"] = pick.choice(("plain", "plain", "MiniGPT", "Mistral-7B"))
        words = set_state(page, **settings)["words"].replace("\u00a0", " ")
        marks, shape = page.evaluate(DRAWN)["passes"], shape_of(settings)
        for side, N in marks.items():
            if N <= 4000:  # by a sum over passes: short enough to wait for
                for n, more in ((N - 1, False), (N, True)):
                    _, linear, attention, _ = expected(settings, n)[side]
                    assert (attention >= linear) == more, (settings, side, n)
                found += 1
            assert f"N = {N:,}" in words
        if "One decode step never does" in words:
            assert decode_flops(shape, shape.window).attention < decode_flops(shape, shape.window).linear
        else:
            S = int(words.split("once it sees ")[1].split(" ")[0].replace(",", ""))
            before, now = decode_flops(shape, S - 1), decode_flops(shape, S)
            assert before.attention < before.linear and now.attention >= now.linear
    assert found > 10


def test_known_numbers(page):
    """The answer key: 246 tokens against 13,728; 500.5, 667 and 334 times for a thousand tokens from one."""
    words = mount(page, ComplexityExplorer())["words"]
    assert "Without the cache 55.8 times as many tokens go through the model: 13,728 against 246." in words
    for convention, times in (("full", "667.0 times (full square)"), ("causal", "334.0 times (causal pairs)")):
        words = set_state(page, prompt=1, new_tokens=1000, convention=convention)["words"]
        assert f"The linear layers cost 500.5 times the FLOPs, attention {times}" in words


def test_a_planted_fault_is_seen(page):
    """A last token that is fed back, and causal pairs taken for the full square, are not what costs says."""
    mount(page, ComplexityExplorer())
    settings = {"prompt": 9, "new_tokens": 20, "model": "plain", "d_model": 64, "layers": 2, "convention": "full"}
    right = expected(settings, 20)["naive"][2]
    ask = """([P, N, convention]) => nextToken.flops.generation(
      { shape: nextToken.flops.plain(64, 2), P, N, cached: false, convention }).attention"""
    assert page.evaluate(ask, [9, 20, "full"]) == right
    assert page.evaluate(ask, [9, 21, "full"]) != right and page.evaluate(ask, [9, 20, "causal"]) != right


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (DEFAULT, "13,728 against 246"),
        ("1,000 from one token", "attention 667.0 times (full square)"),
        ("the same, causal pairs", "attention 334.0 times (causal pairs)"),
        ("the prefill saves nothing", "One new token is the prefill alone, the same with a cache and without"),
        ("attention overtakes", "at N = 9,215 with the cache, at N = 13,822 without. One decode step does so"),
        ("a wide model", "once it sees 52,224 tokens"),
        ("a window of 4,096", "nowhere on this chart, with the cache and without. One decode step never does"),
    ],
)
def test_presets_make_their_point(page, name, words):
    """Each named state shows what its name says, is marked while it is shown, and is one that Python takes."""
    mount(page, ComplexityExplorer(prompt=2, new_tokens=3))
    assert words in press_preset(page, name).replace("\u00a0", " ")
    state = page.evaluate("probe.model.state")
    assert state.pop("models") == ComplexityExplorer().models
    ComplexityExplorer(**state)


def test_every_stop_of_every_slider_is_legal(page):
    """Each stop is a setting that Python takes, both ends are there, and the arrows bring the sliders home."""
    mount(page, ComplexityExplorer(model="plain"))
    script = """() => [...probe.figure.querySelectorAll("input[type=range]")].flatMap((slider) =>
      Array.from({ length: Number(slider.max) + 1 }, (_, i) => {
        slider.value = i;
        slider.dispatchEvent(new Event("input"));
        const { models, ...state } = probe.model.state;
        return state;
      }))"""
    seen = page.evaluate(script)
    for state in seen:
        ComplexityExplorer(**state)
    for name, ends in (("prompt", (1, 100_000)), ("new_tokens", (1, 100_000)), ("d_model", (64, 16_384))):
        assert {min(state[name] for state in seen), max(state[name] for state in seen)} == set(ends)
    assert {state["layers"] for state in seen} >= {1, 128}
    set_state(page)
    for label in ("prompt P", "new tokens N", "width d", "layers L"):
        page.get_by_label(f"Reset {label}").click()
    assert page.evaluate("probe.model.state") == ComplexityExplorer(model="plain").state


def test_sizes_of_ones_own_start_from_the_model(page):
    """A model shows its sizes; whoever moves one of them goes on with plain sizes, the other as it was."""
    mount(page, ComplexityExplorer())
    page.get_by_label("model", exact=True).select_option("Llama-3-8B")
    set_state(page)
    outputs = page.locator("output")
    assert outputs.all_text_contents() == ["183", "64", "4,096", "32"]
    page.get_by_label("layers L", exact=True).press("ArrowRight")
    set_state(page)
    assert outputs.all_text_contents() == ["183", "64", "4,096", "48"]
    state = page.evaluate("probe.model.state")
    assert (state["model"], state["d_model"], state["layers"]) == ("plain", 4096, 48)
    page.get_by_text("causal pairs only", exact=True).click()
    assert "(causal pairs)" in set_state(page)["words"]


def test_every_control_by_tab(show):
    """Tab reaches every control, and each has a name."""
    assert check_tab_stops(show(ComplexityExplorer().to_html())) >= 14


def test_hostile_and_illegal_states_are_named(show):
    """A state written by hand into a page: defaults for what is missing, one notice for what is wrong, never run."""

    def by_hand(state):
        text = state.replace("<", "\\u003c")
        return (
            f'<div class="nt-explorer" data-explorer="complexity"><script type="application/json">{text}</script></div>'
        )

    hostile = HOSTILE.replace('"', "")
    states = ["{}", f'{{"model": "{hostile}"}}', '{"layers": 400}', '{"convention": "half"}', '{"model": "toString"}']
    page = show(*map(by_hand, states), by_hand(f'{{"models": {{"{hostile}": {{}}}}}}'))
    notices = page.locator(".nt-figure > .nt-notice").all_text_contents()
    assert notices[0] == "" and page.locator(".nt-readout").first.text_content().startswith("Without the cache 55.8")
    assert f"model={hostile} is not known" in notices[1] and "model=toString is not known" in notices[4]
    assert "layers=400 is not a whole number from 1 to 128" in notices[2]
    assert "convention=half is not known" in notices[3] and notices[5] == ""
    check_nothing_ran(page)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_fits(show, width, dark):
    """No figure is wider than the screen, at the largest and smallest settings too, and no two labels overlap."""
    largest = {"prompt": 100_000, "new_tokens": 100_000, "d_model": 16_384, "layers": 128}
    smallest = {"prompt": 1, "new_tokens": 1, "d_model": 64, "layers": 1}
    figures = [ComplexityExplorer(), *(ComplexityExplorer(model="plain", **sizes) for sizes in (largest, smallest))]
    page = show(*(figure.to_html() for figure in figures), width=width, dark=dark)
    page.add_style_tag(content="body { margin: 0 16px; }")  # about what a book's page leaves
    check_fits(page, width, nodes="span, b, button, output, label, input, text, circle, th, td")
    script = """() => [...document.querySelectorAll(".nt-cost-picture")].flatMap((picture) => {
      const frame = picture.getBoundingClientRect();
      const boxes = [...picture.querySelectorAll(".nt-cost-name, .nt-cost-side")].map((n) => n.getBoundingClientRect());
      const lines = boxes.map(({ top, bottom }) => (top + bottom) / 2).sort((a, b) => a - b);
      const close = lines.slice(1).some((y, i) => y - lines[i] < 0.75 * boxes[0].height);
      const outside = boxes.some((b) => b.right > frame.right || b.top < frame.top - 1 || b.bottom > frame.bottom + 1);
      return [boxes.length, close, outside];
    })"""
    assert page.evaluate(script) == [8, False, False] * 3
    assert page.log.complaints == [] and page.log.outside == []


def test_sides_and_kinds_look_different(page):
    """The sides differ in colour and name; linear layers, attention and both also in dash and thickness."""
    mount(page, ComplexityExplorer())
    script = """() => [...probe.figure.querySelectorAll(".nt-cost")].map((node) => {
      const { stroke, strokeDasharray, strokeWidth } = getComputedStyle(node);
      return [stroke, strokeDasharray, strokeWidth];
    })"""
    looks = page.evaluate(script)
    assert len(looks) == 6 and len(set(map(tuple, looks))) == 6
    assert len({look[0] for look in looks}) == 2 and len({tuple(look[1:]) for look in looks}) == 3


def test_rendering_again_leaves_one(page):
    """One figure and one listener a trait after three renderings, none after the last is removed."""
    check_rendered_once(page, ComplexityExplorer())
