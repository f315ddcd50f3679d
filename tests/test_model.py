import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from toy_models import TableModel, random_ids, tiny_config, tiny_model

import minigpt.model
from minigpt.generation import generate
from minigpt.kv_cache import KVCache
from minigpt.model import Attention, MiniGPT, rotary_tables, rotate
from minigpt.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0)
ALONE = torch.tensor([[5, 6, 7]])
PADDED = torch.tensor([[0, 0, 5, 6, 7], [1, 2, 3, 4, 5]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], dtype=torch.bool)


@pytest.fixture
def positions(monkeypatch):
    """A list that fills with the rotary positions of each forward pass."""
    seen = []

    def recorder(positions, head_dim, theta):
        seen.append(positions.tolist())
        return rotary_tables(positions, head_dim, theta)

    monkeypatch.setattr(minigpt.model, "rotary_tables", recorder)
    return seen


def test_logits_have_the_shape_of_the_contract():
    model = tiny_model()
    ids = random_ids(0, 3, 6)
    full = model(ids)
    assert full.shape == (3, 6, 23)
    for n in (1, 2, 6):
        last = model(ids, num_logits=n)
        assert last.shape == (3, n, 23)
        assert torch.allclose(last, full[:, -n:], rtol=0, atol=1e-5)  # another number of rows, other last bits


def test_the_head_is_the_embedding():
    model = tiny_model()
    assert not any("head" in name for name, _ in model.named_parameters())
    config = model.config
    block = (
        2 * config.d_model * config.head_dim * (config.n_heads + config.n_kv_heads) + 3 * config.d_model * config.d_ff
    )
    expected = config.vocab_size * config.d_model + config.n_layers * (block + 2 * config.d_model) + config.d_model
    assert sum(p.numel() for p in model.parameters()) == expected


def test_a_token_never_sees_the_future():
    model, ids = tiny_model(), random_ids(0, 1, 8)
    changed = ids.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 23
    assert torch.equal(model(ids)[:, :5], model(changed)[:, :5])
    assert not torch.allclose(model(ids)[:, 5:], model(changed)[:, 5:])


def by_hand(model, ids):
    """The whole forward pass in float64 with a hand-written softmax, one head at a time: logits (T, V) of one text."""
    w = {name: weight.double() for name, weight in model.state_dict().items()}
    config, T, D = model.config, ids.numel(), model.config.head_dim

    def norm(x, gain):
        return x / (x.pow(2).mean(-1, keepdim=True) + config.norm_eps).sqrt() * gain

    def turn(x):
        out = x.clone()
        for t in range(T):
            for i in range(D // 2):
                angle = t * config.rope_theta ** (-2 * i / D)
                a, b = x[t, 2 * i], x[t, 2 * i + 1]
                out[t, 2 * i] = a * math.cos(angle) - b * math.sin(angle)
                out[t, 2 * i + 1] = a * math.sin(angle) + b * math.cos(angle)
        return out

    x = w["embedding.weight"][ids.flatten()]
    for layer in range(config.n_layers):
        at = f"layers.{layer}."
        h = norm(x, w[at + "attention_norm.weight"])
        q, k, v = (h @ w[f"{at}attention.{n}_proj.weight"].T for n in "qkv")
        heads = []
        for head in range(config.n_heads):
            of_q = slice(head * D, head * D + D)
            kv = head // (config.n_heads // config.n_kv_heads)
            of_kv = slice(kv * D, kv * D + D)
            scores = turn(q[:, of_q]) @ turn(k[:, of_kv]).T / math.sqrt(D)
            scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
            heads.append(scores.softmax(-1) @ v[:, of_kv])
        x = x + torch.cat(heads, -1) @ w[at + "attention.o_proj.weight"].T
        h = norm(x, w[at + "ffn_norm.weight"])
        gate, up = h @ w[at + "ffn.gate_proj.weight"].T, h @ w[at + "ffn.up_proj.weight"].T
        x = x + (F.silu(gate) * up) @ w[at + "ffn.down_proj.weight"].T
    return norm(x, w["norm.weight"]) @ w["embedding.weight"].T


@pytest.mark.parametrize("changes", [{}, {"n_kv_heads": 4}, {"n_kv_heads": 1}, {"head_dim": 6, "rope_theta": 100.0}])
def test_the_forward_pass_is_what_the_page_says(changes):
    model, ids = tiny_model(**changes), random_ids(0, 1, 9)
    with torch.no_grad():
        assert (model(ids)[0].double() - by_hand(model, ids)).abs().max() < 1e-4
        exact = model.double()(ids)[0]
    assert (exact - by_hand(model, ids)).abs().max() < 1e-4  # rotary tables stay in float32


# Case 42
def head_sources(attention):
    """Which KV head each query head reads, where KV head h holds the constant h."""
    config, T = tiny_config(d_model=32), 3
    with torch.no_grad():
        attention.o_proj.weight.copy_(torch.eye(32))
        attention.v_proj.weight.copy_(torch.arange(2.0).repeat_interleave(8)[:, None].expand(16, 32) / 32)
        rotary = rotary_tables(torch.arange(T), config.head_dim, config.rope_theta)
        y = attention(torch.ones(1, T, 32), rotary, None, None, 0)
    assert y.shape == (1, T, 32)  # the sequence has not grown
    return y.view(T, 4, 8)[-1, :, 0].tolist()


def test_query_heads_share_neighbouring_kv_heads():
    assert head_sources(Attention(tiny_config(d_model=32))) == pytest.approx([0, 0, 1, 1])


def test_tiled_kv_heads_are_found_out(monkeypatch):
    """The fault planted: KV heads repeated as a block."""
    kernel = F.scaled_dot_product_attention

    def tiled(q, k, v, enable_gqa=False, **how):
        return kernel(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), **how)

    monkeypatch.setattr(F, "scaled_dot_product_attention", tiled)
    assert head_sources(Attention(tiny_config(d_model=32))) == pytest.approx([0, 1, 0, 1])


