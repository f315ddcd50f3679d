"""The live figures in Chromium against `minigpt`: numbers, draws, text, keyboard, life cycle."""

import base64
import json
import math
import random
import shutil
from collections import Counter

import pytest
import torch
from figures import (
    HOSTILE,
    check_fits,
    check_nothing_ran,
    check_rendered_once,
    check_tab_stops,
    kept,
    mount,
    press_keys,
    press_preset,
    random_temperature,
    random_value,
    scripts_of,
    set_state,
    sources,
)
from toy_models import tiny_model

from minigpt import SamplingParams, draw
from minigpt.explorers import GenerationExplorer, TemperatureExplorer, TruncationExplorer, distributions, record
from minigpt.explorers.base import STYLE
from minigpt.sampling import Uniforms, apply
from minigpt.tokenization import CharTokenizer

FIGURES = (TemperatureExplorer, TruncationExplorer, GenerationExplorer)
SETTINGS = 120  # random ones, for each figure
SEED = 20


def compare(page, logits, params, /, **question):
    """JavaScript's distribution under these settings is minigpt's: same tokens kept, same probabilities."""
    probs = apply(params.pipeline(), None, logits[None])[0]
    alive, probs = probs.isfinite(), probs.double().softmax(-1)
    ids, p, answer = kept(page, **question)
    assert torch.equal(ids.sort().values, alive.nonzero()[:, 0]), params
    assert torch.allclose(p, probs[ids], rtol=0, atol=1e-6), params
    bits = float(-torch.special.xlogy(probs, probs).sum() / math.log(2))
    assert answer["bits"] == pytest.approx(bits, abs=1e-6)
    assert answer["effective"] == pytest.approx(2**bits, rel=1e-6)
    assert answer["top"] == pytest.approx(float(probs.max()), abs=1e-6)
    return alive, probs


def test_truncation_is_minigpts(page):
    """Random sources, rules, values and temperatures: the kept set, and every number of the figure."""
    methods = distributions.catalogue()["methods"]
    mount(page, TruncationExplorer(source="toy"))
    pick = random.Random(SEED)
    for i in range(SETTINGS):
        source, method = pick.choice(sources()), methods[i % len(methods)]
        value, T = random_value(pick, method), random_temperature(pick)
        params = SamplingParams(temperature=T, **{method["setting"]: value})
        shown = set_state(page, source=source, method=method["name"], value=value, temperature=T)
        tokens, logits = distributions.distribution(source)
        steps = [["temperature", T]] if T == 0 else [["temperature", T], [method["setting"], value]]
        alive, probs = compare(page, logits, params, source=source, steps=steps)
        before = apply(SamplingParams(temperature=T).pipeline(), None, logits[None])[0].double().softmax(-1)
        *named, last = shown["rows"] if len(tokens) > 16 else [*shown["rows"], None]
        for text, i, logit, scaled, p_before, is_kept, p_after in named:
            i = int(i)
            assert float(scaled) == scaled_by(logits, i, T)
            assert (text, is_kept) == (tokens[i], "kept" if alive[i] else "cut")
            assert float(logit) == float(logits[i])
            assert float(p_before) == pytest.approx(float(before[i]), abs=1e-6)
            assert float(p_after) == pytest.approx(float(probs[i]), abs=1e-6)
        if last:
            assert int(last[5]) == int(alive.sum()) - sum(line[5] == "kept" for line in named)
        assert sum(float(line[6]) for line in shown["rows"]) == pytest.approx(1, abs=1e-9)
        if T > 0:
            assert f"keeps {int(alive.sum()):,} of {len(tokens):,} tokens" in shown["words"]
            assert f"{100 * float(before[alive].sum()):.1f}\u202f%" in shown["words"].replace(
                "100\u202f%", "100.0\u202f%"
            )


