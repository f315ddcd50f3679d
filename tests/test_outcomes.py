"""How the recipes came out: sentences made of counts, and the guide that shows them."""

import re
import statistics
from html import unescape

import pytest
from markdown_it import MarkdownIt

from minigpt.explorers import RecipeExplorer
from minigpt.explorers.outcomes import compare, find, guide, outcomes, results, verdict
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
