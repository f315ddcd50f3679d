"""The recipe finder in Chromium against `minigpt`: what settings keep of six prompts, lines to copy, controls."""

import math
import random
import shlex

import pytest
import torch
from figures import HOSTILE, check_fits, check_nothing_ran, check_tab_stops, kept, mount, set_state

from minigpt import SamplingParams
from minigpt import __main__ as command_line
from minigpt.explorers import RecipeExplorer, distributions
from minigpt.explorers.recipe import SAMPLING, kept_by, recipes

FIGURES = (RecipeExplorer,)
SETTINGS = 110  # random ones, each on every prompt
SEED = 7
SOURCES = RecipeExplorer().sources


def random_changes(pick, recipe):
    """Some knobs of a recipe turned to legal values, some switched off."""
    if "num_beams" in recipes()[recipe]["settings"]:
        return {"num_beams": pick.randint(1, 16), "alpha": round(pick.uniform(0, 2), 2)}
    values = {
        "temperature": pick.choice((0, 1, pick.uniform(0.05, 2))),
        "top_k": pick.choice((None, round(math.exp(pick.uniform(0, math.log(100_000)))))),
        "top_p": pick.choice((None, pick.uniform(0.01, 1))),
        "min_p": pick.choice((None, 10 ** pick.uniform(-4, 0))),
        "repetition_penalty": pick.choice((None, pick.uniform(0.8, 2))),
        "presence_penalty": pick.choice((None, pick.uniform(-2, 2))),
    }
    return {name: values[name] for name in SAMPLING if pick.random() < 0.6}


def bits(probs):
    """Entropy of a distribution, in bits."""
    return float(-torch.special.xlogy(probs, probs).sum() / math.log(2))


def check(page, explorer, shown):
    """Everything in the table against minigpt, and the kept sets over the whole vocabulary."""
    lines = {}
    for line in shown["rows"]:
        lines.setdefault(line[0], []).append(line[1:])
    counts = []
    for source in explorer.sources:
        tokens, logits = distributions.distribution(source)
        own, after = logits.double().softmax(-1), kept_by(explorer.settings, source)
        beams = explorer.settings.get("num_beams")
        rules = {"settings": explorer.settings} if beams is None else {"steps": [["top_k", beams]]}
        ids, p, _ = kept(page, source=source, **rules)
        finite = torch.zeros(len(tokens), dtype=torch.bool)
        finite[ids] = True  # a kept token's probability may round to 0
        assert not ((after > 0) & ~finite).any() and not after[~finite].any(), (source, explorer.settings)
        if "num_beams" not in explorer.settings:
            assert torch.allclose(p, after[ids], rtol=0, atol=1e-6), (source, explorer.settings)
        label = distributions.entry("sources", source)["label"]
        *named, rest, total = lines[label][:7]
        for text, i, before, is_kept, now in named:
            i = int(i)
            assert (text, is_kept) == (tokens[i], "kept" if finite[i] else "cut")
            assert float(before) == pytest.approx(float(own[i]), abs=1e-6)
            assert float(now) == pytest.approx(float(after[i]), abs=1e-6)
        assert int(total[3]) == len(ids) == int(rest[3]) + sum(line[3] == "kept" for line in named)
        assert float(total[4]) == pytest.approx(float(own[finite].sum()), abs=1e-6)
        if "num_beams" not in explorer.settings:
            entropy, choices = lines[label][7:]
            for column, probs in ((2, own), (4, after)):
                assert float(entropy[column]) == pytest.approx(bits(probs), abs=1e-5)
                assert float(choices[column]) == pytest.approx(2 ** bits(probs), rel=1e-5)
        counts.append(len(ids))
    return counts


