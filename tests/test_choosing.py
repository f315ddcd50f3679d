"""Choosing among answers, and measures of texts, against counts by hand, brute force and the loop without sharing."""

import itertools
import math
import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_models import ScriptModel, TableModel, random_ids, tiny_model

from minigpt.choosing import (
    EntropyTemperature,
    best_of_n,
    best_of_n_kl,
    distinct_n,
    majority_vote,
    minimum_bayes_risk,
    pass_at_k,
    repeated_windows,
    token_f1,
)
from minigpt.generation import generate, token_log_probs
from minigpt.processors import Temperature
from minigpt.sampling import SamplingParams

TABLE = torch.randn(7, 7, generator=torch.Generator().manual_seed(1))
SEED = SamplingParams(seed=3)


def drawn(groups):
    """What was drawn, whatever its order."""
    return [sorted((c.token_ids, c.finish_reason) for c in group) for group in groups]


def test_answers_are_those_of_generate_without_sharing():
    """Rows that lost their prompt, or saw a neighbour's, would say something else."""
    model, ids = tiny_model(), random_ids(1, 2, 9)
    groups = best_of_n(model, ids, n=4, max_new_tokens=6, params=SEED)
    plain = generate(model, ids.repeat_interleave(4, 0), max_new_tokens=6, params=SEED)
    expected = [[(tuple(row), "length") for row in rows] for rows in plain.new_token_ids.view(2, 4, 6).tolist()]
    assert drawn(groups) == [sorted(rows) for rows in expected]
    for prompt, group in zip(ids, groups, strict=True):
        assert [c.score for c in group] == sorted((c.score for c in group), reverse=True)
        for c in group:
            log_probs = token_log_probs(model, torch.cat((prompt, torch.tensor(c.token_ids)))[None])[0, 8:]
            assert c.sum_log_prob == pytest.approx(float(log_probs.sum()), abs=1e-4)
            assert c.score == c.mean_log_prob == pytest.approx(c.sum_log_prob / 6)


@pytest.mark.parametrize("pads", [3, 8])  # 8 leave one token: nothing of that prompt can be shared
def test_ragged_prompts_are_those_alone(pads):
    model, ids = tiny_model(dtype=torch.float64), random_ids(2, 2, 9)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :pads] = False
    both = best_of_n(model, ids, n=3, max_new_tokens=5, params=SEED, attention_mask=mask)
    alone = best_of_n(model, ids[:1, pads:], n=3, max_new_tokens=5, params=SEED)
    assert drawn(both)[0] == drawn(alone)[0]
    assert [c.score for c in both[0]] == pytest.approx([c.score for c in alone[0]], abs=1e-9)


def test_the_prompt_goes_through_the_model_once():
    model = TableModel(TABLE)
    best_of_n(model, torch.tensor([[1, 2, 3, 4, 5]]), n=6, max_new_tokens=3, params=SEED)
    assert model.tokens == 4 + 6 * 3
    model = TableModel(TABLE)
    best_of_n(model, torch.tensor([[1]]), n=6, max_new_tokens=3, params=SEED)
    assert model.tokens == 6 * 3


def test_more_answers_go_on_where_fewer_stopped():
    model, ids = TableModel(TABLE), torch.tensor([[1, 2]])
    few, many = (best_of_n(model, ids, n=n, max_new_tokens=4, params=SEED)[0] for n in (3, 8))
    assert set(drawn([few])[0]) <= set(drawn([many])[0])
    assert many[0].score >= few[0].score


def test_eos_counts_in_the_probability_and_is_not_shown_to_the_score():
    """Row 0 says 1 2 EOS, row 1 says 3 EOS, row 2 never ends; logits 8 for the wanted token of 7, else 0."""
    model = ScriptModel([[1, 2, 0, 0], [3, 0, 0, 0], [4, 4, 4, 4]], prompt_length=2, vocab_size=7)
    shown = []

    def shortest(ids):
        shown.append(ids)
        return -len(ids)

    settings = {"max_new_tokens": 4, "params": SamplingParams(0.1, seed=0), "eos_token_id": 0, "pad_token_id": 6}
    (group,) = best_of_n(model, torch.tensor([[5, 5]]), n=3, score=shortest, **settings)
    assert shown == [[1, 2], [3], [4, 4, 4, 4]]
    assert [c.token_ids for c in group] == [(3, 0), (1, 2, 0), (4, 4, 4, 4)]
    assert [c.finish_reason for c in group] == ["eos", "eos", "length"]
    wanted = 8 - math.log(math.exp(8) + 6)
    assert [c.sum_log_prob for c in group] == pytest.approx([2 * wanted, 3 * wanted, 4 * wanted], abs=1e-5)
    assert [c.mean_log_prob for c in group] == pytest.approx([wanted] * 3, abs=1e-6)