def test_as_many_kv_heads_as_query_heads_is_plain_attention():
    """Grouped heads, written out as one KV head each, give the same logits."""
    grouped, plain = tiny_model(n_kv_heads=2), tiny_model(n_kv_heads=4)
    weights = grouped.state_dict()
    for name in list(weights):
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            weights[name] = weights[name].view(2, 8, 24).repeat_interleave(2, 0).flatten(0, 1)
    plain.load_state_dict(weights)
    ids = random_ids(0, 2, 6)
    assert torch.allclose(grouped(ids), plain(ids), atol=1e-5)


def test_rotary_attention_sees_only_differences():
    x, y = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    products = []
    for shift in (0, 5, 40):
        cos_x, sin_x = rotary_tables(torch.tensor([3 + shift]), 8, 10_000.0)
        cos_y, sin_y = rotary_tables(torch.tensor([1 + shift]), 8, 10_000.0)
        products.append(float((rotate(x, cos_x, sin_x) * rotate(y, cos_y, sin_y)).sum()))
    assert products == pytest.approx([products[0]] * 3, abs=1e-5)


def test_rotary_tables_stay_in_float32():
    """In bfloat16 position 257 becomes 256."""
    assert torch.tensor(257.0, dtype=torch.bfloat16) == 256  # the fault
    model, seen = tiny_model(dtype=torch.bfloat16, context_length=300), {}
    layer = model.layers[0].attention
    layer.register_forward_pre_hook(lambda _, arguments: seen.update(rotary=arguments[1]))
    model(random_ids(0, 1, 258))
    cos, sin = seen["rotary"]
    assert cos.dtype == sin.dtype == torch.float32
    assert not torch.equal(cos[0, 0, 256], cos[0, 0, 257])


# Case 26
def test_left_padding_keeps_positions(positions):
    model = tiny_model()
    cache = KVCache(model.config, 2, 8)
    padded = model(PADDED, cache, attention_mask=MASK)
    longer = torch.cat((MASK, torch.ones(2, 1, dtype=torch.bool)), 1)
    model(torch.tensor([[8], [9]]), cache, attention_mask=longer)
    assert positions == [[[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]], [[3], [5]]]
    alone = model(ALONE)
    assert torch.allclose(padded[0, -1], alone[0, -1], atol=1e-5)
    assert torch.allclose(padded[1], model(PADDED[1:])[0], atol=1e-5)


def test_generation_keeps_the_positions_of_padded_rows(positions):
    generate(tiny_model(), PADDED, attention_mask=MASK, max_new_tokens=3, params=GREEDY)
    assert positions == [[[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]], [[3], [5]], [[4], [6]]]


