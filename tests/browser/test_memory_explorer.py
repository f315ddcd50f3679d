"""The memory calculator in Chromium against `minigpt.costs` and `minigpt.shapes`."""

import json
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

from minigpt.costs import kv_bytes, users_that_fit, weight_bytes
from minigpt.explorers import MemoryExplorer
from minigpt.explorers.memory import ATTENTION, KV_BITS, WEIGHT_BITS
from minigpt.shapes import GPUS, MODELS

FIGURES = (MemoryExplorer,)
SETTINGS = 150
SEED = 10


# Where the mark of the model's own context stands, and the middle of the slider's thumb.
MARK = """() => {
  const mark = probe.figure.querySelector(".nt-own"), slider = mark.closest(".nt-slider").querySelector("input");
  const a = mark.getBoundingClientRect(), b = slider.getBoundingClientRect();
  return [a.left + a.width / 2, b.left + 9 + ((b.width - 18) * slider.value) / slider.max];
}"""


def random_settings(pick):
    """Every control somewhere in its whole range, lengths and users evenly on a log scale."""
    some = lambda most: pick.choice((1, most, round(math.exp(pick.uniform(0, math.log(most))))))  # noqa: E731
    choices = {"model": MODELS, "gpu": GPUS, "weights": WEIGHT_BITS, "kv": KV_BITS, "attention": ATTENTION}
    numbers = {"context": 2**20, "users": 1024, "groups": 160, "window": 2**20}
    return {
        **{name: pick.choice(list(among)) for name, among in choices.items()},
        **{name: some(most) for name, most in numbers.items()},
    }


def passing(shape, users, bits, weights):
    """Least tokens a user at which the caches take more than the weights, by bisection over `kv_bytes`, or None."""
    low, high = 0, 2**50 if shape.window is None else shape.window
    if kv_bytes(shape, high, users, bits=bits) <= weights:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        below = kv_bytes(shape, middle, users, bits=bits) <= weights
        low, high = (middle, high) if below else (low, middle)
    return high


def expected(settings):
    """The table's numbers: `(bytes, users that fit)` line by line, and where the cache passes the weights."""
    shape, context, users = MemoryExplorer(**settings).shape, settings["context"], settings["users"]
    bits = {"weight_bits": WEIGHT_BITS[settings["weights"]], "kv_bits": KV_BITS[settings["kv"]]}
    weights = weight_bytes(shape, bits=bits["weight_bits"])
    token, user, cache = (
        kv_bytes(shape, n, B, bits=bits["kv_bits"]) for n, B in ((1, 1), (context, 1), (context, users))
    )
    fit = [(round(gpu.memory_bytes), users_that_fit(shape, context, gpu.memory_bytes, **bits)) for gpu in GPUS.values()]
    lines = [*((n, "") for n in (weights, token, user, cache, weights + cache)), *fit]
    return lines, passing(shape, users, bits["kv_bits"], weights)


def check(rows, settings):
    """Every number of the table, to the byte."""
    lines, passes = expected(settings)
    *shown, last = rows
    assert [(int(row[1]), row[4]) for row in shown] == [(n, str(fit)) for n, fit in lines], settings
    for row in shown:
        assert float(row[2]) == pytest.approx(int(row[1]) / 2**30, abs=6e-4)
        assert float(row[3]) == pytest.approx(int(row[1]) / 1e9, abs=6e-4)
    assert last[1] == ("never" if passes is None else str(passes)), settings


def test_numbers_are_costs(page):
    """Bytes, users that fit and the passing point at random settings: exactly what Python says."""
    mount(page, MemoryExplorer())
    pick = random.Random(SEED)
    seen = []
    for _ in range(SETTINGS):
        settings = random_settings(pick)
        check(set_state(page, **settings)["rows"], settings)
        lines, passes = expected(settings)
        seen.append((settings["model"], settings["attention"], lines[-1][1] > 0, passes is None))
    assert {one[0] for one in seen} == set(MODELS) and {one[1] for one in seen} == set(ATTENTION)
    assert {one[2] for one in seen} == {one[3] for one in seen} == {True, False}
    assert page.locator(".nt-notice:visible").count() == 0


