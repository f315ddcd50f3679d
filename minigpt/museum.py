# ruff: noqa: D102 (a fault is one method or two, and its class says what is wrong with them)
"""The museum of broken caches: twelve faults that people really make, and which probe sees which. Chapter 08.

A fault is a few lines: a subclass of a cache, or a function in the place of one of the model's own. None of them
raises an error; the text goes on. `matrix(model)` asks every probe of `probes.py` about every fault.

Dimension key: B rows, T new tokens in a call, P prompt columns, S keys visible after it, H_kv KV heads, D head size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import minigpt.model
from minigpt.kv_cache import KVCache, SlidingWindowCache
from minigpt.model import Attention, rotary_tables, rotate
from minigpt.probes import PROBES, Subject

# Faults in a cache.


class CountedTwice(KVCache):
    """The model adds what is cached to positions that have it in them already."""

    def positions(self, T):
        return self.length + super().positions(T)


class TopLeft(KVCache):
    """The causal triangle begins in the first column, as that of torch's `is_causal=True` does."""

    def mask(self, T):
        return None if T == 1 else torch.ones(T, self.length + T, dtype=torch.bool).tril()


class Unmasked(KVCache):
    """Only an empty cache gets a mask, as if every later token came alone."""

    def mask(self, T):
        return super().mask(T) if self.length == 0 else torch.ones(T, self.length + T, dtype=torch.bool)


class NotReset(KVCache):
    """What should forget the text does not."""

    def reset(self):
        pass


class OneTooFew(KVCache):
    """A rollback that leaves the first of the tokens it should forget."""

    def truncate(self, length):
        super().truncate(min(length + 1, self.length))


class NotReordered(KVCache):
    """The texts of a beam search change places, their keys stay."""

    def reorder(self, rows):
        pass


class OneTooWide(SlidingWindowCache):
    """`<=` for `<`: the query's own key is not counted as one of the window."""

    def columns(self, T):
        return torch.arange(max(0, self.length - self.window), self.length + T)

    def mask(self, T):
        age = self.positions(T)[:, None] - self.columns(T)
        return (age >= 0) & (age <= self.window)


# Faults in the model.


class Patched(nn.Module):
    """A model in whose forward pass `fault` takes the place of `owner.name`."""

    def __init__(self, model, owner, name, fault):
        super().__init__()
        self.model, self.config = model, model.config
        self.patch = partial(mock.patch.object, owner, name, fault)

    def forward(self, *args, **settings):
        with self.patch():
            return self.model(*args, **settings)


