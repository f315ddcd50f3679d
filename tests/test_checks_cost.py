"""The checkers of chapter 09: each accepts the folded solution and turns down, kindly, what people get wrong."""

import nbformat
import pytest

from minigpt import costs
from minigpt.checks import cost as checks
from minigpt.shapes import GPUS, MODELS

STEP = {"linear": 12.95, "attention": 0.524, "head": 0.262, "GB": 13.74}


def cells(root):
    """Source of each cell of the notebook by its id."""
    return {c.id: c.source for c in nbformat.read(root / "notebooks" / "09_cost.ipynb", as_version=4).cells}


@pytest.mark.parametrize("name", ["step", "hundred", "best"])
def test_the_folded_solution_is_accepted(root, capsys, name):
    exec(cells(root)[f"solution-{name}"], {"checks": checks, "costs": costs, "MODELS": MODELS, "GPUS": GPUS})
    assert capsys.readouterr().out.startswith(("Right", "All four are right"))


@pytest.mark.parametrize(
    ("name", "wrong", "hint"),
    [
        ("linear", 6.476, "a multiply and an add"),
        ("attention", 0.262, "not multiply-adds"),
        ("head", 0, "2 FLOPs a weight"),
        ("GB", 13.2, "keys \\*and\\* values"),
        ("GB", ..., "still open"),
    ],
)
def test_a_wrong_part_of_the_step_is_named(name, wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_step(STEP | {name: wrong})
    checks.check_step(STEP)


def test_another_number_of_tokens_is_turned_down():
    for N, hint in ((188, "more are needed"), (190, "189 new tokens already"), (..., "whole number"), (0, "whole")):
        with pytest.raises(AssertionError, match=hint):
            checks.check_hundred(N)
    checks.check_hundred(189)


def bound(*, time=max, rows=True, tokens=True):
    """A bound on the speed of which one part can be got wrong."""

    def best(shape, S, B, weight_bits, kv_bits, gpu):
        flops = (B if rows else 1) * costs.decode_flops(shape, S).total
        n_bytes = costs.decode_read_bytes(shape, S, B, weight_bits=weight_bits, kv_bits=kv_bits)
        seconds = time((flops / gpu.flops_per_s, n_bytes / gpu.bytes_per_s))
        return (B if tokens else 1) / seconds

    return best


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (bound(time=sum), "overlap"),
        (bound(time=min), "are missing"),
        (bound(time=lambda both: both[0]), "bytes are missing"),
        (bound(time=lambda both: both[1]), "FLOPs are missing"),
        (bound(rows=False), "FLOPs are missing"),
        (bound(tokens=False), "one row's speed"),
        (lambda *settings: None, "must return a number"),
    ],
)
def test_a_wrong_bound_is_told_what_is_wrong(wrong, hint):
    checks.check_best(bound())
    with pytest.raises(AssertionError, match=hint):
        checks.check_best(wrong)
