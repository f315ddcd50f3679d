"""Checkers of chapter 06, search."""

import math

import torch

from minigpt.explorers import TreeModel, toy_tree
from minigpt.search import Candidate, beam_search, select

SHORT, LONG = (-2.0, 2), (-2.7, 3)  # sum of log-probs, length


def check_winners(answer):
    """Check which of two texts wins at four exponents of the power form.

    Args:
        answer: `{-1: name, 0: name, 1: name, 2: name}`, each name `"short"` (sum −2.0, length 2) or `"long"`
            (sum −2.7, length 3).

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
    """Check a step's selection of the reader's own.

    Args:
        answer: a function `(candidates, num_beams, eos) -> (kept, ended)` on lists of `(sum, beam, token_id)`, best
            first; it returns two lists of the same.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    names = [(-1.0, 0, 5), (-1.5, 1, 9), (-2.0, 0, 7), (-2.5, 1, 9), (-3.0, 1, 5), (-3.5, 0, 6)]  # 9 is EOS
    result = answer(list(names), 3, 9)
    assert isinstance(result, tuple) and len(result) == 2, "return two lists: what is kept, and what has ended"
    kept, ended = map(list, result)
    assert not any(one[2] == 9 for one in kept), "a text that has ended cannot go on: kept holds an EOS"
    assert len(kept) == 3, f"{len(kept)} beams go on instead of 3: an ended text must not take the place of a live one"
    assert kept == [names[0], names[2], names[4]], "keep the best three that are no EOS, best first"
    assert names[3] not in ended, "the EOS on rank 4 is beyond the three best candidates: drop it"
    assert ended == [names[1]], "the EOS on rank 2 ends a text: it belongs to ended"
    generator = torch.Generator().manual_seed(0)
    for num_beams in (1, 2, 4):
        ids = torch.randint(4, (2 * num_beams,), generator=generator).tolist()
        ids[-num_beams:] = [i % 3 + 1 for i in ids[-num_beams:]]  # 0 is EOS; enough others
        pool = [Candidate(-float(i), i % num_beams, token) for i, token in enumerate(ids)]
        expected = tuple(map(list, select(tuple(pool), num_beams, (0,), False)))
        got = tuple([Candidate(*one) for one in part] for part in answer(list(pool), num_beams, 0))
        assert got == expected, f"with {num_beams} beams and tokens {ids} (0 is EOS) the package keeps {expected[0]}"
    print("Right: the width stays, ended texts leave it, and an EOS far down the list is dropped.")