def test_recipes_are_minigpts(page):
    """Every recipe as it stands: kept sets, probabilities, entropies, the sentence."""
    mount(page, RecipeExplorer())
    for name in recipes():
        explorer = RecipeExplorer(recipe=name)
        shown = set_state(page, recipe=name, changes={})
        counts = check(page, explorer, shown)
        assert "Off the recipe" not in shown["words"]
        if explorer.settings.get("temperature"):
            few, many = (f"{end(counts):,}" for end in (min, max))
            same = f"keep {few} after every prompt"
            assert (same if few == many else f"keep from {few} to {many}, depending") in shown["words"]
        else:
            assert set(counts) == {explorer.settings.get("num_beams", 1)}


def test_random_settings_are_minigpts(page):
    """Knobs anywhere they can be, switched on and off: the same on six prompts of 49,152 tokens."""
    mount(page, RecipeExplorer())
    pick, off = random.Random(SEED), 0
    for _ in range(SETTINGS):
        name = pick.choice(list(recipes()))
        changes = random_changes(pick, name)
        explorer = RecipeExplorer(recipe=name, changes=changes)
        shown = set_state(page, recipe=name, changes=changes)
        check(page, explorer, shown)
        off += "Off the recipe" in shown["words"]
        python, _ = lines_to_copy(page)
        if "num_beams" not in explorer.settings:
            assert eval(python, {"SamplingParams": SamplingParams}) == SamplingParams(**explorer.settings)
    assert off > SETTINGS / 2


def lines_to_copy(page):
    """The line of Python and the command line."""
    return page.locator(".nt-recipe-line code").all_text_contents()


def test_lines_to_copy(page):
    """Copied with their buttons, they say the same settings to Python and to the command line."""
    mount(page, RecipeExplorer())
    page.evaluate("probe.catchCopies()")
    for name in recipes():
        set_state(page, recipe=name, changes={})
        python, shell = lines_to_copy(page)
        for label, text in (("Copy the line of Python", python), ("Copy the command line", shell)):
            page.get_by_label(label).click()
            assert page.evaluate("window.copied") == text
        settings = RecipeExplorer(recipe=name).settings
        words = shlex.split(shell)
        command_line._parser().parse_args(words[3:])  # knows every option
        assert words[:6] == ["python", "-m", "minigpt", "PROMPT", "--model", "smollm2"]
        flags = dict(zip(words[6::2], words[7::2], strict=True))
        if "num_beams" in settings:
            assert flags == {"--num-beams": "4", "--length-penalty": "gnmt:0.6"}
            assert python.endswith("num_beams=4, length_penalty=gnmt(0.6))")
        else:
            assert {k[2:].replace("-", "_"): float(v) for k, v in flags.items()} == settings
            assert eval(python, {"SamplingParams": SamplingParams}) == SamplingParams(**settings)


def test_every_stop_of_every_knob_is_legal(page):
    """Each stop is a setting that Python takes, and the stop named "off" switches the rule off."""
    mount(page, RecipeExplorer())
    script = """(recipe) => {
      probe.model.set("recipe", recipe);
      const seen = [];
      const sliders = () => [...probe.figure.querySelectorAll("input[type=range]")].filter((n) => n.checkVisibility());
      for (const slider of sliders())
        for (let i = 0; i <= Number(slider.max); i++) {
          probe.model.set("changes", {});
          slider.value = i;
          slider.dispatchEvent(new Event("input"));
          seen.push(probe.model.get("changes"));
        }
      return seen;
    }"""
    for recipe in ("chat", "translation"):
        page.evaluate("(recipe) => probe.set({ recipe, changes: {} })", recipe)
        seen = page.evaluate(script, recipe)
        assert len(seen) > 30 and {} in seen
        for changes in seen:
            RecipeExplorer(recipe=recipe, changes=changes)
        offs = {name for changes in seen for name, value in changes.items() if value is None}
        assert offs == ({"top_p", "repetition_penalty"} if recipe == "chat" else set())


