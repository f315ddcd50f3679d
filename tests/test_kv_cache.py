import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from peer import llama
from toy_models import random_ids, tiny_config, tiny_model
from transformers import MistralConfig, MistralForCausalLM

from minigpt.generation import generate, generate_naive
from minigpt.kv_cache import AttentionRecorder, GrowingKVCache, KVCache, SlidingWindowCache
from minigpt.model import rotary_tables
from minigpt.museum import OneTooWide
from minigpt.sampling import SamplingParams


def filled(length=3, batch_size=2, capacity=8):
    """A cache that a tiny model has filled, and the text in it."""
    model = tiny_model()
    ids = random_ids(1, batch_size, length)
    cache = KVCache(model.config, batch_size, capacity)
    with torch.no_grad():
        model(ids, cache)
    return model, cache, ids


class Recording:
    """Notes what each layer's `append` is given and returns, and `length` around it."""

    def __init__(self, *args):
        super().__init__(*args)
        self.log = []

    def append(self, layer, k, v, q=None):
        before = self.length
        k_all, v_all = super().append(layer, k, v, q)
        self.log.append((layer, before, self.length, k_all, v_all, k, q))
        return k_all, v_all


class RecordingCache(Recording, KVCache):
    pass


class RecordingWindow(Recording, SlidingWindowCache):
    pass


# Case 43
def test_truncate_keeps_the_first_tokens():
    for length in (0, 3, 1):
        _, cache, _ = filled(3)
        cache.truncate(length)
        assert cache.length == length
        assert cache.token_positions.tolist() == list(range(length))


@pytest.mark.parametrize("length", [5, 4, -2, -1])
def test_truncate_beyond_what_is_stored_is_refused(length):
    _, cache, _ = filled(3)
    with pytest.raises(ValueError, match=rf"truncate\({length}\): the cache holds 3 tokens, ask for 0 to 3"):
        cache.truncate(length)
    assert cache.length == 3


def test_a_truncated_cache_goes_on_as_if_the_rest_had_never_been():
    model, cache, ids = filled(6)
    cache.truncate(2)
    other = torch.cat((ids[:, :2], random_ids(9, 2, 3)), 1)
    with torch.no_grad():
        assert torch.allclose(model(other[:, 2:], cache), model(other)[:, 2:], atol=1e-5)


# Case 45
def test_length_moves_once_a_forward_pass_and_not_between_layers():
    model = tiny_model(n_layers=3)
    cache = RecordingCache(model.config, 1, 8)
    lengths_in_advance = []
    advance = cache.advance
    cache.advance = lambda T: (lengths_in_advance.append(cache.length), advance(T))
    model(random_ids(0, 1, 5), cache)
    assert [(layer, before, after) for layer, before, after, *_ in cache.log] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert [k_all.size(2) for *_, k_all, _, _, _ in cache.log] == [5, 5, 5]
    assert lengths_in_advance == [0]  # once, after the last layer
    assert cache.length == 5


# Case 46
def test_stored_are_keys_and_values_of_shape_b_hkv_s_d():
    model = tiny_model()
    config, cache = model.config, RecordingCache(model.config, 2, 6)
    for T, S in ((2, 2), (1, 3)):
        cache.log.clear()
        model(random_ids(S, 2, T), cache)
        for _, _, _, k_all, v_all, k, q in cache.log:
            assert k_all.shape == v_all.shape == (2, config.n_kv_heads, S, config.head_dim)
            assert torch.equal(k_all[:, :, -T:], k)  # oldest first
            assert q.shape == (2, config.n_heads, T, config.head_dim)  # offered, not stored
    held = 2 * config.n_layers * config.n_kv_heads * config.head_dim * 6 * 2 * 4  # K and V alone, 4 bytes each
    assert cache.nbytes == held


def test_bytes_follow_the_formula_of_the_facts():
    """4 layers x 2 KV heads x 32, fp32, 100 tokens: 204,800 bytes; SmolLM2 costs 46,080 bytes a token."""
    config = tiny_config(n_layers=4, n_kv_heads=2, head_dim=32)
    cache = KVCache(config, 1, 100)
    assert cache.nbytes == 0
    cache.append(0, torch.zeros(1, 2, 1, 32), torch.zeros(1, 2, 1, 32))
    assert cache.nbytes == 204_800
    cache = KVCache(tiny_config(n_layers=30, n_heads=9, n_kv_heads=3, head_dim=64), 1, 1)
    cache.append(0, torch.zeros(1, 3, 1, 64), torch.zeros(1, 3, 1, 64))
    assert cache.nbytes == 46_080


# Case 38
def test_the_mask_is_aligned_bottom_right():
    cache = KVCache(tiny_config(), 1, 8)
    cache.advance(3)
    assert cache.mask(2).tolist() == [[True, True, True, True, False], [True] * 5]
    assert cache.mask(1) is None
    assert cache.positions(2).tolist() == [3, 4]


