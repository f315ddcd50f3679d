"""The experiments on choosing: their verifiers, and that the file says what the code gives."""

import json
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import choosing  # noqa: E402
import choosing_tasks as tasks  # noqa: E402

FILE = json.loads((ROOT / "benchmarks/results/choosing.json").read_text())


def rows(experiment):
    """The rows of an experiment."""
    return [row for row in FILE["rows"] if row["experiment"] == experiment]


@pytest.mark.parametrize(
    ("text", "number"),
    [("7 + 5 = 12", 12), ("12.", 12), ("3\n= 4", 3), ("no", None), ("", None), ("8 - 9 = -1", -1), ("\n5", None)],
)
def test_last_number(text, number):
    assert choosing.last_number(text) == number


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ("return a + b", True),
        ("return a - b", False),
        ("return a +", False),
        ("while True: pass", False),
        ("f = open('x', 'w'); f.write('y'); f.close(); return a + b", False),
        ("return [0] * 10**9 and a + b", False),
    ],
)
def test_programs_run_by_themselves_and_not_for_ever(body, passes):
    assert choosing.runs(f"def add(a, b):\n    {body}", ["add(2, 3) == 5"], seconds=3) is passes


@pytest.mark.parametrize("text", ['{"a": 1}', '```json\n{"a": 1}\n```', '```\n{"a": 1}```'])
def test_fences(text):
    assert choosing.parsed(choosing.without_fence(text)) == {"a": 1}
    assert (choosing.parsed(text) is None) == text.startswith("`")


def test_every_task_can_be_solved():
    """A right answer exists for each, so that a verifier never asks for the impossible."""
    solutions = [
        *("return a + b", "return max(a, b)", "return n % 2 == 0", "return x * x", "return text[::-1]"),
        "return sum(c in 'aeiou' for c in text)",
        "return 1 if n == 0 else n * factorial(n - 1)",
        *("return items[-1]", "return sum(numbers) / len(numbers)", "return n if n % 3 else 'fizz'"),
    ]
    for (name, _, checks), body in zip(tasks.CODE, solutions, strict=True):
        assert choosing.runs(f"def {name}:\n    {body}", checks)
        assert not choosing.runs(f"def {name}:\n    pass", checks)
    assert all(len(set(pairs)) == 20 for pairs in tasks.ARITHMETIC.values())


def test_every_experiment_is_there():
    assert list(dict.fromkeys(row["experiment"] for row in FILE["rows"])) == list(choosing.EXPERIMENTS)
    assert FILE["settings"]["new_tokens"] == choosing.LIMITS


@pytest.mark.parametrize("place", range(len(rows("arithmetic"))))
def test_arithmetic_counts_are_those_of_the_answers(place):
    row = rows("arithmetic")[place]
    numbers = [[None if x == "-" else int(x) for x in line.split()] for line in row["answers"]]
    log_probs = [list(map(float, line.split())) for line in row["mean_log_probs"]]
    right = list(map(int, row["right_answers"].split()))
    assert right == [a + b for a, b in tasks.ARITHMETIC[row["level"]]]
    counts = choosing.arithmetic_counts(numbers, right, log_probs)
    ties = {key for key in counts if key.startswith("likeliest")}  # the file has four digits
    assert {k: v for k, v in counts.items() if k not in ties}.items() <= row.items()
    assert all(abs(counts[key] - row[key]) <= 1 for key in ties)
    assert row["vote_of_4_right"] <= row["any_of_4_right"] if "groups_of_4" in row else row["answers_each"] == 1


@pytest.mark.smollm2
def test_a_small_part_run_again(smollm2):
    """The first call of the sums at T = 1, and the greedy facts: the same answers, but for one draw at a rounding."""
    asker = choosing.Asker(*smollm2)
    (row,) = [r for r in rows("arithmetic") if r["setting"] == {"temperature": 1.0} and r["level"] == "one digit"]
    again = choosing.sums(asker, row["level"], row["setting"], row["answers_each"], count=2)
    found, expected = (" ".join(r["answers"][:2]).split() for r in (again, row))
    assert sum(a != b for a, b in zip(found, expected, strict=True)) <= 1
    stops = [asker.tokenizer.eos_token_id, *asker.line_ends]
    row = rows("facts")[0]
    asked = asker.ask([asker.prompt(q) for q in tasks.FACTS], 1, row["setting"], choosing.LIMITS["facts"], stops)
    assert sum(a[0][0] != b for a, b in zip(asked, row["first_answers"], strict=True)) <= 1