def test_a_planted_fault_is_seen(page):
    """Query heads in place of KV heads, and a window left out: the comparison with `costs` goes red."""
    mount(page, MemoryExplorer())
    for fault, traits in (({"n_kv_heads": 32}, {}), ({"window": None}, {"model": "Mistral-7B", "context": 32_768})):
        explorer = MemoryExplorer(**traits)
        settings = {name: value for name, value in explorer.state.items() if name != "facts"}
        check(set_state(page, **explorer.state)["rows"], settings)
        facts = json.loads(json.dumps(explorer.facts))
        facts["models"][explorer.model].update(fault)
        rows = set_state(page, **settings, facts=facts)["rows"]
        with pytest.raises(AssertionError):
            check(rows, settings)


@pytest.mark.parametrize(
    ("model", "n_bytes"),
    [
        ("LLaMA-7B", 524_288),
        ("Llama-3-8B", 131_072),
        ("Mistral-7B", 131_072),
        ("Llama-3-70B", 327_680),
        ("GPT-2 small", 36_864),
        ("SmolLM2-135M", 23_040),
        ("DeepSeek-V2", 69_120),
    ],
)
def test_bytes_a_token(page, model, n_bytes):
    """Known values at 16 bits, in the sentence and the table."""
    mount(page, MemoryExplorer(model=model))
    shown = page.evaluate("probe.read()")
    assert shown["words"].startswith(f"A token leaves {n_bytes:,} B in the cache")
    assert int(shown["rows"][1][1]) == n_bytes


def test_weights_of_another_attention(page):
    """Where only a model's total is known, another attention leaves the weights as they are, and the figure says so."""
    mount(page, MemoryExplorer(model="DeepSeek-V2"))
    before = page.evaluate("probe.read()")["rows"][0][1]
    assert set_state(page, attention="MHA")["rows"][0][1] == before
    assert "with its latent" in page.locator(".nt-hint").text_content()
    assert int(set_state(page, model="Llama-3-8B")["rows"][0][1]) > 2 * MODELS["Llama-3-8B"].n_params


def test_units(page):
    """4,096 tokens of LLaMA-7B are 2.00 GiB, which is 2.15 GB; a million of Llama-3-70B with MHA 2,560 GiB."""
    mount(page, MemoryExplorer(model="LLaMA-7B", context=4096, users=1))
    shown = page.evaluate("probe.read()")
    assert "A user with 4,096 tokens takes 2.00 GiB (2.15 GB)" in shown["words"]
    assert shown["rows"][2][1:4] == [str(2**31), "2.000", "2.147"]
    words = set_state(page, model="Llama-3-70B", context=2**20, attention="MHA")["words"]
    assert "2,560 GiB (2,749 GB)" in words and "128 times the model's own context" in words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("64 users in 80 GB", "80 GB (74.5 GiB): 4.78 GB too much, but 59 such users fit."),
        ("the same with MHA", "A token leaves 524,288 B in the cache (MHA)"),
        ("2 GiB a user", "A user with 4,096 tokens takes 2.00 GiB (2.15 GB), 4 users 8.00 GiB (8.59 GB)"),
        ("70B in 80 GB", "The weights alone are 1.76 times this GPU's 80 GB (74.5 GiB): not one user fits."),
        ("70B, 4-bit weights", "15 such users fit, room for 7 more."),
        ("a million tokens", "A user with 1,048,576 tokens takes 128 GiB (137 GB); the weights take 15.0 GiB"),
        ("a million, window of 4,096", "the cache holds the last 4,096. A user with 1,048,576 tokens takes 512 MiB"),
        ("a 2-bit cache", "3.0 a number, so the cache is 5.33 times smaller than at 16 bits, not 8."),
        ("MLA keeps a latent", "A token leaves 69,120 B in the cache (MLA): 60 layers · a latent of 576 numbers"),
    ],
)
def test_presets_make_their_point(page, name, words):
    """Each named state shows what its name says, is marked while it is shown, and is one that Python takes."""
    mount(page, MemoryExplorer(model="MiniGPT", kv="fp32", users=3, context=100))
    assert words in press_preset(page, name)
    assert "with its latent" not in page.locator(".nt-hint").text_content()
    state = page.evaluate("probe.model.state")
    MemoryExplorer(**{key: value for key, value in state.items() if key != "facts"})


