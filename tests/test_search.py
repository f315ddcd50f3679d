"""Beam search against all texts there are, a plain loop, `transformers`, and the faults people met."""

import itertools
import math

import pytest
import torch
from peer import llama
from toy_models import TableModel, random_ids, tiny_model

import minigpt.search
from minigpt.generation import generate
from minigpt.kv_cache import KVCache
from minigpt.processors import NoRepeatNGram, RepetitionPenalty, Temperature
from minigpt.sampling import SamplingParams
from minigpt.search import (
    Candidate,
    beam_search,
    beam_steps,
    candidates,
    diverse_beam_search,
    exact_search,
    gnmt,
    is_done,
    score_of,
    select,
)

LENGTH_PENALTIES = [-1.0, 0.0, 0.6, 1.0, 2.0]
EARLY_STOPPING = [True, False, "never"]
START = torch.tensor([[0]])


class StepModel(TableModel):
    """The logits after column j depend on j and on its token: no two texts have the same probability."""

    def __init__(self, seed, vocab_size, context_length=64):
        super().__init__(torch.zeros(vocab_size, vocab_size), context_length)
        generator = torch.Generator().manual_seed(seed)
        self.tables = 2 * torch.randn(context_length, vocab_size, vocab_size, generator=generator)

    def logits(self, token_ids, start):
        return self.tables[torch.arange(start, start + token_ids.size(1)), token_ids]


def tree(vocab_size, probs):
    """A model of the last token: `probs[t]` are the probabilities after t, what is left over is shared by the rest."""
    table = torch.zeros(vocab_size, vocab_size, dtype=torch.float64)
    for token in range(vocab_size):
        known = probs.get(token, {})
        table[token] = (1 - sum(known.values())) / max(1, vocab_size - len(known))
        for i, p in known.items():
            table[token, i] = p
    return TableModel(table.clamp(min=1e-30).log())


def texts(results):
    return [[hypothesis.token_ids for hypothesis in found] for found in results]


def scores(results):
    return [hypothesis.score for found in results for hypothesis in found]


def assert_same(ours, expected, tolerance=1e-5):
    assert texts(ours) == texts(expected)
    assert scores(ours) == pytest.approx(scores(expected), rel=tolerance, abs=tolerance)


# Case 48
BEST, SECOND, EOS = 1, 2, 3
TWO_STEPS = {0: {1: 0.6, 2: 0.4}, 1: {3: 0.3, 1: 0.35, 2: 0.35}, 2: {3: 0.9}}


def check_beams_start_apart():
    model = tree(4, TWO_STEPS)
    search = {"num_beams": 2, "max_new_tokens": 2, "length_penalty": 0, "eos_token_id": EOS}
    first, _ = beam_steps(model, START, **search)
    assert [(c.beam, c.token_id) for c in first[0].kept] == [(0, BEST), (0, SECOND)]
    best = beam_search(model, START, **search)[0][0]
    assert best.token_ids == (SECOND, EOS)
    assert best.sum_log_prob == best.score == pytest.approx(-1.0217, abs=5e-5)


def test_two_beams_find_what_greedy_misses():
    check_beams_start_apart()
    greedy = beam_search(tree(4, TWO_STEPS), START, num_beams=1, max_new_tokens=2, length_penalty=0, eos_token_id=EOS)
    assert greedy[0][0].token_ids == (1, 1)
    assert greedy[0][0].score == pytest.approx(-1.5606, abs=5e-5)


def test_beams_that_start_equal_are_found_out(monkeypatch):
    """Every beam a copy of the first: greedy search in disguise."""

    def copies(sums, log_probs, count):
        found = candidates(sums, log_probs, count)
        return tuple(c for c in found for _ in range(2)) if sums == [0.0] else found

    monkeypatch.setattr(minigpt.search, "candidates", copies)
    with pytest.raises(AssertionError):
        check_beams_start_apart()


# Case 49
@pytest.mark.parametrize(
    ("power", "short", "long"), [(-1, -4.0, -8.1), (0, -2.0, -2.7), (1, -1.0, -0.9), (2, -0.5, -0.3)]
)
def test_a_larger_length_penalty_favours_the_longer_text(power, short, long):
    assert score_of(-2.0, 2, power) == pytest.approx(short)
    assert score_of(-2.7, 3, power) == pytest.approx(long)
    a, b, c, eos = 1, 2, 3, 4
    e = math.exp
    model = tree(60, {0: {a: e(-1), b: e(-1.35)}, a: {eos: e(-1)}, b: {c: e(-1)}, c: {eos: e(-0.35)}})
    search = {"max_new_tokens": 3, "length_penalty": power, "eos_token_id": eos}
    winner = (a, eos) if short > long else (b, c, eos)
    # Without the texts of one and two tokens and of chance, which a penalty of -1 would rather have.
    best = beam_search(model, START, num_beams=2, early_stopping="never", num_return_sequences=2, **search)[0]
    assert best[0].token_ids == winner
    assert best[0].score == pytest.approx(max(short, long), abs=1e-5)
    assert exact_search(model, START, **search)[0][0] == best[0]