def test_queries_see_the_newest_keys_where_the_kernels_own_flag_sees_the_oldest():
    q, k = torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 5, 2)
    v = torch.arange(5.0).view(1, 1, 5, 1).expand(1, 1, 5, 2)
    cache = KVCache(tiny_config(), 1, 8)
    cache.advance(3)

    def seen(q, **how):
        return F.scaled_dot_product_attention(q, k, v, **how)[0, 0, :, 0].tolist()

    assert seen(q, attn_mask=cache.mask(2)) == pytest.approx([1.5, 2.0])
    cache.advance(1)
    assert seen(q[:, :, :1], attn_mask=cache.mask(1)) == pytest.approx([2.0])
    # the fault: top-left alignment
    assert seen(q, is_causal=True) == pytest.approx([0.0, 0.5])
    assert seen(q[:, :, :1], is_causal=True) == pytest.approx([0.0])


def test_a_cache_with_the_top_left_mask_is_found_out():
    """The fault planted: chunked prefill no longer agrees with one pass."""

    class TopLeft(KVCache):
        def mask(self, T):
            return torch.ones(T, self.length + T, dtype=torch.bool).tril()

    model, ids = tiny_model(), random_ids(2, 1, 5)
    assert not torch.allclose(in_chunks(model, ids, (3, 2), TopLeft), model(ids), atol=1e-2)
    assert torch.allclose(in_chunks(model, ids, (3, 2), KVCache), model(ids), atol=1e-5)


def in_chunks(model, ids, sizes, kind=KVCache):
    """Logits of a text that goes through the model piece by piece."""
    cache = kind(model.config, len(ids), ids.size(1))
    with torch.no_grad():
        return torch.cat([model(chunk, cache) for chunk in ids.split(sizes, dim=1)], 1)


@pytest.mark.parametrize("sizes", [(3, 4), (1, 6), (6, 1), (2, 3, 2), (1,) * 7])
def test_chunked_prefill_is_one_prefill(sizes):
    model, ids = tiny_model(dtype=torch.float64), random_ids(3, 2, 7)
    with torch.no_grad():
        assert (in_chunks(model, ids, sizes) - model(ids)).abs().max() < 1e-10


# Case 44
@pytest.mark.parametrize("capacity", [8, 16, 64])
def test_slots_that_are_not_filled_are_never_seen(capacity):
    model, ids = tiny_model(), random_ids(4, 1, 8)
    with torch.no_grad():
        expected = model(ids)
        cache = KVCache(model.config, 1, capacity)
        logits = [model(ids[:, :5], cache)]
        for part in (cache._keys, cache._values):
            part[:, :, :, 5:] = torch.nan  # whoever looks there gets it
        logits += [model(ids[:, j : j + 1], cache) for j in (5, 6, 7)]
    assert torch.allclose(torch.cat(logits, 1), expected, atol=1e-6)


# Case 47
def test_a_cache_takes_the_models_dtype():
    model = tiny_model(dtype=torch.bfloat16)
    cache, ids = KVCache(model.config, 1, 6), random_ids(5, 1, 6)
    logits = [model(ids[:, :3], cache), model(ids[:, 3:5], cache), model(ids[:, 5:], cache)]
    assert all(z.dtype == torch.bfloat16 for z in logits)
    assert cache._keys.dtype == cache._values.dtype == torch.bfloat16
    config = model.config
    assert cache.nbytes == 2 * config.n_layers * config.n_kv_heads * config.head_dim * 6 * 2  # 2 bytes, not 4


def test_past_capacity_is_refused_and_nothing_is_written():
    model, cache, _ = filled(3, capacity=4)
    kept = cache._keys.clone()
    with pytest.raises(ValueError, match="5 tokens do not fit a cache of capacity=4: make a larger one, or truncate"):
        model(random_ids(0, 2, 2), cache)
    assert cache.length == 3
    assert torch.equal(cache._keys, kept)
    model(random_ids(0, 2, 1), cache)
    assert cache.length == 4


def test_another_batch_size_is_refused():
    model, cache, _ = filled(3, batch_size=2)
    with pytest.raises(ValueError, match="3 rows for a cache of batch_size=2: make one for this batch"):
        model(random_ids(0, 3, 1), cache)


@pytest.mark.parametrize(("batch_size", "capacity"), [(0, 4), (1, 0), (-1, 4), (1, -3)])
def test_sizes_below_one_are_refused(batch_size, capacity):
    with pytest.raises(ValueError, match=f"batch_size={batch_size} and capacity={capacity} must be at least 1"):
        KVCache(tiny_config(), batch_size, capacity)


