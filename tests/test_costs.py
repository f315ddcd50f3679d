"""Formulas against what they describe: PyTorch's counter, real parameters, bytes a cache holds, tokens by a hook."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count
from toy_models import random_ids, tiny_config, tiny_model
from transformers import AutoModelForCausalLM, DeepseekV2Config, GPT2Config, LlamaConfig, MistralConfig, Qwen3Config

import minigpt.costs
from minigpt.costs import (
    Flops,
    attention_pairs,
    crossover_batch,
    decode_flops,
    decode_intensity,
    decode_read_bytes,
    forward_flops,
    generation_flops,
    kv_bytes,
    linear_flops,
    prefill_flops,
    quantised_bits,
    roofline_s,
    tokens_through_model,
    users_that_fit,
    weight_bytes,
    weight_read_bytes,
)
from minigpt.generation import generate, generate_naive
from minigpt.kv_cache import KVCache
from minigpt.model import MiniGPT
from minigpt.pretrained import load
from minigpt.shapes import GPUS, MODELS, ModelShape

GiB, GB = 2**30, 1e9
TINY = ModelShape.of(tiny_config())
BITS = {torch.float64: 64, torch.float32: 32, torch.bfloat16: 16, torch.float16: 16}
CONVENTIONS = ("causal", "full")

shapes = st.builds(
    lambda group, n_kv_heads, **sizes: ModelShape(n_heads=group * n_kv_heads, n_kv_heads=n_kv_heads, **sizes),
    group=st.integers(1, 8),
    n_kv_heads=st.integers(1, 8),
    n_layers=st.integers(1, 80),
    head_dim=st.sampled_from((32, 64, 128)),
    d_model=st.integers(8, 8192),
    d_ff=st.integers(8, 30_000),
    vocab_size=st.integers(2, 200_000),
    context_length=st.just(4096),
    gated=st.booleans(),
    tied=st.booleans(),
    window=st.none() | st.integers(1, 60),
)
lengths, numbers_new = st.integers(1, 80), st.integers(0, 40)
conventions = st.sampled_from(CONVENTIONS)


def counted(model, token_ids, cache=None, num_logits=1):
    """FLOPs by operator that PyTorch counts in one forward pass; attention as two products of matrices."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        model(token_ids, cache, num_logits=num_logits)
    return {operator.__name__: flops for operator, flops in counter.get_flop_counts()["Global"].items()}


# Tokens through the model


@pytest.mark.parametrize(("P", "N"), [(1, 1), (1, 9), (7, 1), (5, 8), (4, 0), (183, 64)])
@pytest.mark.parametrize(("run", "cached"), [(generate, True), (generate_naive, False)])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_hook_on_the_model_counts_as_many_tokens_as_the_formula(P, N, run, cached, batch_size):
    model, calls = tiny_model(context_length=256), []
    model.register_forward_pre_hook(lambda module, args: calls.append(args[0].numel()))
    made = run(model, random_ids(0, batch_size, P), max_new_tokens=N)
    assert sum(calls) == made.forward_tokens == batch_size * tokens_through_model(P, N, cached=cached)
    assert len(calls) == N  # the last token is never fed back


def test_tokens_of_a_prompt_of_183_and_64_new_ones():
    cached, uncached = (tokens_through_model(183, 64, cached=cached) for cached in (True, False))
    assert (cached, uncached) == (246, 13_728)
    assert round(uncached / cached, 1) == 55.8


# FLOPs


# Case 111
def test_a_multiply_add_is_two_flops():
    """3 tokens through Linear 4 → 8: 96 multiply-adds, 192 FLOPs, as PyTorch counts."""
    layer = torch.nn.Linear(4, 8, bias=False)
    with FlopCounterMode(display=False) as counter:
        layer(torch.zeros(3, 4))
    assert linear_flops(3, layer.weight.numel()) == counter.get_total_flops() == 192


