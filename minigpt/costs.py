"""What generation costs in operations, bytes and time, by formula. Chapters 09 (compute) and 10 (memory).

Every name has its unit. `_flops`: floating-point operations, 2 for a multiply-add, of one row (for B rows multiply) and
of matrix products only, as PyTorch's counter has them: no norms, softmax, rotary turns. `_bytes`: rounded up to a whole
byte (GiB = 2**30, GB = 1e9), of weights and cache, without activations. `_s`: seconds.

Dimension key: P prompt tokens, N new tokens, T tokens in one call, S keys visible after it, B rows, L layers, H query
heads, D head size.
"""

import math
from typing import NamedTuple

from minigpt.shapes import check_whole


def tokens_through_model(P, N, *, cached):
    """Tokens that go through the model for N new ones after P: cached P + N − 1, uncached P·N + N(N − 1)/2.

    The last token is never fed back: N new tokens are N forward passes.

    Args:
        P: tokens of the prompt, at least 1.
        N: new tokens, at least 0 (which costs nothing).
        cached: with a KV cache or without.
    """
    check_whole(1, P=P)
    check_whole(0, N=N)
    if cached:
        return P + N - 1 if N else 0
    return P * N + N * (N - 1) // 2


class Flops(NamedTuple):
    """FLOPs by kind.

    Args:
        linear: products with the weights of the blocks.
        attention: scores and weighted sums.
        head: product with the head.
    """

    linear: int
    attention: int
    head: int

    @property
    def total(self):
        """All three together."""
        return sum(self)


def linear_flops(n_tokens, n_weights):
    """FLOPs of n_tokens through matrices of n_weights numbers in all: a multiply and an add for every pair."""
    check_whole(0, n_tokens=n_tokens, n_weights=n_weights)
    return 2 * n_tokens * n_weights


def attention_pairs(T, S, *, convention, window=None):
    """Pairs of query and key in a call of T tokens that leaves S keys visible.

    Args:
        T: queries, 1 to S.
        S: keys, those of the T tokens included.
        convention: `"causal"`: what the mask lets through. `"full"`: every query with every key that the call is given,
            as kernels that mask afterwards compute it and PyTorch's counter counts it. For T = 1 both are S.
        window: most keys a query sees, itself included; `None` is all.

    Raises:
        ValueError: a number outside its range, another convention.
    """
    check_whole(1, T=T, S=S, window=S if window is None else window)
    if T > S:
        raise ValueError(f"T={T} is above S={S}: S counts all keys, those of the T new tokens included")
    if convention not in ("causal", "full"):
        raise ValueError(f"convention={convention!r} must be 'causal' or 'full'")
    if convention == "full":
        return T * min(S, S if window is None else window - 1 + T)
    return _triangle(S, window) - _triangle(S - T, window)


def _triangle(n, window):
    """1 + 2 + … + n, with no term above the window."""
    rising = n if window is None else min(n, window)
    return rising * (rising + 1) // 2 + (n - rising) * rising


def forward_flops(shape, T, S, *, convention, num_logits):
    """FLOPs of one forward pass: every token through every weight, 4·L·H·D a pair of query and key, and the head.

    A pair costs 2·D for its score and 2·D for its share of the sum in each query head, however few the KV heads.

    Args:
        shape: a `ModelShape`.
        T, S, convention: as in `attention_pairs`; the window is the shape's.
        num_logits: positions that go through the head.

    Returns:
        `Flops`.
    """
    linear = linear_flops(T, shape.layer_params)
    pairs = attention_pairs(T, S, convention=convention, window=shape.window)
    attention = 4 * shape.n_layers * shape.n_heads * shape.head_dim * pairs
    return Flops(linear, attention, linear_flops(num_logits, shape.head_params))


def prefill_flops(shape, P, *, convention):
    """FLOPs of a prompt of P tokens, the head at its last one only: `Flops`."""
    return forward_flops(shape, P, P, convention=convention, num_logits=1)


def decode_flops(shape, S):
    """FLOPs of one decode step that sees S keys, its own included (the same in both conventions): `Flops`."""
    return forward_flops(shape, 1, S, convention="causal", num_logits=1)


