"""Repetition and diversity, against counts by hand."""

import pytest
import torch

from minigpt.choosing import distinct_n, repeated_windows


@pytest.mark.parametrize(
    ("text", "window", "share"),
    [
        ("abcdef", 2, 0.0),
        ("aaaa", 2, 2 / 3),  # three windows, one of them new
        ("abcabcabc", 3, 4 / 7),  # seven windows, three of them new
        ("abab", 5, 0.0),  # no window at all
        ("abab", 4, 0.0),
        ("", 1, 0.0),
        ("aab", 1, 1 / 3),
    ],
)
def test_repeated_windows_by_hand(text, window, share):
    ids = [ord(c) for c in text]
    assert repeated_windows(ids, window) == pytest.approx(share)
    assert repeated_windows(torch.tensor(ids, dtype=torch.int64), window) == pytest.approx(share)


def test_a_loop_is_mostly_windows_that_stood_there_before():
    generator = torch.Generator().manual_seed(0)
    fresh = torch.randint(50, (300,), generator=generator)
    assert repeated_windows(fresh) == 0
    assert repeated_windows(torch.cat((fresh[:50], fresh[:10].repeat(30)))) > 0.5


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_has_a_token(window):
    with pytest.raises(ValueError, match=f"window={window} must be at least 1 token"):
        repeated_windows([1, 2], window)


@pytest.mark.parametrize(
    ("texts", "n", "share"),
    [
        (["abab"], 2, 2 / 3),  # ab, ba, ab
        (["ab", "ab"], 2, 1 / 2),
        (["ab", "cd"], 2, 1.0),
        (["abc", "a"], 3, 1.0),
        (["aaa"], 1, 1 / 3),
        ([["the", "cat"], ["the", "dog"]], 1, 3 / 4),
        ([(1, 2, 3), (2, 3, 4)], 2, 3 / 4),
    ],
)
def test_distinct_n_by_hand(texts, n, share):
    assert distinct_n(texts, n) == pytest.approx(share)


def test_distinct_n_takes_rows_of_a_tensor():
    assert distinct_n(torch.tensor([[1, 2, 1], [2, 1, 2]]), 2) == pytest.approx(2 / 4)


@pytest.mark.parametrize(
    ("texts", "n", "message"),
    [
        (["ab"], 0, "n=0 must be at least 1"),
        (["ab", "c"], 3, "no text has 3 tokens: there is no 3-gram"),
        ([], 1, "no text"),
    ],
)
def test_what_cannot_be_counted_is_refused(texts, n, message):
    with pytest.raises(ValueError, match=message):
        distinct_n(texts, n)
