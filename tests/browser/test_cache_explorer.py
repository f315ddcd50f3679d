"""The attention grid in Chromium against `minigpt`: tokens of real runs, masks of real caches, formulas of `costs`."""

import random

import pytest
import torch
from figures import (
    HOSTILE,
    check_fits,
    check_nothing_ran,
    check_rendered_once,
    check_tab_stops,
    mount,
    press_keys,
    press_preset,
    set_state,
)
from toy_models import random_ids, tiny_model

from minigpt import generate, generate_naive
from minigpt.costs import attention_pairs, tokens_through_model
from minigpt.explorers import CacheExplorer
from minigpt.kv_cache import KVCache, SlidingWindowCache

FIGURES = (CacheExplorer,)
SETTINGS = 120  # random ones, each at a random pass
SEED = 8

# What is drawn: {side: {"cells": {class: [[query, key], ...]}, "K"/"V"/"Q": {class: [token, ...]}, "counts": rows}}.
DRAWN = """() => Object.fromEntries([...probe.figure.querySelectorAll("[data-side]")].map((panel) => {
  const drawn = { cells: {}, K: {}, V: {}, Q: {}, text: panel.querySelector("svg").textContent };
  for (const { dataset, classList } of panel.querySelectorAll(".nt-cell")) {
    const where = dataset.strip ? drawn[dataset.strip] : drawn.cells;
    const place = ["token", "query", "key"].filter((name) => name in dataset).map((name) => Number(dataset[name]));
    (where[classList[1]] ??= []).push(dataset.strip ? place[0] : place);
  }
  drawn.counts = Object.fromEntries([...panel.querySelectorAll("[data-count]")].map((row) =>
    [row.dataset.count, [...row.querySelectorAll("td")].map((cell) => cell.textContent.replaceAll(",", ""))]));
  return [panel.dataset.side, drawn];
}))"""


class Watched:
    """Goes around a cache and notes of every call which pairs it lets through and how many keys and values come in."""

    def __init__(self, cache):
        self.cache, self.calls = cache, []

    def __getattr__(self, name):
        return getattr(self.cache, name)

    def mask(self, T):
        """The cache's own, taken down as pairs (query, key)."""
        mask, columns = self.cache.mask(T), self.cache.columns(T).tolist()
        seen = [[True] * len(columns)] if mask is None else mask.tolist()
        rows = zip(self.cache.positions(T).tolist(), seen, strict=True)
        pairs = {(i, j) for i, row in rows for j, on in zip(columns, row, strict=True) if on}
        old = [j for j in columns if j < self.cache.length]
        self.calls.append({"T": T, "pairs": pairs, "read": old, "vectors": 0, "kept": 0})
        return mask

    def append(self, layer, k, v, q=None):
        """Count the vectors of one KV head in the first layer."""
        if layer == 0:
            self.calls[-1]["vectors"] += k.size(2) + v.size(2)
        return self.cache.append(layer, k, v, q)

    def advance(self, T):
        """The cache's own; what it then holds is what it keeps: a key and a value a token."""
        self.cache.advance(T)
        self.calls[-1]["kept"] = 2 * len(self.cache.token_positions)


def random_settings(pick):
    """Every control somewhere in its whole range; options are off in a third of the cases."""
    option = lambda: pick.choice((None, pick.randint(1, 12), pick.randint(1, 6)))  # noqa: E731
    return {"prompt": pick.randint(1, 12), "new_tokens": pick.randint(1, 12), "window": option(), "chunk": option()}


