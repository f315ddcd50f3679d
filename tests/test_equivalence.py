"""Every path to the same numbers: cached and naive, ours and that of `transformers` with the same weights."""

import pytest
import torch
from peer import llama
from toy_models import random_ids, tiny_model

from minigpt.generation import generate, generate_naive, stream
from minigpt.kv_cache import KVCache
from minigpt.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0)
SEEDED = SamplingParams(temperature=0.9, top_p=0.9, seed=3)
PASSAGE = (
    "In the beginning the language model knew nothing at all, and every word was as likely as every other. Then it "
    "read, for days and days, all the books it was given; and whenever it guessed the next word wrongly, each of its "
    "numbers moved a little. After a while it had learned how to spell, and where a sentence ends. After a longer "
    "while it could tell a story about a king, though nobody could say what the king wanted, least of all the model."
)


def agree(model, ids, *, new, params=GREEDY, tolerance=1e-4):
    """Assert that cached and naive generation give the same tokens, and the logits of one pass over the text."""
    steps = list(stream(model, ids, max_new_tokens=new, params=params))
    naive = generate_naive(model, ids, max_new_tokens=new, params=params)
    assert torch.stack([step.token_ids for step in steps], 1).tolist() == naive.new_token_ids.tolist()
    assert steps[-1].finish_reasons == naive.finish_reasons
    assert (torch.stack([step.logprobs for step in steps], 1) - naive.logprobs).abs().max() <= tolerance
    with torch.no_grad():
        at_once = model(naive.token_ids[:, :-1], num_logits=len(steps))
    assert (torch.stack([step.logits for step in steps], 1) - at_once).abs().max() <= tolerance
    return naive


# Case 34


@pytest.mark.parametrize("P", [1, 2, 7, 100])
@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
def test_cached_is_naive_on_a_tiny_model(P, params, dtype, tolerance):
    made = agree(tiny_model(dtype=dtype), random_ids(P, 3, P), new=20, params=params, tolerance=tolerance)
    assert made.new_token_ids.unique().numel() > 5  # not one token over and over


def test_a_cache_that_loses_a_key_is_found_out():
    """The fault planted: the comparison above can fail."""

    class Forgetful(KVCache):
        def append(self, layer, k, v, q=None):
            k_all, v_all = super().append(layer, k, v, q)
            if self.length:
                k_all = k_all.clone()
                k_all[:, :, 0] = 0
            return k_all, v_all

    model, ids = tiny_model(), random_ids(7, 3, 7)
    made = generate(model, ids, max_new_tokens=20, params=GREEDY, cache=Forgetful(model.config, 3, 30))
    assert made.token_ids.tolist() != generate_naive(model, ids, max_new_tokens=20, params=GREEDY).token_ids.tolist()


@pytest.mark.parametrize("P", [1, 2, 7, 100])
@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_cached_is_naive_on_the_play_model(shakespeare, P, params):
    model, tokenizer = shakespeare
    text = (
        "ROMEO:\nIf I profane with my unworthiest hand\nThis holy shrine, the gentle fine is this:\nMy lips, two blush"
    )
    agree(model, torch.tensor([tokenizer.encode(text)[:P]]), new=40, params=params)


@pytest.mark.smollm2
@pytest.mark.parametrize("P", [1, 2, 7, 100])
def test_cached_is_naive_on_smollm2(smollm2, P):
    model, tokenizer = smollm2
    agree(model, torch.tensor([tokenizer.encode(PASSAGE)[:P]]), new=8)


# `transformers`


SHAPES = [
    {},  # grouped heads, head_dim 8 where d_model / n_heads is 6
    {"n_kv_heads": 4, "head_dim": None, "d_model": 32},
    {"n_kv_heads": 1, "head_dim": 16, "rope_theta": 100_000.0, "norm_eps": 1e-3},
]


@pytest.mark.parametrize("changes", SHAPES)
def test_logits_are_those_of_transformers(changes):
    model, ids = tiny_model(**changes), random_ids(0, 3, 40)
    with torch.no_grad():
        ours, theirs = model(ids), llama(model)(ids).logits
    assert ours.std() > 0.5
    assert (ours - theirs).abs().max() <= 1e-4


def test_unpermuted_rows_are_found_out():
    """The fault planted: interleaved pairs read as halves."""
    model, ids = tiny_model(), random_ids(0, 3, 40)
    with torch.no_grad():
        theirs = llama(model, permute=lambda weight, head_dim: weight)(ids).logits
        assert (model(ids) - theirs).abs().max() > 0.1


@pytest.mark.parametrize("changes", SHAPES)
def test_greedy_tokens_are_those_of_transformers(changes):
    model, ids = tiny_model(**changes), random_ids(1, 3, 6)
    theirs = llama(model).generate(ids, max_new_tokens=30, do_sample=False, pad_token_id=0)
    assert generate(model, ids, max_new_tokens=30, params=GREEDY).token_ids.tolist() == theirs.tolist()


def test_padded_rows_are_those_of_transformers():
    model, ids = tiny_model(), random_ids(2, 3, 6)
    mask = torch.arange(6) >= torch.tensor([[0], [4], [2]])
    theirs = llama(model).generate(
        ids, attention_mask=mask.long(), max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=5
    )
    made = generate(model, ids, attention_mask=mask, max_new_tokens=20, params=GREEDY, eos_token_id=5, pad_token_id=0)
    assert made.token_ids.tolist() == theirs.tolist()


@pytest.mark.smollm2
def test_smollm2_is_that_of_transformers(smollm2):
    """Logits of a passage, and 64 greedy tokens, in float32."""
    model, tokenizer = smollm2
    theirs = llama(model)
    ids = torch.tensor([tokenizer.encode(PASSAGE)])
    with torch.no_grad():
        assert (model(ids) - theirs(ids).logits).abs().max() <= 1e-4
    ids = torch.tensor([tokenizer.encode("Once upon a time there was")])
    made = generate(model, ids, max_new_tokens=64, params=GREEDY).token_ids
    assert made.tolist() == theirs.generate(ids, max_new_tokens=64, do_sample=False, pad_token_id=0).tolist()


@pytest.mark.smollm2
def test_smollm2_knows_the_capital_of_france(smollm2):
    model, tokenizer = smollm2
    ids = torch.tensor([tokenizer.chat([{"role": "user", "content": "What is the capital of France?"}])])
    made = generate(model, ids, max_new_tokens=24, params=GREEDY, eos_token_id=tokenizer.eos_token_id)
    assert "Paris" in tokenizer.decode(made.new_token_ids[0].tolist())
    assert made.finish_reasons == ("eos",)


NUCLEI = [
    ("The capital of France is", (1, 2, 10, 44)),
    ("Once upon a time there was a", (16, 173, 546, 1181)),
    ("2 + 2 =", (1, 1, 3, 25)),
]


@pytest.mark.smollm2
@pytest.mark.parametrize(("prompt", "sizes"), NUCLEI)
def test_nucleus_sizes_are_those_of_the_facts(smollm2, prompt, sizes):
    from minigpt.processors import TopP

    model, tokenizer = smollm2
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer.encode(prompt)]), num_logits=1)[:, -1]
    found = [int(TopP(p)(None, logits).isfinite().sum()) for p in (0.5, 0.8, 0.9, 0.95)]
    assert found == [pytest.approx(size, abs=1) for size in sizes]
    if prompt.startswith("The capital"):
        top = logits.softmax(-1).max(-1)
        assert (tokenizer.decode([int(top.indices)]), top.values.item()) == (" Paris", pytest.approx(0.773, abs=5e-4))
