"""Chapter 01's checkers accept the solutions on the page and explain typical slips."""

import json

import pytest
import torch
from conftest import ROOT

from minigpt.checks import generation as checks
from minigpt.generation import token_log_probs

NOTEBOOK = ROOT / "notebooks" / "01_generation.ipynb"
WORK = {"forwards": 6, "padding": 3, "naive tokens": 78, "cached tokens": 18}


def solutions():
    """Names that the page's folded solutions define."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names = {"torch": torch, "token_log_probs": token_log_probs}
    for cell in cells:
        if "solution" in cell["metadata"].get("tags", ()):
            lines = "".join(cell["source"]).splitlines()
            exec("\n".join(line for line in lines if not line.startswith("checks.")), names)
    return names


@pytest.mark.parametrize("name", ["work", "write_on", "answer_log_prob", "hold_back"])
def test_the_solution_on_the_page_passes(name, capsys):
    """The folded solution is right, and the checker says so in one line."""
    getattr(checks, f"check_{name}")(solutions()[name])
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    "name, wrong, hint",
    [
        ("forwards", 7, "never fed back"),
        ("padding", 4, "until the longest row"),
        ("naive tokens", 18, "the whole text"),
        ("cached tokens", 20, "a single token a row"),
    ],
)
def test_wrong_predictions_of_work(name, wrong, hint):
    """Each wrong number is named, with its reason."""
    with pytest.raises(AssertionError, match=f"{name}: {wrong} .*{hint}"):
        checks.check_work(WORK | {name: wrong})
    with pytest.raises(AssertionError, match=f"say how many '{name}'"):
        checks.check_work({key: n for key, n in WORK.items() if key != name})


def loop(see, give=lambda text, limit: text):
    """A greedy loop that shows the model `see(text, limit)` and returns `give(text, limit)`."""

    def write_on(model, token_ids, max_new_tokens):
        limit = model.config.context_length
        for _ in range(max_new_tokens):
            next_ids = model(see(token_ids, limit))[:, -1].argmax(-1)
            token_ids = torch.cat((token_ids, next_ids[:, None]), 1)
        return give(token_ids, limit)

    return write_on


@pytest.mark.parametrize(
    "write_on, hint",
    [
        (loop(lambda text, limit: text), "give it the last tokens only"),
        (loop(lambda text, limit: text[:, :limit]), "must see the last 5"),
        (loop(lambda text, limit: text[:, -limit + 1 :]), "must see the last 5"),
        (loop(lambda text, limit: text[:, -limit:], lambda text, limit: text[:, -limit:]), "not the result"),
    ],
    ids=["no window", "first tokens", "one too few", "returns the window"],
)
def test_wrong_windows(write_on, hint):
    """A window that is missing, at the wrong end, one short, or cut from the result."""
    with pytest.raises(AssertionError, match=hint):
        checks.check_write_on(write_on)


@pytest.mark.parametrize(
    "total, hint",
    [
        (lambda each, n: -each[-n:].sum(), "leave the sign"),
        (lambda each, n: each.sum(), "prompt is given"),
        (lambda each, n: each[len(each) - n + 1 :].sum(), "first token is missing"),
        (lambda each, n: each[-n - 1 :].sum(), "prompt's last token|prompt is given"),
        (lambda each, n: each[-n:].mean(), "adds up"),
        (lambda each, n: each[-n:].exp().sum(), "is right"),
    ],
    ids=["sign", "prompt too", "one too few", "one too many", "mean", "probabilities"],
)
def test_wrong_log_probs(total, hint):
    """The checker recognises the slip from the number."""

    def answer_log_prob(model, prompt_ids, answer_ids):
        each = token_log_probs(model, torch.tensor([prompt_ids + answer_ids]))[0]
        return total(each, len(answer_ids))

    with pytest.raises(AssertionError, match=hint):
        checks.check_answer_log_prob(answer_log_prob)


def shows_everything(pieces, stop):
    """Cuts only at a stop string that lies inside one piece."""
    for piece in pieces:
        if stop in piece:
            yield piece.split(stop)[0]
            return
        yield piece


def waits_for_the_end(pieces, stop):
    """Right text, but nothing is streamed."""
    yield "".join(pieces).split(stop)[0]


def forgets_the_rest(pieces, stop):
    """Never shows what is still held when the pieces end."""
    held = ""
    for piece in pieces:
        held += piece
        if stop in held:
            yield held.split(stop)[0]
            return
        safe = checks._safe(held, stop)
        yield safe
        held = held[len(safe) :]


def loses_false_starts(pieces, stop):
    """Holds what could begin the stop, and drops it when it was none."""
    held = ""
    for piece in pieces:
        for character in piece:
            held = held + character if stop.startswith(held + character) else ""
            if held == stop:
                return
            if not held:
                yield character


@pytest.mark.parametrize(
    "hold_back, hint",
    [
        (shows_everything, "shown"),
        (waits_for_the_end, "held too long"),
        (forgets_the_rest, "should be 'so EN'"),
        (loses_false_starts, "should be"),
    ],
)
def test_wrong_streams(hold_back, hint):
    """Parts of the stop shown, text late, text lost, a false start lost."""
    with pytest.raises(AssertionError, match=hint):
        checks.check_hold_back(hold_back)
