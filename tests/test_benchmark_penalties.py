"""The experiment of chapter 04: its file, its rules of what is right, and two rows made again."""

import json
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import penalties as experiment  # noqa: E402

FILE = ROOT / "benchmarks" / "results" / "penalties.json"


@pytest.fixture(scope="module")
def rows():
    """The rows of the file, by what they are on and by strategy."""
    return {(row["on"], row["strategy"]): row for row in json.loads(FILE.read_text())["rows"]}


def test_the_file_is_whole(rows):
    """A row for every strategy on every model and task, whose counts are those of its lists."""
    assert set(rows) == {(on, strategy) for on in experiment.ON for strategy in experiment.STRATEGIES}
    settings = json.loads(FILE.read_text())["settings"]
    for (on, _), row in rows.items():
        if row["what"] == "loops":
            assert row["texts"] == len(row["shares"]) == settings["texts"][on]
            assert row["count"] == sum(share > settings["loops_above"] for share in row["shares"])
            assert row["tokens"] <= row["texts"] * settings["new_tokens"][on]
        else:
            assert row["texts"] == len(row["right"]) == len(row["continuations"]) == 10
            rules = [rule for _, rule in experiment.TASKS[on]()]
            judged = [rule(text) for rule, text in zip(rules, row["continuations"], strict=True)]
            assert row["right"] == judged and row["count"] == sum(judged)


@pytest.mark.parametrize("strategy", ["none", "no repeated 8-gram"])
def test_rows_of_the_play_model_come_again(rows, early, strategy):
    """All 100 texts; on another processor a near-tie may fall the other way in one or two."""
    again, filed = experiment.loop_row("shakespeare-early", *early, strategy), rows["shakespeare-early", strategy]
    assert sum(a == b for a, b in zip(again["shares"], filed["shares"], strict=True)) >= 95
    assert abs(again["count"] - filed["count"]) <= 2


def test_what_is_right():
    """The rules take the right continuation and turn down what penalties make of it."""
    (_, record), (_, lists) = next(experiment.records()), next(experiment.long_records())
    assert record('age": 45}]') and not record('gender": 45}') and not record('age": 45')
    assert lists('age": 45},\n {"name": "X", "age": 3},\n {"name') and lists('age": 45}]\n}')
    assert not lists('age": 45},\n {"gender": "X"}, {') and not lists("age")
    _, constructor = next(experiment.constructors())
    assert constructor(" height\n        self.depth = depth\n") and not constructor(
        " width\n        self.depth = depth\n"
    )
    _, dialogue = next(experiment.dialogues())
    assert dialogue("Alice: a\nBob: b\n") and not dialogue("Alice: a\nAlice: b") and not dialogue("Alice: a")