def test_bars_are_to_scale(page):
    """Weights, a piece a user and the GPUs share one scale; users past the GPU's memory are hatched, not cool."""
    mount(page, MemoryExplorer())
    widths = """(name) => [...probe.figure.querySelectorAll(`[data-row="${name}"] .nt-mem-track i:not(.nt-mem-limit)`)]
      .map((node) => [node.className, parseFloat(node.style.left), parseFloat(node.style.width)])"""
    needed = page.evaluate(widths, "needed")
    kinds = [kind for kind, _, _ in needed]
    assert kinds == ["nt-mem-weights"] + 59 * ["nt-mem-kv"] + 5 * ["nt-mem-over"]
    lines, _ = expected({key: value for key, value in MemoryExplorer().state.items() if key != "facts"})
    weights, user, total, scale = lines[0][0], lines[2][0], lines[4][0], GPUS["H200"].memory_bytes
    assert needed[0][2] == pytest.approx(100 * weights / scale, abs=1e-3)  # a style keeps six digits
    for k, (_, left, width) in enumerate(needed[1:]):
        assert (left, width) == pytest.approx((100 * (weights + k * user) / scale, 100 * user / scale), abs=1e-3)
    assert needed[-1][1] + needed[-1][2] == pytest.approx(100 * total / scale, abs=1e-3)
    for name, gpu in GPUS.items():
        assert page.evaluate(widths, name) == [
            ["nt-mem-gpu", 0, pytest.approx(100 * gpu.memory_bytes / scale, abs=1e-3)]
        ]
    set_state(page, model="Llama-3-70B", users=65)  # weights larger than the GPU, users as one piece
    needed = page.evaluate(widths, "needed")
    assert [kind for kind, _, _ in needed] == ["nt-mem-weights", "nt-mem-over", "nt-mem-over"]
    assert needed[-1][1] + needed[-1][2] == pytest.approx(100, abs=1e-3)  # the largest thing drawn
    looks = """(kind) => { const style = getComputedStyle(probe.figure.querySelector(`.nt-key .${kind}`));
      return [style.backgroundImage.includes("gradient"), parseFloat(style.borderRadius) > 0]; }"""
    kinds = ("nt-mem-weights", "nt-mem-kv", "nt-mem-over")
    assert [page.evaluate(looks, kind) for kind in kinds] == [[False, False], [False, True], [True, False]]


def test_every_stop_of_every_slider_is_legal(page):
    """Each stop is a setting that Python takes; the model's own context is one, and its mark stands under it."""
    script = """() => [...probe.figure.querySelectorAll("input[type=range]")].flatMap((slider) =>
      Array.from({ length: Number(slider.max) + 1 }, (_, i) => {
        slider.value = i;
        slider.dispatchEvent(new Event("input"));
        const { facts, ...own } = probe.model.state;
        return own;
      }))"""
    for model in MODELS:
        mount(page, MemoryExplorer(model=model, attention="GQA"))
        seen = page.evaluate(script)
        for state in seen:
            MemoryExplorer(**state)
        assert {MODELS[model].context_length, 128, 2**20} <= {state["context"] for state in seen}
        assert {state["users"] for state in seen} >= {1, 2, 3, 1024}
        heads = MODELS[model].n_heads
        assert {n for n in range(1, heads + 1) if heads % n == 0} <= {state["groups"] for state in seen}
        page.evaluate("probe.figure.querySelector('[aria-label=\"Reset tokens a user\"]').click()")
        assert page.evaluate("probe.model.get('context')") == MODELS[model].context_length
        where = page.evaluate(MARK)
        assert where[0] == pytest.approx(where[1], abs=1)
        page.evaluate("probe.dispose()")