def test_the_penalty_of_gnmt():
    values = [gnmt(0.6)(t) for t in (1, 5, 10, 20)]
    assert values == pytest.approx([1, 1.3587, 1.7329, 2.3544], abs=5e-5)
    assert score_of(-3.0, 10, gnmt(0.6)) == -3.0 / gnmt(0.6)(10)
    assert gnmt(0)(7) == 1


@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.6, 2.0])
def test_gnmt_in_the_search(alpha):
    model, ids = tiny_model(), random_ids(0, 2, 3)
    search = {"num_beams": 3, "num_return_sequences": 3, "eos_token_id": 7, "early_stopping": "never"}
    for found in beam_search(model, ids, max_new_tokens=6, length_penalty=gnmt(alpha), **search):
        for hypothesis in found:
            t = len(hypothesis.token_ids)
            assert hypothesis.score == pytest.approx(hypothesis.sum_log_prob / ((5 + t) / 6) ** alpha)


# Case 51
def check_a_prompt_has_the_score_it_has_alone():
    model, a, b = tiny_model(), random_ids(0, 1, 3), random_ids(1, 1, 5)
    search = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 6, "length_penalty": 3.0, "eos_token_id": 7}
    alone = beam_search(model, a, **search)
    padded = torch.cat((torch.zeros(1, 2, dtype=torch.int64), a), 1)
    mask = torch.tensor([[False, False, True, True, True], [True] * 5])
    both = beam_search(model, torch.cat((padded, b)), attention_mask=mask, **search)
    assert_same(both[:1], alone)
    assert_same(both[1:], beam_search(model, b, **search))


def test_padding_does_not_count_as_length():
    check_a_prompt_has_the_score_it_has_alone()


def test_a_prompt_counted_as_length_is_found_out(monkeypatch):
    real, request = score_of, minigpt.search.Request

    class Remembering(request):
        def __init__(self, model, token_ids, **settings):
            super().__init__(model, token_ids, **settings)
            P = token_ids.size(1)
            monkeypatch.setattr(minigpt.search, "score_of", lambda total, t, lp: real(total, t + P, lp))

    monkeypatch.setattr(minigpt.search, "Request", Remembering)
    with pytest.raises(AssertionError):
        check_a_prompt_has_the_score_it_has_alone()


# Case 52
def test_the_stop_rules():
    finished = [-0.2, -0.40]

    def stops(power, early_stopping, scores=finished):
        return is_done(-1.5, 3, 10, scores, 2, power, early_stopping)

    assert stops(1, False)  # -.5 is below -.4
    assert not stops(1, "never")  # -.15 at length 10 is above
    assert stops(-1, "never")  # -4.5 at length 3 is the best it can be
    assert not is_done(-0.1, 3, 10, finished, 2, -1, "never")  # -.3 at length 3, though -1 at length 10
    assert stops(1, True)
    assert not stops(1, True, [-0.2])  # one finished text is not enough
    assert not stops(1, False, [-0.2])
    assert not is_done(-1.1, 3, 10, finished, 2, 1, False)  # -.37 is above -.4
    assert is_done(-1.1, 3, 10, finished, 2, 1, True)  # and is not asked for


def test_never_misses_no_better_text():
    """With every text in reach, the cautious rule is exact; the heuristic gives up on some."""
    missed = 0
    for seed in range(60):
        model = StepModel(seed, 4)
        search = {"max_new_tokens": 4, "length_penalty": 2.0, "eos_token_id": 3}
        exact = exact_search(model, START, **search)
        wide = {"num_beams": 100, "num_return_sequences": 1, **search}
        assert_same(beam_search(model, START, early_stopping="never", **wide), exact)
        hasty, patient = (
            beam_search(model, START, num_beams=2, early_stopping=rule, **search)[0][0].score
            for rule in (False, "never")
        )
        missed += hasty < patient
    assert missed > 0


# Case 53
def check_batch_mates_do_not_matter():
    """60 pairs of prompts; a row that is done gets no text from a neighbour that goes on."""
    ended_apart = 0
    for seed in range(60):
        model, ids = StepModel(seed, 5), torch.tensor([[0], [1]])
        search = {"num_beams": 2, "max_new_tokens": 8, "length_penalty": 2.0, "eos_token_id": 4}
        steps = list(beam_steps(model, ids, **search))
        ended_apart += len(steps[-1]) == 1
        for row in (0, 1):
            own = [step for at in steps for step in at if step.row == row]
            assert [step.is_done for step in own] == [False] * (len(own) - 1) + [True]
            alone = beam_search(model, ids[[row]], num_return_sequences=2, **search)
            assert beam_search(model, ids, num_return_sequences=2, **search)[row] == alone[0]
    assert ended_apart > 20


