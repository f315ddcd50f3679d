"""The checkers of chapter 03: each accepts the folded solution and turns down, kindly, what people get wrong."""

import copy
import math

import nbformat
import pytest
import torch

from minigpt import TopP
from minigpt.checks import truncation as checks

LOGITS = 3 * torch.randn(1, 2000, generator=torch.Generator().manual_seed(0))
COUNTS = {
    "peaked": {"top-k": 50, "top-p": 668, "min-p": 1, "epsilon": 1},
    "flat": {"top-k": 50, "top-p": 901, "min-p": 1001, "epsilon": 1001},
}


@pytest.mark.parametrize("cell_id", ["solution-counts", "solution-p", "solution-top-p", "solution-min-p"])
def test_the_folded_solution_is_accepted(root, capsys, cell_id):
    notebook = nbformat.read(root / "notebooks" / "03_truncation.ipynb", as_version=4)
    source = next(cell.source for cell in notebook.cells if cell.id == cell_id)
    exec(source, {"torch": torch, "math": math, "TopP": TopP, "checks": checks, "logits": {"for i in range(": LOGITS}})
    assert capsys.readouterr().out.splitlines()[0].startswith(("Right", "All eight are right"))


@pytest.mark.parametrize(
    ("name", "rule", "wrong", "hint"),
    [
        ("peaked", "top-p", 667, "mass reaches .9"),  # forgot the favourite
        ("peaked", "top-k", 1, "never looks at a probability"),
        ("flat", "min-p", 1, "a tenth of the largest"),
        ("peaked", "epsilon", 0, "the likeliest token always stays"),
        ("flat", "epsilon", ..., "epsilon"),  # the stub as it stands
    ],
)
def test_a_wrong_count_is_named(name, rule, wrong, hint):
    answer = copy.deepcopy(COUNTS)
    answer[name][rule] = wrong
    with pytest.raises(AssertionError, match=hint):
        checks.check_counts(answer)
    with pytest.raises(AssertionError, match="say how many"):
        checks.check_counts({"peaked": COUNTS["peaked"]})


@pytest.mark.parametrize(("p", "hint"), [(0.05, "a larger p"), (0.9999, "a smaller p"), (50, "a share of the mass")])
def test_a_p_that_keeps_another_number_is_turned_down(p, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_p_for_k(p, LOGITS)


def top_p(logits, p, *, cut=lambda before, mass, p: before >= p, one=True, dtype=torch.float64, back=True):
    """Top-p with one part that can be got wrong."""
    if p == 1 and one:
        return torch.ones_like(logits, dtype=torch.bool)
    probs, ids = logits.to(dtype).softmax(-1).sort(dim=-1, descending=True, stable=True)
    mass = probs.cumsum(-1)
    before = mass.roll(1, -1)
    before[:, 0] = 0
    keep = ~cut(before, mass, p)
    return torch.zeros_like(logits, dtype=torch.bool).scatter(-1, ids, keep) if back else keep


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda z, p: top_p(z, p, cut=lambda before, mass, p: mass > p), "the token that crosses p stays"),
        (lambda z, p: top_p(z, p, cut=lambda before, mass, p: before > p), "keeps 2, not 3"),
        (lambda z, p: top_p(z, p, one=False, dtype=torch.float32), "p = 1 must keep every token"),
        (lambda z, p: top_p(z, p, dtype=torch.float32), "float64"),
        (lambda z, p: top_p(z, p, back=False), "from sorted to id order"),
        (lambda z, p: top_p(z[:1], p).expand_as(z), "each must be cut by itself"),
        (lambda z, p: z.masked_fill(~top_p(z, p), -torch.inf), "boolean tensor"),
        (lambda z, p: None, "boolean tensor"),
    ],
)
def test_a_wrong_top_p_is_told_what_is_wrong(wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_top_p(wrong)


def inplace_min_p(logits, min_p):
    """Right, but it shifts the logits it was given."""
    logits -= logits.amax(-1, keepdim=True)
    return logits >= math.log(min_p)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda z, m: z.softmax(-1) >= m * z.softmax(-1).amax(-1, keepdim=True), "no softmax"),
        (lambda z, m: (z - z.amax(-1, keepdim=True)).exp() >= m, "no softmax"),
        (lambda z, m: z >= m * z.amax(-1, keepdim=True), "wrong side"),
        (lambda z, m: z >= z.amax() + math.log(m), "the likeliest token must always stay"),
        (lambda z, m: z > z.amax(-1, keepdim=True) + math.log(m), "min_p = 1"),
        (inplace_min_p, "as they are"),
        (lambda z, m: None, "boolean tensor"),
    ],
)
def test_a_wrong_min_p_is_told_what_is_wrong(wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_min_p(wrong)
    assert torch.zeros(2).softmax(-1).tolist() == [0.5, 0.5]  # torch works again
