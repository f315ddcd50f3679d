"""How each recipe came out on SmolLM2: sentences made from `benchmarks/results/choosing.json`. Chapter 07.

The file's rows hold counts; no number is written here by hand. Settings are compared over the same questions: answers
to one question are alike, so the standard error of a difference is that of its mean over questions.
"""

import json
import re
import statistics
from pathlib import Path

import minigpt
from minigpt.explorers.recipe import recipes

FILE = Path(minigpt.__file__).parents[1] / "benchmarks" / "results" / "choosing.json"


def results():
    """The rows of the experiments: dicts with `"experiment"`, `"setting"`, `"questions"`, `"answers_each"`, counts."""
    return json.loads(FILE.read_text(encoding="utf-8"))["rows"]


def find(rows, experiment, level=None, **setting):
    """The row of one experiment under one setting.

    Raises:
        ValueError: none, or several.
    """
    found = [
        row
        for row in rows
        if row["experiment"] == experiment and row["setting"] == setting and level in (None, row.get("level"))
    ]
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows of {experiment!r} with {setting} (level {level}): there must be one")
    return found[0]


def shares(row, what):
    """Of each question, the share of its answers that passed the check `what`."""
    return [int(count) / row["answers_each"] for count in row[f"{what}_of_each"].split()]


def any_try(share):
    """Whether a question has a right answer among its tries."""
    return share > 0


def compare(a, b, what, of=float):
    """Mean difference between two settings over the same questions, and its standard error.

    Args:
        a, b: rows.
        what: the check whose share right is compared.
        of: what a share is worth, such as `any_try`; the share itself if not given.
    """
    differences = [of(x) - of(y) for x, y in zip(shares(a, what), shares(b, what), strict=True)]
    return statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5


def verdict(difference, error):
    """Whether a difference is the advised one: twice its standard error decides."""
    if abs(difference) <= 2 * error:
        return "too close to tell"
    return "as advised" if difference > 0 else "the other way round"


def outcomes(rows):
    """Name of a recipe → one sentence on how it was tested and how it came out."""
    said = {
        "code-one": _checked(rows, "code", "passed", "Functions that pass their tests", (0.2, 0.8)),
        "code-many": _tries(rows),
        "facts": _checked(rows, "facts", "right", "Right answers", (0, 1.0)),
        "json": _checked(rows, "json", "right_keys", "Without a schema, objects with the right keys", (0.2, 1.0)),
        "tools": _checked(rows, "tools", "right_tool", "Without a schema, calls of the right tool", (0, 1.0)),
        "translation": _overlap(rows, "translation", "short sentences into French", 4, {"temperature": 0.7}),
        "summary": _overlap(rows, "summary", "short texts", 4, {"temperature": 0.4, "top_p": 0.9}),
        "creative": _creative(rows),
        "chat": _chat(rows),
    }
    return {name: text.replace("%", " %") for name, text in said.items()}


def _checked(rows, experiment, what, label, pair):
    """Counts at all temperatures tried, the verdict on the advice (`pair`), and how the cooler one does otherwise."""
    tried = [row for row in rows if row["experiment"] == experiment]
    counts = ", ".join(
        f"{row[what]} of {row['questions'] * row['answers_each']} at T {row['setting']['temperature']:g}"
        for row in tried
    )
    low, high = (find(rows, experiment, temperature=t) for t in pair)
    said = f"{label}: {counts} ({low['questions']} prompts)."
    if not any(row[what] for row in tried):
        return f"{said} Too hard for this model: nothing to compare."
    compared = [f"T {pair[0]:g} against T {pair[1]:g}: {verdict(*compare(low, high, what))}"]
    for row in (row for row in tried if row not in (low, high)):
        word = {"as advised": "better", "the other way round": "worse"}
        against = verdict(*compare(low, row, what))
        compared.append(f"against T {row['setting']['temperature']:g}: {word.get(against, against)}")
    return f"{said} {'; '.join(compared)}."


def _tries(rows):
    low, high = (find(rows, "code", temperature=t) for t in (0.2, 0.8))
    solved = [sum(map(any_try, shares(row, "passed"))) for row in (low, high)]
    return (
        f"Functions that at least one of {high['answers_each']} tries gets right: {solved[0]} of {low['questions']} at "
        f"T 0.2, {solved[1]} at T 0.8; single tries {low['passed']} and {high['passed']} of "
        f"{low['questions'] * low['answers_each']}. One of {high['answers_each']}, T 0.8 against T 0.2: "
        f"{verdict(*compare(high, low, 'passed', any_try))}."
    )


def _overlap(rows, experiment, label, beams, drawn):
    greedy, search = find(rows, experiment, temperature=0), find(rows, experiment, num_beams=beams, gnmt=0.6)
    draws = find(rows, experiment, **drawn)
    return (
        f"{greedy['questions']} {label}, overlap of words with one reference, from 0 to 1: greedy "
        f"{greedy['f1_single']:.2f}, {beams} beams {search['f1_single']:.2f}, drawn at T {drawn['temperature']:g} "
        f"{draws['f1_single']:.2f}, the one of {draws['answers_each']} that agrees best with the others "
        f"{draws['f1_least_risk']:.2f}."
    )


def _creative(rows):
    plain = [find(rows, "open", temperature=t) for t in (0.7, 0.9, 1.2)]
    cut = find(rows, "open", temperature=1.2, top_p=0.95)
    asked = find(rows, "open", temperature=1.2, top_p=0.95, presence_penalty=0.6)
    shares = ", ".join(f"{row['distinct_2']:.0%} at T {row['setting']['temperature']:g}" for row in plain)
    return (
        f"{cut['questions']} openings, {cut['answers_each']} each. Different pairs of tokens: {shares}; at T 1.2 with "
        f"p 0.95 {cut['distinct_2']:.0%}, with presence 0.6 too {asked['distinct_2']:.0%}. Nobody judged the stories."
    )


def _chat(rows):
    plain = find(rows, "chat", temperature=0.8, top_p=0.9)
    asked = find(rows, "chat", temperature=0.8, top_p=0.9, repetition_penalty=1.1)
    return (
        f"{plain['questions']} questions, {plain['answers_each']} answers each. Groups of four tokens that stood in "
        f"the answer before: {plain['repeated_4_grams']:.1%} without the penalty, {asked['repeated_4_grams']:.1%} with "
        "it. Nobody judged the answers."
    )


def guide(tested):
    """The guide by task in Markdown: settings and range, reason, source, how it came out here.

    Args:
        tested: name of a recipe → sentence, as from `outcomes`; a recipe without one was not tested.

    Returns:
        A list with one item a task; in the texts nothing is read as Markdown or HTML.
    """
    items = []
    for name, recipe in recipes().items():
        settings = ", ".join(f"{key}={value}" for key, value in recipe["settings"].items())
        facts = {
            "Usual range": recipe["range"],
            "Why": recipe["reason"],
            "Says who": recipe["source"],
            "On SmolLM2": tested.get(name, "not tested"),
        }
        lines = [f"*{title}:* {_plain(text)}" for title, text in facts.items()]
        items.append("  \n  ".join([f"- **{_plain(recipe['label'])}**: `{settings}`", *lines]))
    return "\n".join(items)


def _plain(text):
    return re.sub(r"([\\`*_<\[&])", r"\\\1", text)
