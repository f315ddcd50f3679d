"""How the recipes came out: sentences made of counts, and the guide that shows them."""

import re
import statistics
from html import unescape

import pytest
from markdown_it import MarkdownIt

from minigpt.explorers import RecipeExplorer
from minigpt.explorers.outcomes import any_try, compare, find, guide, outcomes, results, verdict
from minigpt.explorers.recipe import recipes


def row(counts, answers_each, **setting):
    """A row as the experiments write them."""
    return {
        "experiment": "facts",
        "setting": setting,
        "questions": len(counts),
        "answers_each": answers_each,
        "right": sum(counts),
        "right_of_each": " ".join(map(str, counts)),
    }


def test_difference_over_the_same_questions():
    """By hand: shares (1, 1, 0, 1) against (.5, .5, 0, 1)."""
    greedy, drawn = row([1, 1, 0, 1], 1, temperature=0), row([5, 5, 0, 10], 10, temperature=1.0)
    difference, error = compare(greedy, drawn, "right")
    assert (difference, error) == (0.25, pytest.approx(statistics.stdev([0.5, 0.5, 0, 0]) / 2))
    assert compare(drawn, greedy, "right")[0] == -0.25
    difference, error = compare(greedy, drawn, "right", any_try)  # (1, 1, 0, 1) against (1, 1, 0, 1)
    assert (difference, error) == (0, 0)
    assert compare(row([0, 1], 1), row([3, 9], 10), "right", any_try) == (-0.5, pytest.approx(0.5))


def test_verdicts():
    assert verdict(0.25, 0.1) == "as advised"
    assert verdict(0.25, 0.125) == "too close to tell"
    assert verdict(-0.1, 0.06) == "too close to tell"
    assert verdict(-0.25, 0.1) == "the other way round"


def test_a_row_is_found_or_named():
    rows = [row([1], 1, temperature=0), row([1], 1, temperature=1.0)]
    assert find(rows, "facts", temperature=0) is rows[0]
    with pytest.raises(ValueError, match="0 rows of 'facts' with {'temperature': 2}"):
        find(rows, "facts", temperature=2)
    with pytest.raises(ValueError, match="2 rows"):
        find(rows + rows, "facts", temperature=0)


def test_every_recipe_has_an_outcome():
    """The file of the experiments fills every sentence; its counts are in them, and the finder takes them."""
    rows = results()
    tested = outcomes(rows)
    assert set(tested) == set(recipes())
    for name, experiment, what in (
        ("facts", "facts", "right"),
        ("json", "json", "right_keys"),
        ("code-one", "code", "passed"),
    ):
        for tried in (r for r in rows if r["experiment"] == experiment):
            assert f"{tried[what]} of {tried['questions'] * tried['answers_each']} at T" in tested[name]
    RecipeExplorer(tested=tested)


def test_a_line_says_what_its_verdict_compares():
    """Each verdict stands behind its two temperatures; ten tries are compared by the functions they solve."""
    rows = results()
    tested = outcomes(rows)
    low, high = (find(rows, "code", temperature=t) for t in (0.2, 0.8))
    said = verdict(*compare(high, low, "passed", any_try))
    assert tested["code-many"].endswith(f"One of 10, T 0.8 against T 0.2: {said}.")
    pair = verdict(*compare(find(rows, "json", temperature=0.2), find(rows, "json", temperature=1.0), "right_keys"))
    assert f"T 0.2 against T 1: {pair}; against T 0: too close to tell; against T 0.5: " in tested["json"]
    counts = {0.2: [9, 9, 8, 9], 0: [9, 9, 8, 9], 0.5: [1, 2, 1, 1], 0.7: [10, 10, 10, 10], 1.0: [1, 2, 1, 0]}
    rows = [r for r in rows if r["experiment"] != "json"]
    for t, of_each in counts.items():
        made = row(of_each, 10, temperature=t) | {"experiment": "json"}
        rows.append(made | {"right_keys": made["right"], "right_keys_of_each": made["right_of_each"]})
    end = "T 0.2 against T 1: as advised; against T 0: too close to tell; against T 0.5: better; against T 0.7: worse."
    assert outcomes(rows)["json"].endswith(end)


def test_the_guide_is_the_table_of_recipes():
    """Every task with its settings, range, reason, source and outcome, rendered; text stays text."""
    said = {"chat": "<script>1</script> of *2* _a_ `b` [c](d) \\n &amp;"}
    html = MarkdownIt().render(guide(said))
    assert html.count("<li>") == len(recipes()) and html.count("not tested") == len(recipes()) - 1
    assert "<script" not in html and "<a " not in html
    text = unescape(re.sub(r"<[^>]+>", " ", html.replace("<br />", "")))
    assert said["chat"] in unescape(re.sub(r"</?(li|ul|strong|em|code|br|p)[ />]*>?", " ", html))
    for recipe in recipes().values():
        for key in ("label", "range", "reason", "source"):
            assert recipe[key] in text
        assert ", ".join(f"{name}={value}" for name, value in recipe["settings"].items()) in text
