"""Penalties: the cases of the field, `transformers` and plain loops as references, all the way through `generate`."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_models import TableModel, random_ids, tiny_model
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from minigpt.generation import generate, generate_naive
from minigpt.processors import FrequencyPenalty, NoRepeatNGram, PresencePenalty, RepetitionPenalty
from minigpt.sampling import PENALTIES, SamplingParams, apply, bind

NEVER = -torch.inf


def ids(*rows):
    """Token ids (B, S)."""
    return torch.tensor(rows, dtype=torch.int64)


# Case 15
def test_a_negative_logit_is_multiplied():
    logits = torch.tensor([[-1.0, -2.0, 1.0]])
    assert RepetitionPenalty(2.0)(ids([0, 2]), logits).tolist() == [[-2, -2, 0.5]]
    assert torch.equal(RepetitionPenalty(1.0)(ids([0, 2]), logits), logits)
    divided = torch.where(torch.tensor([[True, False, True]]), logits / 2, logits)
    assert divided.softmax(-1)[0, 0] > logits.softmax(-1)[0, 0]  # the fault: a repeated token is rewarded


@pytest.mark.parametrize("value", [0, 0.0, -1.0])
def test_a_repetition_penalty_of_zero_or_less_is_refused(value):
    with pytest.raises(ValueError, match=f"repetition_penalty={value} must be a finite number above 0"):
        RepetitionPenalty(value)


# Case 16
def test_a_token_seen_often_is_penalised_once():
    logits = torch.tensor([[0.0, 0.0, 4.0]])
    assert RepetitionPenalty(2.0)(ids([2, 2, 2]), logits).tolist() == [[0, 0, 2]]


# Case 17
def test_frequency_and_presence_leave_the_prompt_alone():
    logits, text = torch.zeros(1, 10), ids([5, 5, 5, 7, 7, 9])
    rules = bind(SamplingParams(frequency_penalty=0.5, presence_penalty=0.2).pipeline(), prompt_length=3)
    z = apply(rules, text, logits)[0]
    assert z[[5, 7, 9]].tolist() == pytest.approx([0, -1.2, -0.7])
    assert z.count_nonzero() == 2
    assert torch.equal(apply(rules, text[:, :3], logits), logits)  # at the first step nothing changes


# Case 18
@pytest.mark.parametrize(("frequency", "presence", "value"), [(0.3, 0, -0.9), (0, 0.3, -0.3)])
def test_frequency_and_presence_are_two_numbers(frequency, presence, value):
    params = SamplingParams(frequency_penalty=frequency, presence_penalty=presence)
    z = apply(params.pipeline(), ids([3, 3, 3]), torch.zeros(1, 5))[0]
    assert z.tolist() == pytest.approx([0, 0, 0, value, 0])


@pytest.mark.parametrize("run", [generate, generate_naive])
@pytest.mark.parametrize(
    "setting", [{"frequency_penalty": 2.0}, {"presence_penalty": 2.0}, {"repetition_penalty": 2.0}]
)
def test_penalties_reach_generate(run, setting):
    """A model that always wants token 1 and next best 2: each penalty lets 2 in."""
    model = TableModel(torch.tensor([0.0, 2.0, 1.5, 0.0]).expand(4, 4))
    plain = run(model, ids([0]), max_new_tokens=4, params=SamplingParams(temperature=0))
    assert plain.new_token_ids.tolist() == [[1, 1, 1, 1]]
    made = run(model, ids([0]), max_new_tokens=4, params=SamplingParams(temperature=0, **setting))
    assert made.new_token_ids[0, :2].tolist() == [1, 2]
    assert torch.equal(made.logprobs[:, 0], plain.logprobs[:, 0])  # the model's own, before penalties


def test_no_repeat_n_gram_by_hand():
    text, logits = ids([1, 2, 3, 1, 2]), torch.zeros(1, 5)
    banned = {1: [1, 2, 3], 2: [3], 3: [3], 4: [], 6: []}
    for n, tokens in banned.items():
        z = NoRepeatNGram(n)(text, logits)[0]
        assert (z == NEVER).nonzero().flatten().tolist() == tokens


# Examples: logits of sixteenths with -inf, short texts over few tokens, some of them padded on the left.


def examples(*names):
    """`(rule, token_ids (B, S), mask (B, P), logits (B, V))` made from one draw of bytes.

    B from 2 to 4, V from 2 to 9, S from 1 to 12, P from 1 to S; a row keeps at least one column of its prompt.

    Args:
        names: which of `RULES`.
    """

    def made(raw):
        B, V, S = 2 + raw[0] % 3, 2 + raw[1] % 8, 1 + raw[2] % 12
        P = 1 + raw[3] % S
        rule = RULES[names[raw[4] % len(names)]](raw[5])
        z = np.frombuffer(raw, dtype=np.int8, offset=8)[: B * V].reshape(B, V)
        logits = torch.from_numpy(z / np.float32(16)).masked_fill(torch.from_numpy(z < -100), NEVER)
        logits[~logits.isfinite().any(-1), 0] = 0.0
        text = torch.tensor(list(raw[48 : 48 + B * S]), dtype=torch.int64).view(B, S) % V
        pads = torch.tensor(list(raw[100 : 100 + B])) % P
        return rule, text, torch.arange(P) >= pads[:, None], logits

    return st.binary(min_size=104, max_size=104).map(made)


RULES = {
    "repetition": lambda n: RepetitionPenalty((1 + n) / 64),
    "frequency": lambda n: FrequencyPenalty((n - 100) / 64),
    "presence": lambda n: PresencePenalty((n - 100) / 64),
    "n-gram": lambda n: NoRepeatNGram(1 + n % 5),
}


def unpadded(rule, text, mask, logits):
    """`rule` on each row alone, without its padding columns: the reference for padded rows."""
    rows = []
    for row in range(len(text)):
        pads = int((~mask[row]).sum())
        rows.append((rule.bind(mask.size(1) - pads), text[row : row + 1, pads:], logits[row : row + 1]))
    return rows


@settings(max_examples=2000)
@given(examples(*RULES))
def test_every_penalty(example):
    rule, text, mask, logits = example
    rule = rule.bind(mask.size(1), mask)
    clones = text.clone(), mask.clone(), logits.clone()
    z = rule(text, logits)
    for now, clone in zip((text, mask, logits), clones, strict=True):
        assert torch.equal(now, clone)  # never edited, bit for bit
    assert z.shape == logits.shape and not z.isnan().any()
    assert (z[logits == NEVER] == NEVER).all()  # what is filtered stays filtered
    for row, (alone, its_text, its_logits) in enumerate(unpadded(rule, text, mask, logits)):
        assert torch.equal(alone(its_text, its_logits)[0], z[row])  # neither padding nor neighbours count


@settings(max_examples=2000)
@given(examples(*RULES))
def test_half_precision_gives_what_its_float32_copy_gives(example):
    rule, text, mask, logits = example
    rule = rule.bind(mask.size(1), mask)
    for dtype in (torch.float16, torch.bfloat16):
        half = logits.to(dtype)
        assert rule(text, half).dtype == torch.float32
        assert torch.equal(rule(text, half), rule(text, half.float()))
    assert rule(text, logits.double()).dtype == torch.float64


@settings(max_examples=2000)
@given(examples("repetition"))
def test_repetition_against_transformers(example):
    """Bit for bit; theirs counts padding, so each row is given to it without."""
    rule, text, mask, logits = example
    theirs = RepetitionPenaltyLogitsProcessor(rule.repetition_penalty)
    assert torch.equal(rule(text, logits), theirs(text, logits))
    z = rule.bind(mask.size(1), mask)(text, logits)
    for row, (_, its_text, its_logits) in enumerate(unpadded(rule, text, mask, logits)):
        assert torch.equal(z[row], theirs(its_text, its_logits)[0])


@settings(max_examples=2000)
@given(examples("n-gram"))
def test_no_repeat_n_gram_against_transformers(example):
    rule, text, mask, logits = example
    theirs = NoRepeatNGramLogitsProcessor(rule.no_repeat_ngram_size)
    assert torch.equal(rule(text, logits), theirs(text, logits))
    z = rule.bind(mask.size(1), mask)(text, logits)
    for row, (_, its_text, its_logits) in enumerate(unpadded(rule, text, mask, logits)):
        assert torch.equal(z[row], theirs(its_text, its_logits)[0])


@settings(max_examples=2000)
@given(examples("frequency", "presence"))
def test_frequency_and_presence_against_a_plain_loop(example):
    """OpenAI's formula, logit − f · count − r · [count > 0], over the answer."""
    rule, text, mask, logits = example
    P = mask.size(1)
    z = rule.bind(P, mask)(text, logits)
    f, r = (rule.frequency_penalty, 0) if isinstance(rule, FrequencyPenalty) else (0, rule.presence_penalty)
    for row, tokens in enumerate(text[:, P:].tolist()):
        count = Counter(tokens)
        expected = [x - f * count[i] - r * (count[i] > 0) for i, x in enumerate(logits[row].tolist())]
        assert z[row].tolist() == pytest.approx(expected, abs=1e-5)


