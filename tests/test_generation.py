"""The loop: lengths, EOS, padding, context, several turns, the stream and its text."""

import math

import pytest
import torch
from toy_models import FaultyModel, ScriptModel, TableModel, byte_tokenizer, random_ids, tiny_model

from minigpt.generation import Step, generate, generate_naive, stream, stream_text, token_log_probs
from minigpt.kv_cache import KVCache
from minigpt.processors import TopK
from minigpt.sampling import SamplingParams
from minigpt.tokenization import CharTokenizer

GREEDY = SamplingParams(temperature=0)
BOTH = pytest.mark.parametrize("run", [generate, generate_naive])


def left_padded(rows):
    """Texts of several lengths as one batch: ids, with zeros on the left, and their mask."""
    P = max(map(len, rows))
    ids = torch.tensor([[0] * (P - len(row)) + row for row in rows])
    return ids, torch.tensor([[j >= P - len(row) for j in range(P)] for row in rows])


def texts(*lengths, seed=0):
    """Random texts of given lengths."""
    return [random_ids(seed + i, length).tolist() for i, length in enumerate(lengths)]


# Case 28


@BOTH
@pytest.mark.parametrize(("eos", "rows"), [(9, [[9, 1, 1], [1, 1, 9]]), ([9, 8], [[8, 1, 1], [1, 1, 9]])])
def test_each_row_stops_at_its_own_eos(run, eos, rows):
    """Row 0 would talk on; what it says after its EOS is nothing but padding."""
    model = ScriptModel(rows, prompt_length=2, vocab_size=10)
    made = run(
        model,
        torch.zeros(2, 2, dtype=torch.int64),
        max_new_tokens=10,
        params=GREEDY,
        eos_token_id=eos,
        pad_token_id=5,
    )
    assert made.new_token_ids.tolist() == [[rows[0][0], 5, 5], [1, 1, 9]]
    assert made.finish_reasons == ("eos", "eos")
    assert model.calls == 3
    assert made.logprobs[0, 1:].tolist() == [0, 0]
    assert made.logprobs[0, 0] < 0


def test_padding_defaults_to_the_first_eos():
    model = ScriptModel([[8, 1], [1, 9]], prompt_length=1, vocab_size=10)
    made = generate(model, torch.zeros(2, 1, dtype=torch.int64), max_new_tokens=5, params=GREEDY, eos_token_id=[9, 8])
    assert made.new_token_ids.tolist() == [[8, 9], [1, 9]]


def test_eos_in_the_prompt_ends_nothing():
    model = ScriptModel([[1, 1, 1]], prompt_length=2, vocab_size=10)
    made = generate(model, torch.tensor([[9, 9]]), max_new_tokens=3, params=GREEDY, eos_token_id=9)
    assert made.finish_reasons == ("length",)


# Case 30


@BOTH
@pytest.mark.parametrize(("new", "length"), [(3, 10), (0, 7), (1, 8)])
def test_max_new_tokens_counts_new_tokens(run, new, length):
    prompt = random_ids(0, 1, 7)
    made = run(tiny_model(), prompt, max_new_tokens=new, params=GREEDY)
    assert made.token_ids.shape == (1, length)
    assert torch.equal(made.token_ids[:, :7], prompt)
    assert torch.equal(made.token_ids[:, 7:], made.new_token_ids)
    assert made.logprobs.shape == (1, new)
    assert made.finish_reasons == ("length",)


# Case 31


def test_tokens_are_counted_as_generated_not_as_encoded_again():
    tokenizer = byte_tokenizer(merges=[("a", "a")])
    a = tokenizer.encode("a")[0]
    model = ScriptModel([[a, a]], prompt_length=1, vocab_size=tokenizer.vocab_size)
    made = generate(model, torch.tensor([[a]]), max_new_tokens=2, params=GREEDY)
    text = tokenizer.decode(made.new_token_ids[0])
    assert text == "aa"
    assert len(tokenizer.encode(text)) == 1  # the fault
    assert made.new_token_ids.size(1) == 2


# What it costs


