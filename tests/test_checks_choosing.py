"""The checkers of chapter 07: each accepts the folded solution and turns down, kindly, what people get wrong."""

import math
from collections import Counter, defaultdict

import nbformat
import pytest

from minigpt.checks import choosing as checks
from minigpt.choosing import best_of_n_kl, pass_at_k

ESTIMATES = {"naive": 0.672, "unbiased": 0.778}


@pytest.mark.parametrize("cell_id", ["solution-estimates", "solution-samples", "solution-vote"])
def test_the_folded_solution_is_accepted(root, capsys, cell_id):
    notebook = nbformat.read(root / "notebooks" / "07_choosing.ipynb", as_version=4)
    source = next(cell.source for cell in notebook.cells if cell.id == cell_id)
    names = {"math": math, "checks": checks, "pass_at_k": pass_at_k, "best_of_n_kl": best_of_n_kl}
    exec(source, names | {"defaultdict": defaultdict, "Counter": Counter})
    assert capsys.readouterr().out.splitlines()[0].startswith("Right")


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"naive": 0.328}, "the chance that all five fail"),
        ({"unbiased": 0.222}, "the chance that all five fail"),
        ({"naive": 0.778}, "by itself"),
        ({"unbiased": 0.672}, "which share holds neither"),
        ({"unbiased": ...}, "give the unbiased estimate"),  # the stub as it stands
    ],
)
def test_a_wrong_estimate_is_named(changes, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_estimates(ESTIMATES | changes)


def test_both_estimates_are_asked_for():
    with pytest.raises(AssertionError, match="give the unbiased estimate"):
        checks.check_estimates({"naive": 0.672})


@pytest.mark.parametrize(
    ("n", "hint"),
    [
        (8, "forgets"),
        (19, "take more samples"),
        (21, "N=20 would do"),
        (1, "take more samples"),
        (20.5, "an integer"),
        (..., "an integer"),
    ],
)
def test_a_wrong_number_of_samples_is_turned_down(n, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_samples_for(n)


def vote(answers, weights, *, skip=True, first=True, weighted=True, empty=None):
    """A weighted vote with one part that can be got wrong."""
    sums = defaultdict(float)
    for answer, weight in zip(answers, weights, strict=True):
        if answer is not None or not skip:
            sums[answer] += weight if weighted else 1
    if not sums:
        return empty
    return max(sums, key=sums.get) if first else max(reversed(sums), key=sums.get)


@pytest.mark.parametrize(
    ("part", "hint"),
    [
        ({"weighted": False}, "'7' has .9 and '8' has .5"),
        ({"first": False}, "the first seen wins"),
        ({"skip": False}, "it has no vote"),
        ({"empty": "?"}, "return None"),
    ],
)
def test_a_wrong_vote_is_told_what_is_wrong(part, hint):
    checks.check_weighted_vote(vote)
    with pytest.raises(AssertionError, match=hint):
        checks.check_weighted_vote(lambda answers, weights: vote(answers, weights, **part))


def test_the_heaviest_single_answer_is_no_vote():
    def heaviest(answers, weights):
        known = [(w, a) for a, w in zip(answers, weights, strict=True) if a is not None]
        return max(known, key=lambda pair: pair[0])[1] if known else None

    with pytest.raises(AssertionError, match="equal weights make it the majority vote"):
        checks.check_weighted_vote(heaviest)
