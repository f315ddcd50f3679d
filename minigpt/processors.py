"""Logits processors: one class per decoding rule. Chapters 02 (temperature), 03 (truncation) and 04 (penalties).

A processor is a pure callable `(token_ids (B, S), logits (B, V)) -> logits (B, V)`. It works in float32 or better,
filters a token by giving it `-inf`, never edits its input and keeps no state. Inside a rule tokens are ordered by
falling logit, and by rising id where logits are equal.
"""

import math
import numbers
from dataclasses import dataclass, field, replace

import torch


def check_logits(logits):
    """Return logits (B, V) in float32 or better, or say what is wrong with them.

    Raises:
        ValueError: not two-dimensional, a NaN or `+inf`, or a row in which every token is `-inf`.
    """
    if logits.dim() != 2:
        raise ValueError(f"logits have shape {tuple(logits.shape)}: processors take (B, V), one row per text")
    peak = logits.amax(-1)
    bad = ~peak.isfinite()  # amax spreads NaN
    if bad.any():
        row = int(bad.nonzero()[0])
        what = "is -inf everywhere: its rules leave no token" if peak[row] == -torch.inf else "holds a NaN or +inf"
        raise ValueError(f"row {row} of the logits {what}; look at the model or at the processor before this one")
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


class Processor:
    """What all rules share: checked logits in, filtered logits out."""

    def __call__(self, token_ids, logits):
        """Apply the rule.

        Args:
            token_ids: the text so far, (B, S) int64; rules about the distribution alone ignore it.
            logits: (B, V), any floating dtype.

        Returns:
            New logits (B, V), float32 or better.

        Raises:
            ValueError: as `check_logits`.
        """
        return self._apply(token_ids, check_logits(logits))

    def _check(self, name, legal, rule):
        value = getattr(self, name)
        number = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
        if not (number and legal(value)):
            raise ValueError(f"{name}={value!r} must be {rule}")


@dataclass(frozen=True)
class Temperature(Processor):
    """Divide the logits by the temperature T: below 1 sharpens, above 1 flattens, 1 changes nothing.

    At 0 only the argmax stays (the lowest id on a tie), which is greedy decoding. The maximum is subtracted first, so
    that no division overflows; probabilities do not notice.

    Args:
        temperature: T, finite, at least 0.

    Raises:
        ValueError: T negative or not finite.

    Example:
        >>> Temperature(0.5)(None, torch.tensor([[2.0, 1.0, 0.5]])).softmax(-1)
        tensor([[0.8438, 0.1142, 0.0420]])
    """

    temperature: float

    def __post_init__(self):
        self._check("temperature", lambda t: t >= 0, "a finite number, at least 0; 0 is greedy, 1 changes nothing")

    def _apply(self, token_ids, logits):
        if self.temperature == 1:
            return logits
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.full_like(logits, -torch.inf).scatter(-1, best, logits.gather(-1, best))
        below_peak = logits.double() - logits.double().amax(-1, keepdim=True)
        return (below_peak / self.temperature).to(logits.dtype)


class Truncation(Processor):
    """A rule that keeps some tokens as they are and gives the others `-inf`."""

    def _apply(self, token_ids, logits):
        return logits.masked_fill(~self.keep(logits), -torch.inf)

    def keep(self, logits):
        """Which tokens stay: (B, V) bool, for logits (B, V) in float32 or better."""
        raise NotImplementedError


def _probs(logits):
    """Probabilities in float64, whose sums can be trusted over 49,152 tokens."""
    return logits.double().softmax(-1)


def _entropy(probs):
    """Shannon entropy in nats, (B, 1)."""
    return -torch.special.xlogy(probs, probs).sum(-1, keepdim=True)


def _smallest_prefix(probs, order, mass):
    """Keep tokens in `order` until their probability reaches `mass`: the one that crosses it stays."""
    sorted_probs = probs.gather(-1, order)
    before = sorted_probs.cumsum(-1).roll(1, -1)
    before[:, 0] = 0  # mass before the first token
    return torch.zeros_like(probs, dtype=torch.bool).scatter(-1, order, before < mass)