def test_reset_keeps_the_storage_and_forgets_the_text():
    model, cache, _ = filled(4)
    storage, ids = cache._keys.data_ptr(), random_ids(8, 2, 3)
    cache.reset()
    assert (cache.length, cache.token_positions.tolist()) == (0, [])
    with torch.no_grad():
        assert torch.allclose(model(ids, cache), model(ids), atol=1e-6)
    assert cache._keys.data_ptr() == storage


@pytest.mark.parametrize("rows", [[1, 0], [1, 1], [0, 0, 1, 1, 0], [1]])
def test_reorder_moves_whole_rows(rows):
    """KV rows that stay behind when beams swap give fluent but wrong text."""
    model, cache, ids = filled(4)
    cache.reorder(rows)
    new = random_ids(6, len(rows), 2)
    with torch.no_grad():
        logits = model(new, cache)
        expected = model(torch.cat((ids[rows], new), 1))[:, -2:]
    assert cache.batch_size == len(rows)
    assert torch.allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("rows", [[], [2], [0, -1]])
def test_rows_outside_the_batch_are_refused(rows):
    _, cache, _ = filled(2)
    with pytest.raises(ValueError, match="rows must be a non-empty list of 0 to 1"):
        cache.reorder(rows)


def test_an_empty_cache_can_be_reordered():
    cache = KVCache(tiny_config(), 1, 4)
    cache.reorder([0, 0, 0])
    assert cache.batch_size == 3
    tiny_model()(random_ids(0, 3, 2), cache)
    assert cache.length == 2


# Every kind of cache


