"""The experiment of chapter 08 on exactness: what its file says is what the code gives."""

import json
import sys

import pytest
import torch
from conftest import ROOT
from toy_models import random_ids, tiny_model

from minigpt.costs import tokens_through_model

sys.path.insert(0, str(ROOT / "benchmarks"))
import exactness  # noqa: E402

FILE = json.loads((ROOT / "benchmarks/results/exactness.json").read_text())
ROWS = {(row["layers"], row["dtype"]): row for row in FILE["rows"]}


def test_tokens_counted_are_the_formula():
    """A hook on SmolLM2 saw as many tokens as the formula says, and the texts were equal."""
    counts = FILE["settings"]["generations"]
    assert [(row["prompt"], row["new"]) for row in counts] == exactness.GENERATIONS
    for row in counts:
        for cached, name in ((True, "cached"), (False, "uncached")):
            assert row[f"tokens {name}"] == tokens_through_model(row["prompt"], row["new"], cached=cached)
        assert row["same text"]
    assert (counts[-1]["tokens cached"], counts[-1]["tokens uncached"]) == (246, 13_728)


def test_every_row_is_there_and_within_its_bound():
    assert set(ROWS) == {(layers, dtype) for layers in (6, 30) for dtype in exactness.DTYPES}
    for (_, dtype), row in ROWS.items():
        assert row["positions"] == exactness.N + 1
        bound = {"float64": 1e-10, "float32": 1e-3, "bfloat16": 4}[dtype]
        assert 0 < row["largest difference"] < bound
        assert row["other argmax"] == 0 or dtype == "bfloat16"


@pytest.mark.smollm2
def test_a_row_can_be_made_again(smollm2):
    """The first six layers in float64 once more."""
    model, tokenizer = smollm2
    part = exactness.shortened(model, 6).double()
    row = exactness.differences(part, exactness.passage(tokenizer, exactness.P + exactness.N), exactness.P)
    assert row["largest difference"] < 1e-10 and row["other argmax"] == 0
    assert row["positions"] == ROWS[6, "float64"]["positions"]


def test_a_shortened_model_is_the_beginning_of_the_whole():
    """Its layers are the first ones, and the whole is not touched when the part changes its dtype."""
    whole = tiny_model()
    part = exactness.shortened(whole, 1)
    assert len(part.layers) == part.config.n_layers == 1
    assert torch.equal(part.layers[0].ffn.up_proj.weight, whole.layers[0].ffn.up_proj.weight)
    part.double()
    assert whole.norm.weight.dtype == torch.float32


def test_a_difference_is_seen(monkeypatch):
    """With a cache that counts positions twice the logits are far apart."""
    model, ids = tiny_model(dtype=torch.float64), random_ids(0, 2, 12)
    assert exactness.differences(model, ids, 5)["largest difference"] < 1e-10
    right = exactness.KVCache.positions
    monkeypatch.setattr(exactness.KVCache, "positions", lambda self, T: right(self, T) + self.length)
    assert exactness.differences(model, ids, 5)["largest difference"] > 1e-2


def test_counting_sees_a_fault(monkeypatch):
    """A loop that feeds one token too many is counted as such."""
    model, ids = tiny_model(), random_ids(1, 1, 6)
    assert exactness.counted(model, ids, 4) == {
        "prompt": 6,
        "new": 4,
        "tokens cached": 9,
        "tokens uncached": 30,
        "same text": True,
    }
    right = exactness.generate
    monkeypatch.setattr(exactness, "generate", lambda m, i, **s: (m(i[:, :1]), right(m, i, **s))[1])
    assert exactness.counted(model, ids, 4)["tokens cached"] == 10