@pytest.mark.parametrize(("P", "N"), [(1, 1), (5, 1), (1, 6), (6, 9), (13, 4)])
def test_forward_tokens_are_those_of_the_formulas(P, N):
    counting, prompt = TableModel(torch.eye(4)), torch.zeros(3, P, dtype=torch.int64)
    cached = generate(counting, prompt, max_new_tokens=N, params=GREEDY)
    assert (counting.calls, counting.tokens) == (N, 3 * (P + N - 1))
    assert cached.forward_tokens == counting.tokens
    counting = TableModel(torch.eye(4))
    naive = generate_naive(counting, prompt, max_new_tokens=N, params=GREEDY)
    assert (counting.calls, counting.tokens) == (N, 3 * (P * N + N * (N - 1) // 2))
    assert naive.forward_tokens == counting.tokens


def test_the_facts_own_example():
    """P = 183, N = 64: 246 tokens against 13,728."""
    prompt, long = torch.zeros(1, 183, dtype=torch.int64), 300
    runs = (generate, generate_naive)
    made = [run(TableModel(torch.eye(4), long), prompt, max_new_tokens=64).forward_tokens for run in runs]
    assert made == [246, 13_728]


# Cases 34 and 36


def test_nothing_is_left_over_from_the_last_call():
    model, a, b = tiny_model(), random_ids(1, 1, 9), random_ids(2, 1, 4)

    def run(model, ids):
        return generate(model, ids, max_new_tokens=8, params=GREEDY).token_ids.tolist()

    first = run(model, b)
    run(model, a)
    assert run(model, b) == first == run(tiny_model(), b)


def test_a_cache_given_twice_must_be_reset():
    model, ids = tiny_model(), random_ids(1, 1, 4)
    cache = KVCache(model.config, 1, 20)
    first = generate(model, ids, max_new_tokens=5, params=GREEDY, cache=cache)
    with pytest.raises(ValueError, match="holding 8 tokens does not fit 1 rows of 4.*or reset"):
        generate(model, ids, max_new_tokens=5, params=GREEDY, cache=cache)
    cache.reset()
    assert torch.equal(generate(model, ids, max_new_tokens=5, params=GREEDY, cache=cache).token_ids, first.token_ids)


def test_a_conversation_goes_on_in_its_cache():
    """Three turns with one cache give what the whole text gives each time, for the price of the new tokens."""
    model = tiny_model()
    cache, text, spent = KVCache(model.config, 2, 60), random_ids(0, 2, 5), 0
    for turn in range(3):
        made = generate(model, text, max_new_tokens=6, params=GREEDY, cache=cache)
        assert torch.equal(made.token_ids, generate_naive(model, text, max_new_tokens=6, params=GREEDY).token_ids)
        spent += made.forward_tokens
        assert cache.length == made.token_ids.size(1) - 1  # the last token is never fed back
        text = torch.cat((made.token_ids, random_ids(turn + 10, 2, 4)), 1)
    assert spent == 2 * (made.token_ids.size(1) - 1)


@pytest.mark.parametrize(
    ("rows", "capacity", "message"),
    [
        (2, 30, "a cache of 2 rows holding 0 tokens does not fit 1 rows of 4"),
        (1, 7, "the cache has capacity=7, this request needs 8: make it larger"),
    ],
)
def test_a_cache_that_does_not_fit_is_refused(rows, capacity, message):
    model = tiny_model()
    with pytest.raises(ValueError, match=message):
        generate(model, random_ids(0, 1, 4), max_new_tokens=5, cache=KVCache(model.config, rows, capacity))


def test_a_cache_of_just_the_needed_capacity_fits():
    model, ids = tiny_model(context_length=9), random_ids(0, 1, 4)
    for new, capacity in ((5, 8), (50, 8)):  # the second stops at the context
        made = generate(model, ids, max_new_tokens=new, params=GREEDY, cache=KVCache(model.config, 1, capacity))
        assert made.token_ids.size(1) == 9


# The context limit


@BOTH
def test_a_text_stops_at_the_context(run):
    made = run(tiny_model(context_length=12), random_ids(0, 2, 7), max_new_tokens=50, params=GREEDY)
    assert made.token_ids.shape == (2, 12)
    assert made.finish_reasons == ("context", "context")


@BOTH
def test_when_both_limits_meet_the_callers_counts(run):
    made = run(tiny_model(context_length=12), random_ids(0, 1, 7), max_new_tokens=5, params=GREEDY)
    assert made.finish_reasons == ("length",)


@BOTH
def test_a_prompt_that_fills_the_context_is_given_back(run):
    prompt = random_ids(0, 1, 12)
    made = run(tiny_model(context_length=12), prompt, max_new_tokens=5, params=GREEDY)
    assert torch.equal(made.token_ids, prompt)
    assert (made.finish_reasons, made.forward_tokens, made.new_token_ids.shape) == (("context",), 0, (1, 0))


@BOTH
def test_a_longer_prompt_is_refused(run):
    with pytest.raises(ValueError, match="the prompt has 13 tokens, context_length is 12: shorten it"):
        run(tiny_model(context_length=12), random_ids(0, 1, 13), max_new_tokens=1)


# Rows of a ragged batch


@pytest.mark.parametrize("context", [13, 16, 160])
@pytest.mark.parametrize("params", [GREEDY, "one each"])
def test_each_row_of_a_ragged_batch_is_as_if_alone(context, params):
    """Tokens and reasons, with and without a cache, through EOS, the context limit and the length limit."""
    model = tiny_model(context_length=context)
    rows = texts(2, 12, 7, 13, 1)
    each = [GREEDY if params is GREEDY else SamplingParams(seed=i, top_k=5 + i, temperature=0.9) for i in range(5)]
    rules = {"max_new_tokens": 9, "eos_token_id": (3, 20), "pad_token_id": 0}
    alone = [generate(model, torch.tensor([row]), params=p, **rules) for row, p in zip(rows, each, strict=True)]
    ids, mask = left_padded(rows)
    for run in (generate, generate_naive):
        made = run(model, ids, attention_mask=mask, params=params if params is GREEDY else each, **rules)
        for row, single in enumerate(alone):
            n = single.new_token_ids.size(1)
            assert made.new_token_ids[row, :n].tolist() == single.new_token_ids[0].tolist()
            assert (made.new_token_ids[row, n:] == 0).all()
            assert made.finish_reasons[row] == single.finish_reasons[0]
            assert torch.allclose(made.logprobs[row, :n], single.logprobs[0], atol=1e-4)
    if context == 13:
        assert {"context", "length"} <= set(made.finish_reasons)


def test_ragged_rows_do_end_in_all_three_ways():
    """So that the test above has seen them."""
    model = tiny_model(context_length=16)
    ids, mask = left_padded(texts(2, 12, 7, 13, 1))
    free = generate(model, ids, attention_mask=mask, params=GREEDY, max_new_tokens=9)
    eos = int(free.new_token_ids[2, 3])
    made = generate(model, ids, attention_mask=mask, params=GREEDY, max_new_tokens=9, eos_token_id=eos)
    assert {"eos", "context"} <= set(made.finish_reasons)


def test_a_ragged_conversation_goes_on_in_its_cache():
    model = tiny_model()
    ids, mask = left_padded(texts(3, 6))
    cache = KVCache(model.config, 2, 40)
    for turn in range(2):
        made = generate(model, ids, attention_mask=mask, max_new_tokens=4, params=GREEDY, cache=cache)
        naive = generate_naive(model, ids, attention_mask=mask, max_new_tokens=4, params=GREEDY)
        assert torch.equal(made.token_ids, naive.token_ids)
        ids = torch.cat((made.token_ids, random_ids(turn, 2, 3)), 1)
        mask = torch.cat((mask, torch.ones(2, 7, dtype=torch.bool)), 1)


# Log-probabilities, processors


@BOTH
def test_logprobs_are_the_models_own(run):
    """Before penalties, temperature and truncation: what the model said, whatever was made of it."""
    model, ids = tiny_model(), random_ids(0, 2, 5)
    params = SamplingParams(temperature=1.7, top_k=4, seed=0)
    made = run(model, ids, max_new_tokens=6, params=params, processors=(lambda ids, z: z * 0.5,))
    expected = token_log_probs(model, made.token_ids)[:, 4:]
    assert torch.allclose(made.logprobs, expected, atol=1e-4)
    for step in stream(model, ids, max_new_tokens=3, params=params):
        assert torch.equal(step.logprobs, step.logits.log_softmax(-1).gather(1, step.token_ids[:, None])[:, 0])


@BOTH
def test_processors_run_first_and_see_the_whole_text(run):
    seen, allowed = [], torch.full((6,), -torch.inf)
    allowed[4] = 0.0

    def grammar(token_ids, logits):
        seen.append(token_ids.tolist())
        return logits + allowed

    model = TableModel(torch.arange(6.0).flip(0).expand(6, 6))  # prefers 0, then 1
    made = run(model, torch.tensor([[1, 2]]), max_new_tokens=3, params=SamplingParams(top_k=2), processors=(grammar,))
    assert made.new_token_ids.tolist() == [[4, 4, 4]]  # top-k first would have left nothing
    assert seen == [[[1, 2]], [[1, 2, 4]], [[1, 2, 4, 4]]]  # the newest token included


@BOTH
def test_a_processor_sees_the_rows_of_a_batch_together(run):
    shapes = []

    def watch(token_ids, logits):
        shapes.append((token_ids.shape, logits.shape))
        return logits

    each = [GREEDY, SamplingParams(seed=0)]
    run(tiny_model(), random_ids(0, 2, 3), max_new_tokens=2, params=each, processors=(watch, TopK(5)))
    assert shapes == [((2, 3), (2, 23)), ((2, 4), (2, 23))]


def test_rules_that_leave_no_token_are_a_named_error():
    nothing = (lambda ids, z: torch.full_like(z, -torch.inf),)
    for params in (GREEDY, SamplingParams(), SamplingParams(top_p=0.5)):
        with pytest.raises(ValueError, match="row 0 of the logits is -inf everywhere: its rules leave no token"):
            generate(tiny_model(), random_ids(0, 1, 3), max_new_tokens=2, params=params, processors=nothing)


@BOTH
@pytest.mark.parametrize("params", [GREEDY, SamplingParams()])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_model_that_gives_no_numbers_is_a_named_error(run, params, value):
    with pytest.raises(ValueError, match="row 0 of the logits .*look at the model"):
        run(FaultyModel(value), torch.tensor([[1]]), max_new_tokens=2, params=params)


def test_nan_in_one_row_names_the_row():
    table = torch.zeros(5, 5)
    table[3, 2] = math.nan
    with pytest.raises(ValueError, match="row 1 of the logits holds a NaN"):
        generate(TableModel(table), torch.tensor([[1], [3]]), max_new_tokens=2)


# Bad requests


@BOTH
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens=-1 must be an integer, at least 0"),
        ({"max_new_tokens": 2.5}, "max_new_tokens=2.5 must be an integer, at least 0"),
        ({"max_new_tokens": None}, "max_new_tokens=None must be an integer"),
        ({"params": [GREEDY]}, "1 params for 2 rows: give one SamplingParams for all, or one a row"),
        ({"params": [GREEDY] * 3}, "3 params for 2 rows"),
        ({"eos_token_id": 23}, r"token id 23 \(EOS or padding\) is outside the vocabulary of 23"),
        ({"eos_token_id": [1, -1]}, r"token id -1 \(EOS or padding\) is outside the vocabulary"),
        ({"pad_token_id": 99}, r"token id 99 \(EOS or padding\) is outside the vocabulary"),
        ({"attention_mask": torch.tensor([[1, 0, 1], [1, 1, 1]]).bool()}, "padding after a token: pad on the left"),
        ({"attention_mask": torch.tensor([[0, 0, 0], [1, 1, 1]]).bool()}, "leave no row empty"),
        ({"attention_mask": torch.ones(2, 4).bool()}, r"attention_mask has shape \(2, 4\)"),
        ({"attention_mask": torch.ones(1, 3).bool()}, r"attention_mask has shape \(1, 3\)"),
    ],
)
def test_requests_that_are_refused(run, changes, message):
    with pytest.raises(ValueError, match=message):
        run(tiny_model(), random_ids(0, 2, 3), **({"max_new_tokens": 2} | changes))


