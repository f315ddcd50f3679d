"""Faults people really met, through the whole of `generate`; each test is named by its case.

Cases that belong to one module stand in its test file, marked "Case N"; the first test here sees that none is missing.
"""

import math
import re
from pathlib import Path

import pytest
import torch
from toy_models import TableModel, random_ids, tiny_model

from minigpt.generation import generate, generate_naive, stream
from minigpt.processors import TopK
from minigpt.sampling import SamplingParams, Uniforms, draw

SAMPLING = {*range(1, 14), *range(15, 19), *range(20, 26)}
LOOP = {26, 27, 28, 30, 31, 33}
CACHE = {*range(34, 40), *range(41, 48)}
SEARCH = {48, 49, *range(51, 57)}
COSTS = {106, *range(108, 114)}


def test_every_case_has_a_test():
    marks = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"# Cases? \d", line):
                marks |= {int(number) for number in re.findall(r"\d+", line)}
            elif case := re.match(r"def test_case_(\d+)", line):
                marks.add(int(case[1]))
    assert marks >= SAMPLING | LOOP | CACHE | SEARCH | COSTS


@pytest.mark.parametrize("value", [1e-8, 1e-300])
def test_case_03_a_tiny_nucleus_is_greedy(value):
    model, ids = tiny_model(), random_ids(0, 2, 4)
    greedy = generate(model, ids, max_new_tokens=10, params=SamplingParams(temperature=0))
    assert torch.equal(
        generate(model, ids, max_new_tokens=10, params=SamplingParams(top_p=value)).token_ids, greedy.token_ids
    )


@pytest.mark.parametrize("run", [generate, generate_naive])
def test_case_05_temperature_zero_is_greedy_and_takes_the_lowest_id(run):
    model = TableModel([[1.0, 3.0, 2.0], [2.0, 0.0, 2.0], [5.0, 5.0, 5.0]])
    made = run(model, torch.tensor([[0], [1], [2]]), max_new_tokens=2, params=SamplingParams(temperature=0, seed=9))
    assert made.new_token_ids.tolist() == [[1, 0], [0, 1], [0, 1]]


@pytest.mark.parametrize("temperature", [1e-4, 1e-40, 1e-300, 1e300])
def test_case_06_no_temperature_gives_nan(temperature):
    model, ids = tiny_model(), random_ids(0, 2, 4)
    made = generate(model, ids, max_new_tokens=6, params=SamplingParams(temperature=temperature, seed=0))
    if temperature < 1:
        greedy = generate(model, ids, max_new_tokens=6, params=SamplingParams(temperature=0))
        assert torch.equal(made.token_ids, greedy.token_ids)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_case_06_half_precision_models_sample_in_float32(dtype):
    model, ids = tiny_model(dtype=dtype), random_ids(0, 2, 4)
    for step in stream(model, ids, max_new_tokens=6, params=SamplingParams(temperature=1e-4, seed=0)):
        assert step.logits.dtype == step.logprobs.dtype == torch.float32
        chosen = step.logits.gather(1, step.token_ids[:, None])
        assert torch.equal(chosen, step.logits.amax(-1, keepdim=True))  # in bfloat16 several may tie


def test_case_09_a_chain_of_one_token_is_that_token():
    probs = torch.tensor([0.15, 0.14, 0.13, 0.12, 0.11, 0.10, 0.09, 0.08, 0.08])
    model = TableModel(probs.log().expand(9, 9))
    made = generate(model, torch.tensor([[4]]), max_new_tokens=30, params=SamplingParams(top_k=1, top_p=0.8))
    assert made.new_token_ids.tolist() == [[0] * 30]


@pytest.mark.parametrize("top_k", [0, -1])
def test_case_10_k_below_one_is_refused_and_above_v_is_v(top_k):
    with pytest.raises(ValueError, match=f"top_k={top_k} must be an integer of at least 1; None .* turns it off"):
        SamplingParams(top_k=top_k)
    model = TableModel(torch.zeros(5, 5))
    run = {"token_ids": torch.tensor([[0]]), "max_new_tokens": 30}
    wide = generate(model, params=SamplingParams(top_k=100, seed=1), **run)
    assert torch.equal(wide.token_ids, generate(model, params=SamplingParams(top_k=5, seed=1), **run).token_ids)


def test_case_20_the_models_own_logits_are_not_what_was_made_of_them():
    """What a figure shows as raw and as processed must be two tensors."""
    model, rule = tiny_model(), TopK(3)
    with torch.no_grad():
        raw = model(random_ids(0, 1, 4))[:, -1]
    before = raw.clone()
    processed = rule(None, raw)
    processed[:] = 0  # whoever writes into one does not change the other
    assert torch.equal(raw, before)


def test_case_23_a_banned_token_never_comes_out_of_generate():
    """1,000 rows by 100 tokens from a mask that leaves tokens 1, 4 and 5; and a draw is the same test for each row."""
    mask = torch.full((7,), -torch.inf)
    mask[[1, 4, 5]] = 0.0
    model = TableModel(torch.randn(7, 7, generator=torch.Generator().manual_seed(0)), context_length=101)
    made = generate(
        model,
        torch.zeros(1000, 1, dtype=torch.int64),
        max_new_tokens=100,
        params=SamplingParams(temperature=2.0, seed=0),
        processors=(lambda ids, logits: logits + mask,),
    )
    assert made.new_token_ids.unique().tolist() == [1, 4, 5]


def test_case_23_a_stub_that_returns_the_ends_of_its_range(monkeypatch):
    """Whatever numbers a random generator gives, the token has a probability."""
    table = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]]).expand(5, 5)
    for u, token in ((0.0, 1), (math.nextafter(1, 0), 3)):
        monkeypatch.setattr(Uniforms, "next", lambda self, u=u: torch.tensor([u], dtype=torch.float64))
        made = generate(TableModel(table), torch.tensor([[0]]), max_new_tokens=3)
        assert made.new_token_ids.tolist() == [[token] * 3]
    monkeypatch.setattr(Uniforms, "next", lambda self: torch.tensor([1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"must be 1 numbers in \[0, 1\)"):
        generate(TableModel(table), torch.tensor([[0]]), max_new_tokens=1)


def test_case_23_the_field_s_fault():
    """A sum that ends below 1 in float32, and a uniform number above it: an index that was cut, or none at all."""
    logits = torch.full((1, 50_000), -torch.inf)
    logits[0, :40_000] = torch.randn(40_000, generator=torch.Generator().manual_seed(0))
    cumulative = logits.softmax(-1).cumsum(-1)[0]
    u = math.nextafter(1, 0)
    assert int((cumulative <= u).sum()) != int(draw(logits, [u]))  # the plain way picks another index
    assert int(draw(logits, [u])) < 40_000


def test_case_25_the_same_seed_is_the_same_text_whatever_was_sampled_between():
    model, ids = tiny_model(), random_ids(0, 1, 4)

    def text(seed):
        return generate(model, ids, max_new_tokens=16, params=SamplingParams(seed=seed)).token_ids.tolist()

    first = text(42)
    assert text(None) != first
    assert text(43) != first
    assert text(42) == first
