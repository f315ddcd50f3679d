"""Checkers of chapter 03, truncation."""

from unittest.mock import patch

import torch

from minigpt.processors import Epsilon, MinP, TopK, TopP

_RULES = {"top-k": TopK(50), "top-p": TopP(0.9), "min-p": MinP(0.1), "epsilon": Epsilon(6e-4)}


def peaked_and_flat():
    """The two distributions of the first exercise: logits (1, 1001), "peaked" and "flat".

    Peaked: one token has probability .7, the other 1,000 share the rest. Flat: all 1,001 are equally likely.
    """
    peaked = torch.cat((torch.tensor([0.7]), torch.full((1000,), 0.3 / 1000))).log()
    return {"peaked": peaked[None], "flat": torch.zeros(1, 1001)}


def check_counts(answer):
    """Check how many tokens each rule keeps.

    Args:
        answer: `{"peaked": {"top-k": n, "top-p": n, "min-p": n, "epsilon": n}, "flat": {…}}`.

    Raises:
        AssertionError: a number is wrong; the message says which and why.
    """
    reasons = {
        "top-k": "top-k counts, it never looks at a probability",
        "top-p": "top-p goes on until the mass reaches .9, however many tokens that takes",
        "min-p": "min-p compares each probability with a tenth of the largest",
        "epsilon": "epsilon compares each probability with .0006; the likeliest token always stays",
    }
    for name, logits in peaked_and_flat().items():
        for rule, processor in _RULES.items():
            assert name in answer and rule in answer[name], f"say how many tokens {rule} keeps of the {name} one"
            kept, said = int(processor.keep(logits).sum()), answer[name][rule]
            assert said == kept, f"{name}, {rule}: {said} is not it. Think again: {reasons[rule]}"
    print("All eight are right: top-k kept 50 twice, and each other rule changed its mind.")


def check_p_for_k(answer, logits, k=50):
    """Check a p with which top-p keeps just as many tokens as top-k.

    Args:
        answer: p.
        logits: the distribution, (1, V).
        k: the number of tokens to keep.

    Raises:
        AssertionError: another number is kept; the message says which way to go.
    """
    assert 0 < answer <= 1, f"p is a share of the mass, in (0, 1]: {answer} is none"
    kept = int(TopP(float(answer)).keep(logits).sum())
    way = "larger" if kept < k else "smaller"
    assert kept == k, f"p={answer} keeps {kept:,} tokens and you want {k}: try a {way} p"
    print(f"Right: with p={answer:.4f} top-p keeps {kept} tokens, the same as top-k {k}, on this prompt alone.")


def check_top_p(answer):
    """Check a top-p of the reader's own.

    Args:
        answer: a function `(logits (B, V), p) -> keep (B, V)`, bool.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    logits = torch.tensor([[0.5, 0.35, 0.10, 0.05]]).log()
    keep = answer(logits, 0.9)
    assert isinstance(keep, torch.Tensor) and keep.dtype == torch.bool, "return a boolean tensor: True for kept tokens"
    assert keep.shape == logits.shape, f"return one truth value a token, shape {tuple(logits.shape)}, in id order"
    _check_crossing(answer, logits)
    ids = answer(torch.tensor([[0.05, 0.5, 0.10, 0.35]]).log(), 0.9)[0].nonzero().flatten().tolist()
    assert ids == [1, 2, 3], f"ids [1, 2, 3] hold .95 here, you kept {ids}: bring the mask back from sorted to id order"
    flat = 3 * torch.randn(1, 50_257, generator=torch.Generator().manual_seed(0))
    assert answer(flat, 1.0).all(), "p = 1 must keep every token; rounding in the running sum cuts your tail"
    many = torch.cat((logits, logits.flip(1), flat[:, :4]))
    assert torch.equal(answer(many, 0.7), TopP(0.7).keep(many)), "with several rows, each must be cut by itself"
    exact, yours = TopP(0.999).keep(flat).sum(), answer(flat, 0.999).sum()
    assert exact == yours, f"at p=.999 you keep {yours:,} of 50,257 tokens, not {exact:,}: add up in float64"
    print(
        "Right: the crossing token stays, p = 1 keeps everything, and the sums are exact enough for a real vocabulary."
    )


def _check_crossing(answer, logits):
    for p, right in ((0.9, 3), (1e-8, 1)):
        kept = int(answer(logits, p).sum())
        hint = "the token that crosses p stays" if kept < right else "stop with the token that crosses p"
        assert kept == right, f"p={p} of [.5, .35, .10, .05] must keep {right}, you kept {kept}: {hint}"
    kept = int(answer(torch.zeros(1, 4), 0.5).sum())
    assert kept == 2, f"of four equal tokens two hold exactly .5, so p=.5 keeps 2, not {kept}: reaching p is ≥"


def check_min_p(answer):
    """Check a min-p that needs no softmax.

    Args:
        answer: a function `(logits (B, V), min_p) -> keep (B, V)`, bool, for min_p in (0, 1].

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    logits = torch.randn(5, 200, generator=torch.Generator().manual_seed(0)) * 4
    logits[:, 7] = -torch.inf
    before = logits.clone()
    keep = _without_softmax(answer, logits, 0.1)
    assert torch.equal(logits, before), "leave the logits you were given as they are"
    assert isinstance(keep, torch.Tensor) and keep.dtype == torch.bool, "return a boolean tensor: True for kept tokens"
    assert keep.shape == logits.shape, f"return one truth value a token, shape {tuple(logits.shape)}"
    for row in range(len(logits)):
        assert keep[row, logits[row].argmax()], "the likeliest token must always stay"
    for min_p in (0.1, 0.02, 0.7):
        wrong = int((_without_softmax(answer, logits, min_p) != MinP(min_p).keep(logits)).sum())
        assert not wrong, f"{wrong} tokens are on the wrong side at min_p={min_p}: take the log of p ≥ min_p · p_max"
    tied = torch.tensor([[2.0, 5.0, 5.0, 1.0]])
    assert answer(tied, 1.0).tolist() == [[False, True, True, False]], "min_p = 1 keeps the largest and its exact ties"
    print("Right: two operations on the logits, and no probability was ever computed.")


def _without_softmax(answer, *arguments):
    def refuse(*args, **kwargs):
        raise AssertionError("no softmax this time: how far below the largest logit may a kept one be?")

    names = ("torch.softmax", "torch.log_softmax", "torch.exp", "torch.logsumexp", "torch.nn.functional.softmax")
    methods = ("softmax", "log_softmax", "exp", "logsumexp")
    patches = [patch(name, refuse) for name in (*names, "torch.nn.functional.log_softmax")]
    patches += [patch.object(torch.Tensor, method, refuse) for method in methods]
    for p in patches:
        p.start()
    try:
        return answer(*arguments)
    finally:
        for p in patches:
            p.stop()
