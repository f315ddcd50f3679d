import pytest
import torch
import torch.nn.functional as F
from toy_models import random_ids, tiny_config, tiny_model

from minigpt.kv_cache import KVCache


def filled(length=3, batch_size=2, capacity=8):
    """A cache that a tiny model has filled, and the text in it."""
    model = tiny_model()
    ids = random_ids(1, batch_size, length)
    cache = KVCache(model.config, batch_size, capacity)
    with torch.no_grad():
        model(ids, cache)
    return model, cache, ids


class RecordingCache(KVCache):
    """Notes what each layer's `append` is given and returns, and `length` around it."""

    def __init__(self, *args):
        super().__init__(*args)
        self.log = []

    def append(self, layer, k, v, q=None):
        before = self.length
        k_all, v_all = super().append(layer, k, v, q)
        self.log.append((layer, before, self.length, k_all, v_all, k, q))
        return k_all, v_all


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