def by_column(monkeypatch, calls):
    """Plant the fault: positions are column numbers, in all forward passes or only in those of one token."""
    right = minigpt.model._padded

    def padded(attention_mask, B, T, columns, visible):
        mask, positions = right(attention_mask, B, T, columns, visible)
        return mask, columns[-T:].expand(B, T) if calls == "all" or T == 1 else positions

    monkeypatch.setattr(minigpt.model, "_padded", padded)


def two_steps(model, ids, mask):
    """Logits after the prompt and after one more token, with a cache."""
    cache = KVCache(model.config, len(ids), ids.size(1) + 1)
    first = model(ids, cache, attention_mask=mask, num_logits=1)
    if mask is not None:
        mask = F.pad(mask, (0, 1), value=True)
    return torch.cat((first, model(torch.full((len(ids), 1), 8), cache, attention_mask=mask)), 1)


def test_shifted_positions_alone_do_not_show_but_a_jump_does(monkeypatch):
    """Why positions are asserted directly: rotary logits agree even when all of a row's are shifted alike."""
    model = tiny_model()
    expected = two_steps(model, ALONE, None)[0]
    assert torch.allclose(two_steps(model, PADDED, MASK)[0], expected, atol=1e-4)
    with monkeypatch.context() as patch:
        by_column(patch, "all")
        assert torch.allclose(two_steps(model, PADDED, MASK)[0], expected, atol=1e-4)
    by_column(monkeypatch, "decode")
    jumped = two_steps(model, PADDED, MASK)[0]
    assert torch.allclose(jumped[0], expected[0], atol=1e-4)
    assert not torch.allclose(jumped[1], expected[1], atol=1e-2)


class LearnedPositions(TableModel):
    """A table model whose next token is the newest token's position, as a learned embedding of it would tell."""

    def __init__(self):
        super().__init__(torch.eye(20))

    def __call__(self, token_ids, cache=None, *, attention_mask=None, num_logits=None):
        T = token_ids.size(1)
        S = T if cache is None else cache.length + T
        if attention_mask is None:
            positions = torch.arange(S - T, S).expand(len(token_ids), T)
        else:
            positions = minigpt.model._padded(attention_mask, len(token_ids), T, torch.arange(S), None)[1]
        return super().__call__(positions, cache, num_logits=num_logits)


def test_a_model_of_learned_positions_reads_padded_rows_as_if_alone(monkeypatch):
    def answer():
        return generate(LearnedPositions(), PADDED, attention_mask=MASK, max_new_tokens=3, params=GREEDY).new_token_ids

    assert generate(LearnedPositions(), ALONE, max_new_tokens=3, params=GREEDY).new_token_ids.tolist() == [[2, 3, 4]]
    assert answer().tolist() == [[2, 3, 4], [4, 5, 6]]
    by_column(monkeypatch, "all")
    assert answer().tolist() == [[4, 5, 6], [4, 5, 6]]  # the fault shows


# Case 27
@pytest.mark.parametrize("backend", [None, SDPBackend.MATH])
def test_fully_masked_padding_gives_no_nan_anywhere(backend):
    model, seen = tiny_model(), []
    for module in model.modules():
        module.register_forward_hook(lambda _, __, output: seen.append(output))
    if backend is None:
        logits = model(PADDED, attention_mask=MASK)
    else:
        with sdpa_kernel(backend):
            logits = model(PADDED, attention_mask=MASK)
    assert len(seen) > 20
    assert all(output.isfinite().all() for output in seen)  # the pad columns too, in every layer
    assert torch.allclose(logits[0, -1], model(ALONE)[0, -1], atol=1e-5)


def test_a_hand_written_softmax_of_a_fully_masked_row_is_nan():
    """The fault that the kernel spares us."""
    scores = torch.full((1, 1, 1, 3), -torch.inf)
    assert scores.softmax(-1).isnan().all()
    q, v = torch.ones(1, 1, 1, 4), torch.ones(1, 1, 3, 4)
    nothing = torch.zeros(1, 1, 1, 3, dtype=torch.bool)
    assert (F.scaled_dot_product_attention(q, v, v, attn_mask=nothing) == 0).all()


