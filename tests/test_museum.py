"""Every probe against every fault, and what the labels of the museum claim."""

import inspect
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toy_models import random_ids, tiny_model

import minigpt.model
from minigpt import probes
from minigpt.corpus import play, play_names
from minigpt.generation import generate, generate_naive, token_log_probs
from minigpt.kv_cache import AttentionRecorder, GrowingKVCache, KVCache, SlidingWindowCache
from minigpt.museum import EXHIBITS, NotReset, as_table, matrix, pad_right
from minigpt.probes import PROBES, Subject
from minigpt.sampling import SamplingParams

# Which probe sees which fault, by reasoning:
EXPECTED = {
    "KVCache": set(),
    # A prefill starts at length 0, and 0 counted twice is 0. A padded batch counts its positions in the mask.
    "position counted twice": {"decode", "greedy", "chunks", "positions"},
    # The two masks are right in an empty cache, and one token alone needs none.
    "mask top-left": {"chunks"},
    "chunk without its mask": {"chunks"},
    # The next three are faults of a method that only one probe calls.
    "cache not reset": {"reset"},
    "stale row after rollback": {"rollback"},
    "beams moved, cache not": {"reorder"},
    # Whatever compares a text longer than the window with a recompute; the others compare the fault with itself.
    "window one key too wide": {"prefill", "decode", "greedy", "padding"},
    # Only old keys are wrong; the positions that the model hands out are right.
    "keys cached before RoPE": {"decode", "greedy", "chunks", "padding"},
    # With the cache and without it alike.
    "KV heads tiled": {"heads"},
    "rotary tables in bfloat16": {"far_positions"},
    # The same shift in the whole row.
    "padding counted as text": {"positions"},
    # In a batch of rows of different lengths only; the column of the answer comes after the padding.
    "right padding": {"padding", "positions"},
}
BY_NAME = {exhibit.name: exhibit for exhibit in EXHIBITS}


def seen(answers):
    """For each fault the probes that see it."""
    return {name: {probe for probe, message in row.items() if message} for name, row in answers.items()}


SHAPES = [
    {"context_length": 320},
    {"context_length": 48},
    {"n_layers": 1},
    {"n_layers": 4},
    {"n_heads": 9, "n_kv_heads": 3},
    {"head_dim": 16, "d_model": 32},
    {"vocab_size": 75, "rope_theta": 1e5},
]


@pytest.mark.parametrize(("seed", "shape"), [(0, {}), *enumerate(SHAPES, 1)])
def test_the_matrix_is_the_expected_one(seed, shape):
    assert seen(matrix(tiny_model(seed, **shape))) == EXPECTED


def test_the_matrix_is_the_expected_one_in_float64():
    assert seen(matrix(tiny_model(2, torch.float64))) == EXPECTED


def test_the_matrix_of_the_play_model(shakespeare):
    assert seen(matrix(shakespeare[0])) == EXPECTED


@pytest.mark.parametrize("n_kv_heads", [1, 4])
def test_heads_cannot_be_tiled_wrong_where_there_is_one_order(n_kv_heads):
    assert seen(matrix(tiny_model(3, n_kv_heads=n_kv_heads))) == EXPECTED | {"KV heads tiled": set()}


def test_every_fault_is_seen_and_every_probe_sees_one():
    assert list(EXPECTED) == ["KVCache", *BY_NAME]
    assert all(probes for name, probes in EXPECTED.items() if name != "KVCache")
    assert set.union(*EXPECTED.values()) == {probe.__name__ for probe in PROBES}