def generation_flops(shape, P, N, *, cached, convention):
    """FLOPs of N new tokens after P: a prefill and N − 1 decode steps, or without a cache N prefills: `Flops`."""
    check_whole(1, P=P)
    check_whole(0, N=N)
    passes = [
        decode_flops(shape, S) if cached and S > P else prefill_flops(shape, S, convention=convention)
        for S in range(P, P + N)
    ]
    return Flops(*map(sum, zip(*passes, strict=True))) if passes else Flops(0, 0, 0)


def weight_bytes(shape, *, bits):
    """Bytes of all parameters of a `ModelShape` at `bits` bits each."""
    return _as_bytes(shape.n_params, bits)


def kv_bytes(shape, n_tokens, batch_size=1, *, bits, residual=0):
    """Bytes of a KV cache: 2 · L · H_kv · D · tokens · B · bits / 8; with MLA the latent stands for 2 · H_kv · D.

    Args:
        shape: a `ModelShape`; its window, if it has one, caps the tokens held.
        n_tokens: tokens in a row (for storage made in advance: its capacity), at least 0.
        batch_size: rows, B.
        bits: bits a number: 32, 16, 8, or what `quantised_bits` gives.
        residual: newest tokens of each row that stay at 16 bits.

    Raises:
        ValueError: a number outside its range.
    """
    check_whole(0, n_tokens=n_tokens, residual=residual)
    check_whole(1, batch_size=batch_size)
    held = n_tokens if shape.window is None else min(n_tokens, shape.window)
    in_full = min(residual, held)
    numbers = batch_size * shape.kv_numbers_per_token  # for one token in each row
    return _as_bytes((held - in_full) * numbers, bits) + _as_bytes(in_full * numbers, 16)


def quantised_bits(bits, group, *, scale_bits=16, zero_bits=16):
    """Bits a number takes when every `group` of them share a scale and a zero point: bits + (scale + zero) / group."""
    check_whole(1, bits=bits, group=group)
    check_whole(0, scale_bits=scale_bits, zero_bits=zero_bits)
    return bits + (scale_bits + zero_bits) / group


def users_that_fit(shape, n_tokens, memory_bytes, *, weight_bits, kv_bits):
    """How many rows of n_tokens fit in memory_bytes beside the weights: at best, with nothing kept for activations."""
    check_whole(1, n_tokens=n_tokens)
    left = memory_bytes - weight_bytes(shape, bits=weight_bits)
    return max(0, int(left // kv_bytes(shape, n_tokens, bits=kv_bits)))


def weight_read_bytes(shape, *, bits):
    """Bytes of weights a decode step reads, once for the whole batch: blocks and head, not the embedding's look-up."""
    return _as_bytes(shape.layer_params + shape.head_params, bits)


def decode_read_bytes(shape, S, batch_size=1, *, weight_bits, kv_bits):
    """Bytes a decode step reads: the weights once, and the S keys and values of each row."""
    return weight_read_bytes(shape, bits=weight_bits) + kv_bytes(shape, S, batch_size, bits=kv_bits)


def decode_intensity(shape, S, batch_size=1, *, weight_bits, kv_bits):
    """Arithmetic intensity of a decode step: its FLOPs for each byte it reads."""
    read = decode_read_bytes(shape, S, batch_size, weight_bits=weight_bits, kv_bits=kv_bits)
    return batch_size * decode_flops(shape, S).total / read


def crossover_batch(shape, S, *, weight_bits, kv_bits):
    """Batch at which a step reads as much cache as weights: B* = weight bytes / (KV bytes per token · S).

    With S = 1 that is the number of cached tokens, all rows together, at which it does; over B it is the length.
    """
    check_whole(1, S=S)
    return weight_read_bytes(shape, bits=weight_bits) / kv_bytes(shape, S, bits=kv_bits)


def roofline_s(flops, n_bytes, *, flops_per_s, bytes_per_s):
    """Least seconds on a machine, which computes while it reads: the longer of the two (Williams et al. 2009).

    Raises:
        ValueError: a speed that is not above 0.
    """
    if not (flops_per_s > 0 and bytes_per_s > 0):
        raise ValueError(f"flops_per_s={flops_per_s}, bytes_per_s={bytes_per_s}: both must be above 0")
    return max(flops / flops_per_s, n_bytes / bytes_per_s)


def _as_bytes(count, bits):
    if not 0 < bits < math.inf:
        raise ValueError(f"bits={bits} must be above 0: 32 for float32, 16 for bfloat16, 8 for int8")
    return math.ceil(count * bits / 8) if bits % 1 else -(-count * int(bits) // 8)  # whole bits: exact at any size