def test_batch_mates_do_not_matter():
    check_batch_mates_do_not_matter()


def test_a_stop_rule_of_the_whole_batch_is_found_out(monkeypatch):
    class Waiting(minigpt.search._Beams):
        def step(self, log_probs):
            super().step(log_probs)
            batch.add(self)
            self.own_rule = self.is_done
            if self.kept and not all(beams.own_rule for beams in batch):
                self.is_done = False

    batch = set()
    real = minigpt.search._steps

    def forget(*arguments):
        batch.clear()
        return real(*arguments)

    monkeypatch.setattr(minigpt.search, "_Beams", Waiting)
    monkeypatch.setattr(minigpt.search, "_steps", forget)
    with pytest.raises(AssertionError):
        check_batch_mates_do_not_matter()


# Case 54
def check_the_cache_changes_nothing(**search):
    model, ids = tiny_model(), random_ids(0, 2, 4)
    search = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 8, "eos_token_id": 7} | search
    assert_same(beam_search(model, ids, **search), beam_search(model, ids, use_cache=False, **search))


@pytest.fixture
def reorders(monkeypatch):
    """What `KVCache.reorder` was asked for, with the number of rows it had."""
    real, asked = KVCache.reorder, []

    def reorder(cache, rows):
        asked.append((cache.batch_size, list(rows)))
        real(cache, rows)

    monkeypatch.setattr(KVCache, "reorder", reorder)
    return asked


def test_the_cache_follows_the_beams(reorders):
    check_the_cache_changes_nothing()
    assert reorders[0] == (2, [0, 0, 0, 1, 1, 1])  # one prefill a prompt, then a row for each beam
    assert any(n == len(rows) and rows != sorted(rows) for n, rows in reorders)  # beams really change places
    assert all(rows != list(range(n)) for n, rows in reorders)  # nothing is moved for nothing


def test_a_beam_that_stays_in_place_is_not_moved(reorders):
    beam_search(tiny_model(), random_ids(0, 2, 4), num_beams=1, max_new_tokens=6)
    assert reorders == []


def test_a_cache_that_is_not_reordered_is_found_out(monkeypatch):
    real = KVCache.reorder

    def fan_out_only(cache, rows):
        if len(rows) != cache.batch_size:
            real(cache, rows)

    monkeypatch.setattr(KVCache, "reorder", fan_out_only)
    with pytest.raises(AssertionError):
        check_the_cache_changes_nothing()


# Case 55
def test_finished_beams_do_not_take_the_place_of_live_ones():
    a, b, eos = 1, 2, 3
    model = tree(5, {0: {eos: 0.4, a: 0.3, b: 0.2}, a: {eos: 0.5, a: 0.2}, b: {eos: 0.1, b: 0.6}})
    search = {"num_beams": 2, "max_new_tokens": 4, "eos_token_id": eos, "early_stopping": "never"}
    steps = [step for (step,) in beam_steps(model, START, **search)]
    assert [c.token_id for c in steps[0].candidates] == [eos, a, b, 0]
    assert [c.token_id for c in steps[0].ended] == [eos]
    for step in steps[:-1]:
        assert len(step.kept) == 2
        assert all(c.token_id != eos for c in step.kept)
    found = beam_search(model, START, num_return_sequences=2, **search)[0]
    assert len({h.token_ids for h in found}) == 2
    for hypothesis in found:
        assert eos not in hypothesis.token_ids[:-1]
        assert (hypothesis.finish_reason == "eos") == (hypothesis.token_ids[-1] == eos)


def test_several_eos_leave_the_width_alone():
    """Both beams end in each of two ways, and those four candidates come first: two more are looked at."""
    a, b, first_eos, second_eos = 1, 2, 3, 4
    even = {first_eos: 0.4, second_eos: 0.4, a: 0.1, b: 0.08}
    model = tree(6, {token: even for token in range(6)})
    search = {"num_beams": 2, "max_new_tokens": 4, "eos_token_id": [first_eos, second_eos], "early_stopping": "never"}
    steps = [step for (step,) in beam_steps(model, START, length_penalty=4.0, **search)]
    assert [c.token_id for c in steps[1].candidates[:4]] == [first_eos, second_eos] * 2
    assert [len(step.kept) for step in steps] == [2, 2, 2, 0]


def test_an_eos_below_the_width_is_not_kept():
    a, b, eos = 1, 2, 3
    model = tree(4, {0: {a: 0.5, b: 0.3, eos: 0.2}})
    first = next(beam_steps(model, START, num_beams=2, max_new_tokens=3, eos_token_id=eos))[0]
    assert [c.token_id for c in first.candidates] == [a, b, eos, 0]
    assert first.ended == first.finished == ()


