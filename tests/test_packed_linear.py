"""Packed weights: the plain model's numbers, or those of its rounded weights, and a fall-back that is seen to work."""

import pytest
import torch
import torch.nn.functional as F
from toy_models import random_ids, tiny_model

from minigpt import SamplingParams, generate, load, packed_linear
from minigpt.packed_linear import GROUP, KINDS, PackedLinear, packed_nbytes, round_int4, round_int8, rounded
from minigpt.search import beam_search

ROUNDED = [kind for kind in KINDS if kind != "float32"]
# Largest error of a product, as a share of the largest product: last bits of float32 or bfloat16 (8 bits, 2^-8).
TOLERANCE = {"float32": 5e-6, "bfloat16": 2**-7, "int8": 2**-7, "int4": 2**-7}

needs_kernel = pytest.mark.skipif(not packed_linear.is_available(), reason="this build of PyTorch cannot pack weights")


def needs(weights):
    """Skip where this machine cannot multiply weights of that kind."""
    if not packed_linear.is_available(weights):
        pytest.skip(f"this build of PyTorch cannot multiply {weights} weights")


def wide_model():
    """A tiny model with widths that every kernel takes, and a vocabulary that is no multiple of anything."""
    return tiny_model(d_model=32, d_ff=64)


class SlowLinear(torch.nn.Module):
    """What a packed layer in fewer bits should compute: rounded weights, exact sums, inputs and outputs in bfloat16."""

    def __init__(self, weight, weights):
        super().__init__()
        self.weight = rounded(weight.detach(), weights).double()

    def forward(self, x):
        return F.linear(x.bfloat16().double(), self.weight).bfloat16().float()


def slow_model(weights):
    """The wide model with `SlowLinear` layers and head."""
    model = wide_model()
    for name, layer in list(model.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            model.set_submodule(name, SlowLinear(layer.weight, weights))
    model.packed_head = SlowLinear(model.embedding.weight, weights)
    return model


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
    monkeypatch.setattr(packed_linear, "is_available", lambda weights: False)
    model, ids = tiny_model(), random_ids(0, 2, 5)
    before = model(ids)
    assert model.optimize() is model and model.packed_head is None
    assert torch.equal(model(ids), before)


@pytest.mark.parametrize("weights", KINDS)
@pytest.mark.parametrize("fault", [RuntimeError, AttributeError, TypeError])
def test_operators_that_fail_or_multiply_wrongly_are_not_trusted(monkeypatch, fault, weights):
    def fail(*arguments):
        raise fault

    for forward in (fail, lambda self, x: x.new_zeros(len(x), self.out_features)):
        monkeypatch.setattr(PackedLinear, "forward", forward)
        assert not packed_linear.is_available.__wrapped__(weights)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match=f"weights are {dtype} on cpu: only float32 on the CPU can be packed"):
        tiny_model(dtype=dtype).optimize()


@pytest.mark.parametrize("weights", KINDS)
@pytest.mark.parametrize("shape", [(16, 32), (50, 96), (576, 64), (23, 1536)], ids=str)
def test_products_are_those_of_the_rounded_weights(weights, shape):
    needs(weights)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(*shape, generator=generator)
    layer = PackedLinear(weight, weights)
    for rows in [(1, 1), (2, 1), (1, 3), (4, 1), (5, 1), (7, 1), (8, 1), (3, 3), (40, 5)]:
        x = torch.randn(*rows, shape[1], generator=generator)
        with torch.no_grad():
            exact = F.linear(x.double(), rounded(weight, weights).double())
            error = (layer(x) - exact).abs().max()
            strided = x.transpose(0, 1)  # rows that do not lie one behind the other
            assert torch.allclose(layer(strided), layer(x).transpose(0, 1), rtol=2**-7, atol=1e-4)
        assert layer(x).dtype == torch.float32 and layer(x).shape == exact.shape
        assert error <= TOLERANCE[weights] * exact.abs().max(), rows


def test_int8_and_int4_round_to_the_nearest_step():
    weight = torch.randn(40, 96, generator=torch.Generator().manual_seed(1))
    codes, scales = round_int8(weight)
    assert codes.dtype == torch.int8 and codes.shape == weight.shape and scales.shape == (40, 1)
    steps = weight.abs().amax(1, keepdim=True) / 127
    # half a step; the step itself is a bfloat16, and where it was rounded down the largest code stays 127
    assert ((rounded(weight, "int8") - weight).abs() <= 1.01 * steps / 2 + 127 * steps / 256).all()
    inner = codes.abs() < 127
    assert ((rounded(weight, "int8") - weight).abs() <= scales.float() / 2 + 1e-6)[inner].all()
    codes, scales, zeros = round_int4(weight)
    assert codes.shape == (40, 3, GROUP) and scales.shape == zeros.shape == (40, 3, 1)
    assert codes.min() == 0 and codes.max() == 15
    error = (rounded(weight, "int4") - weight).abs().view(40, 3, GROUP)
    inner = (codes > 0) & (codes < 15)
    assert (error <= scales.float() / 2 + 1e-6)[inner].all()
    assert (error <= 0.6 * scales.float()).all()  # zero and step were rounded too


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_rows_that_are_constant_or_zero_stay_finite(weights):
    needs(weights)
    weight = torch.stack((torch.zeros(32), torch.full((32,), 0.5), torch.full((32,), -3.0)))
    assert torch.allclose(rounded(weight, weights), weight, rtol=2**-8, atol=0)
    with torch.no_grad():
        y = PackedLinear(weight, weights)(torch.ones(1, 32))
    assert torch.allclose(y, weight.sum(1)[None], rtol=2**-7, atol=0)


