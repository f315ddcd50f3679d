"""Choosing among whole answers, and measures of generated text. Chapters 01, 03 and 07.

Draw several answers and keep one: by likelihood or by a verifier (`best_of_n`), by counting (`majority_vote`), by
agreement (`minimum_bayes_risk`). `pass_at_k` says what k tries are worth; `EntropyTemperature` sets T at every step.
"""

import math
import numbers
from collections import Counter
from dataclasses import dataclass

import torch

from minigpt.generation import Request, generate
from minigpt.processors import Processor
from minigpt.sampling import SamplingParams


@dataclass(frozen=True)
class Answer:
    """One sampled answer.

    Args:
        token_ids: the new tokens, with the EOS that ended them.
        sum_log_prob: sum of the model's own log-probabilities of these tokens, in nats, before any processor.
        score: what the answer is ranked by.
        finish_reason: `"eos"`, `"length"` or `"context"`.
    """

    token_ids: tuple
    sum_log_prob: float
    score: float
    finish_reason: str

    @property
    def mean_log_prob(self):
        """Log-probability per token, in nats."""
        return self.sum_log_prob / len(self.token_ids)


def best_of_n(model, token_ids, *, n, max_new_tokens, score=None, params=SamplingParams(), **settings):  # noqa: B008
    """Sample n answers to each prompt in one batch and rank them; the prompt goes through the model once.

    Args:
        model: a `MiniGPT`, or anything with `.config` and its `forward`.
        token_ids: prompts, (B, P) int64.
        n: answers a prompt, at least 1.
        max_new_tokens: most tokens an answer, at least 1.
        score: a function of an answer's ids, its EOS left out: a number or a bool (a verifier), higher is better;
            `None` is the mean log-probability, which also decides between equal scores.
        params: `SamplingParams` with a temperature above 0. With a seed, a single prompt's answers for n are
            the first n of those for a larger n.
        **settings: `processors`, `eos_token_id`, `pad_token_id`, `attention_mask`, as for `generate`.

    Returns:
        For each prompt its n `Answer`s, best first, equals in the order they were drawn.

    Raises:
        ValueError: n below 1, greedy params, no room for a token, a score of NaN; what `generate` refuses.
    """
    if not isinstance(n, numbers.Integral) or n < 1:
        raise ValueError(f"n={n!r} must be an integer, at least 1")
    if not isinstance(params, SamplingParams) or params.is_greedy:
        raise ValueError(f"params={params!r}: one SamplingParams with T above 0 is needed, or all n are alike")
    settings |= {"max_new_tokens": max_new_tokens, "params": params}
    request = Request(model, token_ids, **settings)
    if any(request.finish_reasons):
        room = model.config.context_length - int(request.lengths.max())
        raise ValueError(f"max_new_tokens={max_new_tokens} with room for {room}: an answer needs at least 1 token")
    rows = torch.arange(len(token_ids)).repeat_interleave(n)
    cache = _shared_prefill(request, rows)
    if request.attention_mask is not None:
        settings["attention_mask"] = request.attention_mask[rows]
    drawn = _answers(generate(model, token_ids[rows], cache=cache, **settings), request, score)
    ranked = [drawn[start : start + n] for start in range(0, len(drawn), n)]
    return [sorted(group, key=lambda c: (c.score, c.mean_log_prob), reverse=True) for group in ranked]


def _shared_prefill(request, rows):
    """A cache that holds each prompt but its last token, computed once and copied to its rows."""
    cache, mask = request.fitting(None), request.attention_mask
    known, mask = request.token_ids[:, :-1], None if mask is None else mask[:, :-1]
    if known.size(1) and (mask is None or mask[:, -1].all()):  # else a prompt of one token: nothing to share
        with torch.no_grad():
            request.model(known, cache, attention_mask=mask, num_logits=1)
    cache.reorder(rows)
    return cache


