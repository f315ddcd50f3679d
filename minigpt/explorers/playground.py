"""The playground: a play model that runs in the reader's browser, with the settings of Part I and a cache to switch."""

import torch
from traitlets import Bool, Float, Int, Unicode, validate

from minigpt.explorers.base import Explorer
from minigpt.explorers.weights import NAMES
from minigpt.pretrained import load
from minigpt.processors import Temperature
from minigpt.sampling import ORDERS, SamplingParams, apply, bind

RULES = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")


class PlaygroundExplorer(Explorer):
    """A play model writing on from a prompt, one character at a time or by itself.

    Args:
        prompt: the text to go on from; characters that the model does not know are left out.
        model: `"shakespeare"` or `"shakespeare-early"`.
        temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty: as in
            `SamplingParams`, but whole or real numbers only: 0 for `top_k` and `min_p`, 1 for `top_p` and the
            repetition penalty, 0 for the two others are off.
        order: the engine whose order the rules follow.
        seed: of the draws, 0 to 2**32 - 1.
        cached: with a KV cache, or without.
        slide: at the end of the context go on from its last half, or stop.

    Raises:
        ValueError: an unknown name, a number outside its range.
    """

    name = "playground"
    scripts = ("engine.js", "session.js")
    prompt = Unicode("ROMEO:\n").tag(sync=True)
    model = Unicode("shakespeare-early").tag(sync=True)
    temperature = Float(0.0).tag(sync=True)
    top_k = Int(0).tag(sync=True)
    top_p = Float(1.0).tag(sync=True)
    min_p = Float(0.0).tag(sync=True)
    repetition_penalty = Float(1.0).tag(sync=True)
    frequency_penalty = Float(0.0).tag(sync=True)
    presence_penalty = Float(0.0).tag(sync=True)
    order = Unicode("huggingface").tag(sync=True)
    seed = Int(1).tag(sync=True)
    cached = Bool(True).tag(sync=True)
    slide = Bool(True).tag(sync=True)

    @validate("model")
    def _check_model(self, proposal):
        if proposal.value not in NAMES:
            raise ValueError(f"model={proposal.value!r} must be one of {', '.join(NAMES)}")
        return proposal.value

    @validate("order")
    def _check_order(self, proposal):
        if proposal.value not in ORDERS:
            raise ValueError(f"order={proposal.value!r} must be one of {', '.join(ORDERS)}")
        return proposal.value

    @validate("seed")
    def _check_seed(self, proposal):
        if not 0 <= proposal.value < 2**32:
            raise ValueError(f"seed={proposal.value} must be in 0 to 2**32 - 1")
        return proposal.value

    @validate(*RULES)
    def _check_rule(self, proposal):
        name, value = proposal.trait.name, proposal.value
        if not (name == "top_k" and value == 0):
            SamplingParams(**{name: value})
        return value

    @property
    def params(self):
        """The `SamplingParams` of the settings."""
        values = {name: getattr(self, name) for name in RULES} | {"top_k": self.top_k or None}
        off = {"top_p": 1, "min_p": 0, "repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0}
        on = {name: value for name, value in values.items() if name not in off or value != off[name]}
        return SamplingParams(**on, order=self.order, seed=self.seed)

    def picture(self):
        """Rows `(token, probability, kept)` of the likeliest characters after the prompt."""
        model, tokenizer = load(self.model)
        ids = torch.tensor([tokenizer.encode(self.prompt)])[:, -model.config.context_length + 1 :]
        with torch.no_grad():
            logits = model(ids, num_logits=1)[:, -1]  # (1, V)
        after = apply(bind(self.params.pipeline(), ids.size(1)), ids, logits)[0].double().softmax(-1)
        before = Temperature(1.0)(None, logits)[0].double().softmax(-1)
        likeliest = before.argsort(descending=True, stable=True)[:8].tolist()
        return [(tokenizer.token_text(i), float(after[i] or before[i]), bool(after[i] > 0)) for i in likeliest]