COMPARING = [p for p in PROBES if p is not probes.rollback]  # which asks for what its window should hold
REAL = {
    "preallocated": lambda config, B, capacity: KVCache(config, B, capacity),
    "growing": lambda config, B, capacity: GrowingKVCache(config, B),
    "recorded": lambda config, B, capacity: AttentionRecorder(KVCache(config, B, capacity)),
} | {W: lambda config, B, capacity, W=W: SlidingWindowCache(config, B, W) for W in (1, 2, 4, 5, 9, 11, 400)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", REAL)
def test_every_probe_is_green_on_every_real_cache(kind, dtype):
    model = tiny_model(4, dtype, context_length=320)
    window = kind if isinstance(kind, int) else None
    subject = Subject(model, partial(REAL[kind], model.config), window)
    assert {probe.__name__: probe(subject) for probe in PROBES} == {probe.__name__: None for probe in PROBES}


def test_a_window_is_not_taken_for_a_full_cache_nor_for_another_window():
    model = tiny_model(5)
    for window in (None, 3, 5):
        subject = Subject(model, partial(REAL[4], model.config), window)
        assert [p.__name__ for p in COMPARING if p(subject)] == ["prefill", "decode", "greedy", "padding"]


def test_the_messages_say_what_is_wrong():
    answers = matrix(tiny_model(0, context_length=320))
    assert answers["position counted twice"]["positions"].endswith("positions [0, 1, 2, 3, 4, 5, 12, 14]")
    assert answers["KV heads tiled"]["heads"] == "query heads read KV heads [0, 1, 0, 1], not [0, 0, 1, 1]"
    assert answers["rotary tables in bfloat16"]["far_positions"] == "token 257 stands at position 256"
    padded = "padded row of 3 tokens: its last and the next three stand at positions [6, 7, 8, 9]"
    assert answers["padding counted as text"]["positions"] == answers["right padding"]["positions"] == padded
    assert answers["window one key too wide"]["prefill"].endswith("first at token 4")  # 4 keys are right up to token 3
    assert answers["stale row after rollback"]["rollback"].endswith("first at token 5")  # the first after 5 kept ones
    assert answers["right padding"]["padding"].startswith("row of 3 tokens: ")
    short = matrix(tiny_model(0), [BY_NAME["rotary tables in bfloat16"]], [probes.far_positions])
    assert short["rotary tables in bfloat16"]["far_positions"].startswith("cosines and sines are off by up to 0.00")


def test_logits_that_are_not_numbers_are_seen():
    model = tiny_model()

    class Nan(KVCache):
        def append(self, layer, k, v, q=None):
            k_all, v_all = super().append(layer, k, v, q)
            return k_all, v_all * (torch.nan if self.length else 1)

    assert "first at token 5" in probes.decode(Subject(model, partial(Nan, model.config)))


def test_nothing_stays_behind():
    """Neither a fault in the module it was planted in, nor a probe's hook in the model."""
    model, ids = tiny_model(), random_ids(0, 2, 9)
    places = (minigpt.model.rotary_tables, minigpt.model._padded, minigpt.model.Attention.forward)
    kernel, expected = F.scaled_dot_product_attention, model(ids)
    matrix(model)
    assert places == (minigpt.model.rotary_tables, minigpt.model._padded, minigpt.model.Attention.forward)
    assert F.scaled_dot_product_attention is kernel
    assert torch.equal(model(ids), expected)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_every_fault_goes_on_writing(exhibit):
    subject = exhibit.build(tiny_model())
    ids = random_ids(1, 2, 7)
    made = generate(subject.model, ids, max_new_tokens=30, cache=subject.make_cache(2, 40))
    assert made.new_token_ids.shape == (2, 30)


def test_every_fault_is_a_few_lines_with_a_label():
    for exhibit in EXHIBITS:
        assert len(inspect.getsource(exhibit.fault).splitlines()) <= 10, exhibit.name
        assert exhibit.symptom.endswith(".") and exhibit.moral.endswith("."), exhibit.name
    assert len(BY_NAME) == len(EXHIBITS) == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"dtype": torch.bfloat16}, "a model in torch.bfloat16"), ({"context_length": 47}, "context_length=47")],
)
def test_models_that_the_probes_cannot_judge_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        matrix(tiny_model(**changes))