def test_temperature_is_minigpts(page):
    """Random sources, temperatures, seeds and numbers of draws: probabilities, entropy, counts."""
    mount(page, TemperatureExplorer(source="toy"))
    pick = random.Random(SEED)
    for _ in range(SETTINGS):
        source, T, seed = pick.choice(sources()), random_temperature(pick), pick.randrange(2**32)
        n = pick.choice((0, 1, 20))
        shown = set_state(page, source=source, temperature=T, seed=seed, draws=n)
        tokens, logits = distributions.distribution(source)
        params = SamplingParams(temperature=T)
        _, probs = compare(page, logits, params, source=source, steps=[["temperature", T]])
        one = logits.double().softmax(-1)
        drawn = draws(apply(params.pipeline(), None, logits[None]), seed, n)
        named = shown["rows"][:-1] if len(tokens) > 14 else shown["rows"]
        for text, i, logit, scaled, at_one, p, hits in named:
            i = int(i)
            assert float(scaled) == scaled_by(logits, i, T)
            assert (text, float(logit), int(hits)) == (tokens[i], float(logits[i]), drawn[i])
            assert float(at_one) == pytest.approx(float(one[i]), abs=1e-6)
            assert float(p) == pytest.approx(float(probs[i]), abs=1e-6)
        assert sum(float(line[5]) for line in shown["rows"]) == pytest.approx(1, abs=1e-9)
        assert sum(int(line[6]) for line in shown["rows"]) == n
        if T > 0:
            bits = float(-torch.special.xlogy(probs, probs).sum() / math.log(2))
            assert f"the entropy is {bits:.2f} bits" in shown["words"]


def scaled_by(logits, i, T):
    """The column "logit ÷ T": at T = 0 the argmax alone keeps its logit."""
    if T == 0:
        return float(logits[i]) if i == int(logits.argmax()) else -math.inf
    return float(logits[i]) / T


def draws(logits, seed, n):
    """How often each id comes in the first n draws of row 0 of a request with this seed."""
    stream = Uniforms([seed], [0])
    uniforms = torch.cat([stream.next() for _ in range(n)]) if n else torch.empty(0)
    return Counter(draw(logits.expand(n, -1), uniforms).tolist() if n else [])


def test_uniforms_are_torchs(page):
    """Bit for bit, for any seed and row, further than the generator's 312 doubles go before it refills."""
    pick = random.Random(SEED)
    for seed in (0, 1, 2**32 - 1, *(pick.randrange(2**32) for _ in range(7))):
        row = pick.randrange(5)
        stream = Uniforms([seed], [row])
        expected = [float(stream.next()) for _ in range(400)]
        assert page.evaluate("([s, n, r]) => [...nextToken.uniforms(s, n, r)]", [seed, 400, row]) == expected


def test_draws_are_minigpts(page):
    """The same token for the same number, and never one of probability 0."""
    pick = random.Random(SEED)
    for _ in range(SETTINGS):
        logits = torch.tensor([pick.choice((-torch.inf, pick.gauss(0, 3))) for _ in range(30)] + [0.0])
        uniforms = [0.0, 1 - 2**-53, *(pick.random() for _ in range(20))]
        expected = draw(logits.expand(len(uniforms), -1), torch.tensor(uniforms, dtype=torch.float64)).tolist()
        script = "([z, us]) => us.map(nextToken.sampler.drawer(nextToken.sampler.distribution(z)))"
        got = page.evaluate(script, [logits.tolist(), uniforms])
        assert got == expected
        assert all(logits[i] > -torch.inf for i in got)


def test_ties_and_masked_tokens_are_minigpts(page):
    """Rounded logits with many ties and some -inf, every rule, temperatures that make ties of their own."""
    methods = distributions.catalogue()["methods"]
    pick = random.Random(SEED)
    for i in range(SETTINGS):
        method = methods[i % len(methods)]
        logits = [pick.choice((-math.inf, round(pick.gauss(0, 2)), pick.gauss(0, 2))) for _ in range(40)] + [1.0]
        value, T = random_value(pick, method), pick.choice((0, 1, 0.7, 1e-40))
        params = SamplingParams(temperature=T, **{method["setting"]: value})
        steps = [["temperature", T]] if T == 0 else [["temperature", T], [method["setting"], value]]
        compare(page, torch.tensor(logits), params, logits=logits, steps=steps)


