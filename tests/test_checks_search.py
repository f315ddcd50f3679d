"""The checkers of chapter 06: each accepts the folded solution and turns down, kindly, what people get wrong."""

import nbformat
import pytest

from minigpt.checks import search as checks

WINNERS = {-1: "short", 0: "short", 1: "long", 2: "long"}


@pytest.mark.parametrize("cell_id", ["solution-winners", "solution-crossing", "solution-tree", "solution-select"])
def test_the_folded_solution_is_accepted(root, capsys, cell_id):
    notebook = nbformat.read(root / "notebooks" / "06_search.ipynb", as_version=4)
    source = next(cell.source for cell in notebook.cells if cell.id == cell_id)
    exec("import math\n" + source, {"checks": checks})
    assert capsys.readouterr().out.startswith(("Right", "All four are right"))


@pytest.mark.parametrize(
    ("alpha", "wrong", "hint"),
    [(-1, "long", "short -4.00, long -8.10"), (0, "long", "nearer to 0"), (2, "short", "short -0.50, long -0.30")],
)
def test_a_wrong_winner_is_named(alpha, wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_winners(WINNERS | {alpha: wrong})
    with pytest.raises(AssertionError, match="say 'short' or 'long'"):
        checks.check_winners(WINNERS | {alpha: ...})


@pytest.mark.parametrize(("alpha", "hint"), [(0, "a larger α"), (0.73, "a larger α"), (1.2, "a smaller α")])
def test_another_crossing_is_turned_down(alpha, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_crossing(alpha)


@pytest.mark.parametrize(
    ("branches", "hint"),
    [
        ({"a": 0.5, "b": 0.4}, "after the start the probabilities add up to 0.900"),
        ({"a": (0.5, {"x": 0.7}), "b": (0.5, {"x": 1})}, "after a the probabilities add up to 0.700"),
        ({"a": (0.5, {"x": 0.4, "y": 0.6}), "b": (0.4, {"x": 1}), "c": (0.1, {"x": 1})}, "width 3 must lose"),
    ],
)
def test_a_tree_that_proves_nothing_is_turned_down(branches, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_worse_tree(branches)


def own_select(candidates, num_beams, eos, *, wide=True, first=True, live=True):
    """A step's selection with one part that can be got wrong."""
    ended = [c for c in (candidates[:num_beams] if first else candidates) if c[2] == eos]
    pool = candidates if wide else candidates[:num_beams]
    return [c for c in pool if not live or c[2] != eos][:num_beams], ended


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda c, k, e: own_select(c, k, e, wide=False), "must not take the place of a live one"),
        (lambda c, k, e: own_select(c, k, e, first=False), "rank 4"),
        (lambda c, k, e: own_select(c, k, e, live=False), "cannot go on"),
        (lambda c, k, e: (own_select(c, k, e)[0], []), "belongs to ended"),
        (lambda c, k, e: own_select(c[::-1], k, e), "rank 4|best first"),
        (lambda c, k, e: own_select(c, 3, e), "with 2 beams"),
        (lambda c, k, e: None, "return two lists"),
    ],
)
def test_a_wrong_selection_is_told_what_is_wrong(wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_select(wrong)
    checks.check_select(own_select)