@BOTH
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.empty(1, 0, dtype=torch.int64), r"shape \(1, 0\): give \(B, P\) with at least one token a row"),
        (torch.empty(0, 4, dtype=torch.int64), r"shape \(0, 4\)"),
        (torch.tensor([1, 2]), r"shape \(2,\)"),
        (torch.tensor([[1, 23]]), "token id 23 is outside the vocabulary of 23"),
        (torch.tensor([[-1, 2]]), "token id -1 is outside the vocabulary of 23"),
    ],
)
def test_prompts_that_are_refused(run, ids, message):
    with pytest.raises(ValueError, match=message):
        run(tiny_model(), ids, max_new_tokens=2)


def test_stream_refuses_before_its_first_step():
    with pytest.raises(ValueError, match="max_new_tokens=-1"):
        stream(tiny_model(), random_ids(0, 1, 3), max_new_tokens=-1)


def test_the_prompt_given_is_not_edited():
    prompt, mask = random_ids(0, 2, 4), torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]], dtype=torch.bool)
    copies = prompt.clone(), mask.clone()
    generate(tiny_model(), prompt, max_new_tokens=4, params=GREEDY, attention_mask=mask, eos_token_id=2)
    assert torch.equal(prompt, copies[0])
    assert torch.equal(mask, copies[1])