@settings(max_examples=2000)
@given(examples("frequency", "presence"))
def test_padding_is_no_answer(example):
    """Without a prompt the whole text is an answer, but for its padding."""
    rule, text, mask, logits = example
    z = rule.bind(0, mask)(text, logits)
    for row in range(len(text)):
        pads = int((~mask[row]).sum())
        assert torch.equal(z[row], rule(text[row : row + 1, pads:], logits[row : row + 1])[0])


@settings(max_examples=500)
@given(examples(*RULES))
def test_neutral_values_change_nothing(example):
    _, text, mask, logits = example
    for rule in (RepetitionPenalty(1), FrequencyPenalty(0), PresencePenalty(0), NoRepeatNGram(99)):
        assert torch.equal(rule.bind(0, mask)(text, logits), logits)


def test_the_reference_counts_padding():
    """Chapter 04 says so: its processors never see the mask."""
    text, logits = ids([2, 2, 0, 1]), torch.tensor([[-1.0, 4.0, 0.5]])  # 2 is padding
    theirs = RepetitionPenaltyLogitsProcessor(2.0)(text, logits)
    assert theirs[0, 2] == 0.25
    assert RepetitionPenalty(2.0, attention_mask=ids([0, 0, 1, 1]).bool())(text, logits)[0, 2] == 0.5


