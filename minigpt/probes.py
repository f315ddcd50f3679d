"""Probes: small tests that any KV cache, and the model around it, should pass. Chapter 08.

A probe is a function that asks one question about a `Subject` and answers `None`, or says what is wrong. Most compare
logits with those of a recompute without a cache; but two ways that agree can both be wrong, so some look inside.

Dimension key: B rows, T tokens in a call, P prompt columns, S columns of the text, V vocabulary, H query heads,
H_kv KV heads, D head size, W window.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from minigpt.generation import generate
from minigpt.model import Attention
from minigpt.sampling import SamplingParams

TOLERANCE = 1e-3  # of the largest logit: rounding in float32 stays below it


def pad_left(rows):
    """Token ids and attention mask, (B, P) each, of texts of any lengths: the padding stands on the left."""
    mask = [torch.ones_like(row, dtype=torch.bool) for row in rows]
    return pad_sequence(rows, True, padding_side="left"), pad_sequence(mask, True, padding_side="left")


@dataclass(frozen=True)
class Subject:
    """What a probe looks at: a model, its cache, and the way in which texts become a batch.

    Args:
        model: a `MiniGPT` in float32 or float64 with a `context_length` of at least 48, or one with a fault.
        make_cache: gives an empty cache for a batch size and a capacity.
        window: keys that each query should see, W, its own among them; `None` is all.
        pad: gives token ids and attention mask, (B, P) each, of a list of texts.
    """

    model: nn.Module
    make_cache: Callable
    window: int | None = None
    pad: Callable = pad_left

    def text(self, seed, *shape):
        """Random token ids of a shape, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(self.model.config.vocab_size, shape, generator=generator)

    def fresh(self, token_ids):
        """An empty cache with room for this text twice."""
        return self.make_cache(len(token_ids), 2 * token_ids.size(1))

    @torch.no_grad()
    def feed(self, cache, token_ids, sizes, mask=None):
        """Logits (B, S, V) of a text that goes through model and cache in pieces of these sizes."""
        end, logits = 0, []
        for piece in token_ids.split(sizes, 1):
            end += piece.size(1)
            logits.append(self.model(piece, cache, attention_mask=None if mask is None else mask[:, :end]))
        return torch.cat(logits, 1)

    @torch.no_grad()
    def recompute(self, token_ids):
        """Logits (B, S, V) of one pass that stores nothing, in which each query sees what it should."""
        return self.model(token_ids, None if self.window is None else MaskOnly(self.window))


class MaskOnly:
    """Stands in the place of a cache and keeps nothing: each query sees the last W keys of its own call."""

    def __init__(self, window):
        self.window, self.positions, self.columns = window, torch.arange, torch.arange

    def mask(self, T):
        """What each query may see: (T, T) bool."""
        return torch.ones(T, T, dtype=torch.bool).tril().triu(1 - self.window)

    def append(self, layer, k, v, q=None):
        """Keys and values of this call, as they come."""
        return k, v

    def advance(self, T):
        """Nothing has been stored."""


def prefill(subject):
    """Are the logits of a prompt those of a recompute?"""
    token_ids = subject.text(1, 2, 12)
    return _differ(subject.feed(subject.fresh(token_ids), token_ids, 12), subject.recompute(token_ids))


def decode(subject):
    """Are the logits of a prompt, and of tokens that come one by one, those of a recompute?"""
    token_ids = subject.text(2, 2, 12)
    return _differ(subject.feed(subject.fresh(token_ids), token_ids, (5, *[1] * 7)), subject.recompute(token_ids))


def greedy(subject):
    """Is each greedy token the most likely one of a recompute? What one sees who compares texts."""
    prompt = subject.text(3, 2, 6)
    cache = subject.make_cache(2, 21)
    params = SamplingParams(temperature=0)
    text = generate(subject.model, prompt, max_new_tokens=16, params=params, cache=cache).token_ids
    expected = subject.recompute(text)[:, 5:-1].argmax(-1)  # given the same text before it
    wrong = (text[:, 6:] != expected).any(0).nonzero()
    if len(wrong):
        return f"new token {int(wrong[0]) + 1} of 16 is another"


def chunks(subject):
    """Are the logits of a prompt in pieces those of the prompt in one piece?"""
    token_ids = subject.text(4, 2, 12)
    pieces, whole = (subject.feed(subject.fresh(token_ids), token_ids, sizes) for sizes in ((5, 4, 3), 12))
    return _differ(pieces, whole)


def reset(subject):
    """Does a second text after `reset()` get the logits that it gets from a new cache?"""
    first, second = subject.text(5, 2, 2, 12)
    used = subject.fresh(first)
    subject.feed(used, first, 12)
    used.reset()
    return _differ(*(subject.feed(cache, second, (5, *[1] * 7)) for cache in (used, subject.fresh(second))))


def rollback(subject):
    """Does a text that goes on after `truncate()` get the logits of one that never had the other end?"""
    token_ids = subject.text(6, 2, min(8, subject.window or 8))  # what has left a window does not come back
    kept = token_ids[:, : max(1, token_ids.size(1) - 3)]
    other = torch.cat((kept, subject.text(7, 2, 6)), 1)
    sizes = (kept.size(1), 3, 1, 1, 1)
    cache = subject.make_cache(2, 32)
    subject.feed(cache, token_ids, token_ids.size(1))
    cache.truncate(kept.size(1))
    goes_on = subject.feed(cache, other[:, kept.size(1) :], sizes[1:])
    return _differ(goes_on, subject.feed(subject.fresh(other), other, sizes)[:, kept.size(1) :], kept.size(1))


