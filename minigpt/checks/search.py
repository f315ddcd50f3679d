"""Checkers of chapter 06, search."""

import math

import torch

from minigpt.explorers import TreeModel, toy_tree
from minigpt.search import beam_search, candidates, select

SHORT, LONG = (-3.0, 5), (-5.6, 8)  # sum of log-probs, length


def check_winners(answer):
    """Check which of two texts wins at four exponents of the power form.

    Args:
        answer: `{-1: name, 0: name, 1: name, 2: name}`, each name `"short"` (sum −3.0, length 5) or `"long"`
            (sum −5.6, length 8).

    Raises:
        AssertionError: a winner is wrong; the message says which and why.
    """
    for alpha in (-1, 0, 1, 2):
        assert answer.get(alpha) in ("short", "long"), f"α = {alpha}: say 'short' or 'long'"
        short, long = (total / length**alpha for total, length in (SHORT, LONG))
        right = "short" if short > long else "long"
        scores = f"short {short:.2f}, long {long:.2f}"
        assert answer[alpha] == right, f"α = {alpha}: {scores}. The score nearer to 0 wins: a sum is negative"
    print("All four are right: the larger α, the more a long text is forgiven.")


def check_crossing(answer):
    """Check the exponent at which the two texts of `check_winners` score alike.

    Args:
        answer: α, to three decimals.

    Raises:
        AssertionError: it is another one; the message says which way to go.
    """
    right = math.log(LONG[0] / SHORT[0]) / math.log(LONG[1] / SHORT[1])
    short, long = (total / length ** float(answer) for total, length in (SHORT, LONG))
    way = "larger" if short > long else "smaller"
    assert abs(answer - right) < 6e-4, f"at α = {answer} short has {short:.4f} and long {long:.4f}: try a {way} α"
    print(
        f"Right: at α = {right:.3f} both score {SHORT[0] / SHORT[1] ** right:.3f}. Below it short wins, above it long."
    )


def check_worse_tree(branches):
    """Check a tree in which a beam search of width 3 finds a less probable text than one of width 2.

    Args:
        branches: word → probability of a leaf, or (probability, what follows, in the same form).

    Raises:
        AssertionError: probabilities that are none, or width 3 is not worse; the message says what.
    """
    tree = toy_tree(branches)
    for prefix, row in tree["nodes"].items():
        total = sum(math.exp(log_prob) for _, log_prob in row)
        words = " ".join(tree["tokens"][i] for i in prefix.split()) or "the start"
        assert abs(total - 1) < 1e-6, f"after {words} the probabilities add up to {total:.3f}, not 1"
    best = {}
    for width in (2, 3):
        request = {"max_new_tokens": tree["max_new_tokens"], "eos_token_id": 0, "use_cache": False}
        penalty = {"length_penalty": 0.0, "early_stopping": "never"}
        start = torch.zeros(1, 1, dtype=torch.int64)
        found = beam_search(TreeModel(tree), start, num_beams=width, **penalty, **request)[0][0]
        best[width] = math.exp(found.sum_log_prob)
    assert best[3] < best[2] - 1e-9, (
        f"width 2 finds probability {best[2]:.4f}, width 3 {best[3]:.4f}: width 3 must lose. Let a third beam "
        "bring two children that push out the beginning of the best text"
    )
    print(f"Right: width 2 finds a text of probability {best[2]:.4f}, width 3 one of {best[3]:.4f}.")


def check_select(answer):
    """Check a step's selection of the reader's own, for any number of EOS tokens.

    Args:
        answer: a function `(sums, log_probs, num_beams, eos) -> (kept, ended)`: sums (K,) of the beams, log-probs
            (K, V) of the next token, a set of EOS ids; it returns two lists of `(sum, beam, token_id)`, best first.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    sums, eos = torch.tensor([-1.0, -1.2], dtype=torch.float64), {5, 6}
    probs = torch.tensor([[0.04, 0.03, 0.02, 0.01, 0.02, 0.48, 0.40], [0.02, 0.01, 0.06, 0.01, 0.01, 0.45, 0.44]])
    result = answer(sums.clone(), probs.double().log(), 2, set(eos))
    assert isinstance(result, tuple) and len(result) == 2, "return two lists: what is kept, and what has ended"
    kept, ended = ([(beam, token) for _, beam, token in part] for part in result)
    assert not any(token in eos for _, token in kept), "a text that has ended cannot go on: kept holds an EOS"
    assert len(kept) == 2, (
        f"{len(kept)} beams go on instead of 2: the four best candidates are all ends here, so look further down"
    )
    assert kept == [(1, 2), (0, 0)], f"kept is {kept}, as (beam, token): take the best two that are no EOS, best first"
    assert len(ended) <= 2, f"{len(ended)} texts end: an EOS beyond the two best candidates is dropped"
    assert ended == [(0, 5), (0, 6)], f"ended is {ended}, as (beam, token): it is every EOS among the two best"
    generator = torch.Generator().manual_seed(0)
    for num_beams, ends in ((1, {0}), (2, {0, 3}), (4, {1}), (3, {0, 1, 2}), (3, set())):
        sums = -3 * torch.rand(num_beams, generator=generator, dtype=torch.float64)
        logits = 2 * torch.randn(num_beams, 9, generator=generator, dtype=torch.float64)
        logits[:, list(ends)] += 2
        rows = logits.log_softmax(-1)
        expected = tuple(map(list, select(candidates(sums.tolist(), rows, 9 * num_beams), num_beams, ends, False)))
        got = tuple(
            [(float(total), int(beam), int(token)) for total, beam, token in part]
            for part in answer(sums.clone(), rows.clone(), num_beams, set(ends))
        )
        same = [[c[1:] for c in part] for part in got] == [[tuple(c[1:]) for c in part] for part in expected]
        assert same, f"with K = {num_beams} and EOS {sorted(ends)} the package keeps {expected[0]}"
        for mine, theirs in zip(got[0] + got[1], expected[0] + expected[1], strict=True):
            assert abs(mine[0] - theirs[0]) < 1e-4, f"the sum of {mine[1:]} is {theirs[0]:.4f}, not {mine[0]:.4f}"
    print("Right: the width stays however many texts end, and an EOS far down the list is dropped.")