KINDS = {
    "preallocated": lambda config, batch_size: KVCache(config, batch_size, 64),
    "growing": GrowingKVCache,
    "window": lambda config, batch_size: SlidingWindowCache(config, batch_size, 64),
    "recorder": lambda config, batch_size: AttentionRecorder(GrowingKVCache(config, batch_size)),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def run(model, ids, cache, sizes):
    """Logits of a text that goes through the model in pieces of the given sizes, with the given cache."""
    with torch.no_grad():
        return torch.cat([model(chunk, cache) for chunk in ids.split(sizes, dim=1)], 1)


@every_kind
@pytest.mark.parametrize("sizes", [(9,), (4, 5), (3, 1, 3, 2), (1,) * 9])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_any_cache_in_any_chunks_is_one_prefill(kind, sizes, dtype):
    model, ids = tiny_model(dtype=dtype), random_ids(3, 2, 9)
    cache = kind(model.config, 2)
    with torch.no_grad():
        difference = run(model, ids, cache, sizes) - model(ids)
    assert difference.abs().max() < (1e-10 if dtype == torch.float64 else 1e-4)
    assert (cache.length, cache.token_positions.tolist()) == (9, list(range(9)))


@every_kind
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_any_cache_takes_the_models_dtype(kind, dtype):
    """And holds 2 * L * H_kv * D numbers a token of it, in as many bytes as such a number has."""
    model, ids = tiny_model(dtype=dtype), random_ids(5, 2, 64)
    cache = kind(model.config, 2)
    assert cache.nbytes == 0
    assert run(model, ids, cache, (60, 3, 1)).dtype == dtype
    config, maps = model.config, getattr(cache, "maps", ())
    numbers = 2 * config.n_layers * config.n_kv_heads * config.head_dim * 64 * 2
    assert cache.nbytes - sum(one.nbytes for one in maps) == numbers * dtype.itemsize


@every_kind
@pytest.mark.parametrize("rows", [[1, 0], [0, 0, 1, 1, 0], [1]])
def test_any_cache_moves_whole_rows(kind, rows):
    model, ids, new = tiny_model(), random_ids(1, 2, 5), random_ids(6, len(rows), 3)
    cache = kind(model.config, 2)
    run(model, ids, cache, (3, 2))
    cache.reorder(rows)
    with torch.no_grad():
        expected = model(torch.cat((ids[rows], new), 1))[:, 5:]
    assert cache.batch_size == len(rows)
    assert torch.allclose(run(model, new, cache, (2, 1)), expected, atol=1e-5)
    with pytest.raises(ValueError, match="rows must be a non-empty list of 0 to"):
        cache.reorder([len(rows)])


@every_kind
def test_any_cache_forgets(kind):
    model, ids, new = tiny_model(), random_ids(1, 2, 6), random_ids(9, 2, 3)
    cache = kind(model.config, 2)
    run(model, ids, cache, (4, 2))
    cache.truncate(2)
    with torch.no_grad():
        expected = model(torch.cat((ids[:, :2], new), 1))[:, 2:]
        assert torch.allclose(run(model, new, cache, (2, 1)), expected, atol=1e-5)
        assert cache.token_positions.tolist() == [0, 1, 2, 3, 4]
        for length in (6, -1):
            with pytest.raises(ValueError, match=rf"truncate\({length}\): the cache holds 5 tokens, ask for 0 to 5"):
                cache.truncate(length)
        cache.reset()
        assert (cache.length, cache.token_positions.tolist()) == (0, [])
        assert torch.allclose(run(model, new, cache, (3,)), model(new), atol=1e-5)


@every_kind
def test_a_call_that_fails_halfway_leaves_no_trace(kind):
    model, ids = tiny_model(), random_ids(2, 2, 8)
    cache = kind(model.config, 2)
    run(model, ids[:, :5], cache, (5,))

    def fail(*_):
        raise KeyboardInterrupt

    handle = model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        run(model, random_ids(8, 2, 4), cache, (4,))  # the first layer has appended
    handle.remove()
    with torch.no_grad():
        assert torch.allclose(run(model, ids[:, 5:], cache, (2, 1)), model(ids)[:, 5:], atol=1e-5)


@every_kind
def test_any_cache_refuses_another_batch_size(kind):
    model = tiny_model()
    with pytest.raises(ValueError, match="3 rows for a cache of batch_size=2: make one for this batch"):
        model(random_ids(0, 3, 1), kind(model.config, 2))
    with pytest.raises(ValueError, match="batch_size=0 and capacity=.* must be at least 1"):
        kind(model.config, 0)


@every_kind
def test_any_cache_goes_through_a_ragged_conversation(kind):
    """Two turns with one cache give the tokens that naive generation gives for the whole text."""
    model, ids = tiny_model(), random_ids(2, 3, 7)
    mask = torch.arange(7) >= torch.tensor([[0], [4], [2]])
    cache = kind(model.config, 3)
    if hasattr(cache, "maps"):
        cache.attention_mask = mask
    for _ in range(2):
        settings = {"attention_mask": mask, "max_new_tokens": 6, "params": SamplingParams(temperature=0)}
        made = generate(model, ids, cache=cache, **settings)
        assert made.token_ids.tolist() == generate_naive(model, ids, **settings).token_ids.tolist()
        assert cache.length == made.token_ids.size(1) - 1
        ids = torch.cat((made.token_ids, random_ids(len(mask[0]), 3, 2)), 1)
        mask = F.pad(mask, (0, 8), value=True)


# Growing


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_growing_is_preallocated_to_the_last_bit(dtype):
    model, ids, sizes = tiny_model(dtype=dtype), random_ids(4, 3, 40), (17, 1, 1, 5, *(1,) * 16)
    growing, preallocated = GrowingKVCache(model.config, 3), KVCache(model.config, 3, 50)
    assert torch.equal(run(model, ids, growing, sizes), run(model, ids, preallocated, sizes))


def test_growing_holds_the_tokens_in_it_and_no_more():
    model = tiny_model()
    config, cache = model.config, GrowingKVCache(model.config, 2)
    token = 2 * config.n_layers * config.n_kv_heads * config.head_dim * 2 * 4
    for length in (3, 4, 9):
        model(random_ids(length, 2, length - cache.length), cache)
        assert cache.nbytes == length * token
    cache.truncate(2)
    assert cache.nbytes == 2 * token
    assert all(stored.untyped_storage().nbytes() == stored.nbytes for stored in cache._keys.values())
    cache.reset()
    assert cache.nbytes == 0


# Sliding window


def full_recompute(model, ids, window, real=None):
    """Logits of one pass without a cache and with its mask written out: query t sees columns t - window + 1 to t."""
    B, T = ids.shape
    mask, positions = torch.zeros(B, 1, T, T, dtype=torch.bool), torch.arange(T)
    for t in range(T):
        mask[:, :, t, max(0, t - window + 1) : t + 1] = True
    if real is not None:
        mask, positions = mask & real[:, None, None], (real.cumsum(1) - 1).clamp(0)
    rotary = rotary_tables(positions, model.config.head_dim, model.config.rope_theta)
    with torch.no_grad():
        x = model.embedding(ids)
        for i, layer in enumerate(model.layers):
            x = layer(x, rotary, mask, None, i)
        return F.linear(model.norm(x), model.embedding.weight)


def test_the_full_recompute_is_the_model_where_the_window_holds_the_text():
    model, ids = tiny_model(dtype=torch.float64), random_ids(0, 2, 9)
    with torch.no_grad():
        assert torch.allclose(full_recompute(model, ids, 9), model(ids), atol=1e-12)
        assert not torch.allclose(full_recompute(model, ids, 8), model(ids), atol=1e-2)


def largest_difference(kind, window, sizes, batch_size=2):
    """Largest difference of logits between a window cache fed in chunks and the full recompute."""
    model, ids = tiny_model(dtype=torch.float64), random_ids(window, batch_size, sum(sizes))
    logits = run(model, ids, kind(model.config, batch_size, window), sizes)
    return float((logits - full_recompute(model, ids, window)).abs().max())


CHUNKS = [(20,), (3, *(1,) * 17), (12, *(1,) * 8), (5,) * 4, (7, 7, 6), (1,) * 20, (2, 11, 1, 6)]


@pytest.mark.parametrize("window", [1, 2, 5, 7, 19, 20, 33])
@pytest.mark.parametrize("sizes", CHUNKS)
def test_a_window_is_a_full_recompute_with_the_same_visibility(window, sizes):
    """Prompts shorter and longer than the window, chunked prefill, decode."""
    assert largest_difference(SlidingWindowCache, window, sizes) < 1e-10


def test_a_window_over_random_chunks():
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        window, count, batch_size = (int(torch.randint(1, most, (), generator=generator)) for most in (12, 9, 4))
        sizes = tuple(torch.randint(1, 9, (count,), generator=generator).tolist())
        assert largest_difference(SlidingWindowCache, window, sizes, batch_size) < 1e-10, (window, sizes)


# Case 37
def test_a_window_of_4_keeps_4_tokens():
    model, ids = tiny_model(), random_ids(0, 1, 6)
    cache, everything = SlidingWindowCache(model.config, 1, 4), KVCache(model.config, 1, 6)
    held = []
    for j in range(6):
        run(model, ids[:, j : j + 1], cache, 1)
        held.append(cache.token_positions.tolist())
    assert held == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert (cache.length, cache._keys.size(3)) == (6, 4)
    run(model, ids, everything, 6)
    for slot, position in enumerate((4, 5, 2, 3)):  # a ring; no window changes the first layer's keys
        assert torch.allclose(cache._keys[0, :, :, slot], everything._keys[0, :, :, position], atol=1e-6)


# Case 39
def test_a_window_of_4_sees_4_keys_in_prefill_and_in_decode():
    config = tiny_config()
    whole, stepwise = SlidingWindowCache(config, 1, 4), SlidingWindowCache(config, 1, 4)
    rows = whole.mask(8)
    assert rows.shape == (8, 8)
    assert rows.sum(1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4]
    assert rows[7].nonzero().flatten().tolist() == [4, 5, 6, 7]
    for t in range(8):
        assert stepwise.mask(1) is None  # all that `append` returns
        assert stepwise.columns(1).tolist() == rows[t].nonzero().flatten().tolist()
        stepwise.advance(1)


# Case 41
def test_three_tokens_at_once_into_a_full_window():
    """What the queries see, told by attention itself: q = 0 averages the values, and a value is its position."""
    cache = SlidingWindowCache(tiny_config(n_layers=1, n_heads=1, n_kv_heads=1, head_dim=2), 1, 4)
    for positions in ([0, 1, 2, 3], [4, 5, 6]):
        values = torch.tensor(positions, dtype=torch.float32).view(1, 1, -1, 1).expand(1, 1, -1, 2)
        k, v = cache.append(0, torch.zeros_like(values), values)
        mask = cache.mask(len(positions))
        seen = F.scaled_dot_product_attention(torch.zeros_like(values), k, v, attn_mask=mask)[0, 0, :, 0]
        visible = [cache.columns(len(positions))[row].tolist() for row in mask]
        cache.advance(len(positions))
    assert visible == [[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]
    assert seen.tolist() == pytest.approx([2.5, 3.5, 4.5])
    assert cache.token_positions.tolist() == [3, 4, 5, 6]
    assert sorted(cache._values[0, 0, 0, :, 0].tolist()) == [3, 4, 5, 6]


class EvictsTooEarly(SlidingWindowCache):
    def append(self, layer, k, v, q=None):
        self._make_storage(k, v, self.window)
        slots = self.positions(k.size(2))[-self.window :] % self.window
        self._keys[layer][:, :, slots] = k[:, :, -self.window :]
        self._values[layer][:, :, slots] = v[:, :, -self.window :]
        return super().append(layer, k, v, q)


class InStorageOrder(SlidingWindowCache):
    def append(self, layer, k, v, q=None):
        k_all, v_all = super().append(layer, k, v, q)
        order = (self.columns(0) % self.window).argsort()
        order = torch.cat((order, torch.arange(len(order), k_all.size(2))))
        return k_all[:, :, order], v_all[:, :, order]


def test_windows_with_a_fault_are_found_out():
    """Two of the three are right as long as one token comes at a time: only chunks show them."""
    one_by_one, chunks = (1,) * 20, (6, 3, 3, 3, 5)
    assert largest_difference(SlidingWindowCache, 5, chunks) < 1e-10
    for kind, found_one_by_one in ((OneTooWide, True), (EvictsTooEarly, False), (InStorageOrder, False)):
        assert (largest_difference(kind, 5, one_by_one) > 1e-2) == found_one_by_one, kind
        assert largest_difference(kind, 5, chunks) > 1e-2, kind


@pytest.mark.parametrize("window", [1, 3, 5, 30])
def test_padded_rows_in_a_window_are_the_rows_alone(window):
    """Also when a row is padded by more than the window, and after its padding has left it."""
    model, ids = tiny_model(dtype=torch.float64), random_ids(2, 3, 16)
    pads = [0, 7, 2]
    mask = torch.arange(16) >= torch.tensor(pads)[:, None]
    for sizes in ((16,), (9, 3, 4), (8, *(1,) * 8)):
        cache, ends = SlidingWindowCache(model.config, 3, window), torch.tensor(sizes).cumsum(0).tolist()
        with torch.no_grad():
            parts = zip(ids.split(sizes, dim=1), ends, strict=True)
            logits = torch.cat([model(part, cache, attention_mask=mask[:, :end]) for part, end in parts], 1)
        assert torch.allclose(logits[mask], full_recompute(model, ids, window, mask)[mask], atol=1e-10)
        for row, pad in enumerate(pads):
            alone = full_recompute(model, ids[row : row + 1, pad:], window)[0]
            assert torch.allclose(logits[row, pad:], alone, atol=1e-10)


def test_a_mask_covers_columns_that_have_left_the_window():
    model = tiny_model()
    cache = SlidingWindowCache(model.config, 1, 4)
    run(model, random_ids(0, 1, 6), cache, 6)
    with pytest.raises(ValueError, match=r"with 6 cached and 1 new tokens in 1 rows it must be \(1, 7\)"):
        model(random_ids(0, 1, 1), cache, attention_mask=torch.ones(1, 4, dtype=torch.bool))


@pytest.mark.parametrize("P", [3, 30])
def test_generation_through_a_window_is_a_recompute_of_every_token(P):
    """Any length up to the context; a second turn goes on, though most of the first has been evicted."""
    model, ids, window = tiny_model(), random_ids(P, 3, P), 6
    mask = torch.arange(P) >= torch.tensor([[0], [2], [1]])
    cache = SlidingWindowCache(model.config, 3, window)
    for _ in range(2):
        settings = {"attention_mask": mask, "max_new_tokens": 20, "params": SamplingParams(temperature=0)}
        made = generate(model, ids, cache=cache, **settings).token_ids
        for _ in range(20):
            new = full_recompute(model, ids, window, mask)[:, -1:].argmax(-1)
            ids, mask = torch.cat((ids, new), 1), F.pad(mask, (0, 1), value=True)
        assert made.tolist() == ids.tolist()
        ids, mask = torch.cat((ids, random_ids(1, 3, 2)), 1), F.pad(mask, (0, 2), value=True)
    assert cache.token_positions.tolist() == list(range(P + 35, P + 41))


@pytest.mark.parametrize("window", [2, 7])
def test_a_window_is_that_of_transformers(window):
    """Its Mistral, whose `sliding_window` counts the query's own key as well."""
    model, ids = tiny_model(), random_ids(1, 3, 30)
    llama_model = llama(model)
    config = MistralConfig(**llama_model.config.to_dict() | {"sliding_window": window, "model_type": "mistral"})
    theirs = MistralForCausalLM(config).eval()
    theirs.load_state_dict(llama_model.state_dict())
    logits = run(model, ids, SlidingWindowCache(model.config, 3, window), (12, *(1,) * 18))
    with torch.no_grad():
        assert torch.allclose(logits, theirs(ids).logits, atol=1e-4)
        assert not torch.allclose(logits, model(ids), atol=1e-1)


@pytest.mark.smollm2
def test_a_window_and_its_maps_on_smollm2(smollm2):
    """Nine query heads on three KV heads, 30 layers, float32."""
    model, tokenizer = smollm2
    ids = torch.tensor([tokenizer.encode("Once upon a time there was a king who could not sleep, so he went out.")])
    cache = AttentionRecorder(SlidingWindowCache(model.config, 1, 6))
    logits = run(model, ids, cache, (9, 4, *(1,) * (ids.size(1) - 13)))
    assert (logits - full_recompute(model, ids, 6)).abs().max() < 1e-3
    assert not torch.allclose(logits, full_recompute(model, ids, 7), atol=1e-1)
    assert all(torch.allclose(one.sum(-1), torch.ones(1), atol=1e-5) for one in cache.maps)


def test_memory_of_a_window_is_that_of_the_window():
    model = tiny_model(context_length=256)
    config, cache = model.config, SlidingWindowCache(model.config, 2, 16)
    held = 2 * config.n_layers * config.n_kv_heads * config.head_dim * 16 * 2 * 4
    for sizes in ((50,), (1,) * 100, (7, 43)):
        run(model, random_ids(0, 2, sum(sizes)), cache, sizes)
        assert cache.nbytes == held
        assert sum(part.untyped_storage().nbytes() for part in (cache._keys, cache._values)) == held
    assert cache.length == 200
    assert cache._new == {}


def test_a_long_prompt_leaves_no_more_than_a_window_behind_in_each_layer():
    """Also while the call is under way: what is set aside does not keep the whole prompt alive."""
    model, held = tiny_model(), []
    config, cache = model.config, SlidingWindowCache(model.config, 1, 4)

    def look(*_):
        storages = [new.untyped_storage().nbytes() for pair in cache._new.values() for new in pair]
        held.append((sum(storages), cache.nbytes))

    for layer in model.layers:
        layer.register_forward_hook(look)
    run(model, random_ids(0, 1, 50), cache, 50)
    layer = 2 * config.n_kv_heads * config.head_dim * 4 * 4
    assert held == [(layer, 2 * layer + layer), (2 * layer, 2 * layer + 2 * layer)]
    assert cache.nbytes == 2 * layer


def test_what_has_been_evicted_does_not_come_back():
    model, ids = tiny_model(), random_ids(0, 2, 8)
    cache = SlidingWindowCache(model.config, 2, 4)
    run(model, ids[:, :4], cache, 4)
    cache.truncate(3)  # nothing has been evicted yet
    logits = run(model, ids[:, 3:], cache, (2, 3))
    assert torch.allclose(logits, full_recompute(model, ids, 4)[:, 3:], atol=1e-5)
    for length in (8, 7, 2, 0):
        with pytest.raises(ValueError, match=rf"truncate\({length}\): the first 4 of 8 tokens have left the window"):
            cache.truncate(length)
    cache.reset()
    assert torch.allclose(run(model, ids, cache, (5, 3)), full_recompute(model, ids, 4), atol=1e-5)


@pytest.mark.parametrize("rows", [[1, 0], [0, 0, 1], [1]])
def test_a_full_window_moves_whole_rows(rows):
    model, ids, new = tiny_model(), random_ids(1, 2, 9), random_ids(6, len(rows), 5)
    cache = SlidingWindowCache(model.config, 2, 4)
    run(model, ids, cache, (5, 4))
    cache.reorder(rows)
    expected = full_recompute(model, torch.cat((ids[rows], new), 1), 4)[:, 9:]
    assert torch.allclose(run(model, new, cache, (3, 1, 1)), expected, atol=1e-5)


@pytest.mark.parametrize("window", [0, -1, 2.5])
def test_a_window_without_its_own_token_is_refused(window):
    with pytest.raises(ValueError, match=f"window={window} must be an integer, at least 1: a token always sees itself"):
        SlidingWindowCache(tiny_config(), 1, window)


# Attention maps


def softmax_by_hand(q, k, visible):
    """The map of one query (D,) over keys (S, D): exp of each visible score, over their sum."""
    scores = [sum(a * b for a, b in zip(q, key, strict=True)) / math.sqrt(len(q)) for key in k]
    exps = [math.exp(score) if sees else 0.0 for score, sees in zip(scores, visible, strict=True)]
    return [e / sum(exps) for e in exps]


def test_maps_are_a_softmax_written_by_hand():
    model, ids = tiny_model(dtype=torch.float64), random_ids(0, 2, 7)
    recorder = AttentionRecorder(RecordingCache(model.config, 2, 8))
    run(model, ids, recorder, (4, 1, 2))
    assert [one.shape for one in recorder.maps] == [(2, 2, 4, 4, 4), (2, 2, 4, 1, 5), (2, 2, 4, 2, 7)]
    calls = [(call, end - call.size(3)) for call, end in zip(recorder.maps, (4, 5, 7), strict=True)]
    log = iter(recorder.cache.log)
    for call, start in calls:
        for _ in range(2):
            layer, _, _, k_all, _, _, q = next(log)
            for row, head, t in itertools.product(range(2), range(4), range(call.size(3))):
                visible = [s <= start + t for s in range(call.size(4))]
                keys = k_all[row, (0, 0, 1, 1)[head]]  # two query heads share a KV head
                expected = softmax_by_hand(q[row, head, t].tolist(), keys.tolist(), visible)
                assert call[layer, row, head, t].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("window", [None, 3])
def test_maps_are_what_the_model_attends_with(window):
    """Map times values, through the output matrix, is what the attention layer returned; in a window too."""
    model, ids, outputs = tiny_model(dtype=torch.float64), random_ids(0, 2, 9), []
    inner = RecordingCache(model.config, 2, 9) if window is None else RecordingWindow(model.config, 2, window)
    recorder = AttentionRecorder(inner)
    for layer in model.layers:
        layer.attention.register_forward_hook(lambda module, _, out: outputs.append((module.o_proj, out)))
    run(model, ids, recorder, (5, 1, 3))
    maps = [one for call in recorder.maps for one in call]
    for one, (*_, v_all, _, _), (o_proj, out) in zip(maps, inner.log, outputs, strict=True):
        assert torch.allclose(one.sum(-1), torch.ones(1, dtype=torch.float64))
        y = one @ v_all.repeat_interleave(2, 1)  # (B, H, T, D)
        assert torch.allclose(o_proj(y.transpose(1, 2).flatten(2)), out, atol=1e-12)


def test_maps_of_padded_rows_are_those_of_the_rows_alone():
    model, ids = tiny_model(dtype=torch.float64), random_ids(0, 2, 6)
    mask = torch.arange(6) >= torch.tensor([[2], [0]])
    for batch, alone in (
        (KVCache(model.config, 2, 8), KVCache(model.config, 1, 8)),
        (SlidingWindowCache(model.config, 2, 3), SlidingWindowCache(model.config, 1, 3)),
    ):
        together, alone = AttentionRecorder(batch, mask), AttentionRecorder(alone)
        with torch.no_grad():
            model(ids, together, attention_mask=mask)
            model(ids[:, :1], together, attention_mask=F.pad(mask, (0, 1), value=True))
        run(model, torch.cat((ids[:1, 2:], ids[:1, :1]), 1), alone, (4, 1))
        first, second = together.maps
        assert torch.allclose(first[:, 0, :, 2:, 2:], alone.maps[0][:, 0], atol=1e-12)
        assert torch.allclose(second[:, 0, :, :, -alone.maps[1].size(4) :], alone.maps[1][:, 0], atol=1e-12)
        assert first[:, 0, :, :2].count_nonzero() == 0  # padding sees nothing
        assert first[:, 0, :, :, :2].count_nonzero() == 0  # and is not seen
        together.reorder([1, 0, 0])
        with torch.no_grad():
            longer = F.pad(mask[[1, 0, 0]], (0, 2), value=True)
            model(ids[[1, 0, 0], 2:3], together, attention_mask=longer)
        run(model, ids[:1, 2:3], alone, 1)
        S = alone.maps[2].size(4)
        for row in (1, 2):
            assert torch.allclose(together.maps[2][:, row, ..., -S:], alone.maps[2][:, 0], atol=1e-12)


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), SamplingParams(seed=5)], ids=["greedy", "seeded"])
def test_a_recorder_changes_no_token(params):
    model, ids = tiny_model(), random_ids(3, 2, 5)
    recorder = AttentionRecorder(KVCache(model.config, 2, 16))
    made = generate(model, ids, max_new_tokens=12, params=params, cache=recorder)
    assert made.token_ids.tolist() == generate(model, ids, max_new_tokens=12, params=params).token_ids.tolist()
    assert [tuple(one.shape[3:]) for one in recorder.maps] == [(5, 5), *((1, S) for S in range(6, 17))]
    for one in recorder.maps:
        assert torch.allclose(one.sum(-1), torch.ones(1), atol=1e-6)