def test_an_answer_ends_with_the_context():
    model = TableModel(TABLE, context_length=6)
    mask = torch.tensor([[True] * 4, [False, False, True, True]])
    groups = best_of_n(model, torch.ones(2, 4, dtype=torch.int64), n=2, max_new_tokens=9, attention_mask=mask)
    assert [[len(c.token_ids) for c in group] for group in groups] == [[2, 2], [4, 4]]
    assert {c.finish_reason for group in groups for c in group} == {"context"}


def test_a_verifier_decides_and_likelihood_breaks_its_ties():
    model, ids = TableModel(TABLE), torch.tensor([[1, 2]])
    (group,) = best_of_n(model, ids, n=16, max_new_tokens=2, params=SEED, score=lambda ids: ids[-1] == 4)
    assert [c.score for c in group] == sorted((float(c.token_ids[-1] == 4) for c in group), reverse=True)
    assert 0 < sum(c.score for c in group) < 16
    for right in (0.0, 1.0):
        likely = [c.mean_log_prob for c in group if c.score == right]
        assert likely == sorted(likely, reverse=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n=0 must be an integer, at least 1"),
        ({"n": 2.0}, "n=2.0 must be an integer"),
        ({"params": SamplingParams(0)}, "T above 0"),
        ({"params": [SEED]}, "one SamplingParams"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 with room for 62: an answer needs at least 1 token"),
        ({"score": lambda ids: float("nan")}, "score gave nan for answer 0"),
        ({"token_ids": torch.ones(1, 64, dtype=torch.int64)}, "max_new_tokens=2 with room for 0"),
        ({"token_ids": torch.ones(2, dtype=torch.int64)}, "give"),
    ],
)
def test_best_of_n_says_what_is_wrong(change, message):
    settings = {"token_ids": torch.tensor([[1, 2]]), "n": 2, "max_new_tokens": 2} | change
    with pytest.raises(ValueError, match=message):
        best_of_n(TableModel(TABLE), settings.pop("token_ids"), **settings)


def exact_kl(probs, n):
    """KL of best-of-n from the model, for answers in order of rising score, all scores different."""
    below = torch.tensor([0.0, *probs], dtype=torch.float64).cumsum(0)
    best = (below[1:] ** n - below[:-1] ** n).clamp_min(1e-300)
    return float((best * (best / torch.tensor(probs, dtype=torch.float64)).log()).sum())


@pytest.mark.parametrize("n", [1, 2, 4, 16, 64])
def test_kl_of_best_of_n_stays_below_the_bound(n):
    assert exact_kl([0.5, 0.3, 0.2], n) <= best_of_n_kl(n) + 1e-12
    assert exact_kl([0.5, 0.5], n) <= math.log(2) + 1e-12
    many = [1e-5] * 100_000
    assert exact_kl(many, n) == pytest.approx(best_of_n_kl(n), abs=1e-3)  # rare answers, different scores


def test_values_of_the_bound():
    assert best_of_n_kl(1) == 0
    assert best_of_n_kl(4) == pytest.approx(0.6363, abs=5e-5)
    with pytest.raises(ValueError, match="n=0 must be"):
        best_of_n_kl(0)


@pytest.mark.parametrize(
    ("answers", "result"),
    [
        ([12, 13, 12], (12, 2)),
        ([13, 12, 12, 13], (13, 2)),  # a tie: the first seen
        ([None, None, 5], (5, 1)),
        ([None, None], (None, 0)),
        (("a",), ("a", 1)),
        ((x for x in "abb"), ("b", 2)),
    ],
)
def test_majority_vote(answers, result):
    assert majority_vote(answers) == result


def test_a_vote_needs_a_voter():
    with pytest.raises(ValueError, match="nothing to count"):
        majority_vote([])


ANSWERS = st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=12)