def test_off_the_recipe_and_back(page):
    """A turned knob is named in the sentence with both values; the button and the knob's own arrow bring it back."""
    mount(page, RecipeExplorer())
    page.get_by_label("temperature T", exact=True).fill("36")
    assert page.evaluate("probe.model.get('changes')") == {"temperature": 1.8}
    assert "Off the recipe: temperature T 1.80 instead of 0.80." in page.evaluate("probe.read()")["words"]
    page.get_by_label("top-p", exact=True).fill("101")
    assert page.evaluate("probe.model.get('changes')") == {"temperature": 1.8, "top_p": None}
    assert "top-p off instead of 0.9" in page.evaluate("probe.read()")["words"]
    page.get_by_label("Reset temperature T").click()
    assert page.evaluate("probe.model.get('changes')") == {"top_p": None}
    page.get_by_text("Back to the recipe").click()
    assert page.evaluate("probe.model.get('changes')") == {}
    assert page.get_by_text("Back to the recipe").is_disabled()
    page.get_by_text("chat, far too hot").click()
    assert page.locator("[aria-pressed=true]").all_text_contents() == ["chat, far too hot"]
    words = page.evaluate("probe.read()")["words"]
    assert words.startswith("Of 49,152 tokens these settings keep 49,152 after every prompt")
    assert "temperature T 1.80 instead of 0.80" in words
    page.get_by_text("factual answers").click()  # another task is that task's recipe
    assert page.evaluate("probe.model.get('changes')") == {}
    assert page.evaluate("probe.read()")["words"].startswith("At T = 0 the likeliest of 49,152 tokens is taken")


def test_presets_are_legal():
    """The named examples of the figure are settings that Python takes."""
    text = (distributions.JS / "recipe.js").read_text()
    for recipe, changes in (
        ("chat", {"temperature": 1.8, "top_p": None}),
        ("creative", {"top_p": None}),
        ("creative", {"top_k": 50, "top_p": None}),
        ("translation", {"num_beams": 16}),
    ):
        RecipeExplorer(recipe=recipe, changes=changes)
        inside = ", ".join(f"{name}: {'null' if value is None else value}" for name, value in changes.items())
        assert f'"{recipe}", {{ {inside} }}' in text


def test_keyboard_reaches_every_control(show):
    """Tab stops at everything that can be used, each has a name; the arrows choose another task."""
    page = show(RecipeExplorer(changes={"temperature": 1}).to_html())
    assert check_tab_stops(page) > 12
    page.locator("input[type=radio]:checked").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("input[type=radio]:checked").get_attribute("value") == "summary"
    assert page.log.complaints == []


def test_hostile_text_stays_text(show):
    """What a notebook says about a test is shown, never run."""
    page = show(RecipeExplorer(tested={"chat": HOSTILE}).to_html())
    assert HOSTILE in page.locator(".nt-recipe-facts dd").all_text_contents()
    check_nothing_ran(page)
    assert page.log.complaints == []


def test_defaults_need_no_state(show):
    """A figure written by hand into a page; one with an unknown task says so."""
    state = '<script type="application/json">{"recipe": "poems"}</script>'
    page = show(
        '<div class="nt-explorer" data-explorer="recipe"></div>',
        f'<div class="nt-explorer" data-explorer="recipe">{state}</div>',
    )
    assert page.locator(".nt-recipe-panel").count() == len(SOURCES)
    assert "nothing on this page measures it" in page.locator(".nt-recipe-facts").first.text_content()
    assert "no recipe named poems" in page.locator(".nt-notice").nth(1).text_content()


@pytest.mark.parametrize("width", [1200, 390])
def test_fits(show, width):
    """No figure is wider than the screen, and no text hangs out of it, whatever is chosen."""
    long = "Yes: " + "a long sentence with its counts, " * 6
    figures = (RecipeExplorer(tested={"chat": long}), RecipeExplorer(recipe="translation"))
    page = show(*(figure.to_html() for figure in figures), width=width)
    check_fits(page, width, nodes="span, b, text, button, output, label, code, dd, p")
