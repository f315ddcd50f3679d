"""Checkers of chapter 02, temperature."""

import math

import torch

from minigpt.processors import Temperature


def check_ratio(answer):
    """Check the temperature at which the first of two tokens one logit apart is ten times as likely as the second.

    Args:
        answer: T.

    Raises:
        AssertionError: another T; the message says which way to go.
    """
    right = 1 / math.log(10)
    assert answer > 0, f"T={answer}: a ratio other than 1 to 0 needs a temperature above 0"
    assert abs(answer - math.log(10)) > 0.005, "nearly: you have 1/T. The ratio is exp(gap / T), so T stands below"
    assert abs(answer - 1) > 0.005, "at T = 1 the ratio is e, 2.72: use the natural logarithm, as exp does"
    ratio, way = math.exp(min(1 / answer, 700)), "lower" if answer > right else "higher"
    assert abs(answer - right) < 0.005, f"at T={answer} the ratio is {ratio:.3g}, you want 10: try a {way} T"
    print(f"Right: exp(1 / {right:.4f}) = 10. Any two tokens one logit apart have this ratio then.")


def check_half_outside(answer, logits, k=1000):
    """Check the lowest T, in steps of .05, at which the k likeliest tokens hold less than half of the mass.

    Args:
        answer: T.
        logits: the distribution, (V,).
        k: how many likeliest tokens.

    Raises:
        AssertionError: another T; the message says why.
    """
    steps = round(answer / 0.05)
    assert steps >= 1 and abs(answer - 0.05 * steps) < 1e-6, f"T={answer} is not on the grid .05, .10, .15, …"
    here, before = (_mass_of_first(logits, k, 0.05 * n) for n in (steps, max(1, steps - 1)))
    assert here < 0.5, f"at T={answer:.2f} the {k:,} likeliest tokens still hold {here:.1%}: go higher"
    assert before >= 0.5, f"at T={answer - 0.05:.2f} they hold {before:.1%}, which is less than half too: go lower"
    print(f"Right: at T={answer:.2f} the {k:,} likeliest tokens hold {here:.1%} of the mass.")


def _mass_of_first(logits, k, temperature):
    return float((logits.double() / temperature).softmax(-1).topk(k).values.sum())


def check_softmax(answer):
    """Check a softmax with temperature of the reader's own.

    Args:
        answer: a function `(logits (B, V), temperature) -> probs (B, V)`.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    logits = torch.tensor([[2.0, 1.0, 0.5], [0.0, 0.0, 5.0]])
    before = logits.clone()
    probs = answer(logits, 0.5)
    assert torch.equal(logits, before), "leave the logits you were given as they are: a slider would cool them twice"
    assert isinstance(probs, torch.Tensor) and probs.shape == logits.shape, "return one probability a token, (B, V)"
    for T in (0.5, 1.0, 2.0):
        _check_rows(answer(logits, T), _reference(logits, T), T)
    _check_extremes(answer)
    _check_zero(answer)
    flat = 3 * torch.randn(1, 49_152, generator=torch.Generator().manual_seed(0))
    off = abs(float(answer(flat, 1.0).double().sum()) - 1)
    assert off < 1e-9, f"49,152 probabilities add up to 1 ± {off:.1e}: turn the logits into float64 first"
    print("Right: stable at both ends, in half precision too, and each row stands by itself.")


def _reference(logits, temperature):
    return Temperature(temperature)(None, logits).double().softmax(-1)


def _check_rows(probs, right, T):
    sums = probs.double().sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5), f"each row must add up to 1, yours give {sums}"
    shown = [round(p, 4) for p in right[0].tolist()]
    assert torch.allclose(probs[0].double(), right[0], atol=1e-5), f"logits [2, 1, .5] at T={T} must give {shown}"
    assert torch.allclose(probs.double(), right, atol=1e-5), "the second row is wrong: use dim=-1, each row by itself"


def _check_extremes(answer):
    cold = torch.tensor([[12, 11.5, -3]], dtype=torch.float16)
    high_and_low = torch.tensor([[1e4, 1e4 - 1, 0.0], [0.0, 1.0, 0.0]])  # each row has a maximum of its own
    for logits, T in ((cold, 1e-4), (cold.float(), 1e-40), (high_and_low, 1.0)):
        probs = answer(logits, T)
        where = f"logits {logits.tolist()} ({str(logits.dtype)[6:]}) at T={T} gave {probs.tolist()}"
        assert probs.isfinite().all(), f"{where}: subtract each row's maximum before you divide"
        assert torch.allclose(probs.double(), _reference(logits, T), atol=1e-3), where
    cut = answer(torch.tensor([[1.0, -torch.inf, 0.0]]), 2.0)
    assert cut.isfinite().all() and cut[0, 1] == 0, "a token whose logit is -inf was filtered: its probability stays 0"


def _check_zero(answer):
    tied = torch.tensor([[1.0, 3.0, 3.0], [4.0, 0.0, 1.0]])
    probs = answer(tied, 0)
    assert probs.isfinite().all(), "T = 0 divides by zero: give all the probability to the argmax instead"
    assert probs.tolist() == [[0, 1, 0], [1, 0, 0]], "at T = 0 the likeliest token gets 1, the lowest id where two tie"


def check_temperature_for_entropy(answer):
    """Check a search for the temperature that gives a wanted entropy.

    Args:
        answer: a function `(logits (V,), bits) -> T`.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    few = torch.tensor([2.0, 1.0, 0.5])
    many = 3 * torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for logits, bits in ((few, 1.0), (few, 0.1), (few, 1.58), (many, 0.5), (many, 5.0), (many, 9.9)):
        T = float(answer(logits, bits))
        wanted = f"{bits} bits over {len(logits)} tokens: your T={T:.4f}"
        assert T > 0 and math.isfinite(T), f"{wanted} is no temperature"
        found = _bits(logits, T)
        hint = "it rises with T" if abs(found - bits * math.log2(math.e)) > 0.01 else "you seem to count in nats"
        assert abs(found - bits) < 0.01, f"{wanted} gives {found:.3f} bits. Mind: {hint}"
    for bits in (0.0, -1.0, math.log2(3), 2.0):
        _check_refusal(answer, few, bits)
    print("Right: the entropy rises with T, so halving the interval finds it.")


def _check_refusal(answer, logits, bits):
    try:
        T = answer(logits, bits)
    except ValueError:
        return
    raise AssertionError(f"no T gives 3 tokens {bits:.2f} bits (0 < bits < log2 3): raise ValueError, not T={T}")


def _bits(logits, temperature):
    probs = _reference(logits[None], temperature)
    return float(-torch.special.xlogy(probs, probs).sum() / math.log(2))