def test_the_rule_of_one_step():
    """Ties: the lower beam, then the lower id; several EOS; a last step that cuts off."""
    log_probs = torch.tensor([[-1.0, -2.0, -torch.inf, -2.0], [-1.0, -2.0, -3.0, -torch.inf]])
    found = candidates([-1.0, -1.0], log_probs, 4)
    assert found == (Candidate(-2, 0, 0), Candidate(-2, 1, 0), Candidate(-3, 0, 1), Candidate(-3, 0, 3))
    assert len(candidates([-1.0, -1.0], log_probs, 8)) == 6
    assert select(found, 2, (0,), False) == (found[2:], found[:2])
    assert select(found, 2, (1, 3), False) == (found[:2], ())
    assert select(found, 2, (1, 3), True) == ((), found[:2])
    even = candidates([0.0] * 3, torch.zeros(3, 50), 70)
    assert [(c.beam, c.token_id) for c in even] == list(itertools.product(range(3), range(50)))[:70]


# Case 56
def test_finished_and_cut_off_texts_are_normalised_alike():
    a, b, eos = 1, 2, 3
    model = tree(4, {0: {a: 0.9}, a: {eos: 0.45, b: 0.45}})
    search = {"num_beams": 4, "num_return_sequences": 2, "max_new_tokens": 2, "eos_token_id": eos}
    ended, cut = beam_search(model, START, **search)[0]
    assert {ended.token_ids, cut.token_ids} == {(a, eos), (a, b)}
    assert {ended.finish_reason, cut.finish_reason} == {"eos", "length"}
    assert ended.score == cut.score == pytest.approx(math.log(0.9 * 0.45) / 2, abs=1e-6)


# Greedy and exact


def test_greedy_is_local():
    """For "the" .5, "dog" .4 against "a" .4, "cat" .95; the usual .5 × .9 against .4 × .95 is no counterexample."""
    the, a, dog, cat = 1, 2, 3, 4
    model = tree(8, {0: {the: 0.5, a: 0.4}, the: {dog: 0.4}, a: {cat: 0.95}})
    greedy = beam_search(model, START, num_beams=1, max_new_tokens=2)[0][0]
    assert greedy.token_ids == (the, dog)
    assert math.exp(greedy.sum_log_prob) == pytest.approx(0.20)
    for best in (
        beam_search(model, START, num_beams=2, max_new_tokens=2),
        exact_search(model, START, max_new_tokens=2),
    ):
        assert best[0][0].token_ids == (a, cat)
        assert math.exp(best[0][0].sum_log_prob) == pytest.approx(0.38)
    common = tree(8, {0: {the: 0.5, a: 0.4}, the: {dog: 0.9}, a: {cat: 0.95}})
    assert exact_search(common, START, max_new_tokens=2)[0][0].token_ids == (the, dog)


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("eos", [None, 7, [3, 7]])
def test_one_beam_is_greedy(early_stopping, eos):
    for seed in range(5):
        model, ids = tiny_model(seed), random_ids(seed, 3, 4)
        found = beam_search(model, ids, num_beams=1, max_new_tokens=9, eos_token_id=eos, early_stopping=early_stopping)
        greedy = generate(model, ids, max_new_tokens=9, eos_token_id=eos, params=SamplingParams(temperature=0))
        for (hypothesis,), tokens, logprobs, reason in zip(
            found, greedy.new_token_ids.tolist(), greedy.logprobs, greedy.finish_reasons, strict=True
        ):
            n = len(hypothesis.token_ids)
            assert list(hypothesis.token_ids) == tokens[:n]
            assert set(tokens[n:]) <= {7, 3}  # padding
            assert hypothesis.sum_log_prob == pytest.approx(float(logprobs.sum()), rel=1e-5, abs=1e-5)
            assert hypothesis.finish_reason == reason


@pytest.mark.parametrize("seed", range(200))
def test_beams_as_wide_as_the_tree_are_exact(seed):
    vocab_size, length = [(3, 3), (4, 2), (2, 5), (5, 3)][seed % 4]
    model, ids = StepModel(seed, vocab_size), torch.tensor([[0], [1]])
    search = {
        "max_new_tokens": length,
        "length_penalty": [*LENGTH_PENALTIES, gnmt(0.6)][seed % 6],
        "eos_token_id": vocab_size - 1 if seed % 3 else None,
        "num_return_sequences": 7,
    }
    exact = exact_search(model, ids, **search)
    beams = beam_search(model, ids, num_beams=vocab_size**length, early_stopping="never", **search)
    assert_same(beams, exact)