def test_temperature_makes_ties(page):
    """Neighbours in float32 that a division makes equal are ordered by id again: top-k keeps the lowest."""
    low = float(torch.nextafter(torch.tensor(0.5), torch.tensor(0.0)))
    logits = torch.tensor([9.0, low, 0.5])
    (scaled,) = apply(SamplingParams(temperature=3.0).pipeline(), None, logits[None])
    assert scaled[1] == scaled[2]
    steps = [["temperature", 3.0], ["top_k", 2]]
    params = SamplingParams(temperature=3.0, top_k=2)
    alive, _ = compare(page, logits, params, logits=logits.tolist(), steps=steps)
    assert alive.tolist() == [True, True, False]


def logs(*probs):
    """Logits of these probabilities."""
    return [math.log(p) for p in probs]


@pytest.mark.parametrize(
    ("logits", "steps", "alive", "probs"),
    [
        (logs(0.25, 0.125, 0.125, 0.5), [["top_p", 0.75]], [3, 0], [2 / 3, 1 / 3]),  # case 1
        ([0, 0, 0, 0], [["top_p", 0.75]], [0, 1, 2], None),  # the same fault with sums that are exact
        ([0, 0, 0, 0], [["typical_p", 0.5]], [0, 1], None),
        ([1, 3, 2], [["temperature", 0]], [1], [1]),  # case 5
        ([12, 11.5, -3], [["temperature", 1e-4]], None, [1, 0, 0]),  # case 6
        ([12, 11.5, -3], [["temperature", 1e-40]], [0], [1]),
        ([3, 2, 1], [["temperature", 0.5], ["top_p", 0.8]], [0], [1]),  # case 7
        ([3, 2, 1], [["top_p", 0.8], ["temperature", 0.5]], [0, 1], [0.8808, 0.1192]),
        ([4, 2, 0], [["temperature", 2], ["min_p", 0.1]], [0, 1, 2], [0.6652, 0.2447, 0.0900]),  # case 8
        ([4, 2, 0], [["min_p", 0.1], ["temperature", 2]], [0, 1], None),
        ([4, 2, 4], [["min_p", 1]], [0, 2], [0.5, 0.5]),
        (
            logs(0.15, 0.14, 0.13, 0.12, 0.11, 0.10, 0.09, 0.08, 0.08),
            [["top_k", 1], ["top_p", 0.8]],
            [0],
            [1],
        ),  # case 9
        ([5, 4, 3, 2, 1], [["top_k", 100]], [0, 1, 2, 3, 4], None),  # case 10
        ([-5, -6, -7], [["top_k", 1]], [0], [1]),  # case 11
        ([1, 2, 2, 2, 3], [["top_k", 3]], [4, 1, 2], None),  # case 12
        ([-2, -1, 0, 0.8, 0, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7, -3], [["top_k", 1]], [3], [1]),
        (logs(0.5, 0.25, 0.125, 0.125), [["typical_p", 0.2]], [1], [1]),  # case 13
        (logs(0.5, 0.25, 0.125, 0.125), [["typical_p", 0.6]], [0, 1], None),
        (logs(0.5, 0.25, 0.125, 0.125), [["typical_p", 0.8]], [0, 1, 2], None),
        (logs(0.5, 0.25, 0.125, 0.125), [["typical_p", 0.95]], [0, 1, 2, 3], None),
        (logs(0.5, 0.25, 0.125, 0.125), [["typical_p", 1]], [0, 1, 2, 3], None),
        ([2, 1, 3, -5, -23, 12.5], [["top_k", 3], ["top_p", 0.99]], [5], [1]),  # case 22
    ],
)
def test_cases(page, logits, steps, alive, probs):
    """Small inputs with a known answer."""
    ids, p, _ = kept(page, logits=logits, steps=steps)
    assert alive is None or ids.tolist() == alive
    assert probs is None or p.tolist() == pytest.approx(probs, abs=5e-5)