def test_the_table_has_a_cross_where_a_fault_is_seen():
    table = as_table({"KVCache": {"prefill": None, "heads": None}, "no": {"prefill": None, "heads": "it is"}})
    assert table.splitlines() == ["         prefill  heads", "KVCache     ·       ·", "no          ·       ×"]


# What the labels claim.


def feed(name, model, ids, sizes):
    """Logits of a text fed in pieces to the exhibit's model and cache."""
    subject = BY_NAME[name].build(model)
    return subject.feed(subject.fresh(ids), ids, sizes)


def close(a, b):
    return torch.allclose(a, b, atol=1e-9)


@pytest.fixture
def exact():
    return tiny_model(6, torch.float64)


@pytest.mark.parametrize("name", ["position counted twice", "keys cached before RoPE"])
def test_the_prompt_is_right_and_so_the_first_new_token(exact, name):
    ids = random_ids(2, 2, 9)
    logits = feed(name, exact, ids, (6, 1, 1, 1))
    assert close(logits[:, :6], exact(ids)[:, :6])
    assert not torch.isclose(logits[:, 6:], exact(ids)[:, 6:], atol=1e-2).all(-1).any()


def test_after_a_prompt_old_keys_seem_to_stand_at_position_0(exact):
    """In one layer, where values hold no order: the prompt can be shuffled, and the next tokens stay what they are."""
    model = tiny_model(6, torch.float64, n_layers=1)
    ids = random_ids(3, 1, 8)
    shuffled = torch.cat((ids[:, [4, 2, 0, 3, 1, 5]], ids[:, 6:]), 1)
    for name, blind in (("keys cached before RoPE", True), ("position counted twice", False)):
        logits = [feed(name, model, text, (6, 1, 1)) for text in (ids, shuffled)]
        assert close(logits[0][:, 6], logits[1][:, 6]) == blind


@pytest.mark.parametrize("name", ["mask top-left", "chunk without its mask"])
def test_one_piece_and_then_tokens_one_by_one_are_right(exact, name):
    ids = random_ids(4, 2, 9)
    assert close(feed(name, exact, ids, (6, 1, 1, 1)), exact(ids))


def test_what_a_second_piece_sees(exact):
    """Told by changing a token: top-left loses the newest keys, a missing mask shows what follows."""
    ids = random_ids(5, 1, 8)
    for name, token, changed in (
        ("mask top-left", 4, [False, False, False]),  # not even the second piece sees the end of the first
        ("mask top-left", 1, [False, True, True]),
        ("chunk without its mask", 7, [True, True, True]),
    ):
        other = ids.clone()
        other[0, token] = (other[0, token] + 1) % 23
        first, second = (feed(name, tiny_model(6, torch.float64, n_layers=1), x, (5, 3))[0, 5:8] for x in (ids, other))
        assert [not close(a, b) for a, b in zip(first, second, strict=True)] == changed, (name, token)


def test_the_second_text_goes_on_from_the_first(exact):
    first, second = random_ids(6, 2, 2, 5)
    subject = BY_NAME["cache not reset"].build(exact)
    cache = subject.make_cache(2, 10)
    assert isinstance(cache, NotReset)
    assert close(subject.feed(cache, first, 5), exact(first))
    cache.reset()
    assert close(subject.feed(cache, second, 5), exact(torch.cat((first, second), 1))[:, 5:])


def test_one_token_of_the_rejected_stays(exact):
    ids, other = random_ids(7, 2, 2, 8)
    subject = BY_NAME["stale row after rollback"].build(exact)
    cache = subject.make_cache(2, 20)
    subject.feed(cache, ids, 8)
    cache.truncate(5)
    assert close(subject.feed(cache, other, 1), exact(torch.cat((ids[:, :6], other), 1))[:, 6:])


def test_beams_read_the_past_of_another(exact):
    ids, other = random_ids(8, 2, 2, 8)
    subject = BY_NAME["beams moved, cache not"].build(exact)
    cache = subject.make_cache(2, 20)
    subject.feed(cache, ids, 8)
    cache.reorder([1, 0])
    assert close(subject.feed(cache, other, 1), exact(torch.cat((ids, other), 1))[:, 8:])