@pytest.mark.parametrize("weights", ROUNDED)
def test_a_model_in_fewer_bits_is_the_plain_one_with_rounded_weights(weights):
    needs(weights)
    slow, packed, ids = slow_model(weights), wide_model(), random_ids(0, 3, 9)
    embedding = packed.embedding.weight.clone()
    assert packed.optimize(weights) is packed and packed.packed_head.weights == weights
    assert {module.weights for module in packed.modules() if isinstance(module, PackedLinear)} == {weights}
    assert not any(isinstance(module, torch.nn.Linear) for module in packed.modules())
    assert torch.equal(packed.embedding.weight, embedding)
    assert {parameter.dtype for parameter in packed.parameters()} == {torch.float32}
    text = generate(packed, ids, max_new_tokens=40, params=SamplingParams(temperature=0)).token_ids
    with torch.no_grad():
        logits, expected, plain = packed(text), slow(text), wide_model()(text)
    assert logits.dtype == torch.float32
    error = (logits - expected).abs()
    assert error.max() <= 0.02 * expected.abs().max()  # a sum that falls the other side of a half moves what follows
    assert error.mean() < 0.02 * (plain - expected).abs().mean()  # and far less than the rounding itself
    expected, made = expected[:, 8:-1], text[:, 9:]
    chosen = expected.gather(-1, made[..., None]).squeeze(-1)
    assert (chosen >= expected.amax(-1) - 2 * error.max()).all()
    assert (made == expected.argmax(-1)).float().mean() > 0.95
    assert packed.optimize(weights) is packed


@pytest.mark.parametrize("weights", KINDS)
def test_bytes_held(weights):
    needs(weights)
    N, C = 64, 96
    held = {"float32": 4 * N * C, "bfloat16": 2 * N * C, "int8": N * C + 2 * N, "int4": N * C // 2 + 4 * N * C // GROUP}
    assert PackedLinear(torch.randn(N, C), weights).nbytes == held[weights]
    assert PackedLinear(torch.randn(N - 1, C), weights).nbytes in (held[weights], held[weights] - C - 2)  # int8: no pad
    model = wide_model()
    shapes = [p.shape for p in model.parameters() if p.dim() == 2]
    assert packed_nbytes(model) == 0
    packed = model.optimize(weights)
    assert packed_nbytes(packed) == sum(PackedLinear(torch.randn(shape), weights).nbytes for shape in shapes)


@pytest.mark.parametrize(("weights", "width", "step"), [("int8", 24, 16), ("int4", 48, 32)])
def test_a_width_that_a_kernel_cannot_take_is_refused_before_anything_is_replaced(weights, width, step):
    needs(weights)
    message = f"a layer takes {width} inputs: {weights} weights need multiples of {step}, pack in float32"
    with pytest.raises(ValueError, match=message):
        PackedLinear(torch.randn(16, width), weights)
    model, ids = tiny_model(d_model=64, d_ff=width, head_dim=16), random_ids(0, 2, 5)
    before = model(ids)
    with pytest.raises(ValueError, match=message):
        model.optimize(weights)
    assert torch.equal(model(ids), before) and model.packed_head is None


@pytest.mark.parametrize("weights", ROUNDED)
def test_weights_that_cannot_be_had_are_refused_not_replaced_by_others(monkeypatch, weights):
    model, ids = wide_model(), random_ids(0, 2, 5)
    before = model(ids)
    with monkeypatch.context() as patch:
        patch.setattr(packed_linear, "is_available", lambda weights: False)
        with pytest.raises(ValueError, match=f"cannot multiply {weights} weights on this processor: keep float32"):
            model.optimize(weights)
    with pytest.raises(ValueError, match="weights='fp8' is not known: choose one of float32, bfloat16, int8, int4"):
        model.optimize("fp8")
    assert torch.equal(model(ids), before) and model.packed_head is None
    needs(weights)
    model.optimize(weights)
    with pytest.raises(ValueError, match=f"packed in {weights} already: load it again to have weights='float32'"):
        model.optimize()
