"""From logits to a token: the settings of a request, the pipeline they make, and the draw. Chapters 02, 03 and 05."""

from dataclasses import dataclass

import torch

from minigpt.processors import (
    Epsilon,
    Eta,
    FrequencyPenalty,
    MinP,
    NoRepeatNGram,
    PresencePenalty,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    Typical,
    check_logits,
)

RULES = {
    "repetition_penalty": RepetitionPenalty,
    "frequency_penalty": FrequencyPenalty,
    "presence_penalty": PresencePenalty,
    "no_repeat_ngram_size": NoRepeatNGram,
    "temperature": Temperature,
    "top_k": TopK,
    "top_p": TopP,
    "min_p": MinP,
    "typical_p": Typical,
    "epsilon": Epsilon,
    "eta": Eta,
    "top_n_sigma": TopNSigma,
}

PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty", "no_repeat_ngram_size")

# The order in which each engine applies its rules, read from its source; what transformers lacks comes last there, but
# for the two penalties of the OpenAI API. What an engine lacks is not listed.
ORDERS = {
    "huggingface": (
        *PENALTIES,
        *("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon", "eta", "top_n_sigma"),
    ),
    "vllm": (*PENALTIES[:3], "temperature", "min_p", "top_k", "top_p"),
    "llama.cpp": (*PENALTIES[:3], "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "temperature"),
}


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the next token; `None` switches a rule off.

    Args:
        temperature: at least 0; 0 is greedy: penalties, then the argmax, lowest id on a tie, truncation skipped.
        top_k: at least 1.
        top_p: in (0, 1].
        min_p: in [0, 1].
        typical_p: in (0, 1].
        epsilon: in (0, 1).
        eta: in (0, 1).
        top_n_sigma: above 0.
        repetition_penalty: above 0; 1 changes nothing.
        frequency_penalty: any finite number; 0 changes nothing.
        presence_penalty: any finite number; 0 changes nothing.
        no_repeat_ngram_size: at least 1.
        seed: makes the draws repeatable, each row by itself; `None` is fresh every time.
        order: `"huggingface"`, `"vllm"` or `"llama.cpp"`: which engine's order the rules follow (`ORDERS`).

    Raises:
        ValueError: a value outside its range, an unknown order, a rule the named engine lacks.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon: float | None = None
    eta: float | None = None
    top_n_sigma: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    seed: int | None = None
    order: str = "huggingface"

    def __post_init__(self):
        if self.order not in ORDERS:
            raise ValueError(f"order={self.order!r} is unknown: choose one of {', '.join(ORDERS)}")
        if self.seed is not None and not (isinstance(self.seed, int) and 0 <= self.seed < 2**63):
            raise ValueError(f"seed={self.seed!r} must be an integer from 0 to 2**63 - 1, or None for a fresh one")
        if self.temperature is None:
            raise ValueError("temperature=None must be a number: 0 is greedy, 1 changes nothing")
        self._processors()  # the rules check their values
        for name in RULES:
            if getattr(self, name) is not None and name not in ORDERS[self.order]:
                raise ValueError(f"{self.order} has no {name}: leave it None, or use order='huggingface'")

    @property
    def is_greedy(self):
        """Whether the argmax is taken and nothing is drawn."""
        return self.temperature == 0

    def pipeline(self):
        """The processors these settings ask for, in the engine's order: a tuple of callables."""
        made = self._processors()
        if self.is_greedy:
            return (*(made[name] for name in PENALTIES if name in made), made["temperature"])
        return tuple(made[name] for name in ORDERS[self.order] if name in made)

    def _processors(self):
        settings = {name: getattr(self, name) for name in RULES}
        made = {name: RULES[name](value) for name, value in settings.items() if value is not None}
        if self.temperature == 1:
            del made["temperature"]  # changes nothing
        return made


def apply(processors, token_ids, logits):
    """Pass logits (B, V) through processors in turn: (B, V)."""
    for processor in processors:
        logits = processor(token_ids, logits)
    return logits


def bind(processors, prompt_length, attention_mask=None):
    """Tell processors where the prompt ends and what is padding; a callable without `bind` stays as it is.

    Args:
        processors: callables `(token_ids, logits) -> logits`.
        prompt_length: columns of the prompt, P.
        attention_mask: (B, P) bool, `False` where the prompt is padded; `None` is no padding.

    Returns:
        A tuple of as many callables.
    """
    return tuple(p.bind(prompt_length, attention_mask) if hasattr(p, "bind") else p for p in processors)


def draw(logits, uniforms):
    """Sample one token a row by inverting the cumulative distribution.

    Args:
        logits: (B, V), filtered tokens `-inf`.
        uniforms: (B,), each in [0, 1).

    Returns:
        ids (B,): the first id whose cumulative probability (float64, in id order) exceeds the row's uniform number.
        A token of probability 0 adds nothing to the sum, so it can never be the first to exceed it.

    Raises:
        ValueError: as `check_logits`; uniforms of another length or outside [0, 1).
    """
    logits = check_logits(logits).double()
    uniforms = torch.as_tensor(uniforms, dtype=torch.float64)
    if uniforms.shape != logits.shape[:1] or not ((uniforms >= 0) & (uniforms < 1)).all():
        raise ValueError(f"uniforms={uniforms.tolist()} must be {logits.size(0)} numbers in [0, 1), one per row")
    weights = (logits - logits.amax(-1, keepdim=True)).exp()
    cumulative = weights.cumsum(-1)  # (B, V)
    thresholds = uniforms[:, None] * cumulative[:, -1:]  # below the last sum, since u <= 1 - 2**-53
    return torch.searchsorted(cumulative, thresholds, right=True).squeeze(1)


class Uniforms:
    """A stream of uniform numbers for each row, so that a row never depends on its neighbours.

    Row r of seed s has a generator of its own, seeded by the r-th draw of a generator seeded with s.

    Args:
        seeds: one a row: `seeds[r]` is the request's seed, or `None` for a fresh one.
        rows: which row of its own call each is; rows of one call share a seed and differ here.
    """

    def __init__(self, seeds, rows):
        self._generators = [self._generator(seed, row) for seed, row in zip(seeds, rows, strict=True)]

    @staticmethod
    def _generator(seed, row):
        first = torch.Generator()
        if seed is None:
            first.seed()
        else:
            first.manual_seed(seed)
        draws = torch.rand(row + 1, generator=first, dtype=torch.float64)
        return torch.Generator().manual_seed(int(draws[-1] * 2**32))

    def next(self):
        """One number in [0, 1) a row: (B,) float64."""
        return torch.cat([torch.rand(1, generator=g, dtype=torch.float64) for g in self._generators])