def test_controls_and_reset(show):
    """Each control changes what its label says, arrows bring sliders home, and only the slider in use is shown."""
    page = show(MemoryExplorer().to_html())
    words = page.locator(".nt-readout")
    for label, option in (
        ("model", "Qwen3-4B"),
        ("GPU", "RTX 4090"),
        ("weights", "4-bit"),
        ("keys and values", "8-bit"),
    ):
        page.get_by_label(label, exact=True).select_option(option)
    assert words.text_content().startswith("A token leaves 73,728 B in the cache (GQA)")
    assert page.locator(".nt-mem-chosen").get_attribute("data-row") == "RTX 4090"
    assert not page.get_by_label("KV heads", exact=True).is_visible()
    page.get_by_label("attention as it is").focus()
    page.keyboard.press("ArrowRight")
    assert "(MHA): 2 · 36 layers · 32 KV heads" in words.text_content()
    page.keyboard.press("ArrowRight")
    heads = page.get_by_label("KV heads", exact=True)
    heads.focus()
    page.keyboard.press("Home")
    assert "(MQA): 2 · 36 layers · 1 KV head" in words.text_content()
    page.get_by_label("Reset KV heads").click()
    assert "8 KV heads" in words.text_content()
    page.get_by_label("sliding window").check(force=True)
    assert page.get_by_label("window", exact=True).is_visible() and not heads.is_visible()
    page.get_by_label("users", exact=True).focus()
    page.keyboard.press("End")
    assert "1,024 users" in words.text_content()
    for label in ("Reset users", "Reset tokens a user"):
        page.get_by_label(label).click()
    assert "64 users" in words.text_content() and "A user with 40,960 tokens" in words.text_content()
    assert page.log.complaints == []


def test_table_copies(page):
    """Copy gives the table: bytes as plain integers."""
    mount(page, MemoryExplorer())
    page.evaluate("probe.catchCopies()")
    page.evaluate("probe.press('Copy')")
    lines = [line.split("\t") for line in page.evaluate("window.copied").splitlines()]
    assert lines[0][:2] == ["what", "bytes"] and lines[3][1] == str(2**30) and len(lines) == 7 + len(GPUS)


def test_every_control_by_tab(show):
    """Tab reaches every control, and each has a name."""
    assert check_tab_stops(show(MemoryExplorer(attention="GQA", context=4096).to_html())) > 18


def test_hostile_and_illegal_states_are_named(show):
    """A state written by hand into a page: one notice for what is wrong, hostile text stays text."""
    facts = json.loads(json.dumps(MemoryExplorer().facts))
    facts["models"][HOSTILE] = {**facts["models"]["MiniGPT"], "source": HOSTILE}

    def by_hand(**state):
        text = json.dumps(state).replace("<", "\\u003c")
        return f'<div class="nt-explorer" data-explorer="memory"><script type="application/json">{text}</script></div>'

    wrong = by_hand(facts=facts, model="constructor"), by_hand(facts=facts, users=0), by_hand()
    page = show(by_hand(facts=facts, model=HOSTILE), *wrong)
    notices = page.locator(".nt-notice").all_text_contents()
    assert notices[0] == "" and HOSTILE in page.locator(".nt-hint").first.text_content()
    assert "model=constructor is not one of MiniGPT, GPT-2 small" in notices[1]
    assert "users=0 is not a whole number from 1 to 1,024" in notices[2]
    assert "model=Llama-3-8B is not one of" in notices[3]
    check_nothing_ran(page)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_fits(show, width, dark):
    """No figure is wider than the screen, with its longest numbers too."""
    longest = MemoryExplorer(
        model="DeepSeek-V2", attention="MHA", context=2**20, users=1024, weights="4-bit", kv="4-bit"
    )
    heads = MemoryExplorer(model="MiniGPT", attention="GQA", users=1000, context=1)
    page = show(MemoryExplorer().to_html(), longest.to_html(), heads.to_html(), width=width, dark=dark)
    page.add_style_tag(content="body { margin: 0 16px; }")  # about what a book's page leaves
    check_fits(page, width, nodes="span, b, button, output, label, input, select, i, th, td")
    assert page.log.complaints == [] and page.log.outside == []


def test_rendering_again_leaves_one(page):
    """One figure and one listener a trait after three renderings, none after the last is removed."""
    check_rendered_once(page, MemoryExplorer())
