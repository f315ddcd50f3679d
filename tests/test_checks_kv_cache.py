"""The checkers of chapter 08: each accepts the folded solution and turns down, kindly, what people get wrong."""

import nbformat
import pytest
import torch

from minigpt import KVCache, generate
from minigpt.checks import kv_cache as checks
from minigpt.costs import tokens_through_model

SHAPES = {"keys": 24, "K": (2, 3, 24, 64), "q": (2, 9, 1, 64), "cached": 24, "uncached": 110}


def cells(root):
    """Source of each cell of the notebook by its id."""
    return {c.id: c.source for c in nbformat.read(root / "notebooks" / "08_kv_cache.ipynb", as_version=4).cells}


@pytest.fixture(scope="module")
def page(root):
    """What the solutions find on the page: the page's own cache among it."""
    scope = {"torch": torch, "checks": checks, "tokens_through_model": tokens_through_model}
    exec(cells(root)["cache"], scope)
    return scope


@pytest.mark.parametrize("name", ["shapes", "tenfold", "mask", "truncate"])
def test_the_folded_solution_is_accepted(root, page, capsys, name):
    exec(cells(root)[f"solution-{name}"], dict(page))
    assert capsys.readouterr().out.startswith(("Right", "All five are right"))


@pytest.mark.parametrize(
    ("name", "wrong", "hint"),
    [
        ("keys", 25, "never fed back"),
        ("K", (2, 9, 24, 64), "KV heads, not query heads"),
        ("K", [2, 3, 25, 64], "S is the number of keys"),
        ("K", 24, "S is the number of keys"),
        ("q", (2, 9, 24, 64), "one new token a row"),
        ("cached", 25, "P \\+ N − 1"),
        ("uncached", 100, "20 \\+ 21"),
        ("uncached", ..., "still open"),
    ],
)
def test_a_wrong_size_is_named(name, wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_shapes(SHAPES | {name: wrong})
    checks.check_shapes(SHAPES)


@pytest.mark.smollm2
def test_the_sizes_asked_for_are_those_of_a_run(smollm2):
    """SmolLM2 really has them after 5 tokens in two rows of 20."""
    model, _ = smollm2
    seen = []

    class Looking(KVCache):
        def append(self, layer, k, v, q=None):
            k_all, v_all = super().append(layer, k, v, q)
            seen.append((tuple(q.shape), tuple(k_all.shape)))
            return k_all, v_all

    ids, cache = torch.arange(100, 140).view(2, 20), Looking(model.config, 2, 24)
    result = generate(model, ids, max_new_tokens=5, cache=cache)
    assert seen[-1] == (SHAPES["q"], SHAPES["K"]) and cache.length == SHAPES["keys"]
    assert result.forward_tokens == 2 * SHAPES["cached"]
    assert tokens_through_model(20, 5, cached=False) == SHAPES["uncached"]


@pytest.mark.parametrize(
    ("N", "hint"), [(10, "more are needed"), (12, "11 new tokens already"), (..., "whole number"), (0, "whole number")]
)
def test_another_number_of_tokens_is_turned_down(N, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_tenfold(N)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda T, length: torch.ones(T, T, dtype=torch.bool).tril(), "a row a new query"),
        (lambda T, length: torch.ones(T, length + T, dtype=torch.bool).tril(), "its own key"),
        (lambda T, length: torch.ones(T, length + T, dtype=torch.bool), "comes after it"),
        (lambda T, length: torch.ones(T, length + T, dtype=torch.bool).tril(length - 1), "its own key"),
        (lambda T, length: torch.ones(T, length + T).tril(length).triu(length - 1).bool(), "every key up to"),
        (lambda T, length: None, "a row a new query"),
    ],
)
def test_a_wrong_mask_is_told_what_is_wrong(wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_mask(wrong)


def rolling(page, cut=lambda pair, n: tuple(x[:, :, :n] for x in pair), *, layers=None, count=True, strict=True):
    """A class with a `truncate` of which one part can be got wrong."""

    class Rolling(page["Cache"]):
        def truncate(self, length):
            if strict and not 0 <= length <= self.length:
                raise ValueError(length)
            chosen = list(self.layers)[:layers]
            self.layers |= {layer: cut(self.layers[layer], length) for layer in chosen}
            self.length = length if count else self.length

    return Rolling


def test_a_wrong_rollback_is_told_what_is_wrong(page):
    checks.check_truncate(rolling(page))
    wrong = [
        ("the length is 6", {"count": False}),
        ("must be a ValueError", {"strict": False}),
        (r"every\* layer", {"layers": 1}),
        ("along the axis", {"cut": lambda pair, n: tuple(x[:, :, x.size(2) - n :] for x in pair)}),
        ("values", {"cut": lambda pair, n: (pair[0][:, :, :n], pair[1][:, :, pair[1].size(2) - n :])}),
    ]
    for hint, change in wrong:
        with pytest.raises(AssertionError, match=hint):
            checks.check_truncate(rolling(page, **change))


def test_the_tiny_model_leaves_the_global_stream_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    checks._tiny_model()
    assert torch.equal(before, torch.get_rng_state())