def test_maps_follow_their_cache():
    """What is truncated loses its maps, rows take theirs along, a reset forgets all; bytes count them."""
    model, ids = tiny_model(), random_ids(3, 2, 8)
    recorder = AttentionRecorder(KVCache(model.config, 2, 16))
    run(model, ids, recorder, (3, 4, 1))
    before = list(recorder.maps)
    assert recorder.nbytes == recorder.cache.nbytes + 4 * 2 * 2 * 4 * (3 * 3 + 4 * 7 + 1 * 8)
    recorder.truncate(5)
    assert [tuple(one.shape[3:]) for one in recorder.maps] == [(3, 3), (2, 5)]
    assert torch.equal(recorder.maps[1], before[1][..., :2, :5])
    recorder.reorder([1, 1, 0])
    assert torch.equal(recorder.maps[0], before[0][:, [1, 1, 0]])
    run(model, ids[[1, 1, 0], 5:], recorder, 3)
    assert torch.allclose(recorder.maps[2][..., :2, :7], before[1][:, [1, 1, 0]][..., 2:, :7], atol=1e-5)
    with pytest.raises(ValueError, match="truncate"):
        recorder.truncate(9)
    assert [tuple(one.shape[3:]) for one in recorder.maps] == [(3, 3), (2, 5), (3, 8)]
    recorder.reset()
    assert (recorder.maps, recorder.length, recorder.nbytes) == ([], 0, recorder.cache.nbytes)


def test_a_recorder_can_be_copied():
    model, ids = tiny_model(), random_ids(0, 1, 4)
    recorder = AttentionRecorder(GrowingKVCache(model.config, 1))
    run(model, ids, recorder, 4)
    other = copy.deepcopy(recorder)
    other.truncate(1)
    assert (recorder.length, other.length) == (4, 1)


def test_maps_hold_no_graph():
    model = tiny_model()
    recorder = AttentionRecorder(GrowingKVCache(model.config, 1))
    assert model(random_ids(0, 1, 4), recorder).requires_grad
    assert not recorder.maps[0].requires_grad