def test_redrawing_changes_nothing(page):
    """Case 21: temperature is applied to the logits, never to what the last redraw left."""
    mount(page, TemperatureExplorer(source="toy"))
    script = "() => probe.kept({ logits: [2, 0], steps: [['temperature', 0.5]] }).top"
    assert [round(page.evaluate(script), 5) for _ in range(3)] == [0.98201] * 3
    shown = [set_state(page, temperature=T)["rows"] for T in (0.5, 1.5, 0.5, 0.5)]
    assert shown[0] == shown[2] == shown[3] != shown[1]


def test_every_stop_of_every_slider_is_legal(page):
    """Case 5 and more: no end of a slider is a setting that Python refuses; stops rise."""
    for method in distributions.catalogue()["methods"]:
        stops = page.evaluate("(method) => nextToken.stops(method)", method)
        assert stops == sorted(set(stops)) and stops[-1] == method["high"]
        for value in stops:
            SamplingParams(**{method["setting"]: value})
    stops = page.evaluate("nextToken.temperatures")
    assert (stops[0], stops[-1]) == (0, 2) and [SamplingParams(temperature=T) for T in stops]


def test_slider_to_its_ends(page):
    """Case 5: dragging to the minimum is greedy, and the model hears of it."""
    mount(page, TemperatureExplorer(source="capital"))
    slider = page.locator("input[type=range]")
    slider.fill("0")
    assert page.evaluate("probe.model.get('temperature')") == 0
    shown = page.evaluate("probe.read()")
    assert shown["words"].startswith("At T = 0 the likeliest token, “␣Paris”, is taken every time")
    assert shown["rows"][0][5] == "1" and shown["rows"][1][3:6:2] == ["-inf", "0"]
    slider.fill("40")
    assert page.evaluate("probe.model.get('temperature')") == 2
    slider.dblclick(position={"x": 1, "y": 5})
    assert page.evaluate("probe.model.get('temperature')") == 1


def test_whole_vocabulary_few_rows(show):
    """Case 128: computed over 49,152 tokens, at most 60 rows drawn, count and mass of the rest stated, a small page."""
    explorer = TruncationExplorer(source="once", rows=60)
    assert len(explorer.to_html()) < 10_000
    page = show()
    shown = mount(page, explorer)
    assert len(shown["rows"]) == 61
    assert shown["rows"][-1][0] == "49,092 others"
    assert "of 49,152 tokens" in shown["words"]
    assert page.locator(".nt-row:not(.nt-head)").count() == 61
    page.evaluate("probe.set({ rows: 100000 })")
    assert page.locator(".nt-row:not(.nt-head)").count() == 61


def test_masked_tokens_are_shown_as_masked(page):
    """Case 129: -inf in the picture reads −∞, with the probability it had, hatched; nothing is NaN."""
    mount(page, TruncationExplorer(source="capital", method="top-k", value=3))
    cut = page.locator(".nt-row.nt-cut:not(.nt-rest)")
    assert cut.count() == 13
    assert cut.first.locator(".nt-mark").text_content() == "−∞"
    assert "repeating-linear-gradient" in cut.first.locator(".nt-bar").evaluate(
        "n => getComputedStyle(n).backgroundImage"
    )
    for bad in ("NaN", "Infinity", "undefined", "null"):
        assert bad not in page.locator(".nt-figure").evaluate("n => n.outerHTML")


@pytest.mark.parametrize("name", ["temperature", "truncation", "generation"])
def test_rendering_again_leaves_one(page, run, name):
    """Case 130: one figure and one listener a trait after three renderings, none after the last is removed."""
    explorers = (TemperatureExplorer(source="toy"), TruncationExplorer(source="toy"), GenerationExplorer([run]))
    explorer = next(explorer for explorer in explorers if explorer.name == name)
    check_rendered_once(page, explorer)


def test_one_redraw_for_many_changes(page):
    """A preset sets several traits; the picture is drawn once, by one callback."""
    mount(page, TruncationExplorer(source="toy"))
    script = """async () => {
      let drawn = 0;
      const words = probe.figure.querySelector(".nt-readout");
      new MutationObserver(() => { drawn += 1; }).observe(words, { childList: true });
      await probe.set({ method: "top-k", value: 2, temperature: 0.5 });
      return drawn;
    }"""
    assert page.evaluate(script) == 1