def run(model, prompt, new_tokens, window, chunk):
    """A real generation on both sides: calls of the cached one, and how many tokens each call of the other saw."""
    ids = random_ids(prompt, 1, prompt)
    empty = lambda: SlidingWindowCache(model.config, 1, window) if window else KVCache(model.config, 1, 24)  # noqa: E731
    cache, size, start = Watched(empty()), chunk or prompt, 0
    with torch.no_grad():
        while prompt - start > size:  # all chunks but the last, which generate() takes
            model(ids[:, start : start + size], cache, num_logits=1)
            start += size
    cached = generate(model, ids, cache=cache, max_new_tokens=new_tokens)
    lengths, counter = [], None
    counter = model.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].size(1)))
    plain = generate_naive(model, ids, max_new_tokens=new_tokens)
    counter.remove()
    assert plain.forward_tokens == sum(lengths)
    assert sum(call["T"] for call in cache.calls) == cached.forward_tokens + start
    return cache.calls, [watch(empty(), length) for length in lengths]


def watch(cache, T):
    """One call of T tokens on an empty cache: what a run without a cache sees under the same rule."""
    watched = Watched(cache)
    watched.mask(T)
    return {**watched.calls[0], "vectors": 2 * T}


def as_sets(drawn):
    """Class → set of what is drawn in it."""
    return {
        kind: {tuple(one) if isinstance(one, list) else one for one in ones} for kind, ones in drawn.items() if ones
    }


def without_empty(**kinds):
    """The same from Python: `nt_work` is the class nt-work."""
    return {kind.replace("_", "-"): set(ones) for kind, ones in kinds.items() if ones}


def test_grids_and_counts_are_those_of_real_runs(page):
    """Random settings at random passes: every cell, strip, counter and line of the table against caches at work."""
    mount(page, CacheExplorer())
    model, pick, ends, waits = tiny_model(), random.Random(SEED), 0, 0
    for _ in range(SETTINGS):
        settings = random_settings(pick)
        P, N, W = settings["prompt"], settings["new_tokens"], settings["window"]
        calls, naive = run(model, P, N, W, settings["chunk"])
        step, waiting = pick.randint(1, len(calls)), len(calls) - N
        shown = set_state(page, **settings, step=step)
        drawn = page.evaluate(DRAWN)

        # With a cache.
        call, before = calls[step - 1], sum(call["T"] for call in calls[: step - 1])
        new, old = range(before, before + call["T"]), range(before)
        past = {pair for one in calls[: step - 1] for pair in one["pairs"]}
        side = drawn["cached"]
        assert as_sets(side["cells"]) == without_empty(nt_work=call["pairs"], nt_past=past), settings
        assert as_sets(side["Q"]) == without_empty(nt_work=new, nt_past=old)
        gone = set(old) - set(call["read"])
        for strip in "KV":
            assert as_sets(side[strip]) == without_empty(nt_work=new, nt_read=call["read"], nt_past=gone), settings
        check_counts(side["counts"], calls, step)

        # Without one, pass by pass the same new tokens; nothing while the prompt comes in chunks.
        side, at = drawn["naive"], step - waiting
        whole = naive[at - 1] if at > 0 else {"pairs": set(), "T": 0}
        known = range(naive[at - 2]["T"]) if at > 1 else range(0)
        again = {pair for pair in whole["pairs"] if pair[0] in known}
        fresh = set(range(whole["T"])) - set(known)
        assert as_sets(side["cells"]) == without_empty(nt_work=whole["pairs"] - again, nt_again=again), settings
        for strip in "QKV":
            assert as_sets(side[strip]) == without_empty(nt_work=fresh, nt_again=known)
        nothing = {"T": 0, "pairs": set(), "vectors": 0, "kept": 0}
        check_counts(side["counts"], [nothing] * waiting + naive, step)

        check_formulas(drawn, settings)
        check_table(shown["rows"], calls, [None] * waiting + naive)
        words = shown["words"].replace(",", "")
        assert words.startswith(f"Pass {step}")
        assert ("never fed back" in words) == (step == len(calls))
        assert ("never fed back" in side["text"]) == (step == len(calls))
        if at > 1:
            both = sum(one["T"] for one in naive[:at]), sum(one["T"] for one in calls[:step])
            assert f"So far {both[0]} tokens against {both[1]}: {ratio(*both)} times as many" in words
            assert f"Without a cache {whole['T']} tokens go through the model {len(known)} of them once again" in words
            assert f"{len(again)} of them done before" in words
            assert (f"and {len(call['read'])} read from the cache" in words) == bool(call["read"])
            assert ("outside the window" in words) == bool(gone)
        ends, waits = ends + (step == len(calls)), waits + (at < 1)
    assert ends > 5 and waits > 5