@pytest.mark.parametrize("power", LENGTH_PENALTIES)
def test_exact_search_against_every_text_written_out(power):
    """Each text scored by itself with the whole of it through the model."""
    model, ids, eos, length = tiny_model(vocab_size=5), random_ids(0, 2, 3, vocab_size=5), 4, 3
    found = exact_search(
        model, ids, max_new_tokens=length, length_penalty=power, eos_token_id=eos, num_return_sequences=500
    )
    for prompt, hypotheses in zip(ids.tolist(), found, strict=True):
        every = {}
        for new in itertools.product(range(5), repeat=length):
            new = new[: new.index(eos) + 1] if eos in new else new
            with torch.no_grad():
                log_probs = model(torch.tensor([[*prompt, *new]]))[0].log_softmax(-1)
            total = sum(float(log_probs[len(prompt) - 1 + i, token]) for i, token in enumerate(new))
            every[new] = total / len(new) ** power
        assert len(hypotheses) == len(every) == 1 + 4 + 16 * 5
        assert {h.token_ids: pytest.approx(h.score, rel=1e-5, abs=1e-5) for h in hypotheses} == every
        assert scores([hypotheses]) == sorted(scores([hypotheses]), reverse=True)


def test_exact_search_with_padding_and_a_full_context():
    model = tiny_model(vocab_size=4, context_length=5)
    ids, mask = random_ids(3, 2, 4, vocab_size=4), torch.tensor([[False, True, True, True], [True] * 4])
    search = {"max_new_tokens": 3, "eos_token_id": 3, "num_return_sequences": 4}
    exact = exact_search(model, ids, attention_mask=mask, **search)
    assert {h.finish_reason for h in exact[0]} <= {"eos", "context"}
    assert max(len(h.token_ids) for h in exact[0]) == 2
    assert max(len(h.token_ids) for h in exact[1]) == 1
    wide = beam_search(model, ids, attention_mask=mask, num_beams=64, early_stopping="never", **search)
    assert_same(wide, exact)
    assert [[h.finish_reason for h in row] for row in wide] == [[h.finish_reason for h in row] for row in exact]


# The outside reference


