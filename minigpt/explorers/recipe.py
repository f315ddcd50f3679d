"""The recipe finder: settings that people advise for a task, and what they do to real distributions. Chapter 07."""

import functools
import json

import torch
from traitlets import Dict, List, Unicode, validate

from minigpt.explorers.base import Explorer
from minigpt.explorers.distributions import JS, distribution, entry, real
from minigpt.processors import TopK
from minigpt.sampling import SamplingParams, apply, bind

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty")
BEAMS = ("num_beams", "alpha")


@functools.cache
def recipes():
    """The table `js/recipes.js`: name of a task → its recipe, a dict with `"settings"`, `"range"`, `"reason"`, …."""
    text = (JS / "recipes.js").read_text(encoding="utf-8")
    table = json.loads(text.partition(".recipes = ")[2].strip().removesuffix(";"))
    return {recipe["name"]: recipe for recipe in table}


class RecipeExplorer(Explorer):
    """What a task's usual settings keep of several real distributions, side by side, and knobs to move away from them.

    Args:
        recipe: name of a task in `js/recipes.js`, such as `"chat"`, `"code-one"`, `"translation"`.
        changes: settings that differ from the recipe's, name → value; `None` switches a rule off.
        sources: names of distributions in `js/catalogue.js`, one panel each.
        tested: name of a task → one sentence on how its recipe came out here; a task without one was not tested.

    Raises:
        ValueError: an unknown name, a setting the recipe has no knob for, a value outside its range.
    """

    name = "recipe"
    scripts = ("recipes.js",)
    recipe = Unicode("chat").tag(sync=True)
    changes = Dict().tag(sync=True)
    sources = List(Unicode(), ["capital", "once", "sum", "json", "code", "chat"]).tag(sync=True)
    tested = Dict().tag(sync=True)

    @validate("recipe")
    def _check_recipe(self, proposal):
        return _recipe(proposal.value)["name"]

    @validate("sources")
    def _check_sources(self, proposal):
        if not proposal.value:
            raise ValueError("sources=[] leaves nothing to show: name at least one distribution")
        return [entry("sources", name)["name"] for name in proposal.value]

    @validate("changes")
    def _check_changes(self, proposal):
        settings = _recipe(self.recipe)["settings"]
        knobs = BEAMS if "num_beams" in settings else SAMPLING
        for name in proposal.value:
            if name not in knobs:
                raise ValueError(f"the recipe {self.recipe!r} has no knob {name!r}: change {', '.join(knobs)}")
        _check_settings({**settings, **proposal.value})
        return proposal.value

    @validate("tested")
    def _check_tested(self, proposal):
        return {_recipe(name)["name"]: text for name, text in proposal.value.items()}

    @property
    def settings(self):
        """The settings shown: the recipe's, with the changes; what is off is left out."""
        merged = {**_recipe(self.recipe)["settings"], **self.changes}
        return {name: value for name, value in merged.items() if value is not None}

    def picture(self, count=8):
        """The likeliest tokens of the first distribution under these settings, kept or cut."""
        source = self.sources[0]
        tokens, logits = distribution(source)
        before, after = logits.double().softmax(-1), kept_by(self.settings, source)
        rows = []
        for i in logits.argsort(descending=True, stable=True)[:count].tolist():
            rows.append((tokens[i], float(after[i] or before[i]), bool(after[i] > 0)))
        rest = max(0.0, 1 - sum(p for _, p, kept in rows if kept))
        return [*rows, (f"{len(tokens) - len(rows):,} others", rest, rest > 0)]


def kept_by(settings, source):
    """Probabilities of the next token under a recipe's settings.

    Args:
        settings: those of `SamplingParams`; or `num_beams`: the first step goes on with that many tokens.
        source: name of a distribution; the penalties count the tokens of its prompt as a prompt.

    Returns:
        (V,) float64, 0 for cut tokens; beams draw nothing, so theirs keep the model's own probability.
    """
    _, logits = distribution(source)
    ids = [] if "logits" in entry("sources", source) else real()["prompts"][source]
    if "num_beams" in settings:
        probs = logits.double().softmax(-1)
        return probs.where(TopK(settings["num_beams"]).keep(logits[None])[0], 0.0)
    pipeline = bind(SamplingParams(**settings).pipeline(), len(ids))
    return apply(pipeline, torch.tensor([ids], dtype=torch.int64), logits[None])[0].double().softmax(-1)


def _recipe(name):
    if name not in recipes():
        raise ValueError(f"{name!r} is not among the recipes: choose one of {', '.join(recipes())}")
    return recipes()[name]


def _check_settings(settings):
    if "num_beams" not in settings:
        SamplingParams(**settings)
        return
    beams, alpha = settings["num_beams"], settings["alpha"]
    if isinstance(beams, bool) or not (isinstance(beams, int) and 1 <= beams <= 16):
        raise ValueError(f"num_beams={beams!r} must be an integer from 1 to 16, the range of the slider")
    if not (isinstance(alpha, (int, float)) and 0 <= alpha <= 2):
        raise ValueError(f"alpha={alpha!r} must be in [0, 2], the range of the slider; 0 is no length penalty")