# Case 110
def test_attention_flops_of_a_step_and_of_a_prompt_in_both_conventions():
    """L = 2, d = 8, T = 16."""
    shape = ModelShape(2, 2, 2, 4, 8, 32, 100, 16, gated=False)
    assert decode_flops(shape, 16).attention == 4 * 2 * 8 * 16 == 1024
    assert prefill_flops(shape, 16, convention="causal").attention == 8704
    assert prefill_flops(shape, 16, convention="full").attention == 16_384
    causal, full = (generation_flops(shape, 16, 8, cached=False, convention=c).attention for c in CONVENTIONS)
    assert causal < full < 2 * causal


# Case 112
@pytest.mark.parametrize(("tied", "params"), [(True, 800), (False, 1600)])
def test_the_head_is_billed_once_tied_or_not_and_the_embedding_never(tied, params):
    """V = 100, d = 8."""
    shape = ModelShape(1, 1, 1, 8, 8, 8, 100, 16, tied=tied)
    assert decode_flops(shape, 1).head == 1600
    assert decode_flops(shape, 1).total - decode_flops(replace(shape, vocab_size=1), 1).total == 16 * 99
    bare = shape.n_params - shape.layer_params - 3 * 8  # without three norms
    assert bare == params
    assert weight_read_bytes(shape, bits=8) == shape.layer_params + 800


@pytest.mark.parametrize(
    "changes", [{}, {"n_kv_heads": 4}, {"n_kv_heads": 1}, {"head_dim": 6, "d_ff": 17, "n_layers": 3, "vocab_size": 31}]
)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_pytorch_s_counter_agrees_exactly(changes, batch_size):
    """Prefill, a decode step, a chunk on a cache, all logits: products with weights and products of attention apart."""
    model = tiny_model(**changes)
    shape, cache = ModelShape.of(model.config), KVCache(model.config, batch_size, 40)
    for T, num_logits in ((9, 1), (1, 1), (4, 4), (1, 1), (7, 2)):
        S = cache.length + T
        operators = counted(model, random_ids(T, batch_size, T, vocab_size=23), cache, num_logits)
        ours = forward_flops(shape, T, S, convention="full", num_logits=num_logits)
        assert operators == {"mm": batch_size * (ours.linear + ours.head), "bmm": batch_size * ours.attention}
    without_cache = counted(model, random_ids(0, batch_size, 9))
    assert sum(without_cache.values()) == batch_size * prefill_flops(shape, 9, convention="full").total


@pytest.mark.parametrize(("run", "cached"), [(generate, True), (generate_naive, False)])
def test_pytorch_s_counter_agrees_on_whole_generations(run, cached):
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run(tiny_model(), random_ids(0, 2, 6), max_new_tokens=11)
    assert counter.get_total_flops() == 2 * generation_flops(TINY, 6, 11, cached=cached, convention="full").total


def test_pytorch_s_counter_sees_no_attention_on_the_cpu_unless_told():
    """The flash operator of the CPU is not registered, so that its FLOPs count 0."""

    def flash(q, k, v, *args, out_shape=None, **settings):
        return sdpa_flop_count(q, k, v)

    mapping = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: flash}
    model, found = tiny_model(n_kv_heads=4), []
    for custom in (None, mapping):
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=custom) as counter:
            model(random_ids(0, 1, 9), num_logits=1)
        found.append(counter.get_total_flops())
    ours = prefill_flops(ModelShape.of(model.config), 9, convention="full")
    assert found == [ours.linear + ours.head, ours.total]


def test_what_a_cache_saves_in_a_thousand_tokens():
    """Linear layers 500.5 times; attention 667 counting the full square, 334 counting causal pairs; never 1000."""
    shape = MODELS["GPT-2 small"]

    def saving(convention):
        cached, uncached = (generation_flops(shape, 1, 1000, cached=c, convention=convention) for c in (True, False))
        assert cached.head == uncached.head
        return uncached.linear / cached.linear, uncached.attention / cached.attention

    assert saving("full") == (500.5, 667.0)
    assert saving("causal") == (500.5, 334.0)


