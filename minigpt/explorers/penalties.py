"""The penalty figure. Chapter 04."""

import torch
from traitlets import Float, Int, List, Unicode, validate

from minigpt.explorers.base import Explorer, check_choice
from minigpt.explorers.distributions import catalogue, distribution, entry, real
from minigpt.sampling import SamplingParams, apply, bind


class PenaltyExplorer(Explorer):
    """A text whose tokens can be edited, and what each penalty makes of the next-token distribution because of it.

    The logits stay those of the model after the source's own text; an edited text changes what the penalties count.

    Args:
        source: name of a distribution with a text, `"toy-loop"`, `"loop"`, `"script"` or `"records"`.
        history: token ids of the text; `None` is the source's own.
        prompt_length: how many of them are prompt; `None` is the source's own number.
        repetition_penalty: θ, above 0; 1 changes nothing.
        frequency_penalty: f, finite; 0 changes nothing.
        presence_penalty: r, finite; 0 changes nothing.
        no_repeat_ngram_size: n, at least 1, or `None`.
        sign: `"by-sign"`, as today's engines do, or `"divide"`: as the paper's own code, θ divides whatever the sign.

    Raises:
        ValueError: an unknown name, a value outside its range, ids outside the vocabulary.
    """

    name = "penalties"
    source = Unicode("loop").tag(sync=True)
    history = List(Int(), None, allow_none=True).tag(sync=True)
    prompt_length = Int(None, allow_none=True).tag(sync=True)
    repetition_penalty = Float(1.2).tag(sync=True)
    frequency_penalty = Float(0.0).tag(sync=True)
    presence_penalty = Float(0.0).tag(sync=True)
    no_repeat_ngram_size = Int(None, allow_none=True).tag(sync=True)
    sign = Unicode("by-sign").tag(sync=True)

    @validate("source")
    def _check_source(self, proposal):
        names = [source["name"] for source in catalogue()["sources"] if "prompt_length" in source]
        if proposal.value not in names:
            raise ValueError(f"source={proposal.value!r} has no text to penalise: choose one of {', '.join(names)}")
        return proposal.value

    @validate("history")
    def _check_history(self, proposal):
        source = entry("sources", self.source)
        V = len(source["tokens"] if "tokens" in source else real()["tokens"])
        wrong = [i for i in proposal.value or () if not 0 <= i < V]
        if wrong:
            raise ValueError(
                f"history holds {wrong[0]}: ids of {self.source!r} run from 0 to {V - 1}; None is its own text"
            )
        return proposal.value

    @validate("prompt_length")
    def _check_prompt_length(self, proposal):
        if proposal.value is not None and proposal.value < 0:
            raise ValueError(f"prompt_length={proposal.value} must be at least 0, or None for the source's own")
        return proposal.value

    @validate("repetition_penalty", "frequency_penalty", "presence_penalty", "no_repeat_ngram_size")
    def _check_penalty(self, proposal):
        SamplingParams(**{proposal.trait.name: proposal.value})
        return proposal.value

    @validate("sign")
    def _check_sign(self, proposal):
        return check_choice(proposal, ("by-sign", "divide"))

    def text(self):
        """The text shown: `(ids (1, S), how many are prompt)`."""
        source = entry("sources", self.source)
        own = source["history"] if "history" in source else real()["prompts"][self.source]
        ids = own if self.history is None else self.history
        length = source["prompt_length"] if self.prompt_length is None else self.prompt_length
        return torch.tensor([ids], dtype=torch.int64), min(length, len(ids))

    def penalised(self):
        """Logits (V,) before and after the penalties; after may be `-inf` everywhere."""
        logits = distribution(self.source)[1][None]  # (1, V)
        ids, length = self.text()
        theta, z = self.repetition_penalty, logits
        if self.sign == "divide":
            seen = torch.zeros_like(z, dtype=torch.bool).scatter(1, ids, True)
            z, theta = torch.where(seen, z / theta, z), None
        params = SamplingParams(
            repetition_penalty=theta,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
        )
        return logits[0], apply(bind(params.pipeline(), length), ids, z)[0]

    def picture(self):
        """The likeliest tokens before the penalties, with what they leave of them; a banned one is cut."""
        tokens = distribution(self.source)[0]
        before, after = (z.double().softmax(-1).nan_to_num(0) for z in self.penalised())
        top = before.argsort(descending=True, stable=True)[:8].tolist()
        rows = [(tokens[i], float(after[i] or before[i]), bool(after[i] > 0)) for i in top]
        rest = max(0.0, float(1 - after[top].sum())) if after.any() else 0.0
        others = len(tokens) - len(top)
        return [*rows, (f"{others:,} others", rest, rest > 0)] if others else rows