def test_a_window_one_too_wide_is_the_next_window(exact):
    subject = BY_NAME["window one key too wide"].build(exact)
    assert {probe(replace(subject, window=5)) for probe in COMPARING} == {None}
    ids = random_ids(9, 2, 9)
    prefill, decode = (subject.feed(subject.fresh(ids), ids, sizes) for sizes in (9, 1))
    assert close(prefill, decode)
    assert close(prefill[:, :4], exact(ids)[:, :4])


def test_tiled_heads_write_the_same_bad_text_with_and_without_a_cache(shakespeare):
    model, tokenizer = shakespeare
    tiled = BY_NAME["KV heads tiled"].build(model).model
    ids = torch.tensor([tokenizer.encode(play(play_names()[0])[5000:5250])])
    settings = {"max_new_tokens": 40, "params": SamplingParams(temperature=0)}
    with_cache, without = (run(tiled, ids[:, :40], **settings) for run in (generate, generate_naive))
    assert torch.equal(with_cache.token_ids, without.token_ids)
    assert -token_log_probs(tiled, ids).mean() > 0.5 - token_log_probs(model, ids).mean()  # nats a character


@pytest.mark.smollm2
def test_bfloat16_tables_do_little_harm_until_position_256(smollm2):
    model, tokenizer = smollm2
    ids = torch.tensor([tokenizer.encode(play(play_names()[0])[3000:6000])])[:, :400]
    rounded = BY_NAME["rotary tables in bfloat16"].build(model).model
    with torch.no_grad():
        same = (model(ids).argmax(-1) == rounded(ids).argmax(-1))[0].float()
    assert same[:256].mean() > 0.97
    assert same[257:].mean() < 0.8


def test_padding_counted_as_text_changes_no_logit_and_ends_too_early():
    subject = BY_NAME["padding counted as text"].build(tiny_model(7, torch.float64, context_length=48))
    rows, answers, logits = probes._padded_batch(subject)
    for row, answer, z in zip(rows, answers, logits, strict=True):
        alone = subject.model(torch.cat((row, answer))[None])[0, len(row) - 1 :]
        assert torch.allclose(z, alone, atol=1e-4)  # rotary tables are float32
    ids, mask = probes.pad_left([random_ids(0, 20), random_ids(1, 44)])
    ids, mask = F.pad(ids, (5, 0)), F.pad(mask, (5, 0))  # 49 columns, at most 44 tokens
    subject.model.model(ids, attention_mask=mask)
    with pytest.raises(ValueError, match="position 48 is past context_length=48"):
        subject.model(ids, attention_mask=mask)


def test_padding_on_the_right_harms_what_comes_after_it_only(exact):
    rows = [random_ids(n, n) for n in (3, 7)]
    ids, mask = pad_right(rows)
    assert ids[0, 3:].tolist() == [0] * 4 and mask.all()
    logits = exact(ids, attention_mask=mask)
    for row, z in zip(rows, logits, strict=True):
        assert close(z[: len(row)], exact(row[None])[0])  # all that a loss would look at
    subject = BY_NAME["right padding"].build(exact)
    rows, answers, logits = probes._padded_batch(subject)
    right = [
        close(z, exact(torch.cat((row, answer))[None])[0, len(row) - 1 :])
        for row, answer, z in zip(rows, answers, logits, strict=True)
    ]
    assert [len(row) for row in rows] == [3, 7, 5] and right == [False, True, False]


def test_patched_model_is_a_module_that_holds_the_model():
    model = tiny_model()
    patched = BY_NAME["KV heads tiled"].build(model).model
    assert isinstance(patched, nn.Module) and patched.config is model.config
    assert sum(w.numel() for w in patched.parameters()) == sum(w.numel() for w in model.parameters())
