"""The order lab: the same rules in the order of three engines and in the reader's own. Chapter 05."""

import torch
from traitlets import Dict, List, Unicode, validate

from minigpt.explorers.base import Explorer
from minigpt.explorers.distributions import catalogue, distribution, entry, real
from minigpt.processors import Temperature
from minigpt.sampling import ORDERS, RULES, SamplingParams, apply

CARDS = ("repetition_penalty", "temperature", *(method["setting"] for method in catalogue()["methods"]))
START = {"temperature": 1.5, "top_k": 50, "top_p": 0.9, "min_p": 0.05}


class OrderExplorer(Explorer):
    """Rules as cards in a row: move them, switch them, and compare the kept tokens with those of three engines.

    Args:
        source: name of a distribution in `js/catalogue.js`, such as `"toy-three"`, `"capital"`, `"once"`.
        settings: rule → value, named as in `SamplingParams`; a rule left out is off. The rules are those of `CARDS`.
        order: names of the rules in the reader's order; those left out follow.
        shown: whose order the cards show, `"yours"` or an engine of `minigpt.sampling.ORDERS`.

    Raises:
        ValueError: an unknown name, a rule named twice, a value outside its range.
    """

    name = "order"
    source = Unicode("capital").tag(sync=True)
    settings = Dict(START).tag(sync=True)
    order = List([rule for rule in ORDERS["huggingface"] if rule in CARDS]).tag(sync=True)
    shown = Unicode("yours").tag(sync=True)

    @validate("source")
    def _check_source(self, proposal):
        return entry("sources", proposal.value)["name"]

    @validate("settings")
    def _check_settings(self, proposal):
        _check_rules("settings", proposal.value)
        SamplingParams(**proposal.value)
        if proposal.value.get("temperature", 1) > 2:
            raise ValueError(f"temperature={proposal.value['temperature']} must be in [0, 2], the range of the slider")
        return proposal.value

    @validate("order")
    def _check_order(self, proposal):
        _check_rules("order", proposal.value)
        if len(set(proposal.value)) < len(proposal.value):
            raise ValueError(f"order={proposal.value} names a rule twice: give each once, those left out follow")
        return proposal.value

    @validate("shown")
    def _check_shown(self, proposal):
        if proposal.value != "yours":
            entry("orders", proposal.value)
        return proposal.value

    def processors(self):
        """The rules that are on, in the reader's order; at temperature 0 penalties and the argmax alone."""
        order = [*self.order, *(rule for rule in CARDS if rule not in self.order)]
        if self.settings.get("temperature") == 0:
            order = ["repetition_penalty", "temperature"]
        return [RULES[rule](self.settings[rule]) for rule in order if self.settings.get(rule) is not None]

    def picture(self):
        """The likeliest tokens, kept or cut by the reader's order."""
        tokens, logits = distribution(self.source)
        text = torch.tensor([real()["prompts"].get(self.source, [])], dtype=torch.int64)
        after = apply(self.processors(), text, logits[None])[0].double().softmax(-1)
        before = Temperature(1.0)(text, logits[None])[0].double().softmax(-1)
        ids = logits.argsort(descending=True, stable=True)[:8].tolist()
        rows = [(tokens[i], float(after[i] or before[i]), bool(after[i] > 0)) for i in ids]
        rest = max(0.0, 1 - float(after[ids].sum()))
        others = len(tokens) - len(ids)
        return [*rows, (f"{others:,} others", rest, rest > 0)] if others > 0 else rows


def _check_rules(trait, names):
    for name in names:
        if name not in CARDS:
            raise ValueError(f"{trait}: {name!r} has no card: choose from {', '.join(CARDS)}")
