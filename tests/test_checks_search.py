"""The checkers of chapter 06: each accepts the folded solution and turns down, kindly, what people get wrong."""

import nbformat
import pytest

from minigpt.checks import search as checks

WINNERS = {-1: "short", 0: "short", 1: "short", 2: "long"}


@pytest.mark.parametrize("cell_id", ["solution-winners", "solution-crossing", "solution-tree", "solution-select"])
def test_the_folded_solution_is_accepted(root, capsys, cell_id):
    notebook = nbformat.read(root / "notebooks" / "06_search.ipynb", as_version=4)
    source = next(cell.source for cell in notebook.cells if cell.id == cell_id)
    exec("import math\nimport torch\n" + source, {"checks": checks})
    assert capsys.readouterr().out.startswith(("Right", "All four are right"))


@pytest.mark.parametrize(
    ("alpha", "wrong", "hint"),
    [(-1, "long", "short -15.00, long -44.80"), (1, "long", "nearer to 0"), (2, "short", "short -0.12, long -0.09")],
)
def test_a_wrong_winner_is_named(alpha, wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_winners(WINNERS | {alpha: wrong})
    with pytest.raises(AssertionError, match="say 'short' or 'long'"):
        checks.check_winners(WINNERS | {alpha: ...})


@pytest.mark.parametrize(("alpha", "hint"), [(0.74, "a larger α"), (1.327, "a larger α"), (1.329, "a smaller α")])
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


def own_select(sums, log_probs, num_beams, eos, *, count=None, first=True, live=True, add=True):
    """A step's selection with one part that can be got wrong."""
    totals = (sums[:, None] + log_probs if add else log_probs).flatten()
    totals, places = totals.topk(num_beams * (1 + len(eos)) if count is None else count * num_beams)
    V = log_probs.size(1)
    ranked = [(s, p // V, p % V) for s, p in zip(totals.tolist(), places.tolist(), strict=True)]
    ended = [c for c in (ranked[:num_beams] if first else ranked) if c[2] in eos]
    return [c for c in ranked if not live or c[2] not in eos][:num_beams], ended


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda *a: own_select(*a, count=2), "0 beams go on instead of 2: the four best"),
        (lambda *a: own_select(*a, count=1), "0 beams go on"),
        (lambda *a: own_select(*a, first=False), "4 texts end"),
        (lambda *a: own_select(*a, live=False), "cannot go on"),
        (lambda *a: (own_select(*a)[0], []), "every EOS among the two best"),
        (lambda *a: (own_select(*a)[0][::-1], own_select(*a)[1]), "best first"),
        (lambda *a: own_select(*a, add=False), "best two that are no EOS|every EOS|the package keeps"),
        (lambda s, r, k, e: own_select(s, r, 2, e), "with K = 1"),
        (lambda s, r, k, e: own_select(s, r, k, e, count=3 if len(e) < 3 else 2), "EOS .0, 1, 2."),
        (lambda *a: tuple([(0.0, *c[1:]) for c in part] for part in own_select(*a)), "the sum of"),
        (lambda *a: None, "return two lists"),
    ],
)
def test_a_wrong_selection_is_told_what_is_wrong(wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_select(wrong)
    checks.check_select(own_select)