@given(ANSWERS.filter(any))
def test_minimum_bayes_risk_with_equality_is_the_vote(answers):
    index, agreement = minimum_bayes_risk(answers, operator.eq)
    winner, count = majority_vote(answers)
    assert answers[index] == winner
    assert index == answers.index(winner)
    assert agreement == pytest.approx(count / sum(a is not None for a in answers))


def test_minimum_bayes_risk_finds_the_middle():
    """No two texts are equal, so a vote takes the first; the third shares most with the others."""
    texts = ["a dog ran", "the cat sat", "the dog sat", "the dog slept"]
    index, utility = minimum_bayes_risk(texts)
    assert index == 2
    assert utility == pytest.approx((1 / 3 + 2 / 3 + 1 + 2 / 3) / 4)
    assert majority_vote(texts) == ("a dog ran", 1)
    assert minimum_bayes_risk([None, [1, 2], [1, 3], [1, 2]])[0] == 1


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ("the cat", "the cat", 1),
        ("the the cat", "the dog", 0.4),
        ("a", "b", 0),
        ("", "", 1),
        ("", "a", 0),
        ([1, 2], [2, 3], 0.5),
    ],
)
def test_token_f1(a, b, value):
    assert token_f1(a, b) == token_f1(b, a) == pytest.approx(value)


def test_what_has_no_risk_is_refused():
    with pytest.raises(ValueError, match="no answer"):
        minimum_bayes_risk([None])
    with pytest.raises(ValueError, match="utility gave nan"):
        minimum_bayes_risk(["a"], lambda a, b: float("nan"))


def test_pass_at_k_of_the_facts():
    assert [round(pass_at_k(20, 3, k), 4) for k in (1, 5, 10)] == [0.15, 0.6009, 0.8947]


def test_pass_at_k_is_the_share_of_all_choices():
    for n in range(1, 9):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            choices = list(itertools.combinations(range(n), k))
            share = sum(min(choice) < c for choice in choices) / len(choices)
            assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.8])
def test_pass_at_k_is_unbiased_and_the_naive_one_is_not(p):
    """Expected over every possible count of right answers; the naive formula is too low."""
    n, k = 10, 4
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    truth = 1 - (1 - p) ** k
    assert sum(w * pass_at_k(n, c, k) for c, w in enumerate(weights)) == pytest.approx(truth, abs=1e-12)
    assert sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(weights)) < truth - 0.001


def test_pass_at_k_of_many_tries():
    assert pass_at_k(100_000, 3, 50_000) == pytest.approx(0.875, abs=1e-4)  # C(100000, 50000) is no float
    assert pass_at_k(100_000, 100_000, 1) == 1
    assert pass_at_k(100_000, 0, 99_999) == 0


@pytest.mark.parametrize("numbers", [(20, 21, 1), (20, -1, 1), (20, 3, 0), (20, 3, 21), (20, 3.0, 1), (0, 0, 1)])
def test_pass_at_k_says_what_is_wrong(numbers):
    n, c, k = numbers
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}: 0 <= c <= n and 1 <= k <= n"):
        pass_at_k(n, c, k)


PEAKED, FLAT = [0.97, 0.01, 0.01, 0.01], [0.25] * 4
BOTH = torch.tensor([PEAKED, FLAT], dtype=torch.float64).log()
H = [-sum(p * math.log(p) for p in probs) for probs in (PEAKED, FLAT)]


def test_edt_is_cool_where_the_model_is_sure():
    found = EntropyTemperature(1.2, 0.5).temperatures(BOTH).squeeze(1).tolist()
    assert found == pytest.approx([1.2 * 0.8 ** (0.5 / h) for h in H], rel=1e-9)
    assert found[0] < 0.7 < 1.0 < found[1] < 1.2


def test_a_negative_theta_is_cool_where_the_model_is_unsure():
    found = EntropyTemperature(1.2, -0.5).temperatures(BOTH).squeeze(1).tolist()
    assert found == pytest.approx([1.2 * 0.8 ** (0.5 * h) for h in H], rel=1e-9)
    assert found[1] < 1.1 < found[0] < 1.2


@pytest.mark.parametrize("theta", [-2.0, -0.5, 0.0, 0.5, 2.0])
def test_each_row_gets_its_own_temperature(theta):
    rule = EntropyTemperature(0.9, theta)
    logits = 3 * torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    logits[:, 7] = -torch.inf
    before = logits.clone()
    out = rule(None, logits)
    assert torch.equal(logits, before)
    for row in range(5):
        expected = Temperature(float(rule.temperatures(logits[row : row + 1])))(None, logits[row : row + 1])
        assert torch.allclose(out[row].softmax(-1), expected[0].softmax(-1), atol=1e-6)
        assert out[row, 7] == -torch.inf
    if theta == 0:
        assert torch.allclose(out, Temperature(0.9)(None, logits))


