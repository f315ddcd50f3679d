"""The attention grid on Python's side: traits, the still picture."""

import random

import pytest
from toy_models import tiny_config
from traitlets import TraitError

from minigpt.explorers import CacheExplorer
from minigpt.kv_cache import KVCache, SlidingWindowCache


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"prompt": 0}, "prompt=0 must be in 1 to 12"),
        ({"prompt": 13}, "prompt=13 must be in 1 to 12"),
        ({"new_tokens": 0}, "new_tokens=0 must be in 1 to 12"),
        ({"window": 0}, "window=0 must be in 1 to 12 .*None is off"),
        ({"chunk": 13}, "chunk=13 must be in 1 to 12 .*None is off"),
        ({"step": 0}, "step=0 must be at least 1"),
        ({"long_prompt": 0}, "long_prompt=0 must be in 1 to 100,000"),
        ({"long_new": 100_001}, "long_new=100001 must be in 1 to 100,000"),
        ({"sinks": 4}, "CacheExplorer has no 'sinks': it takes"),
    ],
)
def test_illegal_traits_are_refused(traits, message):
    with pytest.raises(ValueError, match=message):
        CacheExplorer(**traits)


@pytest.mark.parametrize("name", ["prompt", "new_tokens", "step", "window"])
def test_fractions_are_refused(name):
    with pytest.raises(TraitError, match=name):
        CacheExplorer(**{name: 2.5})


def lit(mask, cache, T):
    """Pairs `(query, key)` that a call of T tokens computes, as the cache's own mask has them."""
    columns, queries = cache.columns(T).tolist(), cache.positions(T).tolist()
    seen = [[True] * len(columns)] if mask is None else mask.tolist()
    return {(i, j) for i, row in zip(queries, seen, strict=True) for j, on in zip(columns, row, strict=True) if on}


def cache_for(window):
    """An empty cache of the kind the settings name."""
    return SlidingWindowCache(tiny_config(), 1, window) if window else KVCache(tiny_config(), 1, 24)


def test_still_picture_is_the_masks_of_the_caches():
    """At every pass: new cells are what the cache's mask lets through, without one those of the whole text."""
    pick = random.Random(8)
    for _ in range(60):
        P, N = pick.randint(1, 12), pick.randint(1, 12)
        window, chunk = (pick.choice((None, pick.randint(1, 12))) for _ in range(2))
        calls = [min(chunk or P, P - start) for start in range(0, P, chunk or P)]
        cache, waiting = cache_for(window), len(calls) - 1
        for step, T in enumerate(calls + [1] * (N - 1)):
            explorer = CacheExplorer(prompt=P, new_tokens=N, window=window, chunk=chunk, step=step + 1)
            naive, cached = (
                {(i, j): c for i, row in enumerate(g) for j, c in enumerate(row)} for g in explorer.picture()
            )
            of = lambda grid, mark: {pair for pair, c in grid.items() if c == mark}  # noqa: E731
            assert of(cached, "#") == lit(cache.mask(T), cache, T)
            cache.length += T
            fresh = cache_for(window)
            whole = lit(fresh.mask(cache.length), fresh, cache.length)
            assert of(cached, "#") | of(cached, ".") == whole
            assert of(naive, "#") | of(naive, "/") == (whole if step >= waiting else set())
            again = {pair for pair in whole if pair[0] < cache.length - 1} if step > waiting else set()
            assert of(naive, "/") == again
    last = CacheExplorer(step=99).picture()
    assert last == CacheExplorer(step=6).picture() and len(last[1]) == 11  # token 12 has no row: it is never fed back


def test_without_javascript_there_are_two_grids():
    """The page's still picture: a cell for every pair of the default state, and words for what they mean."""
    html = CacheExplorer().to_html()
    naive, cached = CacheExplorer().picture()
    cells = sum(c != " " for grid in (naive, cached) for row in grid for c in row)
    assert html.count("<rect") == cells + 3 == 93
    assert "<noscript><svg" in html and "without a cache" in html and "done before, done again" in html
    assert len(html) < 20_000
