"""Checkers of chapter 08, the KV cache."""

import torch

from minigpt.config import GPTConfig
from minigpt.costs import tokens_through_model
from minigpt.kv_cache import KVCache
from minigpt.model import MiniGPT

SHAPES = {  # SmolLM2, two rows, a prompt of 20 tokens, 5 new ones
    "keys": (24, "the fifth new token is drawn and never fed back, so its key is never computed"),
    "K": ((2, 3, 24, 64), "(B, H_kv, S, D): a layer stores KV heads, not query heads, and S is the number of keys"),
    "q": ((2, 9, 1, 64), "(B, H, T, D): a decode step has one new token a row, and all query heads ask"),
    "cached": (24, "the prompt once and each fed-back token once: P + N − 1"),
    "uncached": (110, "20 + 21 + 22 + 23 + 24: P·N + N(N − 1)/2"),
}
CUT = "Are the keys *and* the values of *every* layer cut, along the axis of the tokens?"


def check_shapes(answer):
    """Check sizes after SmolLM2 (9 query heads, 3 KV heads, D = 64) wrote 5 tokens after 20, in two rows.

    Args:
        answer: `{"keys": keys held a row, "K": shape of a layer's keys, "q": shape of the queries of a decode step,
            "cached": tokens a row through the model with a cache, "uncached": and without}`.

    Raises:
        AssertionError: an entry is missing or wrong; the message says which and why.
    """
    for name, (right, why) in SHAPES.items():
        given = answer.get(name)
        assert given is not None and given is not ..., f"{name!r} is still open"
        given = tuple(given) if isinstance(right, tuple) and not isinstance(given, int) else given
        assert given == right, f"{name!r} is not {given}: {why}"
    print("All five are right.")


def check_tenfold(answer):
    """Check from how many new tokens on a cache sends a tenth of the tokens through the model, or less (P = 100).

    Args:
        answer: the smallest number of new tokens, N.

    Raises:
        AssertionError: it is another one; the message has the ratio.
    """

    def ratio(N):
        return tokens_through_model(100, N, cached=False) / tokens_through_model(100, N, cached=True)

    assert isinstance(answer, int) and answer > 0, "say a whole number of new tokens, at least 1"
    assert ratio(answer) >= 10, f"with {answer} new tokens the ratio is {ratio(answer):.2f}: more are needed"
    smaller = answer - 1
    assert answer == 1 or ratio(smaller) < 10, f"{smaller} new tokens already give {ratio(smaller):.2f}: go lower"
    print(f"Right: from {answer} new tokens on the ratio is above 10 ({ratio(answer):.2f}).")


def check_mask(answer):
    """Check a causal mask of the reader's own.

    Args:
        answer: a function `(T, length) -> (T, length + T)` bool, `True` where a new query may look.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    cache = KVCache(GPTConfig(5, 1, 1, 1, 2, 1, context_length=64), 1, 64)
    for T, length in ((5, 0), (1, 4), (2, 3), (4, 4), (3, 7)):
        mask, S = answer(T, length), length + T
        assert isinstance(mask, torch.Tensor) and tuple(mask.shape) == (T, S), (
            f"{T} new tokens after {length}: the mask must be ({T}, {S}), a row a new query, a column a key"
        )
        mask, own = mask.bool(), torch.arange(T)
        assert mask[own, length + own].all(), f"{T} new after {length}: a query must see its own key"
        assert not mask.triu(length + 1).any(), f"{T} new after {length}: a query sees a key that comes after it"
        cache.length = length
        right = cache.mask(T)
        right = torch.ones(T, S, dtype=torch.bool) if right is None else right
        assert torch.equal(mask, right), f"{T} new after {length}: every key up to the query's own must be visible"
    print("Right: the triangle stands at the bottom right, and one new token sees everything.")


def check_truncate(answer):
    """Check a growing cache with a `truncate` of the reader's own.

    Args:
        answer: the class; `answer()` makes an empty cache like the page's, and `truncate(length)` keeps the first
            `length` tokens.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    model, generator = _tiny_model(), torch.Generator().manual_seed(1)
    first, second = torch.randint(11, (2, 2, 9), generator=generator)
    for keep in (4, 6, 0):
        cache = answer()
        goes_on = torch.cat((first[:, :keep], second[:, keep:]), 1)
        with torch.no_grad():
            model(first[:, :6], cache)
            cache.truncate(keep)
            assert cache.length == keep, f"after truncate({keep}) the length is {cache.length}: wrong positions"
            try:
                logits = model(goes_on[:, keep:], cache)
            except RuntimeError as error:  # shapes that do not fit
                raise AssertionError(f"after truncate({keep}) the next call fails ({error}): {CUT}") from error
            right = model(goes_on)[:, keep:]
        assert torch.allclose(logits, right, atol=1e-9), (
            f"6 tokens, truncate({keep}), then another text: the logits are not those of a fresh run. {CUT}"
        )
    _check_bounds(answer(), model, first)
    print("Right: what was rolled back has left no trace.")


def _check_bounds(cache, model, token_ids):
    with torch.no_grad():
        model(token_ids[:, :3], cache)
    for wrong in (5, -1):
        try:
            cache.truncate(wrong)
        except ValueError:
            assert cache.length == 3, f"truncate({wrong}) on 3 tokens must change nothing"
        else:
            raise AssertionError(
                f"truncate({wrong}) on 3 tokens must be a ValueError: nobody can keep what is not there"
            )


def _tiny_model():
    """A random model in float64, the same each time."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        model = MiniGPT(GPTConfig(11, 2, 4, 2, 16, 24, context_length=32)).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.copy_(0.4 * torch.randn(weight.shape, generator=generator))
    return model
