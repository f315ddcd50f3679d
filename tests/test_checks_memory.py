"""The checkers of chapter 10: each accepts the folded solution and turns down, kindly, what people get wrong."""

import nbformat
import pytest

from minigpt import GrowingKVCache
from minigpt.checks import memory as checks
from minigpt.costs import kv_bytes, weight_bytes
from minigpt.shapes import GPUS, MODELS

TOKEN = {"bytes": 98_304, "GiB": 1.5, "slip": 1_179_648}


def cells(root):
    """Source of each cell of the notebook by its id."""
    return {c.id: c.source for c in nbformat.read(root / "notebooks" / "10_memory.ipynb", as_version=4).cells}


@pytest.mark.parametrize("name", ["token", "longest", "pairs"])
def test_the_folded_solution_is_accepted(root, capsys, name):
    page = {"checks": checks, "GrowingKVCache": GrowingKVCache, "GPUS": GPUS, "big": MODELS["Llama-3-70B"]}
    exec(cells(root)[f"solution-{name}"], page | {"kv_bytes": kv_bytes, "weight_bytes": weight_bytes})
    assert capsys.readouterr().out.startswith(("Right", "All three are right"))


@pytest.mark.parametrize(
    ("name", "wrong", "hint"),
    [
        ("bytes", 49_152, "keys and values"),
        ("bytes", 1_179_648, "4 KV heads"),
        ("GiB", 1.61, "over 2\\*\\*30"),
        ("slip", 98_304, "twelve times"),
        ("GiB", ..., "still open"),
    ],
)
def test_a_wrong_size_is_named(name, wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_token(TOKEN | {name: wrong})
    checks.check_token(TOKEN)


def longest(users=10, bits=8):
    left = GPUS["H200"].memory_bytes - weight_bytes(MODELS["Llama-3-70B"], bits=4.5)
    return int(left // kv_bytes(MODELS["Llama-3-70B"], 1, users, bits=bits))


def test_another_context_is_turned_down():
    checks.check_longest(longest())
    for tokens, hint in (
        (longest() + 1, "too much"),
        (longest(users=1), "what \\*one\\* user"),
        (longest() - 1, "go on"),
        (longest(bits=16), "for a 16-bit cache"),
        (..., "whole number"),
    ):
        with pytest.raises(AssertionError, match=hint):
            checks.check_longest(tokens)


class Own(GrowingKVCache):
    """Every layer its own: nothing is shared."""


class Paired(GrowingKVCache):
    """What is asked for."""

    def append(self, layer, k, v, q=None):
        if layer % 2 == 0:
            self.last = super().append(layer, k, v, q)
        return self.last


class StoresAll(Paired):
    """Right answers, and everything stored all the same."""

    def append(self, layer, k, v, q=None):
        given = super().append(layer, k, v, q)
        if layer % 2:
            GrowingKVCache.append(self, layer, k, v, q)
        return given


class NewOnly(Paired):
    """The odd layer gets the new tokens only."""

    def append(self, layer, k, v, q=None):
        given = super().append(layer, k, v, q)
        return tuple(x[:, :, -k.size(2) :] for x in given) if layer % 2 else given


class Silent(GrowingKVCache):
    """Returns nothing."""

    def append(self, layer, k, v, q=None):
        super().append(layer, k, v, q)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (Own, "layer 1 must get those of layer 0"),
        (NewOnly, "layer 1 must get those of layer 0"),
        (StoresAll, "store even ones only"),
        (Silent, "must return"),
    ],
)
def test_a_wrong_sharing_is_told_what_is_wrong(wrong, hint):
    checks.check_pairs(Paired)
    with pytest.raises(AssertionError, match=hint):
        checks.check_pairs(wrong)