@pytest.fixture(scope="module")
def model():
    """A random MiniGPT over characters, some of them awkward, whose greedy text runs into a loop."""
    return tiny_model(seed=1, dtype=torch.float64), CharTokenizer('abcdefghijklmnop <>&\n\t"')


@pytest.fixture(scope="module")
def runs(model):
    """Recorded runs: greedy, and sampled with two seeds."""
    settings = (SamplingParams(temperature=0), SamplingParams(seed=1), SamplingParams(temperature=1.5, seed=2))
    return [
        record(*model, "abc <b>", max_new_tokens=90, params=params, name=f"run {i}")
        for i, params in enumerate(settings)
    ]


@pytest.fixture(scope="module")
def run(runs):
    """The greedy one."""
    return runs[0]


def ids_of(run):
    """Ids of the new tokens."""
    return [step["id"] for step in run["steps"]]


def in_loop(ids, prompt_length, step, window=20):
    """Indices of new tokens up to `step` in a window that stood in the text before, and whether the last one is."""
    ids = ids[: prompt_length + step + 1]
    windows = [tuple(ids[end - window : end]) for end in range(window, len(ids) + 1)]
    ends = [i + window for i, w in enumerate(windows) if w in windows[:i]]
    marked = {i - prompt_length for end in ends for i in range(end - window, end) if i >= prompt_length}
    return marked, len(ids) in ends


def test_generation_is_minigpts(page, model, runs):
    """Random steps of the runs: candidates, probabilities, the one chosen, sums and loops, against fresh forwards."""
    mount(page, GenerationExplorer(runs))
    pick, loops = random.Random(SEED), 0
    for _ in range(SETTINGS):
        number = pick.randrange(len(runs))
        run, step = runs[number], pick.randrange(90)
        shown = set_state(page, run=number, step=step)
        text = run["prompt_ids"] + ids_of(run)
        with torch.no_grad():
            log_probs = model[0](torch.tensor([text]))[0].double().log_softmax(-1)  # (P + 90, V)
        at, chosen = log_probs[len(run["prompt_ids"]) - 1 + step], ids_of(run)[step]
        *named, rest = shown["rows"]
        assert rest[0].endswith(" others") and sum(line[4] == "chosen" for line in named) == 1
        for text_shown, i, log_prob, p, mark in named:
            assert (text_shown, mark == "chosen") == (model[1].token_text(int(i)), int(i) == chosen)
            assert float(log_prob) == pytest.approx(float(at[int(i)]), abs=1e-5)
            assert float(p) == pytest.approx(float(at[int(i)].exp()), abs=1e-6)
        assert sum(float(line[3]) for line in shown["rows"]) == pytest.approx(1, abs=1e-9)
        new = torch.arange(step + 1)
        total = float(log_probs[len(run["prompt_ids"]) - 1 + new, torch.tensor(ids_of(run))[new]].sum())
        assert f"add up to {total:.2f}".replace("-", "−") in shown["words"]
        assert f"perplexity of {math.exp(-total / (step + 1)):.2f}" in shown["words"]
        expected, looping = in_loop(text, len(run["prompt_ids"]), step)
        marked = page.locator(".nt-text .nt-loop").evaluate_all("nodes => nodes.map((n) => Number(n.dataset.step))")
        assert (set(marked), "a loop" in shown["words"]) == (expected, looping)
        loops += looping
    assert 0 < loops < SETTINGS


def test_text_so_far(page, run):
    """The panel holds the prompt and the tokens up to the step, the last one outlined; a click goes back to a token."""
    mount(page, GenerationExplorer([run], step=30))
    steps = page.locator(".nt-text [data-step]")
    assert steps.count() == 31 and page.locator(".nt-text .nt-new").get_attribute("data-step") == "30"
    text = page.locator(".nt-text").evaluate("n => n.textContent").replace("↵\n", "\n")
    assert text == run["prompt"] + "".join(step["text"] for step in run["steps"][:31])
    steps.nth(4).click()
    assert page.evaluate("probe.model.get('step')") == 4