@pytest.mark.parametrize("pads", [0, 1, 4])
def test_what_stands_in_padding_changes_nothing(pads):
    model, ids = tiny_model(), random_ids(3, 2, 6)
    mask = torch.arange(6) >= pads
    other = ids.clone()
    other[:, :pads] = (other[:, :pads] + 7) % 23
    mask = mask.expand(2, 6)
    assert torch.equal(model(ids, attention_mask=mask)[:, pads:], model(other, attention_mask=mask)[:, pads:])


# Case 35
def test_positions_go_on_from_the_prompt(positions):
    generate(tiny_model(), random_ids(0, 1, 6), max_new_tokens=4, params=GREEDY)
    assert positions == [list(range(6)), [6], [7], [8]]


def test_positions_counted_twice_are_found_out(positions):
    """The fault planted: the prompt's length added a second time, 12 and 13 instead of 6 and 7."""

    class Twice(KVCache):
        def positions(self, T):
            return super().positions(T) + self.length

    model, ids = tiny_model(), random_ids(0, 1, 8)
    cache = Twice(model.config, 1, 8)
    logits = [model(ids[:, :6], cache), *(model(ids[:, j : j + 1], cache) for j in (6, 7))]
    assert positions[1:] == [[12], [14]]
    assert not torch.allclose(torch.cat(logits, 1), model(ids), atol=1e-2)


def test_initial_weights_start_small_and_equal_for_a_seed():
    def made():
        torch.manual_seed(7)
        return MiniGPT(tiny_config(n_layers=8, d_model=64, d_ff=128, head_dim=16))

    model = made()
    for (name, weight), other in zip(model.named_parameters(), made().parameters(), strict=True):
        assert torch.equal(weight, other)
        if weight.dim() == 2:
            added = name.endswith(("o_proj.weight", "down_proj.weight"))
            assert weight.std().item() == pytest.approx(0.02 / 4 if added else 0.02, rel=0.1)
        else:
            assert (weight == 1).all()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([1, 2]), r"shape \(2,\): it must be \(B, T\)"),
        (torch.empty(1, 0, dtype=torch.int64), r"shape \(1, 0\): it must be \(B, T\) with at least one token"),
        (torch.empty(0, 3, dtype=torch.int64), r"shape \(0, 3\)"),
        (torch.tensor([[1, 23]]), "token id 23 is outside the vocabulary of 23.*own tokenizer"),
        (torch.tensor([[1, -1]]), "token id -1 is outside the vocabulary of 23.*own tokenizer"),
    ],
)
def test_ids_that_are_none_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        tiny_model()(ids)


@pytest.mark.parametrize("cached", [False, True])
def test_a_text_past_the_context_is_refused(cached):
    model = tiny_model(context_length=6)
    cache = KVCache(model.config, 1, 20) if cached else None
    model(random_ids(0, 1, 6), cache)
    with pytest.raises(ValueError, match="position 6 is past context_length=6: shorten the text"):
        model(random_ids(0, 1, 1 if cached else 7), cache)


def test_a_padded_row_may_have_more_columns_than_the_context():
    """Padding is no text: what counts against the context is the position."""
    model = tiny_model(context_length=4)
    mask = torch.tensor([[0, 0, 0, 1, 1]], dtype=torch.bool)
    assert model(random_ids(0, 1, 5), attention_mask=mask).isfinite().all()


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([[1, 0, 1]], "padding after a token: pad on the left"),
        ([[1, 1, 0]], "padding after a token: pad on the left"),
        ([[0, 0, 0]], "pad on the left, and leave no row empty"),
        ([[1, 1]], r"shape \(1, 2\): with 0 cached and 3 new tokens in 1 rows it must be \(1, 3\)"),
        ([[1, 1, 1]] * 2, r"shape \(2, 3\).*it must be \(1, 3\)"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        tiny_model()(random_ids(0, 1, 3), attention_mask=torch.tensor(mask, dtype=torch.bool))


def test_a_mask_covers_cached_columns_too():
    model = tiny_model()
    cache = KVCache(model.config, 1, 8)
    model(random_ids(0, 1, 3), cache)
    with pytest.raises(ValueError, match=r"with 3 cached and 2 new tokens in 1 rows it must be \(1, 5\)"):
        model(random_ids(0, 1, 2), cache, attention_mask=torch.ones(1, 2, dtype=torch.bool))
    assert cache.length == 3