@pytest.mark.parametrize("d_model", [64, 768])
def test_attention_overtakes_the_weights_of_a_layer_at_six_d_model(d_model):
    """Plain multi-head attention with 12 d² weights a layer."""
    shape = ModelShape(3, 8, 8, d_model // 8, d_model, 4 * d_model, 100, 8192, gated=False)
    assert shape.layer_params == 3 * 12 * d_model**2
    at = decode_flops(shape, 6 * d_model)
    assert at.attention == at.linear
    assert decode_flops(shape, 6 * d_model - 1).attention < at.linear


@pytest.mark.parametrize("window", [None, 1, 3, 100])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_pairs_are_those_of_the_mask(window, convention):
    """The causal ones by looking at every query and key; the full ones by the keys the call needs at all."""
    for S in range(1, 12):
        for T in range(1, S + 1):
            visible = torch.ones(S, S, dtype=torch.bool).tril()[-T:]
            if window is not None:
                visible &= torch.ones(S, S, dtype=torch.bool).triu(1 - window)[-T:]
            pairs = int(visible.sum()) if convention == "causal" else T * int(visible.any(0).sum())
            assert attention_pairs(T, S, convention=convention, window=window) == pairs


@given(shapes, lengths, numbers_new, conventions)
def test_prefill_and_decode_steps_add_up_to_a_generation(shape, P, N, convention):
    made = generation_flops(shape, P, N, cached=True, convention=convention)
    passes = [decode_flops(shape, P + i) for i in range(1, N)]
    if N:
        passes.append(prefill_flops(shape, P, convention=convention))
    for kind in Flops._fields:
        assert getattr(made, kind) == sum(getattr(flops, kind) for flops in passes)
    assert made.total == made.linear + made.attention + made.head
    assert made.linear == linear_flops(tokens_through_model(P, N, cached=True), shape.layer_params)


@given(shapes, lengths, numbers_new, conventions)
def test_a_cache_never_costs_more(shape, P, N, convention):
    cached, uncached = (generation_flops(shape, P, N, cached=c, convention=convention) for c in (True, False))
    assert all(ours <= theirs for ours, theirs in zip(cached, uncached, strict=True))
    assert (cached == uncached) == (N <= 1)
    assert uncached.linear == linear_flops(tokens_through_model(P, N, cached=False), shape.layer_params)


@given(shapes, lengths, st.integers(1, 40))
def test_causal_pairs_do_not_care_how_the_text_was_cut_into_calls(shape, P, N):
    """Cached, the whole generation has the attention of one prefill of P + N − 1 tokens."""
    made = generation_flops(shape, P, N, cached=True, convention="causal")
    assert made.attention == prefill_flops(shape, P + N - 1, convention="causal").attention


# Bytes of the cache


# Case 106
def test_kv_bytes_count_kv_heads():
    """Llama-3-8B: 131,072 bytes a token, 8,192 tokens are 1 GiB; four times that with the query heads."""
    shape = MODELS["Llama-3-8B"]
    assert kv_bytes(shape, 1, bits=16) == 131_072
    assert kv_bytes(shape, 8192, bits=16) == GiB
    assert kv_bytes(replace(shape, n_kv_heads=shape.n_heads), 1, bits=16) == 524_288  # the slip
    assert kv_bytes(replace(shape, n_kv_heads=4), 1, bits=16) == 65_536  # "groups" read as group size
    with pytest.raises(ValueError, match="n_heads=32 is not a multiple of n_kv_heads=5: give the number of KV heads"):
        replace(shape, n_kv_heads=5)


# Case 108
def test_gib_and_gb_of_long_caches():
    """Llama-2-7B and Llama-3-70B at 32,768 tokens, and the 70B with 64 KV heads."""
    small, large = MODELS["Llama-2-7B"], MODELS["Llama-3-70B"]
    assert (kv_bytes(small, 1, bits=16), kv_bytes(large, 1, bits=16)) == (524_288, 327_680)
    assert kv_bytes(small, 32_768, bits=16) == 16 * GiB
    assert kv_bytes(large, 32_768, bits=16) == 10 * GiB
    assert round(kv_bytes(small, 32_768, bits=16) / GB, 2) == 17.18
    assert round(kv_bytes(large, 32_768, bits=16) / GB, 2) == 10.74
    assert kv_bytes(replace(large, n_kv_heads=64), 32_768, bits=16) == 80 * GiB
    assert kv_bytes(MODELS["LLaMA-7B"], 4096, bits=16) == 2 * GiB


@pytest.mark.parametrize(
    ("name", "bits", "bytes_per_token"),
    [
        ("LLaMA-7B", 16, 524_288),
        ("Llama-2-7B", 16, 524_288),
        ("Llama-3-8B", 16, 131_072),
        ("Mistral-7B", 16, 131_072),
        ("Llama-3-70B", 16, 327_680),
        ("GPT-2 small", 16, 36_864),
        ("SmolLM2-135M", 16, 23_040),
        ("SmolLM2-135M", 32, 46_080),
        ("DeepSeek-V2", 16, 69_120),
        ("Qwen3-4B", 16, 2 * 36 * 8 * 128 * 2),  # with 2560 / 32 = 80 for head_dim it would be 92,160
        ("MiniGPT", 32, 2048),
    ],
)
def test_bytes_a_token_of_real_models(name, bits, bytes_per_token):
    assert kv_bytes(MODELS[name], 1, bits=bits) == bytes_per_token
    assert kv_bytes(MODELS[name], 100, 3, bits=bits) == 300 * bytes_per_token


# Case 109
def test_scales_and_zero_points_are_billed():
    """2 bits in groups of 32 are 3 bits a number, 5.33 times less than 16; in groups of 1 they are 34."""
    assert quantised_bits(2, 32) == 3.0
    assert round(16 / quantised_bits(2, 32), 2) == 5.33
    assert quantised_bits(2, 1) == 34 > 16
    assert quantised_bits(4, 64, zero_bits=0) == 4.25
    shape = MODELS["SmolLM2-135M"]
    full = kv_bytes(shape, 1000, bits=16)
    assert kv_bytes(shape, 1000, bits=quantised_bits(2, 32)) * 16 == full * 3
    mixed = kv_bytes(shape, 1000, bits=quantised_bits(2, 32), residual=128)
    assert mixed == kv_bytes(shape, 872, bits=3) + kv_bytes(shape, 128, bits=16)
    assert kv_bytes(shape, 100, bits=3, residual=128) == kv_bytes(shape, 100, bits=16)


@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize(
    ("changes", "batch_size", "capacity"),
    [({}, 1, 5), ({"n_kv_heads": 1}, 3, 20), ({"n_kv_heads": 4, "head_dim": 6}, 2, 7)],
)
def test_the_bytes_a_cache_holds_are_those_of_the_formula(dtype, changes, batch_size, capacity):
    model = tiny_model(dtype=dtype, **changes)
    cache = KVCache(model.config, batch_size, capacity)
    with torch.no_grad():
        model(random_ids(0, batch_size, 4), cache)
    assert cache.nbytes == kv_bytes(ModelShape.of(model.config), capacity, batch_size, bits=BITS[dtype])


def test_four_layers_of_two_heads_of_32_numbers():
    shape = ModelShape(4, 4, 2, 32, 128, 352, 75, 256)
    assert kv_bytes(shape, 100, bits=32) == 204_800


@given(shapes, st.integers(0, 5000), st.integers(1, 64), st.sampled_from((8, 16, 32)))
def test_bytes_of_a_cache_grow_with_each_factor(shape, n_tokens, batch_size, bits):
    """Linear in rows and bits, in tokens up to the window; grouped heads divide them by the size of the group."""
    found = kv_bytes(shape, n_tokens, batch_size, bits=bits)
    assert (
        found
        == batch_size * kv_bytes(shape, n_tokens, bits=bits)
        == bits * kv_bytes(shape, n_tokens, batch_size, bits=8) // 8
    )
    held = n_tokens if shape.window is None else min(shape.window, n_tokens)
    assert found == held * kv_bytes(shape, 1, batch_size, bits=bits)
    plain = replace(shape, n_kv_heads=shape.n_heads)
    group = shape.n_heads // shape.n_kv_heads
    assert kv_bytes(plain, n_tokens, batch_size, bits=bits) == group * found
    assert decode_flops(plain, 9).attention == decode_flops(shape, 9).attention


def test_a_window_caps_the_cache_and_what_a_step_reads():
    shape = MODELS["Mistral-7B"]
    assert kv_bytes(shape, 4096, bits=16) == kv_bytes(shape, 32_768, bits=16) == GiB // 2
    assert kv_bytes(shape, 4095, bits=16) < GiB // 2
    assert decode_flops(shape, 32_768) == decode_flops(shape, 4096)
    local, all_keys = replace(shape, n_layers=24), replace(shape, n_layers=8, window=None)  # three local to one global
    mixed = kv_bytes(local, 32_768, bits=16) + kv_bytes(all_keys, 32_768, bits=16)
    assert mixed == (24 * 4096 + 8 * 32_768) * 131_072 // 32


# Weights


@pytest.mark.parametrize("changes", [{}, {"n_kv_heads": 1}, {"head_dim": 10, "n_layers": 5}, {"vocab_size": 400}])
def test_parameters_are_those_of_a_real_model(changes):
    model = MiniGPT(tiny_config(**changes))
    shape = ModelShape.of(model.config)
    assert shape.n_params == sum(p.numel() for p in model.parameters())
    assert shape.layer_params == sum(p.numel() for p in model.layers.parameters() if p.dim() == 2)
    for dtype, bits in BITS.items():
        assert weight_bytes(shape, bits=bits) == sum(p.nbytes for p in model.to(dtype).parameters())


LLAMA_3_70B = {
    "hidden_size": 8192,
    "intermediate_size": 28_672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
}
LLAMA_3_8B = LLAMA_3_70B | {
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
QWEN3_4B = {
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
}
DEEPSEEK_V2 = {
    "hidden_size": 5120,
    "intermediate_size": 12_288,
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "vocab_size": 102_400,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}


@pytest.mark.parametrize(
    ("name", "config", "left_out"),
    [
        (
            "GPT-2 small",
            GPT2Config(),
            1024 * 768 + 12 * (9 * 768 + 2 * 768) + 768,
        ),  # positions; biases of layers, norms
        ("LLaMA-7B", LlamaConfig(), 0),
        ("Llama-2-7B", LlamaConfig(), 0),
        ("Llama-3-8B", LlamaConfig(**LLAMA_3_8B), 0),
        ("Llama-3-70B", LlamaConfig(**LLAMA_3_70B), 0),
        ("Mistral-7B", MistralConfig(), 0),
        ("Qwen3-4B", Qwen3Config(**QWEN3_4B), 36 * 2 * 128),  # norms of queries and keys
        ("DeepSeek-V2", DeepseekV2Config(**DEEPSEEK_V2), 0),
    ],
)
def test_parameters_are_those_of_the_model_in_transformers(name, config, left_out):
    """Its defaults are GPT-2 small, LLaMA-7B, Mistral-7B; left out are only biases, positions and inner norms."""
    with torch.device("meta"):  # no memory
        theirs = AutoModelForCausalLM.from_config(config)
    n_params = sum(p.numel() for p in theirs.parameters())
    assert n_params - MODELS[name].n_params == left_out < 0.01 * n_params
    assert MODELS[name].window == getattr(config, "sliding_window", None)


def test_the_play_model_is_as_its_preset_says():
    model, _ = load("shakespeare")
    assert ModelShape.of(model.config) == MODELS["MiniGPT"]


@pytest.mark.smollm2
def test_smollm2_is_as_its_preset_says(smollm2):
    model, _ = smollm2
    assert replace(ModelShape.of(model.config), source=MODELS["SmolLM2-135M"].source) == MODELS["SmolLM2-135M"]
    assert MODELS["SmolLM2-135M"].n_params == sum(p.numel() for p in model.parameters())


def test_every_preset_has_a_source():
    assert all(entry.source for entry in (*MODELS.values(), *GPUS.values()))


# What a step reads, and the machine


# Case 113
def test_a_step_reads_kv_heads():
    """Llama-3-8B at 4,096 tokens: half a GiB of cache a step, not 2; the least time on a machine follows."""
    shape = MODELS["Llama-3-8B"]
    bits = {"weight_bits": 16, "kv_bits": 16}
    weights = weight_read_bytes(shape, bits=16)
    slip = replace(shape, n_kv_heads=32)
    assert decode_read_bytes(shape, 4096, **bits) - weights == GiB / 2
    assert decode_read_bytes(slip, 4096, **bits) - weight_read_bytes(slip, bits=16) == 2 * GiB
    seconds = roofline_s(
        decode_flops(shape, 4096).total,
        decode_read_bytes(shape, 4096, **bits),
        flops_per_s=312e12,
        bytes_per_s=2.039e12,
    )
    assert seconds == (2 * (shape.layer_params + shape.head_params) + GiB / 2) / 2.039e12  # memory-bound


@given(shapes, st.integers(1, 5000), st.integers(1, 64), st.sampled_from((4, 8, 16)))
def test_reads_of_cache_and_weights_are_equal_at_the_crossover(shape, S, batch_size, bits):
    weights = weight_read_bytes(shape, bits=bits)
    at = crossover_batch(shape, S, weight_bits=bits, kv_bits=16)
    assert at * kv_bytes(shape, S, bits=16) == pytest.approx(weights)
    more_cache = kv_bytes(shape, S, batch_size, bits=16) > weights
    assert more_cache == (batch_size > at) or batch_size == pytest.approx(at)


def test_the_crossover_as_batch_and_as_length():
    """B* · S is the number of cached tokens, whatever the length of a row."""
    shape = MODELS["Llama-2-7B"]
    tokens = crossover_batch(shape, 1, weight_bits=16, kv_bits=16)
    assert tokens == 2 * (shape.layer_params + shape.head_params) / 524_288
    assert crossover_batch(shape, 2048, weight_bits=16, kv_bits=16) * 2048 == pytest.approx(tokens)
    grouped = replace(shape, n_kv_heads=8)
    assert kv_bytes(grouped, 1, 4, bits=16) == kv_bytes(shape, 1, bits=16)


@pytest.mark.parametrize(("bits", "per_byte"), [(32, 0.5), (16, 1.0), (8, 2.0), (4, 4.0)])
def test_a_step_without_history_does_two_flops_a_weight_and_row(bits, per_byte):
    """B · 2 / bytes-per-weight FLOPs a byte of weights; each cached key takes from it."""
    shape = MODELS["SmolLM2-135M"]
    for batch_size in (1, 8):
        found = decode_intensity(shape, 1, batch_size, weight_bits=bits, kv_bits=16)
        assert found == pytest.approx(batch_size * per_byte, rel=0.01)
    short, long = (decode_intensity(shape, S, 64, weight_bits=bits, kv_bits=16) for S in (1, 8192))
    assert long < short


@pytest.mark.parametrize("group", [1, 2, 4, 8])
def test_grouped_heads_raise_the_intensity_of_attention_by_their_group(group):
    shape = replace(MODELS["Llama-2-7B"], n_kv_heads=32 // group)
    assert decode_flops(shape, 4096).attention / kv_bytes(shape, 4096, bits=16) == group  # 1 for plain attention


@pytest.mark.parametrize(
    ("flops", "n_bytes", "seconds"), [(10, 1, 1.0), (1, 10, 2.0), (20, 10, 2.0), (30, 0, 3.0), (0, 0, 0.0)]
)
def test_roofline_is_the_slower_of_computing_and_reading(flops, n_bytes, seconds):
    assert roofline_s(flops, n_bytes, flops_per_s=10, bytes_per_s=5) == seconds


def test_users_that_fit():
    """Llama-3-8B at 8,192 tokens on 80 GB: what is left of 80 GB beside 16.06 GB of weights, in GiB."""
    shape, memory_bytes = MODELS["Llama-3-8B"], GPUS["H100"].memory_bytes
    bits = {"weight_bits": 16, "kv_bits": 16}
    users = users_that_fit(shape, 8192, memory_bytes, **bits)
    assert users == math.floor((80e9 - 16_060_522_496) / GiB) == 59
    exactly = weight_bytes(shape, bits=16) + kv_bytes(shape, 8192, users, bits=16)
    assert users_that_fit(shape, 8192, exactly, **bits) == users
    assert users_that_fit(shape, 8192, exactly - 1, **bits) == users - 1
    assert users_that_fit(MODELS["Llama-3-70B"], 1, memory_bytes, **bits) == 0  # not even the weights
    assert users_that_fit(MODELS["DeepSeek-V2"], 4096, 8 * GPUS["H200"].memory_bytes, **bits) > 0


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tokens_through_model(0, 3, cached=True), "P=0 must be a whole number, at least 1"),
        (lambda: tokens_through_model(3, -1, cached=True), "N=-1 must be a whole number, at least 0"),
        (lambda: generation_flops(TINY, 1, 2.5, cached=True, convention="full"), "N=2.5 must be a whole number"),
        (lambda: prefill_flops(TINY, 4, convention="half"), "convention='half' must be 'causal' or 'full'"),
        (lambda: attention_pairs(5, 4, convention="full"), "T=5 is above S=4: S counts all keys"),
        (lambda: attention_pairs(1, 4, convention="full", window=0), "window=0 must be a whole number, at least 1"),
        (lambda: decode_flops(TINY, 0), "S=0 must be a whole number, at least 1"),
        (lambda: linear_flops(-1, 4), "n_tokens=-1 must be a whole number, at least 0"),
        (lambda: decode_flops(MODELS["DeepSeek-V2"], 9), "kv_latent=576, .* ask for memory only"),
        (lambda: weight_read_bytes(MODELS["DeepSeek-V2"], bits=8), "kv_latent=576, .* ask for memory only"),
        (lambda: kv_bytes(TINY, -1, bits=16), "n_tokens=-1 must be a whole number, at least 0"),
        (lambda: kv_bytes(TINY, 1, 0, bits=16), "batch_size=0 must be a whole number, at least 1"),
        (lambda: kv_bytes(TINY, 1, bits=0), "bits=0 must be above 0: 32 for float32"),
        (lambda: weight_bytes(TINY, bits=math.nan), "bits=nan must be above 0"),
        (lambda: weight_bytes(TINY, bits=math.inf), "bits=inf must be above 0"),
        (lambda: quantised_bits(2, 0), "group=0 must be a whole number, at least 1"),
        (lambda: crossover_batch(TINY, 0, weight_bits=16, kv_bits=16), "S=0 must be a whole number, at least 1"),
        (lambda: users_that_fit(TINY, 0, 1e9, weight_bits=16, kv_bits=16), "n_tokens=0 must be a whole number"),
        (lambda: roofline_s(1, 1, flops_per_s=0, bytes_per_s=1), "flops_per_s=0, bytes_per_s=1: both must be above 0"),
        (lambda: replace(TINY, n_layers=0), "n_layers=0 must be a whole number, at least 1"),
        (lambda: replace(TINY, window=0), "window=0 must be a whole number, at least 1"),
        (lambda: replace(TINY, d_ff=True), "d_ff=True must be a whole number, at least 1"),
    ],
)
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_no_default_hides_a_convention_or_a_number_of_bits():
    for name in ("attention_pairs", "forward_flops", "prefill_flops", "generation_flops"):
        assert (
            inspect.signature(getattr(minigpt.costs, name)).parameters["convention"].default is inspect.Parameter.empty
        )
    for function in (weight_bytes, kv_bytes, weight_read_bytes):
        assert inspect.signature(function).parameters["bits"].default is inspect.Parameter.empty


@given(shapes, st.integers(1, 10**6), st.floats(0.5, 40))
def test_bytes_are_whole_and_never_too_few(shape, n_tokens, bits):
    found = kv_bytes(shape, n_tokens, bits=bits)
    assert isinstance(found, int)
    held = n_tokens if shape.window is None else min(n_tokens, shape.window)
    assert found == pytest.approx(held * shape.kv_numbers_per_token * bits / 8, abs=1, rel=1e-12)


@pytest.mark.parametrize(("n_tokens", "bits", "n_bytes"), [(1, 1, 1), (1, 4, 2), (1, 2.5, 1), (2, 2.5, 2), (8, 1, 3)])
def test_a_part_of_a_byte_is_a_byte(n_tokens, bits, n_bytes):
    """3 numbers a token; and whole bits are exact where float64 is not."""
    shape = ModelShape(1, 1, 1, 2, 2, 2, 2, 2, kv_latent=3)
    assert kv_bytes(shape, n_tokens, bits=bits) == n_bytes
    assert kv_bytes(shape, 10**18 + n_tokens, bits=16) == 6 * 10**18 + 6 * n_tokens