def ratio(a, b):
    """The quotient a / b to one decimal as a browser writes it: a tie goes up."""
    tenths = (20 * a + b) // (2 * b)
    return f"{tenths // 10}.{tenths % 10}"


def check_counts(counts, calls, step):
    """The four counters: this pass, so far, in all."""
    numbers = [(c["T"], len(c["pairs"]), c["vectors"]) for c in calls]
    for i, name in enumerate(("tokens", "pairs", "vectors")):
        column = [n[i] for n in numbers]
        assert counts[name] == [str(n) for n in (column[step - 1], sum(column[:step]), sum(column))], name
    assert counts["kept"] == [str(calls[step - 1]["kept"]), "", str(calls[-1]["kept"])]


def check_formulas(drawn, settings):
    """Sums over all passes are what `minigpt.costs` says."""
    P, N, W = settings["prompt"], settings["new_tokens"], settings["window"]
    for side, cached in (("naive", False), ("cached", True)):
        counts = drawn[side]["counts"]
        tokens = tokens_through_model(P, N, cached=cached)
        assert counts["tokens"][2] == str(tokens) and counts["vectors"][2] == str(2 * tokens)
        assert counts["pairs"][2] == str(all_pairs(P, N, W, cached))


def all_pairs(P, N, window, cached):
    """Causal pairs of a generation, by `attention_pairs`."""
    calls = [(1 if cached and S > P else S, S) for S in range(P, P + N)]
    return sum(attention_pairs(T, S, convention="causal", window=window) for T, S in calls)


def check_table(rows, calls, naive):
    """One line a pass, and the sums."""
    *lines, sums = rows
    assert len(lines) == len(calls)
    for i, (line, call, plain) in enumerate(zip(lines, calls, naive, strict=True)):
        assert line[0] == str(i + 1)
        left = [plain["T"], len(plain["pairs"]), plain["vectors"]] if plain else [0, 0, 0]
        assert [int(line[c]) for c in (2, 4, 6)] == left
        right = [call["T"], len(call["pairs"]), call["vectors"], 2 * len(call["read"]), call["kept"]]
        assert [int(cell) for cell in line[7:]] == right
    given = [line[1] for line in lines if line[1]]
    assert given == [str(n + 1) for n in range(len(given))] and len(given) == sum(plain is not None for plain in naive)
    for column in range(2, 11):
        assert int(sums[column]) == sum(int(line[column]) for line in lines)


def test_other_lengths_are_costs(page):
    """The sentence for lengths of any size, with and without a window, by the formulas of `minigpt.costs`."""
    mount(page, CacheExplorer())
    pick = random.Random(SEED)
    cases = [(183, 64, None), (1, 1, None), (1, 1000, None), (100_000, 2, 12)]
    cases += [
        (pick.randint(1, 3000), pick.randint(1, 300), pick.choice((None, pick.randint(1, 12)))) for _ in range(40)
    ]
    for P, N, W in cases:
        set_state(page, long_prompt=P, long_new=N, window=W)
        words = page.locator(".nt-longer output").text_content().replace(",", "")
        plain, cached = (tokens_through_model(P, N, cached=way) for way in (False, True))
        token = "token" if plain == 1 else "tokens"
        assert (
            f"without a cache {plain} {token} through the model with one {cached}: {ratio(plain, cached)} times as many"
            in words
        )
        plain, cached = (all_pairs(P, N, W, way) for way in (False, True))
        assert f"Pairs: {plain} and {cached}: {ratio(plain, cached)} times as many" in words
        assert (f"window {W}:" in words) == (W is not None)
    set_state(page, long_prompt=183, long_new=64, window=None)
    words = page.locator(".nt-longer output").text_content()
    assert "13,728 tokens through the model, with one 246: 55.8 times" in words
    for label, text, state in (("prompt", "20", "long_prompt"), ("new tokens", "9", "long_new")):
        field = page.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Enter")
        assert page.evaluate("(key) => probe.model.get(key)", state) == int(text)
        for wrong in ("0", "2.5", "", "100001"):
            field.fill(wrong)
            field.press("Tab")
            assert field.input_value() == text  # the old number comes back