def cached_before_rotation(self, x, rotary, mask, cache, layer):
    """`Attention.forward` with keys that go into the cache first and are rotated afterwards, the new ones only."""
    B, T, _ = x.shape
    q, k, v = (p(x).view(B, T, -1, self.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
    if cache is not None:
        k, v = cache.append(layer, k, v, q)  # (B, H_kv, S, D)
    q, k = rotate(q, *rotary), torch.cat((k[:, :, :-T], rotate(k[:, :, -T:], *rotary)), 2)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and T > 1, enable_gqa=True)
    return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


def tiled_heads(q, k, v, enable_gqa=False, attend=F.scaled_dot_product_attention, **how):
    """Attention with KV heads repeated as a block, 0 1 0 1, where each should stand beside itself, 0 0 1 1."""
    groups = q.size(1) // k.size(1)
    return attend(q, k.repeat(1, groups, 1, 1), v.repeat(1, groups, 1, 1), **how)


def tables_in_bfloat16(positions, head_dim, theta):
    """`rotary_tables` computed in the dtype of a bfloat16 model, which has 8 significant bits."""
    cos, sin = rotary_tables(positions.bfloat16(), head_dim, theta)
    return cos.bfloat16(), sin.bfloat16()


def padding_counted(attention_mask, B, T, columns, visible, original=minigpt.model._padded):
    """Positions of padded rows are the numbers of their columns, padding and all."""
    return original(attention_mask, B, T, columns, visible)[0], columns[-T:].expand(B, T)


def pad_right(rows):
    """Padding on the right, and no mask for it: the causal mask hides it from every token of the prompt."""
    token_ids = pad_sequence(rows, True)
    return token_ids, torch.ones_like(token_ids, dtype=torch.bool)


# The exhibits.


@dataclass(frozen=True)
class Exhibit:
    """A fault with its label.

    Args:
        name: what is broken.
        fault: the class or the function that breaks it, to read.
        symptom: what one sees.
        moral: what to do about it.
        build: gives the `Subject` with this fault for any `MiniGPT`.
    """

    name: str
    fault: Callable
    symptom: str
    moral: str
    build: Callable


def _in_cache(kind, *label):
    name, symptom, moral = label
    return Exhibit(name, kind, symptom, moral, lambda model: Subject(model, partial(kind, model.config)))


def _in_model(owner, attribute, fault, *label):
    name, symptom, moral = label

    def build(model):
        return Subject(Patched(model, owner, attribute, fault), partial(KVCache, model.config))

    return Exhibit(name, fault, symptom, moral, build)


EXHIBITS = (
    _in_cache(
        CountedTwice,
        "position counted twice",
        "The prompt is right, and so the first new token; the tokens after it are placed too far on, with gaps.",
        "Keep one counter and move it once a forward pass. Look at the positions themselves.",
    ),
    _in_cache(
        TopLeft,
        "mask top-left",
        "A prompt in one piece and tokens one by one are right; the queries of a second piece see the oldest keys.",
        "Align a mask at the bottom right, where the newest query meets its own key.",
    ),
    _in_cache(
        Unmasked,
        "chunk without its mask",
        "A prompt in one piece and tokens one by one are right; the tokens of a second piece see what follows them.",
        "Several new tokens need a mask, whatever is in the cache.",
    ),
    _in_cache(
        NotReset,
        "cache not reset",
        "The first text is right. The second one goes on from the first.",
        "Test two texts in a row: one alone does not show what is left behind.",
    ),
    _in_cache(
        OneTooFew,
        "stale row after rollback",
        "All is right until tokens are taken back: one of them stays, visible, and what follows stands one too far on.",
        "After a rollback the cache holds the tokens that stay, and no more. Go on with another text to see it.",
    ),
    _in_cache(
        NotReordered,
        "beams moved, cache not",
        "One row alone is right; beams that change places go on from the past of another.",
        "Whatever has a row for each text moves when the texts move.",
    ),
    Exhibit(
        "window one key too wide",
        OneTooWide,
        "Right until the text is longer than the window; then prefill and decode are wrong alike.",
        "Count the keys in a row of the mask: W, with the query's own. That prefill and decode agree is not enough.",
        lambda model: Subject(model, lambda B, capacity: OneTooWide(model.config, B, window=4), window=4),
    ),
    _in_model(
        Attention,
        "forward",
        cached_before_rotation,
        "keys cached before RoPE",
        "The prompt is right; to the tokens after it every old key seems to stand at position 0.",
        "Store what is finished: a key is rotated once, by its own position, and then cached.",
    ),
    _in_model(
        F,
        "scaled_dot_product_attention",
        tiled_heads,
        "KV heads tiled",
        "The text is bad, and just as bad without the cache.",
        "Two ways that agree can both be wrong: ask which head is read.",
    ),
    _in_model(
        minigpt.model,
        "rotary_tables",
        tables_in_bfloat16,
        "rotary tables in bfloat16",
        "Short texts are nearly right; past position 256 neighbours share a position, with the cache and without it.",
        "Compute angles in float32 whatever the dtype of the model, and test a long text.",
    ),
    _in_model(
        minigpt.model,
        "_padded",
        padding_counted,
        "padding counted as text",
        "Not in the logits: rotary attention sees differences of positions only. A padded row meets the end of the "
        "context too early.",
        "Logits do not show everything. Look at the positions themselves.",
    ),
    Exhibit(
        "right padding",
        pad_right,
        "The longest row is right; the others go on after padding.",
        "Under a causal mask padding on the right does no harm in training. Generation goes on from the last column: "
        "pad on the left.",
        lambda model: Subject(model, partial(KVCache, model.config), pad=pad_right),
    ),
)


def matrix(model, exhibits=EXHIBITS, probes=PROBES):
    """Ask all probes about the real cache and about every exhibit.

    Args:
        model: a trained `MiniGPT`, in float32 or float64, with a `context_length` of at least 48. (At its first
            weights attention is nearly even, and position hardly counts. Tiled heads are no fault where every query
            head has its own KV head, or all share one.)
        exhibits: the faults.
        probes: the functions that look for them.

    Returns:
        For `"KVCache"` and for each exhibit's name, the answer of each probe by its name: `None` where all is well.

    Raises:
        ValueError: a model in another dtype, or with a shorter context.
    """
    dtype, context_length = next(model.parameters()).dtype, model.config.context_length
    if dtype not in (torch.float32, torch.float64) or context_length < 48:
        raise ValueError(
            f"a model in {dtype} with context_length={context_length}: the probes need float32 or float64, as rounding "
            "in less hides small faults, and 48 tokens"
        )
    subjects = {"KVCache": Subject(model, partial(KVCache, model.config))}
    subjects |= {exhibit.name: exhibit.build(model) for exhibit in exhibits}
    return {name: {probe.__name__: probe(subject) for probe in probes} for name, subject in subjects.items()}


def as_table(answers):
    """Text table of a matrix: a row for each fault, a column for each probe, × where the probe sees the fault."""
    probes = list(next(iter(answers.values())))
    width = max(map(len, answers))
    rows = [f"{'':{width}}  {'  '.join(probes)}"]
    for name, seen in answers.items():
        rows.append(f"{name:{width}}  " + "  ".join(f"{'·' if seen[p] is None else '×':^{len(p)}}" for p in probes))
    return "\n".join(row.rstrip() for row in rows)