def peer_search(peer, ids, mask, **settings):
    """Texts (padding cut off) and scores of `transformers`, a list of pairs a prompt."""
    found = peer.generate(
        ids,
        attention_mask=mask.long(),
        do_sample=False,
        pad_token_id=22,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    pairs = list(zip(found.sequences[:, ids.size(1) :].tolist(), found.sequences_scores.tolist(), strict=True))
    each = settings["num_return_sequences"]
    return [pairs[i : i + each] for i in range(0, len(pairs), each)]


def assert_like_peer(ours, theirs):
    for hypotheses, pairs in zip(ours, theirs, strict=True):
        for hypothesis, (tokens, score) in zip(hypotheses, pairs, strict=True):
            n = len(hypothesis.token_ids)
            assert list(hypothesis.token_ids) == tokens[:n]
            assert set(tokens[n:]) <= {22}
            assert hypothesis.score == pytest.approx(score, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("early_stopping", EARLY_STOPPING)
@pytest.mark.parametrize("power", LENGTH_PENALTIES)
def test_against_transformers(power, early_stopping):
    """Widths 2 to 5, EOS on and off, one and several; ragged prompts; cache on and off."""
    for width, eos in ((2, [7]), (3, None), (3, [7]), (4, [3, 7, 9]), (5, [7])):
        model, ids = tiny_model(width), random_ids(width, 3, 5)
        mask = torch.ones(3, 5, dtype=torch.bool)
        mask[0, :2], mask[2, :4] = False, False
        search = {
            "num_beams": width,
            "num_return_sequences": min(3, width),
            "max_new_tokens": 8,
            "length_penalty": power,
            "early_stopping": early_stopping,
            "eos_token_id": eos,
        }
        theirs = peer_search(llama(model), ids, mask, **search)
        for use_cache in (True, False):
            assert_like_peer(beam_search(model, ids, attention_mask=mask, use_cache=use_cache, **search), theirs)


@pytest.mark.parametrize("width", [2, 4])
def test_penalties_act_on_log_probs_as_in_transformers(width):
    model, ids = tiny_model(1), random_ids(1, 2, 5)
    search = {"num_beams": width, "num_return_sequences": 2, "max_new_tokens": 10, "eos_token_id": [7]}
    theirs = peer_search(
        llama(model), ids, torch.ones_like(ids), repetition_penalty=1.4, no_repeat_ngram_size=2, **search
    )
    ours = beam_search(model, ids, processors=(RepetitionPenalty(1.4), NoRepeatNGram(2)), **search)
    assert_like_peer(ours, theirs)
    assert texts(ours) != texts(beam_search(model, ids, **search))


# Processors


def test_processors_know_the_padding_of_each_beam():
    """Rows end at different times, so the rows that processors see change; padding is never counted as text."""
    model = tiny_model(2)
    ids = random_ids(2, 3, 6)
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[0, :4], mask[1, :2] = False, False
    search = {
        "num_beams": 3,
        "num_return_sequences": 3,
        "max_new_tokens": 10,
        "eos_token_id": [7, 9],
        "processors": (RepetitionPenalty(1.5), NoRepeatNGram(2)),
    }
    together = beam_search(model, ids, attention_mask=mask, **search)
    assert len({len(found[0].token_ids) for found in together}) > 1
    for row, found in enumerate(together):
        assert_same([found], beam_search(model, ids[row : row + 1, mask[row]], **search))


def test_a_rule_that_shifts_rows_is_renormalised_by_one_more():
    """`Temperature` subtracts each row's peak, which softmax forgives and a sum of log-probs does not."""
    model = StepModel(0, 6)
    half = StepModel(0, 6)
    half.tables = half.tables / 2
    search = {"num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 4, "eos_token_id": 5}
    fair = (Temperature(2.0), lambda token_ids, logits: logits.log_softmax(-1))
    expected = beam_search(half, START, **search)
    assert_same(beam_search(model, START, processors=fair, **search), expected)
    shifted = beam_search(model, START, processors=fair[:1], **search)
    assert scores(shifted) != pytest.approx(scores(expected), abs=0.1)


def test_where_the_rules_leave_few_texts_few_come_back():
    mask = torch.full((6,), -torch.inf)
    mask[[2, 5]] = 0.0
    search = {"num_beams": 8, "num_return_sequences": 8, "max_new_tokens": 2, "eos_token_id": 5}
    only = (lambda token_ids, log_probs: log_probs + mask,)
    found = beam_search(StepModel(0, 6), START, processors=only, **search)[0]
    assert {h.token_ids for h in found} == {(5,), (2, 5), (2, 2)}
    with pytest.raises(ValueError, match="leave no token"):
        beam_search(StepModel(0, 6), START, processors=(lambda ids, z: z - torch.inf,), **search)


# Diverse beams


def plain_loop(model, prompt, num_beams, num_groups, diversity_penalty, max_new_tokens, power, eos):
    """Diverse beam search written out with lists, one forward a beam, `early_stopping=False`."""
    width = num_beams // num_groups
    groups = [{"live": [((), 0.0)], "finished": [], "done": False} for _ in range(num_groups)]
    for t in range(1, max_new_tokens + 1):
        counts = {}
        for group in groups:
            if group["done"]:
                continue
            pool = []
            for text, total in group["live"]:
                with torch.no_grad():
                    log_probs = model(torch.tensor([[*prompt, *text]]))[0, -1].log_softmax(-1).tolist()
                for token, log_prob in enumerate(log_probs):
                    pool.append(((*text, token), total + log_prob - diversity_penalty * counts.get(token, 0)))
            pool.sort(key=lambda pair: -pair[1])
            is_last = t == max_new_tokens
            group["finished"] += [
                (text, total / t**power) for text, total in pool[:width] if text[-1] == eos or is_last
            ]
            group["finished"] = sorted(group["finished"], key=lambda pair: -pair[1])[:width]
            group["live"] = [pair for pair in pool if pair[0][-1] != eos][:width]
            for text, _ in pool[:width] if is_last else group["live"]:
                if text[-1] != eos:
                    counts[text[-1]] = counts.get(text[-1], 0) + 1
            full = len(group["finished"]) == width
            group["done"] = full and group["live"][0][1] / t**power <= group["finished"][-1][1]
    return sorted((pair for group in groups for pair in group["finished"]), key=lambda pair: -pair[1])


@pytest.mark.parametrize(("num_beams", "num_groups"), [(4, 2), (3, 3), (6, 2), (4, 1)])
@pytest.mark.parametrize("diversity_penalty", [0.0, 0.3, 2.0, 50.0])
def test_diverse_beams_against_a_plain_loop(num_beams, num_groups, diversity_penalty):
    model, ids = tiny_model(4), random_ids(4, 2, 3)
    for power, eos in ((1.0, 7), (0.0, None)):
        found = diverse_beam_search(
            model,
            ids,
            num_beams=num_beams,
            num_groups=num_groups,
            diversity_penalty=diversity_penalty,
            num_return_sequences=num_beams,
            max_new_tokens=6,
            length_penalty=power,
            eos_token_id=eos,
        )
        for prompt, hypotheses in zip(ids.tolist(), found, strict=True):
            expected = plain_loop(model, prompt, num_beams, num_groups, diversity_penalty, 6, power, eos)
            assert [h.token_ids for h in hypotheses] == [text for text, _ in expected]
            assert scores([hypotheses]) == pytest.approx([score for _, score in expected], abs=1e-4)


@pytest.mark.parametrize("early_stopping", EARLY_STOPPING)
@pytest.mark.parametrize("diversity_penalty", [0.0, 3.0])
def test_one_group_is_plain_beam_search(diversity_penalty, early_stopping):
    model, ids = tiny_model(3), random_ids(3, 2, 4)
    search = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 7, "eos_token_id": 7}
    search["early_stopping"] = early_stopping
    diverse = diverse_beam_search(model, ids, num_groups=1, diversity_penalty=diversity_penalty, **search)
    assert diverse == beam_search(model, ids, **search)


@pytest.mark.parametrize(("num_beams", "num_groups"), [(4, 2), (6, 3), (3, 3)])
def test_groups_that_ignore_each_other_are_independent_searches(num_beams, num_groups):
    model, ids = tiny_model(3), random_ids(3, 2, 4)
    search = {"max_new_tokens": 7, "eos_token_id": 7}
    each = num_beams // num_groups
    plain = beam_search(model, ids, num_beams=each, num_return_sequences=each, **search)
    groups = diverse_beam_search(
        model,
        ids,
        num_beams=num_beams,
        num_groups=num_groups,
        diversity_penalty=0.0,
        num_return_sequences=num_beams,
        **search,
    )
    for diverse, once in zip(groups, plain, strict=True):
        assert_same([diverse], [[hypothesis for hypothesis in once for _ in range(num_groups)]])


def test_a_large_penalty_makes_groups_differ_at_every_step():
    model, ids = tiny_model(3), random_ids(3, 1, 4)
    groups = {"num_beams": 3, "num_groups": 3, "num_return_sequences": 3, "max_new_tokens": 6}
    found = diverse_beam_search(model, ids, diversity_penalty=100.0, **groups)[0]
    for tokens in zip(*(h.token_ids for h in found), strict=True):
        assert len(set(tokens)) == 3


# Work, limits, errors


def test_one_prefill_a_prompt_then_one_token_a_beam():
    model, ids = StepModel(0, 9), torch.zeros(2, 5, dtype=torch.int64)
    beam_search(model, ids, num_beams=4, max_new_tokens=6)
    assert model.calls == 6
    assert model.tokens == 2 * 5 + 5 * 2 * 4


def test_rows_that_are_done_leave_the_batch():
    seen = []

    def watch(token_ids, log_probs):
        seen.append(len(token_ids))
        return log_probs

    search = {"num_beams": 1, "max_new_tokens": 6, "eos_token_id": 4}
    found = beam_search(StepModel(0, 5), torch.tensor([[0], [1]]), processors=(watch,), **search)
    lengths = sorted(len(h.token_ids) for (h,) in found)
    assert lengths[0] < lengths[1]
    assert seen == [2] * lengths[0] + [1] * (lengths[1] - lengths[0])


def test_rows_fill_their_context_one_by_one():
    model = tiny_model(context_length=8)
    ids, mask = random_ids(0, 3, 7), torch.ones(3, 7, dtype=torch.bool)
    mask[0, :5], mask[2, :2] = False, False
    for use_cache in (True, False):
        search = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 4, "use_cache": use_cache}
        found = beam_search(model, ids, attention_mask=mask, **search)
        assert [{len(h.token_ids) for h in row} for row in found] == [{4}, {1}, {3}]
        assert [{h.finish_reason for h in row} for row in found] == [{"length"}, {"context"}, {"context"}]
        for row in range(3):
            assert_same(found[row : row + 1], beam_search(model, ids[row : row + 1, mask[row]], **search))


@pytest.mark.parametrize(("max_new_tokens", "reason"), [(0, "length"), (3, "context")])
def test_a_prompt_that_may_not_grow_comes_back_empty(max_new_tokens, reason):
    model = StepModel(0, 5, context_length=4)
    ids = torch.zeros(2, 4, dtype=torch.int64)
    for found in (
        beam_search(model, ids, num_beams=3, num_return_sequences=2, max_new_tokens=max_new_tokens),
        exact_search(model, ids, max_new_tokens=max_new_tokens),
    ):
        assert [[(h.token_ids, h.sum_log_prob, h.finish_reason) for h in row] for row in found] == [
            [((), 0.0, reason)]
        ] * 2
    assert model.calls == 0


def test_a_full_prompt_among_others():
    model, mask = tiny_model(context_length=4), torch.tensor([[True] * 4, [False, False, True, True]])
    found = beam_search(model, random_ids(0, 2, 4), num_beams=2, max_new_tokens=3, attention_mask=mask)
    assert [(len(row[0].token_ids), row[0].finish_reason) for row in found] == [(0, "context"), (2, "context")]


def test_steps_tell_what_the_search_found():
    model, ids = tiny_model(), random_ids(0, 2, 4)
    search = {"num_beams": 3, "max_new_tokens": 8, "eos_token_id": 7}
    steps = [step for at in beam_steps(model, ids, **search) for step in at]
    found = beam_search(model, ids, num_return_sequences=3, **search)
    for row in (0, 1):
        own = [step for step in steps if step.row == row]
        assert list(own[-1].finished) == found[row]
        for step in own:
            assert len(step.candidates) == 6
            assert list(step.candidates) == sorted(step.candidates, key=lambda c: -c.sum_log_prob)
            assert {*step.kept, *step.ended} <= {*step.candidates}


def test_half_precision_models_are_searched_in_float32():
    found = beam_search(tiny_model(dtype=torch.bfloat16), random_ids(0, 1, 4), num_beams=2, max_new_tokens=5)
    with torch.no_grad():
        text = torch.cat((random_ids(0, 1, 4), torch.tensor([found[0][0].token_ids])), 1)
        log_probs = tiny_model(dtype=torch.bfloat16)(text)[0, 3:-1].float().log_softmax(-1)
    total = log_probs.gather(1, text[0, 4:, None]).sum()
    assert found[0][0].sum_log_prob == pytest.approx(float(total), abs=0.1)  # the model itself rounds


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_beams": 0}, "num_beams=0 must be an integer, at least 1"),
        ({"num_beams": 2.0}, "num_beams=2.0 must be an integer"),
        ({"num_beams": True}, "num_beams=True must be an integer"),
        ({"num_beams": 126}, "num_beams=126 must be at most 125, as many texts as there are of 3 tokens"),
        ({"num_return_sequences": 3}, "num_return_sequences=3 must be at most 2, num_beams: ask for fewer"),
        ({"num_return_sequences": 0}, "num_return_sequences=0 must be an integer, at least 1"),
        ({"early_stopping": "always"}, "early_stopping='always' must be True, False or 'never'"),
        ({"early_stopping": None}, "early_stopping=None must be True, False or 'never'"),
        ({"length_penalty": math.nan}, "length_penalty=nan gives nan at length 3"),
        ({"length_penalty": 1000}, "length_penalty=1000 gives inf at length 3: it must be finite and above 0"),
        ({"length_penalty": -1000.0}, "gives 0.0 at length 3"),
        ({"length_penalty": "gnmt"}, "length_penalty='gnmt' must be a number or a function of the length"),
        ({"length_penalty": lambda t: t - 3}, "gives -2 at length 1"),
        ({"max_new_tokens": -1}, "max_new_tokens=-1 must be an integer, at least 0"),
        ({"eos_token_id": 5}, "token id 5 .* is outside the vocabulary of 5"),
        ({"pad_token_id": -1}, "token id -1 .* is outside the vocabulary of 5"),
        ({"token_ids": torch.tensor([0, 1])}, "give \\(B, P\\)"),
        ({"num_groups": 3, "diversity_penalty": 1.0}, "num_groups=3 must be at most 2, num_beams"),
        ({"num_beams": 5, "num_groups": 2, "diversity_penalty": 1.0}, "num_beams=5 must be a multiple of num_groups=2"),
        ({"num_groups": 0, "diversity_penalty": 1.0}, "num_groups=0 must be an integer, at least 1"),
        ({"num_groups": 2, "diversity_penalty": -1.0}, "diversity_penalty=-1.0 must be a finite number, at least 0"),
        ({"num_groups": 2, "diversity_penalty": math.inf}, "diversity_penalty=inf must be a finite number"),
    ],
)
def test_bad_settings_are_told_before_the_work(changes, message):
    model = StepModel(0, 5)
    settings = {"token_ids": START, "num_beams": 2, "max_new_tokens": 3} | changes
    search = diverse_beam_search if "num_groups" in changes else beam_search
    with pytest.raises(ValueError, match=message):
        search(model, **settings)
    assert model.calls == 0