@dataclass(frozen=True)
class TopK(Truncation):
    """Keep the k most likely tokens, exactly k even where logits tie. Fan et al. 2018.

    Args:
        top_k: k, an integer of at least 1; above V it acts as V.

    Raises:
        ValueError: k below 1 or not an integer.

    Example:
        >>> TopK(2)(None, torch.tensor([[1.0, 2.0, 2.0, 2.0]]))
        tensor([[-inf, 2., 2., -inf]])
    """

    top_k: int

    def __post_init__(self):
        rule = "an integer of at least 1; None in SamplingParams turns it off"
        self._check("top_k", lambda k: isinstance(k, numbers.Integral) and k >= 1, rule)

    def keep(self, logits):
        """The k largest logits; of those equal to the k-th, the lowest ids."""
        k = min(self.top_k, logits.size(-1))
        kth = logits.topk(k).values[:, -1:]
        above, tied = logits > kth, logits == kth
        return above | (tied & (tied.cumsum(-1) <= k - above.sum(-1, keepdim=True)))


@dataclass(frozen=True)
class TopP(Truncation):
    """Keep the nucleus: the smallest set of most likely tokens whose mass reaches p. Holtzman et al. 2020.

    Args:
        top_p: p in (0, 1]; 1 changes nothing.

    Raises:
        ValueError: p outside (0, 1].

    Example:
        >>> TopP(0.9)(None, torch.tensor([[0.5, 0.35, 0.10, 0.05]]).log()).isfinite()
        tensor([[ True,  True,  True, False]])
    """

    top_p: float

    def __post_init__(self):
        rule = "in (0, 1]; for the argmax alone use temperature=0, and 1 keeps everything"
        self._check("top_p", lambda p: 0 < p <= 1, rule)

    def keep(self, logits):
        """Tokens whose predecessors hold less than p."""
        if self.top_p == 1:
            return torch.ones_like(logits, dtype=torch.bool)
        order = logits.argsort(dim=-1, descending=True, stable=True)
        return _smallest_prefix(_probs(logits), order, self.top_p)


@dataclass(frozen=True)
class MinP(Truncation):
    """Keep tokens at least `min_p` times as likely as the most likely one. Nguyen et al. 2024.

    Args:
        min_p: in [0, 1]; 0 keeps everything, 1 the argmax and its exact ties.

    Raises:
        ValueError: min_p outside [0, 1].
    """

    min_p: float

    def __post_init__(self):
        self._check("min_p", lambda p: 0 <= p <= 1, "in [0, 1]; 0 keeps everything, 1 only the most likely token")

    def keep(self, logits):
        """A ratio of probabilities is a difference of logits: no softmax is needed."""
        floor = math.log(self.min_p) if self.min_p else -math.inf
        return logits.double() >= logits.double().amax(-1, keepdim=True) + floor


@dataclass(frozen=True)
class Typical(Truncation):
    """Keep the tokens whose surprise is nearest the entropy, until their mass reaches τ. Meister et al. 2023.

    The most likely token may go.

    Args:
        typical_p: τ in (0, 1]; 1 changes nothing.

    Raises:
        ValueError: τ outside (0, 1].
    """

    typical_p: float

    def __post_init__(self):
        self._check("typical_p", lambda p: 0 < p <= 1, "in (0, 1]; 1 keeps everything")

    def keep(self, logits):
        """The smallest set in order of |−log p − H|."""
        if self.typical_p == 1:
            return torch.ones_like(logits, dtype=torch.bool)
        log_probs = logits.double().log_softmax(-1)
        probs = log_probs.exp()
        deviation = (-log_probs - _entropy(probs)).abs()
        return _smallest_prefix(probs, deviation.argsort(dim=-1, stable=True), self.typical_p)


@dataclass(frozen=True)
class Epsilon(Truncation):
    """Keep tokens of probability ε or more, and always the most likely. Hewitt et al. 2022.

    Args:
        epsilon: ε in (0, 1).

    Raises:
        ValueError: ε outside (0, 1).
    """

    epsilon: float

    def __post_init__(self):
        self._check("epsilon", lambda e: 0 < e < 1, "in (0, 1), usually 3e-4 to 9e-4; None turns it off")

    def keep(self, logits):
        """A floor on the probability itself."""
        return (_probs(logits) >= self.epsilon) | (logits == logits.amax(-1, keepdim=True))


