"""Settings and their order, the draw, and the streams of uniform numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_models import TableModel

from minigpt.generation import generate
from minigpt.processors import (
    Epsilon,
    Eta,
    FrequencyPenalty,
    MinP,
    NoRepeatNGram,
    PresencePenalty,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    Typical,
)
from minigpt.sampling import ORDERS, SamplingParams, Uniforms, apply, draw

NEVER = -torch.inf
LAST = 1 - 2**-53  # the largest uniform number below 1


def kept(params, logits):
    """Ids that the settings leave of one row of logits."""
    return apply(params.pipeline(), None, torch.tensor([logits]))[0].isfinite().nonzero().flatten().tolist()


# Case 7
def test_both_orders_of_temperature_and_top_p_can_be_had():
    for order, ids in (("huggingface", [0]), ("vllm", [0]), ("llama.cpp", [0, 1])):
        assert kept(SamplingParams(temperature=0.5, top_p=0.8, order=order), [3.0, 2.0, 1.0]) == ids


# Case 8, and the facts' example of eleven tokens
def test_both_orders_of_temperature_and_min_p_can_be_had():
    for order, count in (("huggingface", 3), ("vllm", 3), ("llama.cpp", 2)):
        assert len(kept(SamplingParams(temperature=2.0, min_p=0.1, order=order), [4.0, 2.0, 0.0])) == count
    logits = torch.tensor([0.95, *[0.005] * 10], dtype=torch.float64).log().tolist()
    for order, count in (("huggingface", 11), ("llama.cpp", 1)):
        assert len(kept(SamplingParams(temperature=2.0, min_p=0.05, order=order), logits)) == count


def test_the_pipeline_follows_the_named_engine():
    common = {"temperature": 0.5, "top_k": 9, "top_p": 0.9, "min_p": 0.1}
    t, k, p, m = Temperature(0.5), TopK(9), TopP(0.9), MinP(0.1)
    more = {"typical_p": 0.8, "epsilon": 0.01, "eta": 0.02, "top_n_sigma": 1.5}
    ty, ep, et, ns = Typical(0.8), Epsilon(0.01), Eta(0.02), TopNSigma(1.5)
    assert SamplingParams(**common, **more).pipeline() == (t, k, p, m, ty, ep, et, ns)
    assert SamplingParams(**common, order="vllm").pipeline() == (t, m, k, p)
    of_llama = SamplingParams(**common, typical_p=0.8, top_n_sigma=1.5, order="llama.cpp")
    assert of_llama.pipeline() == (ns, k, ty, p, m, t)


def test_penalties_come_before_everything_else():
    common = {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2, "temperature": 0.5}
    made = (RepetitionPenalty(1.2), FrequencyPenalty(0.3), PresencePenalty(0.2))
    for order in ORDERS:
        assert SamplingParams(**common, order=order).pipeline() == (*made, Temperature(0.5))
    banned = SamplingParams(**common, no_repeat_ngram_size=3, top_k=4).pipeline()
    assert banned == (*made, NoRepeatNGram(3), Temperature(0.5), TopK(4))


def test_what_is_none_is_off():
    assert SamplingParams().pipeline() == ()
    assert SamplingParams(top_k=5).pipeline() == (TopK(5),)


def test_greedy_skips_truncation():
    params = SamplingParams(temperature=0, typical_p=0.2, top_k=1)
    assert params.is_greedy
    assert params.pipeline() == (Temperature(0),)
    assert kept(params, np.log([0.5, 0.25, 0.125, 0.125]).tolist()) == [0]  # typical alone would keep 1
    penalised = SamplingParams(temperature=0, repetition_penalty=1.2, no_repeat_ngram_size=2, top_k=1)
    assert penalised.pipeline() == (RepetitionPenalty(1.2), NoRepeatNGram(2), Temperature(0))  # but no penalty


@pytest.mark.parametrize("order", ORDERS)
def test_a_setting_that_the_engine_lacks_is_refused(order):
    values = {
        "typical_p": 0.9,
        "epsilon": 0.01,
        "eta": 0.01,
        "top_n_sigma": 1.0,
        "min_p": 0.1,
        "top_k": 2,
        "top_p": 0.5,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.5,
        "no_repeat_ngram_size": 3,
    }
    for name, value in values.items():
        if name in ORDERS[order]:
            SamplingParams(**{name: value}, order=order)
        else:
            with pytest.raises(ValueError, match=f"{order} has no {name}: leave it None, or use order='huggingface'"):
                SamplingParams(**{name: value}, order=order)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": "exllama"}, "order='exllama' is unknown: choose one of huggingface, vllm, llama.cpp"),
        ({"seed": -1}, r"seed=-1 must be an integer from 0 to 2\*\*63 - 1, or None for a fresh one"),
        ({"seed": 2**63}, "seed=9223372036854775808 must be an integer"),
        ({"seed": 1.0}, "seed=1.0 must be an integer"),
        ({"temperature": None}, "temperature=None must be a number: 0 is greedy"),
    ],
)
def test_other_settings_that_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SamplingParams(**changes)


def test_an_unknown_setting_is_an_error():
    with pytest.raises(TypeError, match="topk"):
        SamplingParams(topk=5)


# draw


# Case 23
def test_a_token_of_probability_zero_never_comes_out():
    logits = torch.tensor([[NEVER, 0.3, NEVER, NEVER, 1.2, 0.1, NEVER]]).expand(100_000, -1)
    uniforms = torch.rand(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert set(draw(logits, uniforms).tolist()) == {1, 4, 5}


@pytest.mark.parametrize(("first", "last"), [(1, 5), (3, 3), (0, 6)])
def test_the_ends_of_the_unit_interval_are_not_special(first, last):
    """The stub that would return a banned id: 0, the largest number below 1, and each boundary itself."""
    logits = torch.full((1, 7), NEVER)
    logits[0, first] = logits[0, last] = 0.0
    cut = 0.5 if first != last else 1.0
    for u, wanted in ((0.0, first), (math.nextafter(cut, 0), first), (LAST, last)):
        assert draw(logits, [u]).tolist() == [wanted]
    if first != last:
        assert draw(logits, [0.5]).tolist() == [last]  # the sum must exceed u


def test_a_uniform_number_of_one_is_refused():
    for uniforms in ([1.0], [-0.1], [math.nextafter(1, 2)], [0.1, 0.2], []):
        with pytest.raises(ValueError, match=r"must be 1 numbers in \[0, 1\), one per row"):
            draw(torch.zeros(1, 3), uniforms)


def test_nan_is_no_uniform_number():
    with pytest.raises(ValueError, match=r"uniforms=\[nan\] must be"):
        draw(torch.zeros(1, 3), [math.nan])


@pytest.mark.parametrize("logits", [[[math.nan, 0.0]], [[NEVER, NEVER]], [[math.inf, 0.0]]])
def test_logits_that_are_no_distribution_are_refused(logits):
    with pytest.raises(ValueError, match="row 0 of the logits"):
        draw(torch.tensor(logits), [0.5])


# Case 24
def test_each_row_is_drawn_from_its_own_distribution():
    logits = torch.full((2, 5), NEVER)
    logits[0, 1] = logits[1, 3] = 0.0
    assert draw(logits, [0.9, 0.1]).tolist() == [1, 3]


def test_settings_belong_to_their_row():
    """Row 0 takes its best token alone; row 1 keeps its full support, and is drawn as if alone."""
    model = TableModel([[0.0, 0.1, 0.2, 0.3]] * 4)
    ids = torch.tensor([[0], [0]])
    narrow, free = SamplingParams(top_k=1, seed=3), SamplingParams(seed=4)
    both = generate(model, ids, max_new_tokens=40, params=[narrow, free]).new_token_ids
    assert both[0].tolist() == [3] * 40
    assert set(both[1].tolist()) == {0, 1, 2, 3}
    assert torch.equal(both[1:], generate(model, ids[:1], max_new_tokens=40, params=free).new_token_ids)


@settings(max_examples=500)
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=8), st.integers(0, 2**53 - 1))
def test_draw_is_the_inverse_of_the_cumulative_distribution(sixteenths, u):
    """By exact fractions of the float64 weights; -40 stands for a filtered token."""
    z = [NEVER if n == -40 else n / 16 for n in sixteenths]
    if max(z) == NEVER:
        z[0] = 0.0
    weights = [Fraction(x) for x in np.exp(np.array(z) - max(z)).tolist()]
    u = Fraction(u, 2**53)
    sums = [sum(weights[: i + 1]) / sum(weights) for i in range(len(z))]
    if min(abs(s - u) for s in sums) > Fraction(1, 10**12):  # not on a boundary
        expected = next(i for i, s in enumerate(sums) if s > u)
        assert draw(torch.tensor([z], dtype=torch.float64), [float(u)]).tolist() == [expected]


def test_sums_over_a_whole_vocabulary_are_not_rounded():
    """In the middle of each token's share, of 49,152, the token is drawn; float32 sums would miss it."""
    logits = torch.full((1, 49_152), -18.0)
    logits[0, 0] = 0.0
    share = math.exp(logits[0, 1].item())
    ids = [1, 5_000, 20_000, 40_000, 49_151]
    uniforms = [(1 + (i - 0.5) * share) / (1 + 49_151 * share) for i in ids]
    assert draw(logits.expand(5, -1), uniforms).tolist() == ids


