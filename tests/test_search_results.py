"""The experiments of chapter 06: what their files say is what the code gives."""

import json
import sys

import pytest
import torch
from conftest import ROOT

from minigpt import token_log_probs

sys.path.insert(0, str(ROOT / "benchmarks"))
import closed  # noqa: E402
import likelihood  # noqa: E402

LIKELIHOOD = json.loads((ROOT / "benchmarks/results/likelihood.json").read_text())
CLOSED = json.loads((ROOT / "benchmarks/results/closed.json").read_text())
ROWS = {(row["model"], row["kind"]): row for row in LIKELIHOOD["rows"]}


def test_every_kind_of_text_is_there():
    """Seven kinds on the play model; on SmolLM2 all but the beams of width 2 and 8."""
    expected = {("shakespeare", kind) for kind in likelihood.KINDS}
    expected |= {("smollm2", kind) for kind in ("people", "sampled", "top-p", "greedy", "beams 4")}
    assert expected <= set(ROWS) and len(ROWS) == len(LIKELIHOOD["rows"])


@pytest.mark.parametrize("place", list(ROWS))
def test_summaries_agree(place):
    row, (_, new, _) = ROWS[place], likelihood.LENGTHS[place[0]]
    assert (row["texts"], row["new_tokens"]) == (100, 100 * new)
    assert len(row["by_text"]) == 100 and len(row["by_position"]) == new
    for means in (row["by_text"], row["by_position"]):
        assert sum(means) / len(means) == pytest.approx(row["log_prob"], abs=1e-3)
    assert row["error"] == pytest.approx(float(torch.tensor(row["by_text"]).std() / 10), abs=1e-3)


@pytest.mark.parametrize("kind", ["people", "sampled", "greedy", "beams 2"])
def test_rows_can_be_made_again(shakespeare, kind):
    """The first eight passages once more, alone: a text depends on its own prompt and seed only."""
    model, tokenizer = shakespeare
    prompts, people = (ids[:8] for ids in likelihood.passages(tokenizer, "shakespeare"))
    texts = likelihood.continued(model, prompts, people, kind, range(8))
    means = token_log_probs(model, torch.cat((prompts, texts), 1))[:, -128:].mean(1)
    assert means.tolist() == pytest.approx(ROWS["shakespeare", kind]["by_text"][:8], abs=2e-3)


def test_passages_are_held_out_and_apart(shakespeare):
    """A hundred different passages, each the beginning of a speech."""
    _, tokenizer = shakespeare
    prompts, people = likelihood.passages(tokenizer, "shakespeare")
    assert prompts.shape == (100, 64) and people.shape == (100, 128)
    assert len({tuple(row) for row in prompts.tolist()}) == 100
    assert all(":\n" in tokenizer.decode(row) for row in prompts.tolist())


def test_right_answers_are_counted_right():
    assert [(row["task"], row["strategy"]) for row in CLOSED["rows"]] == [
        (task, strategy) for task in closed.TASKS for strategy in closed.STRATEGIES
    ]
    for row in CLOSED["rows"]:
        expected = closed.TASKS[row["task"]].values()
        right = [closed.is_right(row["task"], *pair) for pair in zip(row["answers"], expected, strict=True)]
        assert (len(right), sum(right)) == (row["questions"], row["right"]) == (36, sum(right))
        assert row["answers_each"] == 1 and row["right_of_each"] == " ".join(str(int(one)) for one in right)


@pytest.mark.parametrize(
    ("task", "answer", "expected", "right"),
    [
        ("sums", "3 + 8 = 11", "11", True),
        ("sums", "3 + 8 = 11.", "11", True),
        ("sums", "11? No: 3 + 8 = 12", "11", False),
        ("sums", "To add them, you simply add them.", "11", False),
        ("sums", "3 + 8 = 111", "11", False),
        ("capitals", "The capital of Spain is Madrid.", "Madrid", True),
        ("capitals", "El Salvador", "Madrid", False),
    ],
)
def test_what_counts_as_right(task, answer, expected, right):
    assert closed.is_right(task, answer, expected) == right