def test_the_faults_are_seen():
    """Each wrong penalty of the field gives other numbers than ours on a small example: checks can fail."""
    text, logits = ids([0, 1, 1, 1]), torch.tensor([[-1.0, 4.0, 0.5]])
    ours = RepetitionPenalty(2.0)(text, logits)
    assert ours.tolist() == [[-2, 2, 0.5]]
    count = torch.tensor([[1.0, 3.0, 0.0]])
    faults = {
        "divided whatever the sign": torch.where(count > 0, logits / 2, logits),
        "once for every occurrence": torch.where(logits > 0, logits / 2**count, logits * 2**count),
        "penalty times count subtracted": logits - 2 * count,
    }
    for name, z in faults.items():
        assert not torch.equal(z, ours), name
    padded = ids([2, 2, 0, 1])  # 2 is padding
    mask = torch.tensor([[False, False, True, True]])
    assert RepetitionPenalty(2.0)(padded, logits)[0, 2] == 0.25
    assert RepetitionPenalty(2.0, attention_mask=mask)(padded, logits)[0, 2] == 0.5


# Through generate


PARAMS = (
    SamplingParams(temperature=0, repetition_penalty=1.3),
    SamplingParams(temperature=0, frequency_penalty=0.7, presence_penalty=0.4),
    SamplingParams(temperature=0, no_repeat_ngram_size=2),
    SamplingParams(temperature=0.9, repetition_penalty=1.2, frequency_penalty=0.3, top_p=0.9, seed=5),
    SamplingParams(temperature=0),
)