def test_settings_that_do_not_exist_are_refused():
    for search in (beam_search, diverse_beam_search):
        with pytest.raises(TypeError, match="params"):
            groups = {"num_groups": 1, "diversity_penalty": 0.0} if search is diverse_beam_search else {}
            search(StepModel(0, 5), START, num_beams=2, max_new_tokens=3, params=SamplingParams(), **groups)


@pytest.mark.parametrize(
    ("vocab_size", "length", "fits"), [(10, 6, True), (10, 7, False), (49_152, 2, False), (2, 64, False)]
)
def test_exact_search_refuses_what_it_cannot_enumerate(vocab_size, length, fits):
    model = TableModel.__new__(TableModel)
    model.config = tiny_model(vocab_size=vocab_size).config
    model.calls = 0
    settings = {"max_new_tokens": length, "num_return_sequences": 0}
    message = "num_return_sequences=0 must" if fits else f"{vocab_size} makes more than 1,000,000 texts"
    with pytest.raises(ValueError, match=message):
        exact_search(model, START, **settings)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_no_numbers_are_named(value):
    model = TableModel(torch.full((5, 5), value))
    for search in (beam_search, exact_search):
        with pytest.raises(ValueError, match="row 0 of the logits"):
            search(model, START, max_new_tokens=2, **({"num_beams": 2} if search is beam_search else {}))