def reorder(subject):
    """Do texts that change places, as those of beams do, take their keys with them?"""
    token_ids, rows = subject.text(8, 3, 12), [2, 0, 0]
    cache = subject.fresh(token_ids)
    subject.feed(cache, token_ids[:, :8], 8)
    cache.reorder(rows)
    moved = token_ids[rows]
    goes_on = subject.feed(cache, moved[:, 8:], 1)
    return _differ(goes_on, subject.feed(subject.fresh(moved), moved, (8, 1, 1, 1, 1))[:, 8:], 8)


def padding(subject):
    """Does each row of a padded batch get the logits that it gets alone, from its last prompt token on?"""
    for row, answer, logits in zip(*_padded_batch(subject), strict=True):
        alone = subject.recompute(torch.cat((row, answer))[None])[:, len(row) - 1 :]
        if message := _differ(logits[None], alone, len(row) - 1):
            return f"row of {len(row)} tokens: {message}"


def positions(subject):
    """Do tokens stand where they should? Asked of the angles that queries and keys are turned by."""
    token_ids = subject.text(9, 1, 8)
    cos, sin = _angles(subject, lambda: subject.feed(subject.fresh(token_ids), token_ids, (6, 1, 1)))
    read = _nearest(cos, sin, subject.model.config)[0].tolist()
    if read != list(range(8)):
        return f"tokens 0 to 7 stand at positions {read}"
    rows = []
    cos, sin = _angles(subject, lambda: rows.extend(_padded_batch(subject)[0]))
    for row, read in zip(rows, _nearest(cos, sin, subject.model.config)[:, -4:].tolist(), strict=True):
        if read != list(range(len(row) - 1, len(row) + 3)):
            return f"padded row of {len(row)} tokens: its last and the next three stand at positions {read}"


def far_positions(subject):
    """Are cosines and sines right to 0.001, past position 256 too? bfloat16 takes 257 for 256."""
    T = min(300, subject.model.config.context_length)
    token_ids = subject.text(10, 1, T)
    tables = _angles(subject, lambda: subject.feed(subject.fresh(token_ids), token_ids, T))
    read = _nearest(*tables, subject.model.config)[0]
    wrong = (read != torch.arange(T)).nonzero()
    if len(wrong):
        return f"token {int(wrong[0])} stands at position {int(read[wrong[0]])}"
    exact = _exact_tables(subject.model.config)
    error = max(float((got[0] - right[:T]).abs().max()) for got, right in zip(tables, exact, strict=True))
    if error > 1e-3:
        return f"cosines and sines are off by up to {error:.1g}"


def heads(subject):
    """Does each query head read the KV head of its group? Asked with values that say which head they are of."""
    config, seen = subject.model.config, []
    attention = _attention(subject.model)
    number = torch.arange(config.n_kv_heads).repeat_interleave(config.head_dim)  # KV head h holds the number h
    fill = attention.v_proj.register_forward_hook(lambda _, args, values: number.to(values).expand_as(values))
    look = attention.o_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with fill, look:
        subject.feed(subject.make_cache(1, 3), subject.text(11, 1, 3), 3)
    read = seen[0][0, -1].view(config.n_heads, -1)[:, 0].round().int().tolist()
    expected = [head * config.n_kv_heads // config.n_heads for head in range(config.n_heads)]
    if read != expected:
        return f"query heads read KV heads {read}, not {expected}"


PROBES = (prefill, decode, greedy, chunks, reset, rollback, reorder, padding, positions, far_positions, heads)


def _differ(logits, expected, first=0):
    """Say where logits (B, S, V) begin to differ; their first column is column `first` of the text."""
    gap = (logits - expected).abs().amax((0, 2))  # (S,)
    wrong = (~(gap <= TOLERANCE * expected.abs().max())).nonzero()  # NaN is wrong too
    if len(wrong):
        return f"logits differ by up to {float(gap.max()):.2g}, first at token {first + int(wrong[0])}"


def _padded_batch(subject):
    """Rows, answers of 3 tokens, and the logits (B, 4, V) of the last prompt column and of each answer's token."""
    rows, answers = [subject.text(20 + n, n) for n in (3, 7, 5)], subject.text(12, 3, 3)
    token_ids, mask = subject.pad(rows)
    token_ids = torch.cat((token_ids, answers), 1)
    mask, sizes = F.pad(mask, (0, 3), value=True), (mask.size(1), 1, 1, 1)
    return rows, answers, subject.feed(subject.fresh(token_ids), token_ids, sizes, mask)[:, -4:]


def _attention(model):
    return next(module for module in model.modules() if isinstance(module, Attention))


def _angles(subject, run):
    """Cosines and sines, (1 or B, S, D / 2) each, that the first layer is given while `run()` feeds a text."""
    seen = []
    with _attention(subject.model).register_forward_pre_hook(lambda _, args: seen.append(args[1])):
        run()
    return [torch.cat(tables, 2)[:, 0].double() for tables in zip(*seen, strict=True)]


def _exact_tables(config):
    """Cosines and sines of all positions, (context_length, D / 2) each, computed in float64."""
    frequencies = config.rope_theta ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    angles = torch.arange(config.context_length)[:, None] * frequencies
    return angles.cos(), angles.sin()


def _nearest(cos, sin, config):
    """The position whose angles come nearest to the given ones: (1 or B, S) int64."""
    exact_cos, exact_sin = _exact_tables(config)
    return (cos @ exact_cos.T + sin @ exact_sin.T).argmax(-1)