@pytest.mark.parametrize("run", [generate, generate_naive])
def test_rows_of_a_batch_are_as_alone(run):
    """Ragged prompts, other settings in every row: each is what it would be without neighbours and padding."""
    model, lengths = tiny_model(), (3, 9, 1, 6, 4)
    prompts = [random_ids(n, 1, n) for n in lengths]
    text, mask = torch.zeros(5, 9, dtype=torch.int64), torch.zeros(5, 9, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        text[row, 9 - prompt.size(1) :], mask[row, 9 - prompt.size(1) :] = prompt[0], True
    made = run(model, text, max_new_tokens=30, params=PARAMS, attention_mask=mask)
    for row, prompt in enumerate(prompts):
        alone = run(model, prompt, max_new_tokens=30, params=PARAMS[row])
        assert alone.new_token_ids[0].tolist() == made.new_token_ids[row].tolist()


def test_penalties_in_generate_are_those_of_a_plain_loop():
    """Greedy with all four: every token is the argmax of penalised logits that plain Python makes."""
    model, prompt = tiny_model(), random_ids(3, 1, 6)
    theta, f, r, n = 1.3, 0.2, 0.1, 3
    params = SamplingParams(
        temperature=0, repetition_penalty=theta, frequency_penalty=f, presence_penalty=r, no_repeat_ngram_size=n
    )
    made = generate(model, prompt, max_new_tokens=40, params=params).token_ids[0].tolist()
    plain = generate(model, prompt, max_new_tokens=40, params=SamplingParams(temperature=0)).token_ids[0].tolist()
    assert made != plain
    for end in range(6, 46):
        with torch.no_grad():
            z = model(ids(made[:end]))[0, -1].tolist()
        for i in range(len(z)):
            if i in made[:end]:
                z[i] = z[i] / theta if z[i] > 0 else z[i] * theta
            z[i] -= f * made[6:end].count(i) + r * (i in made[6:end])
            gram = [*made[end - n + 1 : end], i]
            if any(made[s : s + n] == gram for s in range(end - n + 1)):
                z[i] = -math.inf
        assert made[end] == max(range(len(z)), key=z.__getitem__)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_no_n_gram_stands_twice_in_an_answer(n):
    """The vocabulary has 23 tokens: with n = 1 a text of 23 is all there is."""
    model, prompt = tiny_model(), random_ids(0, 2, 3)
    params = SamplingParams(temperature=0, no_repeat_ngram_size=n)
    text = generate(model, prompt, max_new_tokens=20 if n == 1 else 60, params=params).token_ids
    prompt_grams = [prompt[0, i : i + n].tolist() for i in range(4 - n)]
    for row in text.tolist():
        grams = [row[i : i + n] for i in range(len(row) - n + 1)]
        assert sum(grams.count(g) > 1 for g in grams if g not in prompt_grams) == 0


def test_a_ban_that_leaves_nothing_is_named():
    model = TableModel(torch.zeros(3, 3))
    params = SamplingParams(temperature=0, no_repeat_ngram_size=1)
    with pytest.raises(ValueError, match="row 0 of the logits is -inf everywhere: its rules leave no token"):
        generate(model, ids([0]), max_new_tokens=3, params=params)


def test_a_finished_row_is_not_penalised_any_more():
    """Its padding would use up the tokens that a ban leaves, and the error would take its neighbours along."""
    model = TableModel([[0.0, 1.0, 5.0], [0.0, 9.0, 0.0], [0.0, 0.0, 0.0]])
    params = (SamplingParams(temperature=0, no_repeat_ngram_size=1), SamplingParams(temperature=0))
    made = generate(model, ids([0], [1]), max_new_tokens=6, params=params, eos_token_id=2, pad_token_id=1)
    assert made.new_token_ids.tolist() == [[2, 1, 1, 1, 1, 1], [1] * 6]


def test_the_whole_conversation_is_the_prompt():
    """Earlier answers come in as prompt: repetition sees them, frequency does not."""
    model = TableModel(torch.tensor([0.0, 2.0, 1.5, 0.0]).expand(4, 4))
    for name, first in (("frequency_penalty", 1), ("repetition_penalty", 2)):
        params = SamplingParams(temperature=0, **{name: 2.0})
        answer = generate(model, ids([0, 1]), max_new_tokens=1, params=params)
        assert answer.new_token_ids.tolist() == [[first]]


# Errors


VALUES = {
    "repetition_penalty": ((0, -1, math.inf, math.nan, "1.1", True, None), "usually 1.05 to 1.3; 1 changes nothing"),
    "frequency_penalty": ((math.inf, -math.inf, math.nan, "0.5", True, None), "usually 0 to 1; 0 changes nothing"),
    "presence_penalty": ((math.inf, math.nan, "0.5", False, None), "usually 0 to 1; 0 changes nothing"),
    "no_repeat_ngram_size": ((0, -2, 2.0, 2.5, "3", True, math.nan, None), "None in SamplingParams turns it off"),
}
CLASSES = dict(zip(PENALTIES, (RepetitionPenalty, FrequencyPenalty, PresencePenalty, NoRepeatNGram), strict=True))


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, (values, _) in VALUES.items() for v in values])
def test_a_value_outside_its_range_is_refused_with_a_way_out(name, value):
    ways = [lambda: CLASSES[name](value)]
    if value is not None:  # in SamplingParams None is off
        ways.append(lambda: SamplingParams(**{name: value}))
    for make in ways:
        with pytest.raises(ValueError) as caught:
            make()
        assert str(caught.value).startswith(f"{name}={value!r} must be ")
        assert VALUES[name][1] in str(caught.value)