@pytest.mark.parametrize("theta", [-1e6, 1e6, 3.0])
def test_certainty_is_no_division_by_zero(theta):
    logits = torch.tensor([[5.0, -torch.inf, -torch.inf], [5.0, 4.0, 3.0]])
    probs = EntropyTemperature(1.0, theta)(None, logits).softmax(-1)
    assert torch.allclose(probs[0], torch.tensor([1.0, 0, 0]))
    assert probs.isfinite().all()
    tied = EntropyTemperature(1.0, 1e6)(None, torch.tensor([[2.0, 2.0, 1.0]])).softmax(-1)
    assert torch.allclose(tied, torch.tensor([[0.5, 0.5, 0]]))  # T → 0 shares between tied maxima


def test_entropy_temperature_in_the_loop():
    model, ids = tiny_model(), random_ids(4, 2, 5)
    cold = generate(model, ids, max_new_tokens=5, processors=(EntropyTemperature(1.0, 1e4),), params=SEED)
    greedy = generate(model, ids, max_new_tokens=5, params=SamplingParams(0))
    assert torch.equal(cold.token_ids, greedy.token_ids)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 1), "temperature=0 must be a finite number above 0"),
        ((-1.0, 1), "temperature=-1.0"),
        ((1.0, math.inf), "theta=inf must be a finite number"),
        ((1.0, None), "theta=None"),
    ],
)
def test_entropy_temperature_says_what_is_wrong(values, message):
    with pytest.raises(ValueError, match=message):
        EntropyTemperature(*values)


@pytest.mark.parametrize(
    ("text", "window", "share"),
    [
        ("abcdef", 2, 0.0),
        ("aaaa", 2, 2 / 3),  # three windows, one of them new
        ("abcabcabc", 3, 4 / 7),  # seven windows, three of them new
        ("abab", 5, 0.0),  # no window at all
        ("abab", 4, 0.0),
        ("", 1, 0.0),
        ("aab", 1, 1 / 3),
    ],
)
def test_repeated_windows_by_hand(text, window, share):
    ids = [ord(c) for c in text]
    assert repeated_windows(ids, window) == pytest.approx(share)
    assert repeated_windows(torch.tensor(ids, dtype=torch.int64), window) == pytest.approx(share)


def test_a_loop_is_mostly_windows_that_stood_there_before():
    generator = torch.Generator().manual_seed(0)
    fresh = torch.randint(50, (300,), generator=generator)
    assert repeated_windows(fresh) == 0
    assert repeated_windows(torch.cat((fresh[:50], fresh[:10].repeat(30)))) > 0.5


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_has_a_token(window):
    with pytest.raises(ValueError, match=f"window={window} must be at least 1 token"):
        repeated_windows([1, 2], window)


@pytest.mark.parametrize(
    ("texts", "n", "share"),
    [
        (["abab"], 2, 2 / 3),  # ab, ba, ab
        (["ab", "ab"], 2, 1 / 2),
        (["ab", "cd"], 2, 1.0),
        (["abc", "a"], 3, 1.0),
        (["aaa"], 1, 1 / 3),
        ([["the", "cat"], ["the", "dog"]], 1, 3 / 4),
        ([(1, 2, 3), (2, 3, 4)], 2, 3 / 4),
    ],
)
def test_distinct_n_by_hand(texts, n, share):
    assert distinct_n(texts, n) == pytest.approx(share)


def test_distinct_n_takes_rows_of_a_tensor():
    assert distinct_n(torch.tensor([[1, 2, 1], [2, 1, 2]]), 2) == pytest.approx(2 / 4)


@pytest.mark.parametrize(
    ("texts", "n", "message"),
    [
        (["ab"], 0, "n=0 must be at least 1"),
        (["ab", "c"], 3, "no text has 3 tokens: there is no 3-gram"),
        ([], 1, "no text"),
    ],
)
def test_what_cannot_be_counted_is_refused(texts, n, message):
    with pytest.raises(ValueError, match=message):
        distinct_n(texts, n)
