"""Checkers of chapter 10, cache memory."""

import torch

from minigpt.config import GPTConfig
from minigpt.costs import kv_bytes, weight_bytes
from minigpt.shapes import GPUS, MODELS

TOKEN = {  # 48 layers, 4 KV heads of 128, 48 query heads, 16 bits
    "bytes": (98_304, "keys and values (2), 48 layers, 4 KV heads of 128, 2 bytes each"),
    "GiB": (1.5, "bytes of a token, times 16,384, over 2**30"),
    "slip": (1_179_648, "48 query heads in the place of 4 KV heads: twelve times as much"),
}


def check_token(answer):
    """Check bytes of a cache for 48 layers, 48 query heads, 4 KV heads of 128, in 16 bits.

    Args:
        answer: `{"bytes": of one token, "GiB": of 16,384 tokens, "slip": bytes of a token by query heads}`.

    Raises:
        AssertionError: an entry is missing or wrong; the message says which and why.
    """
    for name, (right, why) in TOKEN.items():
        given = answer.get(name)
        assert given is not None and given is not ..., f"{name!r} is still open"
        assert abs(given - right) <= 1e-6 * right, f"{name!r} is not {given:,}: {why}"
    print("All three are right. The width of 6,144 was not needed.")


def check_longest(answer):
    """Check how many tokens each of ten users of Llama-3-70B can have on an H200: 4.5-bit weights, 8-bit cache.

    Args:
        answer: whole tokens.

    Raises:
        AssertionError: it is another number; the message says in which direction, and names two slips.
    """
    shape, memory = MODELS["Llama-3-70B"], GPUS["H200"].memory_bytes
    assert isinstance(answer, int) and answer > 0, "say a whole number of tokens, at least 1"

    def used(tokens, users=10, bits=8):
        return weight_bytes(shape, bits=4.5) + kv_bytes(shape, tokens, users, bits=bits)

    if used(answer) > memory:
        near = used(answer, users=1) <= memory < used(answer + 1, users=1)
        hint = " That is what *one* user could have." if near else ""
        raise AssertionError(f"{answer:,} tokens for each of ten need {used(answer) / 1e9:.1f} GB: too much.{hint}")
    if used(answer + 1) <= memory:
        near = used(answer, bits=16) <= memory < used(answer + 1, bits=16)
        hint = " That is the answer for a 16-bit cache." if near else ""
        raise AssertionError(f"{answer:,} tokens each leave {(memory - used(answer)) / 1e9:.1f} GB free: go on.{hint}")
    print(f"Right: {answer:,} tokens for each of the ten.")


def check_pairs(answer):
    """Check a cache in which layers 2i and 2i + 1 share what layer 2i brought.

    Args:
        answer: a class made like `GrowingKVCache`, `answer(config, batch_size)`.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    config, generator = GPTConfig(5, 4, 2, 1, 8, 8, context_length=32), torch.Generator().manual_seed(0)
    cache, fed = answer(config, 2), {}
    for T in (3, 1, 2):
        for layer in range(4):
            k, v = torch.randn(2, 2, 1, T, config.head_dim, generator=generator)
            given = cache.append(layer, k, v)
            assert isinstance(given, tuple) and len(given) == 2, f"layer {layer}: append must return (keys, values)"
            if layer % 2 == 0:
                before = fed.get(layer, (k[:, :, :0], v[:, :, :0]))
                fed[layer] = [torch.cat(both, 2) for both in zip(before, (k, v), strict=True)]
            for name, got, right in zip(("keys", "values"), given, fed[layer - layer % 2], strict=True):
                whose = "its own" if layer % 2 == 0 else f"those of layer {layer - 1}"
                assert got.shape == right.shape and torch.equal(got, right), f"layer {layer} must get {whose} {name}"
        cache.advance(T)
    half = 2 * 2 * config.n_kv_heads * config.head_dim * 6 * 2 * 4  # K and V, two layers, 6 tokens, 2 rows, float32
    assert cache.nbytes == half, (
        f"{cache.nbytes:,} bytes are held, half of the layers take {half:,}: store even ones only"
    )
    print("Right: half the layers store, and half the bytes are held.")
