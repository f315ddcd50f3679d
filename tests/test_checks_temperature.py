"""Checkers of chapter 02: each accepts the chapter's own solution and rejects typical mistakes."""

import ast
import math

import nbformat
import pytest
import torch

from minigpt.checks import temperature as checks


@pytest.fixture(scope="module")
def chapter(root):
    """The functions that chapter 02 defines: the solutions, and what they build on."""
    functions = {"math": math, "torch": torch}
    for cell in nbformat.read(root / "notebooks" / "02_temperature.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and "skip-execution" not in cell.metadata.get("tags", ()):
            defined = [node for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef)]
            exec(compile(ast.Module(defined, []), "02_temperature", "exec"), functions)
    return functions


def test_solutions_are_accepted(chapter, capsys):
    checks.check_ratio(1 / math.log(10))
    checks.check_half_outside(lowest_temperature(), long_tail())
    checks.check_softmax(chapter["my_softmax"])
    checks.check_softmax(chapter["probs_at"])
    checks.check_temperature_for_entropy(chapter["temperature_for_entropy"])
    assert capsys.readouterr().out.count("Right") == 5


@pytest.mark.parametrize(
    ("answer", "hint"),
    [(math.log(10), "1/T"), (1, "natural logarithm"), (0.5, "lower"), (0.3, "higher"), (0, "above 0"), (-1, "above 0")],
)
def test_wrong_ratios(answer, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_ratio(answer)


def long_tail():
    """Logits (49_152,) whose probabilities fall like those of words: the 1,000 likeliest hold most at T = 1."""
    return -1.5 * torch.arange(1, 49_153).float().log()


def lowest_temperature():
    shares = {n: (long_tail().double() / (0.05 * n)).softmax(-1)[:1000].sum() for n in range(1, 61)}
    return 0.05 * min(n for n, share in shares.items() if share < 0.5)


@pytest.mark.parametrize(("steps", "hint"), [(-1, "go higher"), (1, "go lower"), (0.5, "grid"), (-99, "grid")])
def test_wrong_temperatures_for_half_outside(steps, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_half_outside(lowest_temperature() + 0.05 * steps, long_tail())


def one_hot(z):
    return torch.nn.functional.one_hot(z.argmax(-1), z.size(-1)).double()


def overflows(logits, temperature):
    weights = (logits.double() / temperature).exp() if temperature else one_hot(logits)
    return weights / weights.sum(-1, keepdim=True)


def divides_by_zero(logits, temperature):
    return ((logits.double() - logits.double().amax(-1, keepdim=True)) / temperature).softmax(-1)


def cools_probabilities(logits, temperature):
    return (logits.double().softmax(-1) / temperature).softmax(-1) if temperature else one_hot(logits)


def mixes_rows(logits, temperature):
    return (logits.double() / temperature).softmax(0) if temperature else one_hot(logits)


def one_maximum_for_all_rows(logits, temperature):
    if temperature == 0:
        return one_hot(logits)
    weights = ((logits.double() - logits.double().max()) / temperature).exp()
    return weights / weights.sum(-1, keepdim=True)


def edits_its_input(logits, temperature):
    logits /= temperature
    return logits.softmax(-1)


def shares_between_ties(logits, temperature):
    return (logits.double() / temperature).softmax(-1) if temperature else (logits.double() / 1e-9).softmax(-1)


def adds_up_in_float32(logits, temperature):
    if temperature == 0:
        return one_hot(logits)
    z = logits.double() - logits.double().amax(-1, keepdim=True)
    return (z / temperature).float().softmax(-1)


@pytest.mark.parametrize(
    ("mistake", "hint"),
    [
        (overflows, "subtract"),
        (divides_by_zero, "T = 0"),
        (cools_probabilities, "must give"),
        (mixes_rows, "add up to 1"),
        (one_maximum_for_all_rows, "each row"),
        (edits_its_input, "as they are"),
        (shares_between_ties, "lowest id"),
        (adds_up_in_float32, "float64"),
        (lambda logits, temperature: None, "one probability a token"),
    ],
)
def test_wrong_softmaxes(mistake, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_softmax(mistake)


def search(high=1e4, nats=False, rising=True, refuses=True):
    """A bisection with one thing to get wrong."""

    def temperature_for_entropy(logits, bits):
        if refuses and not 0 < bits < math.log2(len(logits)):
            raise ValueError(bits)
        low, end = 0.0, high
        for _ in range(100):
            middle = (low + end) / 2
            probs = (logits.double() / middle).softmax(-1)
            below = -torch.special.xlogy(probs, probs).sum() < bits * (1 if nats else math.log(2))
            low, end = (middle, end) if below == rising else (low, middle)
        return end

    return temperature_for_entropy


def test_search_is_right_without_a_mistake(capsys):
    checks.check_temperature_for_entropy(search())
    assert "Right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mistake", "hint"),
    [
        ({"high": 2.0}, "rises"),
        ({"nats": True}, "nats"),
        ({"rising": False}, "rises"),
        ({"refuses": False}, "ValueError"),
    ],
)
def test_wrong_searches(mistake, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_temperature_for_entropy(search(**mistake))