def test_hostile_text_stays_text(show, run):
    """A prompt or a token that looks like HTML is shown, not run: in the page, the text, the bars, the table."""
    run = json.loads(json.dumps(run))
    run.update(name=HOSTILE, prompt=HOSTILE, tokens={i: HOSTILE for i in run["tokens"]})
    for step in run["steps"]:
        step["text"] = HOSTILE
    page = show(GenerationExplorer([run], step=5).to_html())
    page.get_by_text("Table", exact=True).click()
    assert page.locator(".nt-token").nth(1).text_content() == HOSTILE
    assert page.locator(".nt-text").text_content().startswith(HOSTILE * 2)
    check_nothing_ran(page)
    assert page.log.complaints == []


def test_steps_by_keyboard(show, run):
    """Arrows, Home and End step through the run from anywhere in the figure; the slider has its own."""
    page = show(GenerationExplorer([run]).to_html())
    where = page.locator("output")
    page.locator(".nt-text").focus()
    keys = [("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 90), ("ArrowRight", 90), ("Home", 1)]
    press_keys(page, where, [(key, f"{place} of 90") for key, place in keys])
    page.locator("input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert where.text_content() == "2 of 90"


def test_play_and_pause(show, run):
    """Play goes on by itself until paused, or the end."""
    page = show(GenerationExplorer([run], step=86).to_html())
    page.get_by_text("Play", exact=True).click()
    page.wait_for_function("document.querySelector('output').textContent === '90 of 90'", timeout=10_000)
    page.get_by_text("Play", exact=True).wait_for(timeout=10_000)
    page.get_by_text("Play", exact=True).click()
    page.get_by_text("Pause", exact=True).click()
    stopped = page.locator("output").text_content()
    page.wait_for_timeout(1000)
    assert page.locator("output").text_content() == stopped


def test_keyboard_reaches_every_control(show, run):
    """Tab stops at everything that can be used, each has a name, and a chip is chosen with an arrow."""
    figures = (TemperatureExplorer(source="toy"), TruncationExplorer(source="toy"), GenerationExplorer([run]))
    page = show(*(figure.to_html() for figure in figures))
    check_tab_stops(page)
    page.locator("input[type=radio]:checked").focus()
    page.keyboard.press("ArrowLeft")
    assert "top-k" in page.locator("[data-figure=truncation] .nt-readout").text_content()


def test_defaults_need_no_state(show):
    """Figures written by hand into a page: every key has a default, an unknown name says so and harms no other."""
    state = '<script type="application/json">{"source": "nowhere"}</script>'
    page = show(
        '<div class="nt-explorer" data-explorer="truncation"></div>',
        f'<div class="nt-explorer" data-explorer="temperature">{state}</div>',
        '<div class="nt-explorer" data-explorer="nothing"></div>',
        '<div class="nt-explorer" data-explorer="temperature"></div>',
    )
    words = page.locator(".nt-readout")
    assert words.nth(0).text_content().startswith("top-p 0.9 keeps 10 of 49,152 tokens")
    assert "no distribution named nowhere" in page.locator(".nt-notice").nth(1).text_content()
    assert words.nth(2).text_content().startswith("At T = 1.00 the entropy is 2.14 bits")


def test_missing_data_are_named(show, tmp_path):
    """Where distributions.js cannot be loaded the figure says so, a toy still works, and asking again may help."""
    for name in (*scripts_of(*FIGURES), STYLE):
        shutil.copy(distributions.JS / name, tmp_path)
    page = show(folder=tmp_path)
    mount(page, TemperatureExplorer(source="toy"))
    page.evaluate("probe.set({ source: 'capital' })")
    page.wait_for_function("document.querySelector('.nt-notice').textContent.includes('could not be read')")
    page.evaluate("probe.set({ source: 'toy' })")
    assert page.locator(".nt-notice").is_hidden()
    shutil.copy(distributions.FILE, tmp_path)
    assert page.evaluate("probe.set({ source: 'capital' })")["rows"][0][0] == "␣Paris"


def test_live_answer(page, monkeypatch):
    """What Python sends to a front end draws the figure: a message and bytes, wherever they lie in their buffer."""
    explorer, sent = TemperatureExplorer(source="once"), []
    monkeypatch.setattr(TemperatureExplorer, "send", lambda self, content, buffers: sent.append((content, buffers)))
    explorer._handle_custom_msg({"kind": "distribution", "source": "once", "tokens": True}, [])
    ((message, (logits,)),) = sent
    script = """([state, message, logits]) => {
      const asked = [], model = new nextToken.StaticModel(state);
      model.send = (content) => asked.push(content);
      nextToken.explorers.temperature.render({ model, el: document.body });
      const bytes = Uint8Array.from("xyz" + atob(logits), (c) => c.charCodeAt(0));
      model.emit("msg:custom", message, [new DataView(bytes.buffer, 3)]);
      return [asked, document.querySelector(".nt-readout").textContent];
    }"""
    asked, words = page.evaluate(script, [explorer.state, message, base64.b64encode(logits).decode()])
    assert asked == [{"kind": "distribution", "source": "once", "tokens": True}]
    assert "“␣small”" in words


def test_presets_make_their_point(page):
    """Each named state is legal, is marked while it is shown, and shows what its name says."""
    mount(page, TruncationExplorer(source="toy"))
    for name, words in [
        ("a sure thing", "keeps 10 of"),
        ("k where one would do", "keeps 40 of"),
        ("the favourite is cut", "The likeliest token, “␣small”, is not among them."),
    ]:
        assert words in press_preset(page, name)


def test_table_copies(page):
    """Copy gives the table as tab-separated lines."""
    mount(page, TruncationExplorer(source="toy"))
    page.evaluate("probe.catchCopies()")
    page.get_by_text("Copy", exact=True).click()
    lines = [line.split("\t") for line in page.evaluate("window.copied").split("\n")]
    assert lines[0][0] == "token" and lines[1:] == page.evaluate("probe.read()")["rows"]


def test_readout_is_spoken_once_the_reader_pauses(page):
    """Not at first sight, not for every step of a drag, but for the last one."""
    script = """async (state) => {
      const waiting = new Map(), { setTimeout, clearTimeout } = globalThis;
      globalThis.setTimeout = (call) => { waiting.set(waiting.size + 1, call); return waiting.size; };
      globalThis.clearTimeout = (timer) => { waiting.set(timer, () => {}); };
      await probe.mount("temperature", state);
      const spoken = probe.figure.querySelector("[aria-live=polite]"), heard = [];
      const pause = () => { waiting.forEach((call) => call()); waiting.clear(); heard.push(spoken.textContent); };
      pause();
      for (const temperature of [0.4, 0.5, 0.6]) {
        probe.model.set("temperature", temperature);
        await Promise.resolve();
        heard.push(spoken.textContent);
      }
      pause();
      Object.assign(globalThis, { setTimeout, clearTimeout });
      return heard;
    }"""
    *before, last = page.evaluate(script, TemperatureExplorer(source="toy").state)
    assert before == [""] * 4
    assert last.startswith("At T = 0.60")


@pytest.mark.parametrize("width", [1200, 390])
def test_fits(show, run, width):
    """No figure is wider than the screen, and no text hangs out of its figure."""
    figures = (
        TemperatureExplorer(source="once", draws=100),
        TruncationExplorer(source="json"),
        GenerationExplorer([run]),
    )
    page = show(*(figure.to_html() for figure in figures), width=width)
    check_fits(page, width)


def test_motion_can_be_switched_off(show):
    """Bars glide for 120 ms, and not at all for readers who asked for less motion."""
    page = show(TemperatureExplorer(source="toy").to_html())
    duration = "getComputedStyle(document.querySelector('.nt-bar')).transitionDuration"
    assert "0.12s" in page.evaluate(duration)
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(duration) == "0s"