# The stream


def test_generate_collects_the_stream():
    model = tiny_model()
    ids, mask = left_padded(texts(2, 5))
    rules = {
        "max_new_tokens": 7,
        "params": SamplingParams(seed=5, temperature=0.8),
        "eos_token_id": (1, 2, 3, 4),
        "attention_mask": mask,
    }
    made, steps = generate(model, ids, **rules), list(stream(model, ids, **rules))
    assert torch.equal(torch.stack([step.token_ids for step in steps], 1), made.new_token_ids)
    assert torch.equal(torch.stack([step.logprobs for step in steps], 1), made.logprobs)
    assert steps[-1].finish_reasons == made.finish_reasons
    assert all(None in step.finish_reasons for step in steps[:-1])
    assert sum(step.forward_tokens for step in steps) == made.forward_tokens


def test_a_stream_computes_a_step_when_it_is_asked_for():
    model = TableModel(torch.eye(4))
    steps = stream(model, torch.tensor([[1]]), max_new_tokens=50)
    assert model.calls == 0
    next(steps)
    next(steps)
    assert model.calls == 2


# The text of a stream


def said(ids, last=None):
    """Steps of one row that says these ids; the last one ends it for the reason `last`."""
    steps = [Step(torch.tensor([i]), torch.zeros(1), None, (None,), 1) for i in ids]
    if last:
        steps[-1] = Step(steps[-1].token_ids, torch.zeros(1), None, (last,), 1)
    return steps