@pytest.mark.parametrize(
    "rule", [RepetitionPenalty(1.2), FrequencyPenalty(0.5), PresencePenalty(0.5), NoRepeatNGram(2)]
)
def test_a_text_that_does_not_fit_is_refused(rule):
    logits = torch.zeros(2, 3)
    for text, message in [
        (None, r"token_ids has shape None: \w+ needs the text so far, \(2, S\)"),
        (ids([0, 1]), r"token_ids has shape \(1, 2\): \w+ needs the text so far, \(2, S\)"),
        (torch.tensor([0, 1]), r"token_ids has shape \(2,\)"),
        (ids([0, 1], [0, 3]), "token id 3 is outside the vocabulary of 3: ids run from 0 to 2"),
        (ids([0, 1], [-1, 2]), "token id -1 is outside the vocabulary of 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            rule(text, logits)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(3, 2\): bind one row per text, \(2, P\)"):
        rule.bind(2, torch.ones(3, 2).bool())(ids([0, 1], [1, 2]), logits)
    for length in (-1, 1.5, True):
        with pytest.raises(ValueError, match=f"prompt_length={length!r} must be an integer of at least 0"):
            rule.bind(length)
    assert torch.equal(rule(torch.empty(2, 0, dtype=torch.int64), logits), logits)  # no text, no penalty


def test_bind_gives_a_copy():
    rule, mask = FrequencyPenalty(0.5), torch.tensor([[False, True]])
    bound = rule.bind(2, mask)
    assert (rule.prompt_length, rule.attention_mask) == (0, None)
    assert (bound.frequency_penalty, bound.prompt_length) == (0.5, 2)
    assert bound.attention_mask is mask

    def plain(token_ids, logits):
        return logits

    assert bind((plain, rule), 2, mask) == (plain, bound)
