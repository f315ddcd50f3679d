"""Packed weights: the plain model's numbers, token for token, and a fall-back that is seen to work."""

import pytest
import torch
from toy_models import random_ids, tiny_model

from minigpt import SamplingParams, generate, load, packed_linear
from minigpt.packed_linear import PackedLinear
from minigpt.search import beam_search

needs_kernel = pytest.mark.skipif(not packed_linear.is_available(), reason="this build of PyTorch cannot pack weights")


@needs_kernel
@pytest.mark.parametrize("rows", [(1, 1), (1, 7), (4, 1), (5, 3), (40, 1)])
def test_products_are_those_of_a_linear_layer(rows):
    layer = torch.nn.Linear(36, 50, bias=False)
    x = torch.randn(*rows, 36, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(PackedLinear(layer.weight)(x), layer(x), rtol=0, atol=1e-5)


@needs_kernel
def test_a_packed_model_has_the_plain_one_s_logits_and_tokens():
    plain, packed, ids = tiny_model(), tiny_model().optimize(), random_ids(0, 3, 9)
    assert packed.packed_head is not None
    assert not any(isinstance(module, torch.nn.Linear) for module in packed.modules())
    with torch.no_grad():
        assert torch.allclose(packed(ids), plain(ids), rtol=0, atol=1e-4)
    for params in (SamplingParams(temperature=0), SamplingParams(seed=3)):
        texts = [generate(model, ids, max_new_tokens=40, params=params).token_ids for model in (plain, packed)]
        assert torch.equal(*texts)
    found = [beam_search(model, ids, num_beams=3, max_new_tokens=12) for model in (plain, packed)]
    assert [[h.token_ids for h in row] for row in found[0]] == [[h.token_ids for h in row] for row in found[1]]
    assert packed.optimize() is packed  # a second time changes nothing


@needs_kernel
@pytest.mark.smollm2
def test_smollm2_packed_says_the_same():
    (plain, tokenizer), (packed, _) = load("smollm2"), load("smollm2")
    packed.optimize()
    ids = torch.tensor([tokenizer.encode("Once upon a time there was")])
    with torch.no_grad():
        assert (packed(ids) - plain(ids)).abs().max() < 1e-3
    greedy = SamplingParams(temperature=0)
    texts = [generate(model, ids, max_new_tokens=24, params=greedy).token_ids for model in (plain, packed)]
    assert torch.equal(*texts)


def test_where_the_operators_are_missing_the_model_stays_plain(monkeypatch):
    monkeypatch.setattr(packed_linear, "is_available", lambda: False)
    model, ids = tiny_model(), random_ids(0, 2, 5)
    before = model(ids)
    assert model.optimize() is model and model.packed_head is None
    assert torch.equal(model(ids), before)


@pytest.mark.parametrize("fault", [RuntimeError, AttributeError, TypeError])
def test_operators_that_fail_or_multiply_wrongly_are_not_trusted(monkeypatch, fault):
    def fail(*arguments):
        raise fault

    for forward in (fail, lambda self, x: x.new_zeros(len(x), self.out_features)):
        monkeypatch.setattr(PackedLinear, "forward", forward)
        assert not packed_linear.is_available.__wrapped__()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match=f"weights are {dtype} on cpu: only float32 on the CPU can be packed"):
        tiny_model(dtype=dtype).optimize()
