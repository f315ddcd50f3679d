"""The playground: a play model that runs in the reader's browser, with the settings of Part I and a cache to switch."""

import torch
from traitlets import Bool, Float, Int, Unicode, validate

from minigpt.explorers.base import Explorer, check_between, check_choice
from minigpt.explorers.weights import NAMES
from minigpt.pretrained import load
from minigpt.processors import Temperature
from minigpt.sampling import ORDERS, RULES, SamplingParams, apply, bind

# What switches each rule off, here where every setting is a number; the temperature is always on.
OFF = {
    **{"repetition_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0, "no_repeat_ngram_size": 0},
    **{"top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 1, "epsilon": 0, "eta": 0, "top_n_sigma": 0},
}


class PlaygroundExplorer(Explorer):
    """A play model writing on from a prompt, one character at a time or by itself.

    Args:
        prompt: the text to go on from; characters that the model does not know are left out.
        model: `"shakespeare"` or `"shakespeare-early"`.
        temperature, top_k, top_p, min_p, typical_p, epsilon, eta, top_n_sigma, repetition_penalty, frequency_penalty,
        presence_penalty, no_repeat_ngram_size: as in `SamplingParams`, but numbers only: 1 switches `top_p`,
            `typical_p` and the repetition penalty off, 0 the others.
        order: the engine whose order the rules follow; a rule it lacks is left out.
        seed: of the draws, 0 to 2**32 - 1.
        cached: with a KV cache, or without.
        slide: at the end of the context go on from its last half, or stop.
        small: only what a first look needs.

    Raises:
        ValueError: an unknown name, a number outside its range.
    """

    name = "playground"
    scripts = ("loops.js", "engine.js", "session.js", "playsettings.js", "playtext.js", "playview.js")
    prompt = Unicode("ROMEO:\n").tag(sync=True)
    model = Unicode("shakespeare-early").tag(sync=True)
    temperature = Float(0.0).tag(sync=True)
    top_k = Int(0).tag(sync=True)
    top_p = Float(1.0).tag(sync=True)
    min_p = Float(0.0).tag(sync=True)
    typical_p = Float(1.0).tag(sync=True)
    epsilon = Float(0.0).tag(sync=True)
    eta = Float(0.0).tag(sync=True)
    top_n_sigma = Float(0.0).tag(sync=True)
    repetition_penalty = Float(1.0).tag(sync=True)
    frequency_penalty = Float(0.0).tag(sync=True)
    presence_penalty = Float(0.0).tag(sync=True)
    no_repeat_ngram_size = Int(0).tag(sync=True)
    order = Unicode("huggingface").tag(sync=True)
    seed = Int(1).tag(sync=True)
    cached = Bool(True).tag(sync=True)
    slide = Bool(True).tag(sync=True)
    small = Bool(False).tag(sync=True)

    @validate("model")
    def _check_model(self, proposal):
        return check_choice(proposal, NAMES)

    @validate("order")
    def _check_order(self, proposal):
        return check_choice(proposal, ORDERS)

    @validate("seed")
    def _check_seed(self, proposal):
        return check_between(proposal, 0, 2**32 - 1)

    @validate(*RULES)
    def _check_rule(self, proposal):
        name, value = proposal.trait.name, proposal.value
        if name not in OFF or value != OFF[name]:
            SamplingParams(**{name: value})
        return value

    @property
    def params(self):
        """The `SamplingParams` of the settings."""
        values = {name: getattr(self, name) for name in ORDERS[self.order]}
        on = {name: value for name, value in values.items() if name not in OFF or value != OFF[name]}
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
