"""Traits and picture of the penalty figure, without a browser."""

import pytest
from traitlets import TraitError

from minigpt.explorers import PenaltyExplorer


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"source": "capital"}, "source='capital' has no text to penalise: choose one of toy-loop, loop"),
        (
            {"source": "toy-loop", "history": [0, 5]},
            "history holds 5: ids of 'toy-loop' run from 0 to 4; None is its own",
        ),
        ({"source": "toy-loop", "history": [-1]}, "history holds -1"),
        ({"source": "toy-loop", "prompt_length": -1}, "prompt_length=-1 must be at least 0, or None"),
        ({"repetition_penalty": 0.0}, "repetition_penalty=0.0 must be a finite number above 0"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty=nan must be a finite number"),
        ({"presence_penalty": float("inf")}, "presence_penalty=inf must be a finite number"),
        ({"no_repeat_ngram_size": 0}, "no_repeat_ngram_size=0 must be an integer of at least 1"),
        ({"sign": "plus"}, "sign='plus' must be one of by-sign, divide"),
        ({"penalty": 1.0}, "PenaltyExplorer has no 'penalty': it takes"),
    ],
)
def test_what_is_refused(traits, message):
    with pytest.raises((ValueError, TraitError)) as caught:
        PenaltyExplorer(**traits)
    assert message in str(caught.value)


def test_a_text_that_does_not_fit_another_source_is_refused():
    explorer = PenaltyExplorer(source="toy-loop", history=[0, 1], prompt_length=1)
    explorer.history = None
    explorer.prompt_length = 7
    ids, length = explorer.text()
    assert (ids.tolist(), length) == ([[0, 1, 2, 3, 0, 1, 0, 1, 0]], 7)
    explorer.history = []
    assert (explorer.text()[0].tolist(), explorer.text()[1]) == ([[]], 0)


def test_picture():
    explorer = PenaltyExplorer(source="toy-loop", repetition_penalty=1.0, no_repeat_ngram_size=2)
    rows = {token: (p, kept) for token, p, kept in explorer.picture()}
    assert rows["␣cat"][1] is False and rows["␣mat"][1] is True
    assert sum(p for p, kept in rows.values() if kept) == pytest.approx(1)
    banned = PenaltyExplorer(source="toy-loop", history=[0, 1, 2, 3, 4], no_repeat_ngram_size=1)
    assert not any(kept for _, _, kept in banned.picture())
    assert "(cut)" in banned.to_html()