# Case 33
@pytest.mark.parametrize(
    ("text", "pieces"),
    [("😀", ["😀"]), ("é", ["é"]), ("aé😀b", ["a", "é", "😀", "b"]), ("héllo", ["h", "é", "l", "l", "o"])],
)
def test_a_piece_never_breaks_a_character(text, pieces):
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode(text)
    assert len(ids) == len(text.encode())  # one token a byte
    assert list(stream_text(said(ids), tokenizer)) == pieces
    assert "".join(pieces) == tokenizer.decode(ids)


def test_each_byte_of_an_emoji_gives_nothing_until_the_last():
    tokenizer = byte_tokenizer()
    decode = tokenizer.decoder()
    assert [decode(i) for i in (0xF0, 0x9F, 0x98, 0x80)] == ["", "", "", "😀"]
    assert [tokenizer.decode([i]) for i in (0xF0, 0x9F, 0x98, 0x80)] == ["\ufffd"] * 4  # the fault


def test_a_cut_tail_is_withheld():
    tokenizer = byte_tokenizer()
    assert list(stream_text(said([ord("a"), 0xF0, 0x9F, 0x98], "length"), tokenizer)) == ["a"]


def test_eos_is_not_shown():
    tokenizer = byte_tokenizer()
    ids = [*tokenizer.encode("ab"), tokenizer.eos_token_id]
    assert list(stream_text(said(ids, "eos"), tokenizer)) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "stop", "shown"),
    [
        ("one\n\nQ: two", ["\nQ:"], "one\n"),  # straddles four tokens
        ("aab", ["ab"], "a"),  # the beginning of a stop string that turned out to be none
        ("ababac", ["abac"], "ab"),
        ("xyz", ["yz", "xy"], ""),  # the earliest
        ("abcd", ["c", "bc"], "a"),  # both end at once: the one that begins first
        ("abc", ["abcd"], "abc"),  # held back, and shown when the text ends
        ("abc", ["zz"], "abc"),
        ("é stop", ["é"], ""),
        ("hello END of", "END", "hello "),  # one string is one stop string
    ],
)
def test_stop_strings_straddle_tokens_and_are_not_shown(text, stop, shown):
    tokenizer = byte_tokenizer()
    pieces = list(stream_text(said(tokenizer.encode(text)), tokenizer, stop))
    assert "".join(pieces) == shown
    assert all(pieces)