def test_a_planted_fault_is_seen(page):
    """A window one key too wide, and a last token that is fed back: the comparison with real runs goes red."""
    mount(page, CacheExplorer())
    model, settings = tiny_model(), {"prompt": 5, "new_tokens": 4, "window": 3, "chunk": None}
    calls, _ = run(model, 5, 4, 3, None)
    right = page.evaluate("(how) => nextToken.cacheWork.passes(how)", settings)
    assert [one["cached"]["pairs"] for one in right] == [len(call["pairs"]) for call in calls]
    wide = page.evaluate("(how) => nextToken.cacheWork.passes(how)", {**settings, "window": 4})
    assert [one["cached"]["pairs"] for one in wide] != [len(call["pairs"]) for call in calls]
    fed = page.evaluate("(how) => nextToken.cacheWork.passes(how)", {**settings, "new_tokens": 5})
    assert len(fed) == len(calls) + 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a step in the middle", "8 read from the cache: 9 pairs. So far 30 tokens against 9: 3.3 times as many."),
        ("the prefill saves nothing", "So far a cache has saved nothing. New token 1 is the last one"),
        ("the last token", "New token 6 is the last one and never fed back: P + N − 1 = 11 tokens"),
        ("short prompt, long answer", "So far 78 tokens against 12: 6.5 times as many."),
        (
            "a window of 4",
            "its own key and 3 read from the cache: 4 pairs. 6 older tokens are outside the window of 4.",
        ),
        ("the prompt in chunks", "tokens 5 to 8 of the prompt, one chunk: 26 pairs, and no new token yet."),
    ],
)
def test_presets_make_their_point(page, name, words):
    """Each named state shows what its name says, is marked while it is shown, and is one that Python takes."""
    mount(page, CacheExplorer(prompt=2, new_tokens=3, window=2, chunk=1, step=1))
    assert words in press_preset(page, name).replace("\u00a0", " ")
    CacheExplorer(**page.evaluate("probe.model.state"))


def test_every_stop_of_every_slider_is_legal(page):
    """Each stop is a setting that Python takes; the last stop of the options is off; the arrows bring them home."""
    mount(page, CacheExplorer())
    script = """() => [...probe.figure.querySelectorAll("input[type=range]")].flatMap((slider) =>
      Array.from({ length: Number(slider.max) + 1 }, (_, i) => {
        slider.value = i;
        slider.dispatchEvent(new Event("input"));
        return { ...probe.model.state };
      }))"""
    seen = page.evaluate(script)
    assert len(seen) == 12 + 12 + 13 + 13 + 6
    for state in seen:
        CacheExplorer(**state)
    assert {state["window"] for state in seen} == {state["chunk"] for state in seen} == {None, *range(1, 13)}
    set_state(page, prompt=3, new_tokens=9, window=2, chunk=2, step=4)
    for label in ("prompt P", "new tokens N", "window W", "prefill chunk", "pass"):
        page.get_by_label(f"Reset {label}").click()
    state = page.evaluate("probe.model.state")
    assert state == {**CacheExplorer().state, "step": 1}
    assert page.locator("output").all_text_contents()[:5] == ["6", "6", "off", "off", "1 of 6"]


