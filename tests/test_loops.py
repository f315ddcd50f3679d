"""The experiment on loops: what its file says is what the code gives, row by row."""

import json
import sys

import pytest
from conftest import ROOT

from minigpt.choosing import repeated_windows

sys.path.insert(0, str(ROOT / "benchmarks"))
import loops  # noqa: E402

FILE = json.loads((ROOT / "benchmarks/results/loops.json").read_text())
PLAIN = ("greedy", "temperature", "top-k", "top-p", "all three")


def row(model, strategy):
    """The row of a model and a strategy."""
    (found,) = [r for r in FILE["rows"] if (r["model"], r["strategy"]) == (model, strategy)]
    return found


def test_every_strategy_is_there_for_every_model_once():
    assert [(r["model"], r["strategy"]) for r in FILE["rows"]] == [
        (model, strategy) for model in loops.MODELS for strategy in loops.STRATEGIES
    ]


def test_the_five_strategies_of_the_chapter():
    """Temperature .8, top-k 50, top-p .95, each alone and together, and greedy."""
    expected = [{"temperature": 0}, {"temperature": 0.8}, {"top_k": 50}, {"top_p": 0.95}]
    assert [loops.STRATEGIES[name] for name in PLAIN] == [*expected, expected[1] | expected[2] | expected[3]]


@pytest.mark.parametrize("place", range(len(FILE["rows"])))
def test_counts_agree(place):
    """The summary of a row is that of its shares; 100 texts, each of full length unless the model ended it."""
    r = FILE["rows"][place]
    full = FILE["settings"]["new_tokens"]
    assert r["settings"] == loops.STRATEGIES[r["strategy"]]
    assert r["generations"] == len(r["shares"]) == len(FILE["settings"]["prompts"]) >= 100
    assert all(0 <= share < 1 for share in r["shares"])
    assert r["looping"] == sum(share > FILE["settings"]["loops_above"] for share in r["shares"])
    assert r["looping"] <= r["looping_12"] <= r["generations"]
    assert r["share_mean"] == pytest.approx(sum(r["shares"]) / len(r["shares"]), abs=0.0011)
    assert full * (r["generations"] - r["ended_early"]) <= r["new_tokens"] <= full * r["generations"]
    assert r["model"] == "smollm2" or r["ended_early"] == 0


def test_the_prompts_are_those_of_the_file():
    """100 different beginnings of lines; the play models have room for them and the answer."""
    assert FILE["settings"] == {**loops.SETTINGS, "seeds": "0 to 99", "prompts": loops.prompts()}
    prompts = FILE["settings"]["prompts"]
    assert len(set(prompts)) == 100
    assert all(len(prompt.split()) == 4 for prompt in prompts)
    assert max(map(len, prompts)) + loops.SETTINGS["new_tokens"] <= 256


@pytest.mark.parametrize(("name", "fixture"), [("shakespeare-early", "early"), ("shakespeare", "shakespeare")])
@pytest.mark.parametrize("strategy", ["greedy", "all three"])
def test_two_texts_made_again(name, fixture, strategy, request):
    """Texts 0 and 61 alone, with their seeds, are those of the file: one word for word, both in their shares."""
    model, tokenizer = request.getfixturevalue(fixture)
    which = (0, 61)
    prompts = FILE["settings"]["prompts"]
    settings = row(name, strategy)["settings"]
    texts = loops.continuations(model, tokenizer, [prompts[i] for i in which], settings, which)
    shares = [round(repeated_windows(text), 3) for text in texts]
    assert shares == [row(name, strategy)["shares"][i] for i in which]
    assert tokenizer.decode(texts[0]) == row(name, strategy)["first_text"]


def test_a_text_ends_before_its_eos(monkeypatch):
    """EOS and the padding after it are no part of the text."""
    from toy_models import TableModel

    class Letters:
        eos_token_id = 3

        def encode(self, text):
            return [int(letter) for letter in text]

    model = TableModel([[0.0, 9, 0, 0], [0, 0, 9, 0], [0, 0, 0, 9], [9, 0, 0, 0]], context_length=64)
    monkeypatch.setitem(loops.SETTINGS, "new_tokens", 3)
    made = loops.continuations(model, Letters(), ["0", "12", "3"], {"temperature": 0}, range(3))
    assert made == [[1, 2], [], [0, 1, 2]]
    row = loops.measured([[0, 1, 2], [1, 2]])
    assert (row["ended_early"], row["new_tokens"], row["generations"]) == (1, 5, 2)


def test_a_new_row_takes_the_place_of_the_old_one(monkeypatch, tmp_path):
    """Runs in parts: the other rows stay, and the order is that of models and strategies."""
    old = [{"model": "shakespeare", "strategy": "top-k", "looping": 1}, {"model": "smollm2", "strategy": "greedy"}]
    (tmp_path / "loops.json").write_text(json.dumps({"rows": old}))
    monkeypatch.setattr(loops, "RESULTS", tmp_path)
    new = {"model": "shakespeare", "strategy": "top-k", "looping": 2}
    assert loops.merged(new) == [new, old[1]]
    first = {"model": "shakespeare", "strategy": "greedy"}
    assert loops.merged(first) == [first, *old]
