"""The rules: the cases of the field, properties that must hold, and the processors of `transformers` as a reference."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from minigpt.processors import Epsilon, Eta, MinP, Temperature, TopK, TopNSigma, TopP, Typical, check_logits
from minigpt.sampling import SamplingParams, apply

NEVER = -torch.inf


def kept(processor, *rows):
    """Ids that stay in each row of logits; of one row, its ids alone."""
    ids = [row.isfinite().nonzero().flatten().tolist() for row in processor(None, torch.tensor(rows))]
    return ids[0] if len(rows) == 1 else ids


def logs(*probs):
    """Logits of probabilities."""
    return torch.tensor(probs, dtype=torch.float64).log().tolist()


# Case 1
def test_top_p_stops_where_the_mass_lands_exactly_on_p():
    logits = torch.tensor([logs(0.25, 0.125, 0.125, 0.5)])
    filtered = TopP(0.75)(None, logits)
    assert filtered.isfinite().tolist() == [[True, False, False, True]]
    assert filtered.softmax(-1)[0].tolist() == pytest.approx([1 / 3, 0, 0, 2 / 3])


@pytest.mark.parametrize(("mass", "count"), [(0.25, 1), (0.5, 2), (0.75, 3), (0.7500001, 4)])
@pytest.mark.parametrize("rule", [TopP, Typical])
def test_sums_that_are_exact_stop_at_the_mass_itself(rule, mass, count):
    """Four equal logits are .25 each without rounding; of the tied the lowest ids stay."""
    assert kept(rule(mass), [0.0] * 4) == list(range(count))


# Case 2
@pytest.mark.parametrize(
    ("probs", "p", "count"),
    [((0.5, 0.35, 0.10, 0.05), 0.9, 3), ((0.4, 0.3, 0.2, 0.1), 0.8, 3), ((0.5, 0.3, 0.15, 0.05), 0.6, 2)],
)
def test_top_p_keeps_the_token_that_crosses(probs, p, count):
    assert kept(TopP(p), logs(*probs)) == list(range(count))


# Case 3
def test_top_p_near_zero_is_the_argmax_and_zero_is_refused():
    assert kept(TopP(1e-8), [1.0, 3.0, 2.0]) == [1]
    with pytest.raises(ValueError, match=r"top_p=0.0 must be in \(0, 1\]; for the argmax alone use temperature=0"):
        TopP(0.0)


# Case 4
def test_top_p_of_one_changes_nothing():
    logits = 3 * torch.randn(1, 50_257, generator=torch.Generator().manual_seed(0))
    assert torch.equal(TopP(1.0)(None, logits), logits)
    probs = logits.softmax(-1).sort(descending=True).values
    assert (probs.cumsum(-1) - probs < 1.0).sum() < 50_257  # the fault: float32 sums cut the tail


# Cases 5 and 6
def test_temperature_zero_is_the_argmax():
    assert kept(Temperature(0.0), [1.0, 3.0, 2.0]) == [1]
    assert kept(Temperature(0), [3.0, 1.0, 3.0]) == [0]  # the lowest id of a tie


@pytest.mark.parametrize(("dtype", "temperature"), [(torch.float16, 1e-4), (torch.float32, 1e-40)])
def test_a_small_temperature_does_not_overflow(dtype, temperature):
    logits = torch.tensor([[12, 11.5, -3]], dtype=dtype)
    assert Temperature(temperature)(None, logits).softmax(-1).tolist() == [[1, 0, 0]]
    assert not (logits / temperature).softmax(-1).isfinite().all()  # the fault


def test_temperatures_limits():
    tied = torch.tensor([[2.0, 2.0, 1.0]])
    assert Temperature(1e-9)(None, tied).softmax(-1).tolist() == [[0.5, 0.5, 0]]  # T towards 0: uniform over the tied
    assert Temperature(1e12)(None, tied).softmax(-1)[0].tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize(
    ("temperature", "probs"),
    [
        (1, (0.6285, 0.2312, 0.1402)),
        (0.8, (0.6945, 0.1990, 0.1065)),
        (0.5, (0.8438, 0.1142, 0.0420)),
        (2, (0.4810, 0.2918, 0.2272)),
    ],
)
def test_temperature_gives_the_checked_numbers(temperature, probs):
    z = Temperature(temperature)(None, torch.tensor([[2.0, 1.0, 0.5]])).softmax(-1)[0]
    assert z.tolist() == pytest.approx(probs, abs=5e-5)
    assert (z[0] / z[1]).item() == pytest.approx(math.exp(1 / temperature), rel=1e-5)


# Case 8
def test_min_p_measures_the_distribution_it_is_given():
    logits = [4.0, 2.0, 0.0]
    warm = Temperature(2.0)(None, torch.tensor([logits]))
    assert warm.softmax(-1)[0].tolist() == pytest.approx([0.6652, 0.2447, 0.0900], abs=5e-5)
    assert kept(MinP(0.1), warm[0].tolist()) == [0, 1, 2]
    assert kept(MinP(0.1), logits) == [0, 1]
    assert kept(MinP(1.0), [4.0, 2.0, 4.0]) == [0, 2]  # the argmax and its exact ties
    assert kept(MinP(0.0), [4.0, -80.0, 4.0]) == [0, 1, 2]


# Case 9
def test_rules_in_a_chain_renormalise():
    logits = torch.tensor([logs(0.15, 0.14, 0.13, 0.12, 0.11, 0.10, 0.09, 0.08, 0.08)])
    assert apply((TopK(1), TopP(0.8)), None, logits).softmax(-1).tolist() == [[1] + [0] * 8]


# Case 10
def test_top_k_above_the_vocabulary_keeps_all():
    assert kept(TopK(100), [1.0, 5.0, 2.0, 4.0, 3.0]) == [0, 1, 2, 3, 4]


# Case 11
def test_filtered_is_minus_infinity():
    assert TopK(1)(None, torch.tensor([[-5.0, -6.0, -7.0]])).softmax(-1).tolist() == [[1, 0, 0]]


# Case 12
def test_top_k_keeps_exactly_k_where_logits_tie():
    tied = [1.0, 2.0, 2.0, 2.0, 3.0]
    assert kept(TopK(3), tied) == [1, 2, 4]  # of the tied the lowest ids
    assert kept(TopK(3), *[[5.0, 1.0, 0.0, 1.0, 1.0]] * 4, tied, *[[0.0] * 5] * 4)[4] == [1, 2, 4]
    assert kept(TopK(1), [-2, -1, 0, 0.8, 0, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7, -3]) == [3]


# Case 13
@pytest.mark.parametrize(("mass", "ids"), [(0.2, [1]), (0.6, [0, 1]), (0.8, [0, 1, 2]), (0.95, [0, 1, 2, 3])])
def test_typical_takes_the_nearest_to_the_entropy_first(mass, ids):
    assert kept(Typical(mass), logs(0.5, 0.25, 0.125, 0.125)) == ids  # at .2 not the argmax


def test_typical_near_and_at_one():
    logits = torch.tensor([logs(0.5, 0.25, 0.125, 0.125)], dtype=torch.bfloat16)
    assert Typical(0.9999)(None, logits).isfinite().all()
    assert torch.equal(Typical(1.0)(None, logits), logits.float())


# Case 20
EVERY = (
    Temperature(0.5),
    Temperature(0),
    TopK(2),
    TopP(0.5),
    MinP(0.4),
    Typical(0.5),
    Epsilon(0.3),
    Eta(0.3),
    TopNSigma(0.5),
)


@pytest.mark.parametrize("processor", EVERY, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_input_stays_as_it_is(processor, dtype):
    logits = torch.tensor([[1.0, 3.0, NEVER, 2.0, -1.0], [0.0, 0.5, 1.0, 0.25, -4.0]], dtype=dtype)
    clone = logits.clone()
    processed = processor(None, logits)
    assert torch.equal(logits, clone)
    assert not torch.equal(processed, clone.to(processed.dtype))  # raw and processed are not the same numbers


# Case 21
def test_a_redraw_does_not_apply_temperature_again():
    raw, rule = torch.tensor([[2.0, 0.0]]), Temperature(0.5)
    assert [rule(None, raw).softmax(-1)[0, 0].item() for _ in range(3)] == pytest.approx([0.98201] * 3, abs=5e-6)
    assert rule(None, rule(None, raw)).softmax(-1)[0, 0].item() == pytest.approx(0.99966, abs=5e-6)  # the fault


# Case 22
def test_a_chain_speaks_of_vocabulary_ids():
    logits = torch.tensor([[2, 1, 3, -5, -23, 12.5]])
    assert apply((TopK(3), TopP(0.99)), None, logits).isfinite().nonzero().tolist() == [[0, 5]]


def test_epsilon_keeps_the_argmax_of_a_flat_distribution():
    assert kept(Epsilon(0.25), logs(0.2, 0.3, 0.5)) == [1, 2]
    assert kept(Epsilon(0.9), logs(0.2, 0.45, 0.35)) == [1]


def test_eta_sinks_where_the_distribution_is_flat():
    """The floor is min(eta, sqrt(eta) exp(-H)), with the entropy in nats."""
    flat, peaked = [0.0] * 100, logs(0.97, 0.02, 0.01)
    assert kept(Eta(0.0004), flat) == list(range(100))  # floor 0.02 / 100, not 0.0004
    entropy = -sum(p * math.log(p) for p in (0.97, 0.02, 0.01))
    floor = min(0.015, math.sqrt(0.015) * math.exp(-entropy))
    assert 0.01 < floor < 0.02
    assert kept(Eta(0.015), peaked) == [0, 1]


def test_top_n_sigma_does_not_count_what_is_filtered():
    assert kept(TopNSigma(1.0), [2.0, 1.0, 0.0]) == [0]  # sigma = .816
    assert kept(TopNSigma(1.0), [2.0, 1.0, 0.0, NEVER]) == [0]
    assert kept(TopNSigma(1.3), [2.0, 1.0, 0.0, NEVER]) == [0, 1]
    assert kept(TopNSigma(0.1), [1.0, 1.0]) == [0, 1]


SETTINGS = {
    "temperature": (Temperature, (-0.1, -math.inf, math.inf, math.nan, "1", True, None), "0 is greedy"),
    "top_k": (TopK, (0, -1, 2.0, 2.5, "3", True, math.nan), "None in SamplingParams turns it off"),
    "top_p": (TopP, (0, 0.0, -0.1, 1.0001, math.nan, "x", True), "use temperature=0"),
    "min_p": (MinP, (-0.01, 1.01, math.nan, math.inf, "x"), "0 keeps everything"),
    "typical_p": (Typical, (0, -0.5, 1.5, math.nan, "x"), "1 keeps everything"),
    "epsilon": (Epsilon, (0, 1, 1.0, -0.1, 2, math.nan, "x"), "None turns it off"),
    "eta": (Eta, (0, 1, 1.0, -0.1, 2, math.nan, "x"), "None turns it off"),
    "top_n_sigma": (TopNSigma, (0, -1, math.inf, math.nan, "x"), "None turns it off"),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, (_, values, _) in SETTINGS.items() for v in values])
def test_a_value_outside_its_range_is_refused_with_a_way_out(name, value):
    rule, _, way_out = SETTINGS[name]
    for make in (lambda: rule(value), lambda: SamplingParams(**{name: value})):
        with pytest.raises(ValueError) as caught:
            make()
        message = str(caught.value)
        assert message.startswith(f"{name}={value!r} must be ")
        assert way_out in message


def test_the_ends_of_each_range_are_legal():
    for rule, values in (
        (Temperature, (0, 1e-300, 1e300)),
        (TopK, (1, 10**9, np.int64(3))),
        (TopP, (1e-12, 1, np.float32(0.5))),
        (MinP, (0, 1)),
        (Typical, (1e-12, 1)),
        (Epsilon, (1e-12, 0.999)),
        (Eta, (1e-12, 0.999)),
        (TopNSigma, (1e-9, 1e9)),
    ):
        for value in values:
            z = rule(value)(None, torch.tensor([[0.5, 2.0, NEVER, -1.0]]))
            assert z.softmax(-1).isfinite().all()


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([1.0, 2.0], r"shape \(2,\): processors take \(B, V\)"),
        ([[1.0, 2.0], [1.0, math.nan]], "row 1 of the logits holds a NaN"),
        ([[1.0, math.inf], [1.0, 2.0]], r"row 0 of the logits holds a NaN or \+inf"),
        ([[0.0, 2.0], [0.0, 0.0], [NEVER, NEVER]], "row 2 of the logits is -inf everywhere: its rules leave no token"),
    ],
)
@pytest.mark.parametrize("processor", EVERY, ids=repr)
def test_logits_that_are_none_are_refused(processor, logits, message):
    with pytest.raises(ValueError, match=message):
        processor(None, torch.tensor(logits))


def test_logits_come_in_float32_or_better():
    for dtype in (torch.float16, torch.bfloat16):
        assert check_logits(torch.zeros(1, 2, dtype=dtype)).dtype == torch.float32
    assert check_logits(torch.zeros(1, 2, dtype=torch.float64)).dtype == torch.float64


# Properties, on small vocabularies of sixteenths: ties are common, sums are not exact.


RULES = {
    "temperature": lambda n: Temperature((1 + n % 200) / 50),
    "top_k": lambda n: TopK(1 + n % 12),  # also above V
    "top_p": lambda n: TopP((1 + n % 63) / 64),
    "min_p": lambda n: MinP(n % 65 / 64),
    "typical": lambda n: Typical((1 + n % 63) / 64),
    "epsilon": lambda n: Epsilon((1 + n % 63) / 64),
    "eta": lambda n: Eta((1 + n % 63) / 64),
    "top_n_sigma": lambda n: TopNSigma((1 + n % 64) / 16),
}


def examples(*names, ties=True):
    """Logits (B, V) float32 and a rule, made from one draw of bytes, which is fast.

    Logits are sixteenths, some of them `-inf`, at least one finite in each row; B from 2 to 4, V from 1 to 9.

    Args:
        names: which of `RULES`; default all.
        ties: whether equal and filtered logits occur.
    """
    names = names or tuple(RULES)

    def made(raw):
        B, V, which, n = 2 + raw[0] % 3, 1 + raw[1] % 9, raw[2], raw[3]
        z = np.frombuffer(raw, dtype=np.int8, offset=4)[: B * V].reshape(B, V)
        rule, logits = RULES[names[which % len(names)]](n), torch.from_numpy(z / np.float32(16))
        if not ties:
            return logits + torch.arange(V) / 1024 * math.pi, rule
        logits = torch.where(torch.from_numpy(z % 2 == 0), logits, logits.round())  # half of them coarser still
        logits = logits.masked_fill(torch.from_numpy(z < -96), NEVER)
        logits[~logits.isfinite().any(-1), 0] = 0.0
        return logits, rule

    return st.binary(min_size=40, max_size=40).map(made)


@settings(max_examples=800)
@given(examples())
def test_every_rule(example):
    logits, rule = example
    clone = logits.clone()
    z = rule(None, logits)
    assert torch.equal(logits, clone)  # never edited, bit for bit
    probs = z.softmax(-1)
    assert probs.isfinite().all()
    assert (z[logits == NEVER] == NEVER).all()  # what is filtered stays filtered
    if not isinstance(rule, Temperature):
        assert torch.equal(z.masked_fill(z == NEVER, 0), logits.masked_fill(z == NEVER, 0))  # kept as they are
    if not isinstance(rule, Typical):
        best = logits.argmax(-1, keepdim=True)
        assert (z.gather(-1, best) == z.amax(-1, keepdim=True)).all()
        assert z.gather(-1, best).isfinite().all()
    for row in range(len(logits)):  # a row does not depend on its batch
        assert torch.equal(rule(None, logits[row : row + 1]), z[row : row + 1])


@settings(max_examples=400)
@given(examples())
def test_half_precision_input_gives_what_its_float32_copy_gives(example):
    logits, rule = example
    for dtype in (torch.float16, torch.bfloat16):
        half = logits.to(dtype)
        assert torch.equal(rule(None, half), rule(None, half.float()))


@settings(max_examples=400)
@given(examples(ties=False), st.integers(0, 10**6))
def test_names_of_tokens_do_not_matter(example, seed):
    logits, rule = example
    order = torch.randperm(logits.size(1), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(rule(None, logits)[:, order], rule(None, logits[:, order]))


@settings(max_examples=400)
@given(examples("top_k", "min_p"))
def test_rules_that_do_nothing_the_second_time(example):
    """Top-p, typical, epsilon, eta and top-nσ look at a distribution that the first pass has changed."""
    logits, rule = example
    z = rule(None, logits)
    assert torch.equal(rule(None, z), z)


@settings(max_examples=400)
@given(examples("top_k", "top_p", "min_p", "typical", "epsilon", "eta", "top_n_sigma"), st.integers(1, 63))
def test_a_wider_setting_keeps_more(example, n):
    logits, rule = example
    (value,) = vars(rule).values()
    other = n if isinstance(rule, TopK) else n / 64
    narrow, wide = sorted((value, other), reverse=isinstance(rule, MinP | Epsilon | Eta))
    assert (type(rule)(narrow).keep(logits) <= type(rule)(wide).keep(logits)).all()


@settings(max_examples=300)
@given(examples("temperature"), st.integers(1, 100))
def test_temperatures_multiply(example, n):
    """T = a then T = b is T = ab, and T = a is the softmax of z / a."""
    logits, a, b = example[0], example[1].temperature, n / 25
    twice = Temperature(b)(None, Temperature(a)(None, logits)).softmax(-1)
    assert torch.allclose(twice, Temperature(a * b)(None, logits).softmax(-1), atol=1e-5)
    assert torch.allclose(Temperature(a)(None, logits).softmax(-1), (logits / a).softmax(-1), atol=1e-5)


@settings(max_examples=300)
@given(examples())
def test_neutral_settings_change_nothing(example):
    logits, _ = example
    for rule in (Temperature(1), TopP(1), Typical(1), MinP(0), TopK(logits.size(1))):
        assert torch.equal(rule(None, logits), logits)


@settings(max_examples=300)
@given(examples("top_n_sigma"), st.integers(1, 100))
def test_top_n_sigma_does_not_notice_temperature(example, t):
    logits, rule = example
    z = logits.double()
    edge = distance_to_cut(rule, z)
    warm = rule.keep(Temperature(t / 25)(None, z))
    assert ((warm == rule.keep(z)) | (edge < 1e-9)).all()


# The outside reference. Its arithmetic is given float64, so that only a cut within 1e-9 of a value may differ.


def distance_to_cut(rule, z):
    """How near the cut each token of z (B, V) float64 is, in units of its measure: below 1e-9 rounding decides."""
    probs = z.softmax(-1)
    entropy = -torch.special.xlogy(probs, probs).sum(-1, keepdim=True)
    if isinstance(rule, MinP):
        return (probs / probs.amax(-1, keepdim=True) - rule.min_p).abs()
    if isinstance(rule, Epsilon):
        return (probs - rule.epsilon).abs()
    if isinstance(rule, Eta):
        return (probs - (math.sqrt(rule.eta) * (-entropy).exp()).clamp(max=rule.eta)).abs() / 1000  # theirs in float32
    assert isinstance(rule, TopNSigma)
    finite = z.isfinite()
    count = finite.sum(-1, keepdim=True)
    zero = z.masked_fill(~finite, 0)
    mean = zero.sum(-1, keepdim=True) / count
    sigma = ((((zero - mean) ** 2) * finite).sum(-1, keepdim=True) / count).sqrt()
    return (z - z.amax(-1, keepdim=True) + rule.top_n_sigma * sigma).abs()


def same_probabilities(ours, theirs):
    """Whether two batches of filtered logits are one distribution."""
    return torch.allclose(ours.double().softmax(-1), theirs.softmax(-1), atol=1e-9)


@settings(max_examples=2000)
@given(examples("temperature"))
def test_temperature_against_transformers(example):
    logits, rule = example
    theirs = TemperatureLogitsWarper(float(rule.temperature))(None, logits.double())
    assert torch.allclose(rule(None, logits).double().softmax(-1), theirs.softmax(-1), atol=1e-6)
    assert same_probabilities(rule(None, logits.double()), theirs)


@settings(max_examples=2000)
@given(examples("top_k"))
def test_top_k_against_transformers(example):
    logits, rule = example
    ours, theirs = rule(None, logits), TopKLogitsWarper(rule.top_k)(None, logits.double())
    size = logits.isfinite().sum(-1).clamp(max=rule.top_k)
    assert torch.equal(ours.isfinite().sum(-1), size)  # exactly k, theirs may be more
    assert (ours.isfinite() <= theirs.isfinite()).all()
    same = theirs.isfinite().sum(-1) == size
    assert same_probabilities(ours[same], theirs[same])
    for z, row in zip(logits.tolist(), ours.isfinite().tolist(), strict=True):
        order = sorted(range(len(z)), key=lambda i: (-z[i], i))  # of the tied the lowest ids
        assert {i for i, stays in enumerate(row) if stays} == {i for i in order[: rule.top_k] if z[i] > NEVER}


@settings(max_examples=2000)
@given(examples("top_p"))
def test_top_p_against_transformers(example):
    logits, rule = example
    ours, theirs = rule(None, logits), TopPLogitsWarper(rule.top_p)(None, logits.double())
    sorted_probs = logits.double().softmax(-1).sort(descending=True).values
    straddled = ((sorted_probs.cumsum(-1) - rule.top_p).abs() < 1e-9).any(-1)  # a sum lands on p itself
    # Of a tie at the cut theirs takes the highest ids, ours the lowest: the same number of the same probability.
    ours, theirs, z = ours[~straddled], theirs[~straddled], logits[~straddled]
    assert torch.equal(ours.double().sort().values, theirs.sort().values)
    last = ours.masked_fill(ours == NEVER, torch.inf).amin(-1, keepdim=True)
    tied = ((z == last) & ~ours.isfinite()).any(-1)
    assert same_probabilities(ours[~tied], theirs[~tied])
    for row, stays in zip(z.tolist(), ours.isfinite().tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        assert [stays[i] for i in order] == sorted(stays, reverse=True)  # a prefix in our order


@settings(max_examples=2000)
@given(examples("typical"))
def test_typical_against_transformers(example):
    z, rule = example[0].double(), example[1]
    ours, theirs = rule(None, z), TypicalLogitsWarper(rule.typical_p)(None, z)
    log_probs = z.log_softmax(-1)
    probs = log_probs.exp()
    deviation = (-log_probs + torch.special.xlogy(probs, probs).sum(-1, keepdim=True)).abs()
    for row in range(len(z)):
        order = sorted(range(z.size(1)), key=lambda i: (round(deviation[row, i].item(), 9), i))
        mass = probs[row, order].cumsum(-1)
        if ((mass - rule.typical_p).abs() < 1e-9).any():
            continue  # a sum lands on the mass itself
        size = int((mass < rule.typical_p).sum()) + 1
        near = {round(deviation[row, i].item(), 9) for i in order[size - 1 : size + 1]}
        if len(near) == 2 or size == len(order):  # no tie straddles the cut
            assert same_probabilities(ours[row], theirs[row])
        else:  # theirs keeps every tie
            assert (ours[row].isfinite() <= theirs[row].isfinite()).all()
            if len({z[row, i].item() for i in order[size - 1 : size + 1]}) == 1:
                assert ours[row].isfinite().sum() == size


@pytest.mark.parametrize(
    ("name", "field", "warper"),
    [
        ("min_p", "min_p", MinPLogitsWarper),
        ("epsilon", "epsilon", EpsilonLogitsWarper),
        ("eta", "eta", EtaLogitsWarper),
    ],
)
def test_thresholds_against_transformers(name, field, warper):
    @settings(max_examples=2000)
    @given(examples(name))
    def check(example):
        logits, rule = example
        z = logits.double()
        theirs = warper(getattr(rule, field))(None, z)
        clear = (distance_to_cut(rule, z) > 1e-9).all(-1)
        for ours in (rule(None, z), rule(None, logits)):
            assert torch.equal(ours.isfinite()[clear], theirs.isfinite()[clear])
            assert same_probabilities(ours[clear], theirs[clear])

    check()


@settings(max_examples=2000)
@given(examples("top_n_sigma"))
def test_top_n_sigma_against_its_definition(example):
    """`transformers` has no top-nσ: the definition in plain Python."""
    logits, rule = example
    clear = (distance_to_cut(rule, logits.double()) > 1e-9).tolist()
    stays = rule(None, logits).isfinite().tolist()
    for row, z in enumerate(logits.tolist()):
        finite = [x for x in z if x > NEVER]
        mean = sum(finite) / len(finite)
        sigma = math.sqrt(sum((x - mean) ** 2 for x in finite) / len(finite))
        for i, x in enumerate(z):
            expected = x > NEVER and x >= max(finite) - rule.top_n_sigma * sigma
            assert stays[row][i] == expected or not clear[row][i]