@dataclass(frozen=True)
class Eta(Truncation):
    """Keep tokens of probability min(ε, √ε · exp(−H)) or more, and always the most likely. Hewitt et al. 2022.

    Args:
        eta: ε in (0, 1); H is the entropy in nats.

    Raises:
        ValueError: ε outside (0, 1).
    """

    eta: float

    def __post_init__(self):
        self._check("eta", lambda e: 0 < e < 1, "in (0, 1), usually 3e-4 to 4e-3; None turns it off")

    def keep(self, logits):
        """A floor that sinks where the distribution is flat."""
        probs = _probs(logits)
        floor = (math.sqrt(self.eta) * (-_entropy(probs)).exp()).clamp(max=self.eta)
        return (probs >= floor) | (logits == logits.amax(-1, keepdim=True))


@dataclass(frozen=True)
class TopNSigma(Truncation):
    """Keep logits within n standard deviations of the largest, whatever the temperature. Tang et al. 2024.

    Args:
        top_n_sigma: n, above 0; σ is the population standard deviation of the finite logits.

    Raises:
        ValueError: n not above 0.
    """

    top_n_sigma: float

    def __post_init__(self):
        self._check("top_n_sigma", lambda n: n > 0, "a finite number above 0, usually 1 to 2; None turns it off")

    def keep(self, logits):
        """Filtered tokens (`-inf`) do not count towards σ."""
        finite = logits.isfinite()
        z = logits.double().masked_fill(~finite, 0)
        count = finite.sum(-1, keepdim=True)
        mean = z.sum(-1, keepdim=True) / count
        sigma = (((z - mean) ** 2 * finite).sum(-1, keepdim=True) / count).sqrt()
        return finite & (logits.double() >= logits.double().amax(-1, keepdim=True) - self.top_n_sigma * sigma)


@dataclass(frozen=True)
class Penalty(Processor):
    """A rule that looks at the text so far. It has to tell the prompt from the answer, and padding from both.

    Args:
        prompt_length: columns of `token_ids` that are prompt, at least 0; 0 takes the whole text for an answer.
        attention_mask: (B, P) bool, `False` where the prompt is padded, on the left; `None` is no padding.

    Raises:
        ValueError: a negative `prompt_length`; when called, a mask of other rows, a text that does not fit the logits.
    """

    prompt_length: int = field(default=0, kw_only=True)
    attention_mask: torch.Tensor | None = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self):
        rule = "an integer of at least 0: the columns of token_ids that are prompt; 0 counts the whole text as answer"
        self._check("prompt_length", lambda n: isinstance(n, numbers.Integral) and n >= 0, rule)

    def bind(self, prompt_length, attention_mask=None):
        """A copy that knows the prompt of this call; `generate` and its kin bind every processor once."""
        return replace(self, prompt_length=prompt_length, attention_mask=attention_mask)

    def _apply(self, token_ids, logits):
        B, V = logits.shape
        if token_ids is None or token_ids.dim() != 2 or len(token_ids) != B:
            shape = None if token_ids is None else tuple(token_ids.shape)
            raise ValueError(f"token_ids has shape {shape}: {type(self).__name__} needs the text so far, ({B}, S)")
        if token_ids.numel() and not 0 <= token_ids.min() <= token_ids.max() < V:
            wrong = token_ids[(token_ids < 0) | (token_ids >= V)][0]
            raise ValueError(f"token id {int(wrong)} is outside the vocabulary of {V}: ids run from 0 to {V - 1}")
        mask = self.attention_mask
        if mask is not None and (mask.dim() != 2 or len(mask) != B):
            raise ValueError(f"attention_mask has shape {tuple(mask.shape)}: bind one row per text, ({B}, P)")
        return self._penalise(token_ids, logits)

    def _real(self, token_ids):
        """Which columns are text and not padding: (B, S) bool."""
        real = torch.ones_like(token_ids, dtype=torch.bool)
        if self.attention_mask is not None:
            real[:, : self.attention_mask.size(1)] = self.attention_mask[:, : token_ids.size(1)]
        return real

    def _counts(self, token_ids, logits, start=0):
        """How often each token occurs from column `start` on, padding left out: (B, V), of the logits' dtype."""
        real = self._real(token_ids)[:, start:].to(logits.dtype)
        return torch.zeros_like(logits).scatter_add(1, token_ids[:, start:], real)