def _answers(generation, request, score):
    """The rows of a generation as `Answer`s."""
    found = []
    texts = generation.new_token_ids.tolist()
    for row, (ids, reason) in enumerate(zip(texts, generation.finish_reasons, strict=True)):
        ended = [i for i, token in enumerate(ids) if token in request.eos_token_ids]
        if reason == "eos":
            ids = ids[: ended[0] + 1]
        elif reason == "context":
            n = len(texts) // len(request.lengths)
            ids = ids[: request.model.config.context_length - int(request.lengths[row // n])]
        total = float(generation.logprobs[row, : len(ids)].double().sum())
        answer = ids[:-1] if reason == "eos" else ids
        value = total / len(ids) if score is None else float(score(answer))
        if math.isnan(value):
            raise ValueError(f"score gave nan for answer {row}: return a number or a bool, -inf for the worst")
        found.append(Answer(tuple(ids), total, value, reason))
    return found


def best_of_n_kl(n):
    """Bound in nats on how far best-of-n moves from the model: KL(best of n ‖ one sample) ≤ ln n − (n − 1)/n.

    The KL comes close to it when every answer is rare and no two have the same score; else it is smaller (Beirami et
    al. 2024).

    Raises:
        ValueError: n below 1.
    """
    if not isinstance(n, numbers.Integral) or n < 1:
        raise ValueError(f"n={n!r} must be an integer, at least 1")
    return math.log(n) - (n - 1) / n


def majority_vote(answers):
    """The most frequent answer: self-consistency (Wang et al. 2022).

    Args:
        answers: any hashable values; `None`, for an answer that could not be read, has no vote.

    Returns:
        `(winner, count)`; of equally frequent ones the first seen, `(None, 0)` if none could be read.

    Raises:
        ValueError: no answers at all.
    """
    answers = list(answers)
    if not answers:
        raise ValueError("answers=[] holds nothing to count: sample at least one answer")
    counts = Counter(answer for answer in answers if answer is not None)
    return max(counts.items(), key=lambda item: item[1], default=(None, 0))


def token_f1(text, reference):
    """Overlap of two texts, from 0 to 1: harmonic mean of the shares of words (or ids) they have in common.

    Args:
        text, reference: strings, split at white space, or sequences of ids.
    """
    a, b = (Counter(t.split() if isinstance(t, str) else t) for t in (text, reference))
    size = a.total() + b.total()
    return 2 * (a & b).total() / size if size else 1.0


def minimum_bayes_risk(candidates, utility=token_f1):
    """The candidate that agrees most with all candidates (Kumar & Byrne 2004; Eikema & Aziz 2020).

    Args:
        candidates: sampled answers, likely ones several times; `None` is passed over.
        utility: `utility(candidate, reference)`, higher is better. With `operator.eq` this is the majority vote.

    Returns:
        `(index, expected_utility)` of the best, the first of equals; the mean is over all candidates, itself included.

    Raises:
        ValueError: no candidate, or a utility that is not a number.
    """
    known = [(i, c) for i, c in enumerate(candidates) if c is not None]
    if not known:
        raise ValueError("candidates holds no answer: give at least one that is not None")
    expected = [(i, sum(float(utility(c, other)) for _, other in known) / len(known)) for i, c in known]
    if any(math.isnan(value) for _, value in expected):
        raise ValueError("utility gave nan: return a number for every pair of candidates")
    return max(expected, key=lambda item: item[1])


def pass_at_k(n, c, k):
    """Chance that at least one of k tries is right, estimated without bias from n tries with c right ones.

    It is 1 − C(n − c, k) / C(n, k), the share of all choices of k tries that hold a right one, as a product that never
    makes a large number. The naive 1 − (1 − c/n)^k is too low on average (Chen et al. 2021).

    Args:
        n: tries made, at least 1.
        c: right ones, 0 to n.
        k: tries allowed, 1 to n.

    Raises:
        ValueError: a number that is no integer or outside its range.
    """
    whole = all(isinstance(value, numbers.Integral) and not isinstance(value, bool) for value in (n, c, k))
    if not (whole and 0 <= c <= n and 1 <= k <= n):
        raise ValueError(
            f"n={n!r}, c={c!r}, k={k!r}: 0 <= c <= n and 1 <= k <= n, all integers; for a larger k draw more"
        )
    return 1 - math.prod(1 - k / i for i in range(n - c + 1, n + 1)) if n - c >= k else 1.0


@dataclass(frozen=True)
class EntropyTemperature(Processor):
    """A temperature of its own for every step, from the entropy H of the logits as they come (nats, at T = 1).

    `theta > 0` is EDT, T = T0 · 0.8^(theta / H) (Zhang et al. 2024): close to T0 where the model is unsure, towards 0
    where it is sure. `theta < 0` is the opposite, T = T0 · 0.8^(−theta · H), which is not in that paper: T0 where the
    model is sure, cooler where it is unsure. (The paper's own formula with a negative theta would heat without bound
    where the model is sure.) 0 is the fixed temperature T0. T never exceeds T0.

    Args:
        temperature: T0, finite, above 0.
        theta: how strongly the entropy counts, any finite number.

    Raises:
        ValueError: a value outside its range.
    """

    temperature: float
    theta: float

    def __post_init__(self):
        self._check("temperature", lambda t: t > 0, "a finite number above 0; for greedy use SamplingParams(0)")
        self._check("theta", lambda t: True, "a finite number; 0 is a fixed temperature")

    def temperatures(self, logits):
        """T of each row: (B, 1) float64, for logits (B, V)."""
        entropy = torch.special.entr(logits.double().softmax(-1)).sum(-1, keepdim=True)
        tiny = torch.finfo(torch.float64).tiny  # no division by 0
        power = self.theta / entropy.clamp_min(tiny) if self.theta > 0 else -self.theta * entropy
        return (self.temperature * 0.8**power).clamp_min(tiny)

    def _apply(self, token_ids, logits):
        below_peak = logits.double() - logits.double().amax(-1, keepdim=True)
        return (below_peak / self.temperatures(logits)).to(logits.dtype)


def repeated_windows(token_ids, window=20):
    """Share of a text's windows that stood in it before: above one half, the text loops.

    Args:
        token_ids: one text, a sequence of N ids.
        window: tokens a window, at least 1.

    Returns:
        A number from 0 to 1; 0 for a text with no second window.

    Raises:
        ValueError: a window below 1.
    """
    if window < 1:
        raise ValueError(f"window={window} must be at least 1 token")
    ids = [int(i) for i in token_ids]
    windows = [tuple(ids[i : i + window]) for i in range(len(ids) - window + 1)]
    return 1 - len(set(windows)) / len(windows) if windows else 0.0


def distinct_n(texts, n=2):
    """Share of all n-grams of several texts that are different: distinct-n (Li et al. 2016).

    Args:
        texts: several texts, each a sequence of ids or words.
        n: length of the n-grams, at least 1.

    Returns:
        A number from 0 to 1, higher is more varied; it falls with the amount of text, so compare equal amounts.

    Raises:
        ValueError: n below 1, or no text of n tokens.
    """
    if n < 1:
        raise ValueError(f"n={n} must be at least 1")
    texts = [text.tolist() if hasattr(text, "tolist") else list(text) for text in texts]  # tensors hash by identity
    grams = [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]
    if not grams:
        raise ValueError(f"no text has {n} tokens: there is no {n}-gram to count")
    return len(set(grams)) / len(grams)
