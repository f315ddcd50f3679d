"""The beam tree on Python's side: traits, recorded trees, toys."""

import json
import math

import pytest
import torch
from toy_models import TableModel, tiny_model

from minigpt.explorers import BeamExplorer, record_tree, toy_tree, toy_trees
from minigpt.explorers.beam import WIDTHS
from minigpt.search import beam_steps
from minigpt.tokenization import CharTokenizer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BeamExplorer([]), "trees is empty"),
        (lambda: BeamExplorer([{"nodes": {}}]), "a tree without a root"),
        (lambda: BeamExplorer(tree=3), "tree=3: there are 3 trees"),
        (lambda: BeamExplorer(width=0), "width=0 must be in 1 to 6"),
        (lambda: BeamExplorer(width=7), "width=7 must be in 1 to 6"),
        (lambda: BeamExplorer(alpha=2.1), r"alpha=2.1 must be in -1 to 2, the range"),
        (lambda: BeamExplorer(alpha=math.nan), r"alpha=nan must be in"),
        (lambda: BeamExplorer(form="wu"), "form='wu' must be one of power, gnmt"),
        (lambda: toy_tree({"a": (0.5, {"b": 1}), "c": 0.5}), "“c” stops before the tree's depth of 2"),
        (lambda: BeamExplorer(step=-1), "step=-1 must be at least 0"),
        (lambda: BeamExplorer(beams=3), "has no 'beams': it takes"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_stop_rule_is_one_of_three():
    assert [BeamExplorer(early_stopping=rule).early_stopping for rule in (False, True, "never")] == [
        False,
        True,
        "never",
    ]
    with pytest.raises(Exception, match="early_stopping"):
        BeamExplorer(early_stopping="always")


def test_toys_are_distributions():
    """Every branch of every toy adds up to 1; without JavaScript the first step is shown."""
    for number, tree in enumerate(toy_trees()):
        for row in tree["nodes"].values():
            assert sum(math.exp(log_prob) for _, log_prob in row) == pytest.approx(1)
        rows = BeamExplorer(tree=number).picture()
        assert sum(kept for *_, kept in rows) == 2 and sum(p for _, p, _ in rows) == pytest.approx(1)
    assert len(BeamExplorer().to_html()) < 12_000


@pytest.fixture(scope="module")
def recorded():
    """A random MiniGPT, its tokenizer and a tree of it."""
    model, tokenizer = tiny_model(seed=5), CharTokenizer("abcdefghijklmnopqrstuvw")
    return model, tokenizer, record_tree(model, tokenizer, "ab", max_new_tokens=5, eos_token_id=7)


def test_a_record_has_the_models_own_numbers(recorded):
    """Against whole texts without a cache: log-probabilities, order, EOS in every row, at least 2 × 6 candidates."""
    model, tokenizer, tree = recorded
    for key, row in tree["nodes"].items():
        text = tokenizer.encode("ab") + [int(i) for i in key.split()]
        with torch.no_grad():
            log_probs = model(torch.tensor([text]))[0, -1].log_softmax(-1)
        ids = [i for i, _ in row]
        assert [p for _, p in row] == pytest.approx(log_probs[ids].tolist(), abs=2e-5)
        assert 7 in ids and len(ids) in (12, 13)
        assert set(ids[:12]) == set(log_probs.topk(12).indices.tolist())


def test_a_record_holds_every_prefix_a_search_visits_and_no_other(recorded):
    """What widths 1 to 6 keep alive, by minigpt's own search with a stop rule that never fires."""
    model, tokenizer, tree = recorded
    prompt, visited = torch.tensor([tokenizer.encode("ab")]), {""}
    for width in WIDTHS:
        texts = [()]
        request = {"max_new_tokens": 5, "eos_token_id": 7, "early_stopping": "never", "length_penalty": 20.0}
        for (step,) in beam_steps(model, prompt, num_beams=width, **request):
            texts = [(*texts[c.beam], c.token_id) for c in step.kept]
            visited |= {" ".join(map(str, text)) for text in texts}
    assert set(tree["nodes"]) == visited


def test_a_record_goes_into_a_page(recorded):
    """Plain JSON, every token named, the end marked, hardly larger than its numbers."""
    *_, tree = recorded
    text = json.dumps(tree, allow_nan=False)
    assert json.loads(text) == tree and len(text) < 300 * len(tree["nodes"]) + 1000
    assert {str(i) for row in tree["nodes"].values() for i, _ in row} == set(tree["tokens"])
    assert tree["tokens"]["7"] == "⟨end⟩" and tree["name"] == tree["prompt"] == "ab"


def test_masked_tokens_are_no_candidates():
    """A log-probability of -inf never reaches the page."""
    table = torch.full((6, 6), -torch.inf)
    table[:, :2] = 0.0
    tree = record_tree(TableModel(table), CharTokenizer("abcdef"), "a", max_new_tokens=2)
    assert all([i for i, _ in row] == [0, 1] for row in tree["nodes"].values())
