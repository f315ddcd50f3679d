"""Checkers of chapter 07, choosing a strategy."""

import math
import random

from minigpt.choosing import best_of_n_kl, majority_vote, pass_at_k

TRIES = {"n": 10, "c": 2, "k": 5}  # of the first exercise


def check_estimates(answer):
    """Check both estimates of pass@5 from ten tries with two right ones.

    Args:
        answer: `{"naive": p, "unbiased": p}`, to three decimals.

    Raises:
        AssertionError: a number is wrong; the message says which and why.
    """
    n, c, k = TRIES.values()
    right = {"naive": 1 - (1 - c / n) ** k, "unbiased": pass_at_k(n, c, k)}
    hints = {
        "naive": "as if each of the five tries had a chance of 2/10 by itself",
        "unbiased": "of all choices of 5 out of 10, which share holds neither of the two right ones?",
    }
    for name, value in right.items():
        assert name in answer and answer[name] is not ..., f"give the {name} estimate, a number from 0 to 1"
        assert abs(answer[name] - (1 - value)) > 5e-4, f"{name}: that is the chance that all five fail; take 1 minus it"
        assert abs(answer[name] - value) <= 5e-4, f"{name}: {answer[name]} is not it: {hints[name]}"
    print(f"Right: {right['naive']:.3f} and {right['unbiased']:.3f}. The naive estimate is the smaller of the two.")


def check_samples_for(answer, nats=2.0):
    """Check the fewest samples with which best-of-N may move the given distance from the model.

    Args:
        answer: N.
        nats: the bound on the KL divergence to reach.

    Raises:
        AssertionError: another N; the message says which way to go.
    """
    assert isinstance(answer, int) and answer >= 1, f"N={answer!r} must be a number of samples: an integer, at least 1"
    bound = best_of_n_kl(answer)
    assert answer != math.ceil(math.exp(nats)), f"N={answer} forgets (N − 1)/N: the bound there is {bound:.3f}"
    assert bound >= nats, f"at N={answer} the bound is {bound:.3f} nats, below {nats}: take more samples"
    before = best_of_n_kl(answer - 1) if answer > 1 else 0.0
    assert before < nats, f"N={answer - 1} would do: its bound is {before:.3f} nats already"
    print(f"Right: {answer} samples, {bound:.3f} nats. The next nat costs about e times as many.")


def check_weighted_vote(answer):
    """Check a majority vote in which answers count by a weight.

    Args:
        answer: a function `(answers, weights) -> winner`; `None` among the answers has no vote.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    won = answer(["7", "8", "8"], [0.9, 0.2, 0.3])
    assert won == "7", f"['7', '8', '8'] with weights .9, .2, .3: '7' has .9 and '8' has .5, you elected {won!r}"
    won = answer(["a", "b", "b"], [1.0, 0.5, 0.5])
    assert won == "a", f"of two answers with equal sums the first seen wins; you elected {won!r}"
    won = answer([None, None, "x"], [5.0, 5.0, 0.1])
    assert won == "x", f"None is an answer nobody could read: it has no vote, whatever its weight; you elected {won!r}"
    assert answer([None, None], [1.0, 1.0]) is None, "if no answer could be read, return None"
    pick = random.Random(0)
    for _ in range(200):
        answers = [pick.choice(("1", "2", "3", None)) for _ in range(9)]
        one, same = answer(answers, [1.0] * 9), majority_vote(answers)[0]
        assert one == same, f"equal weights make it the majority vote: of {answers} that is {same!r}, not {one!r}"
    print("Right: equal weights give the majority vote, and a sure answer may outvote two unsure ones.")