def test_steps_by_keyboard(show):
    """Arrows, Home and End go from pass to pass from anywhere in the figure; sliders keep their own arrows."""
    page = show(CacheExplorer(step=1).to_html())
    where = page.locator("output").nth(4)
    page.locator(".nt-sides").focus()
    keys = [("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 6), ("ArrowRight", 6), ("Home", 1)]
    press_keys(page, where, [(key, f"{step} of 6") for key, step in (*keys, ("ArrowLeft", 1))])
    page.get_by_label("prompt P", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("output").first.text_content() == "7" and where.text_content() == "1 of 6"


def test_steps_by_mouse_and_play(show):
    """Buttons step; play goes on to the end and stops, starts anew from there, and any other control pauses it."""
    page = show(CacheExplorer(new_tokens=3, step=1).to_html())
    where = page.locator("output").nth(4)
    for label, step in (("One pass on", 2), ("Last pass", 3), ("One pass back", 2), ("First pass", 1)):
        page.get_by_label(label, exact=True).click()
        assert where.text_content() == f"{step} of 3"
    page.get_by_text("Play", exact=True).click()
    page.wait_for_function("[...document.querySelectorAll('output')][4].textContent === '3 of 3'")
    page.wait_for_function("[...document.querySelectorAll('button')].some((b) => b.textContent === 'Play')")
    page.get_by_text("Play", exact=True).click()
    assert where.text_content() == "1 of 3"
    page.get_by_label("Last pass").click()
    assert page.get_by_text("Play", exact=True).count() == 1 and where.text_content() == "3 of 3"
    assert page.log.complaints == []


def test_every_control_by_tab(show):
    """Tab reaches every control, and each has a name."""
    assert check_tab_stops(show(CacheExplorer().to_html())) > 18


def test_hostile_and_illegal_states_are_named(show):
    """A state written by hand into a page: defaults for what is missing, one notice for what is wrong, never run."""

    def by_hand(state):
        text = state.replace("<", "\\u003c")
        return f'<div class="nt-explorer" data-explorer="cache"><script type="application/json">{text}</script></div>'

    hostile = HOSTILE.replace('"', "")
    page = show(by_hand("{}"), by_hand(f'{{"prompt": "{hostile}"}}'), by_hand('{"window": 40}'))
    notices = page.locator(".nt-notice").all_text_contents()
    assert notices[0] == "" and page.locator(".nt-readout").first.text_content().startswith("Pass 4 gives new token 4")
    assert f"prompt={hostile} is not a whole number from 1 to 12" in notices[1]
    assert "window=40 is not a whole number" in notices[2]
    check_nothing_ran(page)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_fits(show, width, dark):
    """No figure is wider than the screen, at its largest too; grids side by side, or one above the other."""
    largest = CacheExplorer(prompt=12, new_tokens=12, window=5, step=99, long_prompt=100_000, long_new=100_000)
    page = show(CacheExplorer().to_html(), largest.to_html(), width=width, dark=dark)
    page.add_style_tag(content="body { margin: 0 16px; }")  # about what a book's page leaves
    check_fits(page, width, nodes="span, b, button, output, label, input, text, rect, th, td")
    one, two = (page.locator(".nt-grid-picture").nth(i).bounding_box() for i in range(2))
    assert (one["y"] == two["y"]) == (width > 600) and (one["x"] == two["x"]) == (width < 600)
    assert page.log.complaints == [] and page.log.outside == []


def test_kinds_of_work_look_different(page):
    """New, again, read and past differ in fill and outline or shape, not in colour alone."""
    mount(page, CacheExplorer())
    script = """() => Object.fromEntries(["nt-work", "nt-again", "nt-read", "nt-past"].map((kind) => {
      const node = probe.figure.querySelector(`.nt-cell.${kind}`);
      const filled = getComputedStyle(node).fill === "none" ? "open" : "solid";
      const round = node.getAttribute("rx") > 3 ? "round" : "square";
      return [kind, `${node.getAttribute("fill") ? "hatched" : filled} ${round}`];
    }))"""
    looks = page.evaluate(script)
    assert looks == {
        "nt-work": "solid square",
        "nt-again": "hatched square",
        "nt-read": "solid round",
        "nt-past": "open square",
    }


def test_rendering_again_leaves_one(page):
    """One figure and one listener a trait after three renderings, none after the last is removed."""
    check_rendered_once(page, CacheExplorer())