def test_draws_have_the_frequencies_of_the_distribution():
    """Hoeffding's bound over all tokens: a right sampler fails with probability below 1e-6; and the seed is fixed."""
    n, probs = 400_000, torch.tensor([0.5, 0.0, 0.25, 0.15, 0.1], dtype=torch.float64)
    uniforms = torch.rand(n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    counts = draw(probs.log().expand(n, -1), uniforms).bincount(minlength=5)
    tolerance = math.sqrt(math.log(2 * 5 / 1e-6) / (2 * n))
    assert ((counts / n - probs).abs() < tolerance).all()
    assert ((counts / n - torch.tensor([0.5, 0.0, 0.25, 0.16, 0.09])).abs() > tolerance).any()  # it can fail


def test_rows_of_one_request_are_draws_of_the_distribution():
    """The same bound on the first tokens of 2,000 rows, whose streams differ only by their row number."""
    n, probs = 2_000, torch.tensor([0.6, 0.3, 0.1])
    model = TableModel(probs.log().expand(3, 3))
    prompt = torch.zeros(n, 1, dtype=torch.int64)
    first, second = generate(model, prompt, max_new_tokens=2, params=SamplingParams(seed=11)).new_token_ids.T
    tolerance = math.sqrt(math.log(2 * 9 / 1e-6) / (2 * n))
    joint = (3 * first + second).bincount(minlength=9).view(3, 3) / n
    assert ((joint - probs[:, None] * probs).abs() < tolerance).all()  # two tokens of a row are independent


# Case 25, and the recipe that the browser follows


def recipe(seed, row, count):
    """Row r of a call with seed s: a generator seeded by the r-th draw of a generator seeded with s."""
    seeds, generator = torch.Generator().manual_seed(seed), torch.Generator()
    for _ in range(row + 1):
        number = torch.rand((), generator=seeds, dtype=torch.float64)
    generator.manual_seed(int(number * 2**32))
    return [torch.rand((), generator=generator, dtype=torch.float64).item() for _ in range(count)]


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_streams_follow_the_recipe_whatever_the_batch(rows):
    """Also for 16 rows and more, where a vectorised random generator could change its order."""
    uniforms = Uniforms([42] * rows, range(rows))
    numbers = torch.stack([uniforms.next() for _ in range(5)], 1)
    assert numbers.dtype == torch.float64
    assert numbers.tolist() == [recipe(42, row, 5) for row in range(rows)]
    assert numbers.unique().numel() == 5 * rows


def test_a_row_has_its_tokens_whatever_its_neighbours():
    model = TableModel(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))
    seeded, fresh = SamplingParams(seed=42), SamplingParams()
    prompt = torch.tensor([[2]])
    alone = generate(model, prompt, max_new_tokens=16, params=seeded).new_token_ids
    beside = generate(model, torch.tensor([[2], [5]]), max_new_tokens=16, params=[seeded, fresh]).new_token_ids
    second = generate(model, torch.tensor([[5], [2]]), max_new_tokens=16, params=[fresh, seeded]).new_token_ids
    again = generate(model, prompt, max_new_tokens=16, params=seeded).new_token_ids
    assert alone.tolist() == again.tolist() == beside[:1].tolist() == second[1:].tolist()
    batch = generate(model, prompt.expand(20, -1), max_new_tokens=16, params=seeded).new_token_ids
    assert torch.equal(batch[:1], alone)
    assert torch.equal(generate(model, prompt.expand(3, -1), max_new_tokens=16, params=seeded).new_token_ids, batch[:3])
    assert len({tuple(row) for row in batch.tolist()}) == 20  # rows of one request are different texts


def test_no_seed_is_fresh_each_time():
    model = TableModel(torch.zeros(50, 50))
    texts = [generate(model, torch.tensor([[0]]), max_new_tokens=20).new_token_ids.tolist() for _ in range(2)]
    assert texts[0] != texts[1]  # equal with probability 50 ** -20


@pytest.mark.parametrize("seed", [None, 7])
def test_the_global_seed_is_neither_used_nor_moved(seed):
    model = TableModel(torch.zeros(50, 50))
    torch.manual_seed(123)
    before = torch.get_rng_state()
    first = generate(model, torch.tensor([[0]]), max_new_tokens=20, params=SamplingParams(seed=seed)).new_token_ids
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    second = generate(model, torch.tensor([[0]]), max_new_tokens=20, params=SamplingParams(seed=seed)).new_token_ids
    assert (first.tolist() == second.tolist()) == (seed is not None)
