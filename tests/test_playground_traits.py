"""The playground on Python's side: its traits, its settings, its page."""

import re

import pytest
import torch
from conftest import ROOT

from minigpt import SamplingParams, generate, load
from minigpt.explorers import PlaygroundExplorer

PAGE = (ROOT / "book/playground.md").read_text()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model": "smollm2"}, "model='smollm2' must be one of shakespeare, shakespeare-early"),
        ({"order": "mine"}, "order='mine' must be one of huggingface"),
        ({"seed": -1}, "seed=-1 must be in 0"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"top_p": 0.0}, "top_p=0"),
        ({"top_k": -1}, "top_k=-1"),
        ({"epsilon": 1.0}, "epsilon=1"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1"),
        ({"repetition_penalty": 0.0}, "=0"),
        ({"colour": 1}, "has no 'colour'"),
    ],
)
def test_what_is_outside_its_range_is_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        PlaygroundExplorer(**setting)


def test_settings_that_are_off_are_none():
    assert PlaygroundExplorer().params == SamplingParams(temperature=0, seed=1)
    on = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1}
    on |= {"frequency_penalty": 0.2, "presence_penalty": -0.1}
    others = {"typical_p": 0.8, "epsilon": 0.01, "eta": 0.02, "top_n_sigma": 2.0, "no_repeat_ngram_size": 3}
    assert PlaygroundExplorer(**on, **others).params == SamplingParams(**on, **others, seed=1)
    vllm = PlaygroundExplorer(**on, **others, seed=9, order="vllm")
    assert vllm.params == SamplingParams(**on, seed=9, order="vllm")


def test_the_picture_is_the_first_distribution():
    """The likeliest first; under greedy one character is kept, with the probability 1."""
    rows = PlaygroundExplorer().picture()
    assert [kept for _, _, kept in rows] == [True] + [False] * 7 and rows[0][1] == 1
    rows = PlaygroundExplorer(temperature=1.0).picture()
    model, tokenizer = load("shakespeare-early")
    with torch.no_grad():
        p = model(torch.tensor([tokenizer.encode("ROMEO:\n")]))[0, -1].double().softmax(-1)
    assert [share for _, share, _ in rows] == pytest.approx(p.sort(descending=True).values[:8].tolist(), abs=1e-6)


def test_the_page_s_example_writes_what_the_figure_writes(capsys):
    """Its code runs; the text is that of the preset "broken by temperature"."""
    (source,) = re.findall(r"^```python\n(.*?)\n```$", PAGE, re.M | re.S)
    exec(source, {})
    model, tokenizer = load("shakespeare-early")
    params = PlaygroundExplorer(temperature=0.8).params
    ids = generate(model, torch.tensor([tokenizer.encode("ROMEO:\n")]), max_new_tokens=200, params=params).token_ids
    assert capsys.readouterr().out == tokenizer.decode(ids[0].tolist()) + "\n"