@dataclass(frozen=True)
class RepetitionPenalty(Penalty):
    """Divide the logit of every token seen by θ if it is positive, multiply it if not. Keskar et al. 2019.

    Once a token, however often it occurs; in prompt and answer, never in padding. The paper's own code divides
    whatever the sign, which rewards a repeated token of negative logit; today's engines do it as here.

    Args:
        repetition_penalty: θ, above 0; above 1 discourages, 1 changes nothing, below 1 encourages.

    Raises:
        ValueError: θ not above 0.

    Example:
        >>> RepetitionPenalty(2.0)(torch.tensor([[0, 2]]), torch.tensor([[-1.0, -2.0, 1.0]]))
        tensor([[-2.0000, -2.0000,  0.5000]])
    """

    repetition_penalty: float

    def __post_init__(self):
        rule = "a finite number above 0, usually 1.05 to 1.3; 1 changes nothing"
        super().__post_init__()
        self._check("repetition_penalty", lambda theta: theta > 0, rule)

    def _penalise(self, token_ids, logits):
        seen = self._counts(token_ids, logits) > 0
        weaker = torch.where(logits > 0, logits / self.repetition_penalty, logits * self.repetition_penalty)
        return torch.where(seen, weaker, logits)


@dataclass(frozen=True)
class FrequencyPenalty(Penalty):
    """Subtract f for every time that the answer has used a token. OpenAI's API.

    Args:
        frequency_penalty: f, finite, in nats of logit; negative encourages, 0 changes nothing.

    Raises:
        ValueError: f not finite.

    Example:
        >>> FrequencyPenalty(0.5)(torch.tensor([[1, 1, 2]]), torch.zeros(1, 4))
        tensor([[ 0.0000, -1.0000, -0.5000,  0.0000]])
    """

    frequency_penalty: float

    def __post_init__(self):
        super().__post_init__()
        self._check("frequency_penalty", lambda f: True, "a finite number, usually 0 to 1; 0 changes nothing")

    def _penalise(self, token_ids, logits):
        return logits - self.frequency_penalty * self._counts(token_ids, logits, self.prompt_length)


@dataclass(frozen=True)
class PresencePenalty(Penalty):
    """Subtract r once from every token that the answer has used, however often. OpenAI's API.

    Args:
        presence_penalty: r, finite, in nats of logit; negative encourages, 0 changes nothing.

    Raises:
        ValueError: r not finite.
    """

    presence_penalty: float

    def __post_init__(self):
        super().__post_init__()
        self._check("presence_penalty", lambda r: True, "a finite number, usually 0 to 1; 0 changes nothing")

    def _penalise(self, token_ids, logits):
        used = self._counts(token_ids, logits, self.prompt_length) > 0
        return torch.where(used, logits - self.presence_penalty, logits)


@dataclass(frozen=True)
class NoRepeatNGram(Penalty):
    """Ban every token that would complete an n-gram of the text for a second time. Paulus et al. 2017.

    Prompt and answer count as one text; an n-gram with padding in it is none.

    Args:
        no_repeat_ngram_size: n, at least 1; 1 bans every token seen.

    Raises:
        ValueError: n below 1 or not an integer. When the ban leaves no token, the next rule or the draw says so.

    Example:
        >>> NoRepeatNGram(2)(torch.tensor([[1, 2, 1]]), torch.zeros(1, 4))
        tensor([[0., 0., -inf, 0.]])
    """

    no_repeat_ngram_size: int

    def __post_init__(self):
        rule = "an integer of at least 1; None in SamplingParams turns it off"
        super().__post_init__()
        self._check("no_repeat_ngram_size", lambda n: isinstance(n, numbers.Integral) and n >= 1, rule)

    def _penalise(self, token_ids, logits):
        n = self.no_repeat_ngram_size
        if token_ids.size(1) < n:
            return logits
        grams = token_ids.unfold(1, n, 1)  # (B, S − n + 1, n)
        open_gram = token_ids[:, token_ids.size(1) - n + 1 :]  # (B, n − 1): what the next token would complete
        again = (grams[..., :-1] == open_gram[:, None]).all(-1) & self._real(token_ids).unfold(1, n, 1).all(-1)
        banned = torch.zeros_like(logits).scatter_add(1, grams[..., -1], again.to(logits.dtype)) > 0
        return logits.masked_fill(banned, -torch.inf)
