"""The checkers of chapter 04: each accepts the folded solution and turns down, kindly, what people get wrong."""

import copy
import math

import nbformat
import pytest
import torch

from minigpt import RepetitionPenalty
from minigpt.checks import penalties as checks

NEVER = -math.inf
BY_HAND = {
    "repetition 2": [1, -2, 1.5, 0.25, 1],
    "frequency 0.5": [2, -1, 2, 0, 1],
    "presence 0.5": [2, -1, 2.5, 0, 1],
    "no repeated 1-gram": [NEVER, NEVER, NEVER, NEVER, 1],
}
TEXT, LOGITS = torch.tensor([[3, 1, 1]]), torch.tensor([[1.0, 6.0, 4.0, 3.0, 5.0]])  # 1 is seen, 4 is not: θ = 1.2


@pytest.mark.parametrize("cell_id", ["solution-by-hand", "solution-theta", "solution-repetition", "solution-ngram"])
def test_the_folded_solution_is_accepted(root, capsys, cell_id):
    notebook = nbformat.read(root / "notebooks" / "04_penalties.ipynb", as_version=4)
    source = next(cell.source for cell in notebook.cells if cell.id == cell_id)
    exec(source, {"torch": torch, "checks": checks, "stuck": TEXT, "stuck_logits": LOGITS})
    assert capsys.readouterr().out.startswith("Right")


@pytest.mark.parametrize(
    ("name", "place", "wrong", "hint"),
    [
        ("repetition 2", 1, -0.5, "divided above 0, multiplied below"),  # the paper's own code
        ("repetition 2", 2, 0.75, "once"),
        ("frequency 0.5", 0, 1.5, "only the answer"),
        ("frequency 0.5", 2, 2.5, "for each time"),
        ("presence 0.5", 2, 2, "however often"),
        ("no repeated 1-gram", 0, 2, "nothing that stands in the text"),
        ("no repeated 1-gram", 4, ..., "token 4"),  # the stub as it stands
    ],
)
def test_a_wrong_logit_is_named(name, place, wrong, hint):
    answer = copy.deepcopy(BY_HAND)
    answer[name][place] = wrong
    with pytest.raises(AssertionError, match=hint):
        checks.check_by_hand(answer)
    with pytest.raises(AssertionError, match="five tokens have five logits, you gave 4"):
        checks.check_by_hand(BY_HAND | {name: BY_HAND[name][:4]})
    with pytest.raises(AssertionError, match="give the five logits under repetition 2"):
        checks.check_by_hand({})


@pytest.mark.parametrize(
    ("theta", "hint"),
    [(1.1, "it takes more"), (1.25, "look for the edge"), (..., "a number above 0"), (-1, "a number above 0")],
)
def test_another_theta_is_turned_down(theta, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_breaking_theta(theta, TEXT, LOGITS)


def penalty(ids, logits, theta, mask, *, sign=True, once=True, own_row=True, padding=True):
    """A repetition penalty with one part that can be got wrong."""
    weights = (mask if padding else torch.ones_like(mask)).to(logits.dtype)
    count = torch.zeros_like(logits).scatter_add(1, ids, weights)
    if not own_row:
        count = count.sum(0, keepdim=True).expand_as(logits)
    power = (count > 0).to(logits.dtype) if once else count
    grown = logits / theta**power if not sign else logits * theta**power
    return torch.where(count > 0, torch.where(logits > 0, logits / theta**power, grown), logits)


def in_place(ids, logits, theta, mask):
    """Right, but it writes into the logits it was given."""
    logits.copy_(RepetitionPenalty(theta, attention_mask=mask)(ids, logits))
    return logits


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda *a: penalty(*a, sign=False), "dividing a negative logit rewards it"),
        (lambda *a: penalty(*a, once=False), "once a token is enough"),
        (lambda *a: penalty(*a, own_row=False), "not for its neighbour's"),
        (lambda *a: penalty(*a, padding=False), "padding never counts"),
        (lambda ids, z, theta, mask: RepetitionPenalty(theta)(ids, z) - 1, "not in the text"),
        (lambda ids, z, theta, mask: z - theta, "not in the text"),
        (in_place, "as they are"),
        (lambda *a: None, "return logits of shape"),
        (lambda *a: penalty(*a)[:1], "return logits of shape"),
    ],
)
def test_a_wrong_repetition_penalty_is_told_what_is_wrong(wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_repetition_penalty(wrong)


def test_a_right_penalty_passes(capsys):
    checks.check_repetition_penalty(penalty)
    assert capsys.readouterr().out.startswith("Right")


def ban(ids, n, *, first=False, late=0):
    """The n-gram ban with one part that can be got wrong."""
    if len(ids) < n:
        return set()
    last, starts = ids[len(ids) - n + 1 :], range(len(ids) - n + 1 - late)
    found = [ids[s + n - 1] for s in starts if ids[s : s + n - 1] == last]
    return set(found[:1] if first else found)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda ids, n: ban(ids, n, first=True), "both are banned"),
        (lambda ids, n: ban(ids, n, late=1), "overlapping"),
        (lambda ids, n: ban(ids, n + 1), "banned"),
        (lambda ids, n: set(ids), "banned"),
        (lambda ids, n: None, "return the set of banned ids"),
    ],
)
def test_a_wrong_ban_is_told_what_is_wrong(wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_no_repeat(wrong)


def test_a_right_ban_passes(capsys):
    checks.check_no_repeat(ban)
    assert capsys.readouterr().out.startswith("Right")