def test_a_stop_string_inside_a_token_ends_the_text():
    tokenizer = CharTokenizer("abcdef")
    tokenizer.decoder = lambda: lambda i: ["ab", "cd", "ef"][i]
    assert "".join(stream_text(said([0, 1, 2]), tokenizer, ["c"])) == "ab"


def test_the_model_is_not_asked_past_a_stop_string():
    model = ScriptModel([[1, 2, 3, 4, 5]], prompt_length=1, vocab_size=6)
    tokenizer = CharTokenizer("abcdef")
    steps = stream(model, torch.tensor([[0]]), max_new_tokens=5, params=GREEDY)
    assert "".join(stream_text(steps, tokenizer, ["cd"])) == "b"
    assert model.calls == 3


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="stop='' would end every text at once: give at least one character"):
        list(stream_text(said([0]), CharTokenizer("a"), ["x", ""]))


# token_log_probs


def test_token_log_probs_are_those_of_each_next_token():
    model, ids = tiny_model(), random_ids(0, 3, 6)
    expected = model(ids).log_softmax(-1)
    by_hand = [[expected[b, j, ids[b, j + 1]].item() for j in range(5)] for b in range(3)]
    assert torch.allclose(token_log_probs(model, ids), torch.tensor(by_hand), atol=1e-6)


def test_a_uniform_model_is_as_perplexed_as_its_vocabulary():
    log_probs = token_log_probs(TableModel(torch.zeros(50, 50)), torch.randint(50, (2, 9)))
    assert math.exp(-log_probs.mean()) == pytest.approx(50)


def test_token_log_probs_of_padded_rows():
    model, rows = tiny_model(), texts(3, 6, 2)
    ids, mask = left_padded(rows)
    log_probs = token_log_probs(model, ids, mask)
    for row, text in enumerate(rows):
        alone = token_log_probs(model, torch.tensor([text]))[0]
        assert torch.allclose(log_probs[row, 6 - len(text) :], alone, atol=1e-5)
        assert (log_probs[row, : 6 - len(text)] == 0).all()


@pytest.mark.parametrize("shape", [(1, 1), (4,), (2, 1)])
def test_texts_without_a_second_token_have_no_probability(shape):
    with pytest.raises(ValueError, match="the first token has no probability, give two"):
        token_log_probs(tiny_model(), torch.zeros(shape, dtype=torch.int64))


def test_token_log_probs_of_nan_are_a_named_error():
    with pytest.raises(ValueError, match="row 0 of the logits holds a NaN"):
        token_log_probs(FaultyModel(math.nan), torch.tensor([[1, 2, 3]]))
