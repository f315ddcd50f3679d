"""The command line: the same text as the package, as it comes; its numbers; and how it ends."""

import contextlib
import dataclasses
import io
import os
import re
import signal
import subprocess
import sys

import pytest
import torch
from conftest import ROOT
from toy_models import FaultyModel, ScriptModel, TableModel, byte_tokenizer

from minigpt import SamplingParams, generate
from minigpt import __main__ as command_line
from minigpt.__main__ import DRAWING, PENALTIES, main
from minigpt.search import beam_search

PROMPT = "ROMEO:\n"
COMMAND = [sys.executable, "-m", "minigpt"]
# For each rule a value that changes what is drawn.
VALUES = {
    "temperature": 0.5,
    "top_k": 2,
    "top_p": 0.4,
    "min_p": 0.3,
    "typical_p": 0.2,
    "epsilon": 0.2,
    "eta": 0.3,
    "top_n_sigma": 0.5,
    "repetition_penalty": 1.7,
    "frequency_penalty": 0.9,
    "presence_penalty": 1.5,
    "no_repeat_ngram_size": 2,
}


@pytest.fixture(autouse=True)
def loaded(monkeypatch, early, shakespeare):
    """The models of the session instead of new copies; SmolLM2 where a test asks for it."""
    models = {"shakespeare-early": early, "shakespeare": shakespeare}
    monkeypatch.setattr(command_line, "load", models.__getitem__)
    return models


def flags(settings):
    """Settings as the command line has them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def ids_of(pair, text=PROMPT):
    """A text as a batch of one row."""
    return torch.tensor([pair[1].encode(text)])


def text_of(pair, new=60, prompt=PROMPT, **settings):
    """Prompt and answer as `generate` has them."""
    made = generate(pair[0], ids_of(pair, prompt), max_new_tokens=new, params=SamplingParams(**settings))
    return pair[1].decode(made.token_ids[0].tolist())


def refusal(arguments, capsys):
    """The one line on stderr of a command that is refused; nothing was printed before."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err.startswith("python -m minigpt: ") and err.endswith("\n") and err.count("\n") == 1
    return err


# The text


def test_every_setting_has_an_option():
    assert {*DRAWING, *PENALTIES} == {field.name for field in dataclasses.fields(SamplingParams)}


def test_every_rule_is_tried_below():
    assert {*VALUES, "seed", "order"} == {*DRAWING, *PENALTIES}


@pytest.mark.parametrize("name", VALUES)
def test_each_option_does_what_the_setting_does(name, capsys, shakespeare):
    setting = {name: VALUES[name], "seed": 3}
    main([PROMPT, "--max-new-tokens=60", *flags(setting)])
    assert capsys.readouterr().out == text_of(shakespeare, **setting) + "\n"
    assert text_of(shakespeare, **setting) != text_of(shakespeare, seed=3), "a value that changes nothing tests nothing"


def test_the_order_and_the_model(capsys, early):
    settings = {"temperature": 2.0, "min_p": 0.2, "seed": 1}
    texts = {}
    for order in ("huggingface", "vllm", "llama.cpp"):
        main([PROMPT, "--model", "shakespeare-early", "--max-new-tokens=60", *flags(settings | {"order": order})])
        texts[order] = capsys.readouterr().out
        assert texts[order] == text_of(early, order=order, **settings) + "\n"
    assert texts["huggingface"] == texts["vllm"] != texts["llama.cpp"]


def test_without_a_seed_every_text_is_another(capsys):
    texts = set()
    for _ in range(3):
        main([PROMPT, "--max-new-tokens=60"])
        texts.add(capsys.readouterr().out)
    assert len(texts) == 3


def test_it_stops_at_the_context_and_says_so(capsys, shakespeare):
    main([PROMPT, "--temperature=0", "--max-new-tokens=1000", "--stats"])
    out, err = capsys.readouterr()
    assert len(out) == shakespeare[0].config.context_length + 1
    assert "new tokens                249 (ended by: context)" in err


@pytest.mark.smollm2
def test_chat_shows_the_answer_alone(capsys, loaded, smollm2):
    loaded["smollm2"] = smollm2
    model, tokenizer = smollm2
    question = "What is the capital of France? One word."
    main([question, "--model=smollm2", "--chat", "--temperature=0", "--max-new-tokens=12"])
    ids = torch.tensor([tokenizer.chat([{"role": "user", "content": question}])])
    eos = tokenizer.eos_token_id
    made = generate(model, ids, max_new_tokens=12, params=SamplingParams(temperature=0), eos_token_id=eos)
    answer = [i for i in made.new_token_ids[0].tolist() if i != eos]
    assert capsys.readouterr().out == tokenizer.decode(answer) + "\n"


@pytest.mark.smollm2
def test_half_a_character_as_prompt(capsys, loaded, smollm2):
    loaded["smollm2"] = smollm2
    assert "surrogates not allowed" in refusal(["caf\udcc3", "--model=smollm2"], capsys)


# As it comes


class Screen(io.StringIO):
    """Keeps apart what was written at a time, with how many calls the model had seen by then.

    Args:
        model: a toy model that counts its calls.
    """

    def __init__(self, model):
        super().__init__()
        self.model, self.pieces = model, []

    def write(self, text):
        """Note a piece."""
        if text:
            self.pieces.append((text, self.model.calls))
        return len(text)


def written(monkeypatch, answer, *arguments):
    """What a model that says `answer`, byte by byte, makes the command write: (piece, calls so far)."""
    tokenizer = byte_tokenizer()
    model = ScriptModel([[*answer.encode(), tokenizer.eos_token_id]], 1, tokenizer.vocab_size)
    monkeypatch.setattr(command_line, "load", lambda name: (model, tokenizer))
    screen = Screen(model)
    with contextlib.redirect_stdout(screen):
        main([">", "--temperature=0", *arguments])
    return screen.pieces


def test_characters_come_one_by_one_and_whole(monkeypatch):
    """An é of two bytes and a face of four: nothing is shown until the last byte, and then at once."""
    assert written(monkeypatch, "aé🙂b") == [(">", 0), ("a", 1), ("é", 3), ("🙂", 7), ("b", 8), ("\n", 9)]


def test_no_stream_is_the_same_text_in_one_piece(monkeypatch):
    assert written(monkeypatch, "aé🙂b", "--no-stream") == [(">aé🙂b\n", 9)]
    assert written(monkeypatch, "ab", "--stream")[:2] == [(">", 0), ("a", 1)]


def test_a_character_that_is_cut_off_is_not_shown(monkeypatch):
    text = "".join(piece for piece, _ in written(monkeypatch, "a🙂", "--max-new-tokens=3"))
    assert text == ">a\n"


# Beams


@pytest.mark.parametrize(
    "extra", [{}, {"length_penalty": 0.0}, {"no_repeat_ngram_size": 3}, {"repetition_penalty": 1.5}], ids=str
)
def test_beams_print_the_best_text(extra, capsys, shakespeare):
    main([PROMPT, "--num-beams=3", "--max-new-tokens=40", *flags(extra)])
    model, tokenizer = shakespeare
    search = {name: value for name, value in extra.items() if name == "length_penalty"}
    rules = SamplingParams(**{name: value for name, value in extra.items() if name not in search}).pipeline()
    ((best,),) = beam_search(model, ids_of(shakespeare), num_beams=3, max_new_tokens=40, processors=rules, **search)
    assert capsys.readouterr().out == PROMPT + tokenizer.decode(best.token_ids) + "\n"
    assert "length_penalty" in extra or bool(rules) == bool(extra)


def test_a_length_penalty_reaches_the_search(monkeypatch, capsys):
    """A likely short text, or a long one that is surer a token: which is better depends on α alone."""
    tokenizer = byte_tokenizer()
    eos, table = tokenizer.eos_token_id, torch.full((tokenizer.vocab_size,) * 2, -20.0)
    a, b = b"ab"
    table[ord(">"), [a, b]] = torch.tensor([0.4, 0.6]).log()
    table[a, a], table[b, eos] = torch.tensor([0.9, 0.99]).log()
    model = TableModel(table)
    monkeypatch.setattr(command_line, "load", lambda name: (model, tokenizer))
    texts = {}
    for alpha in ("0", "2", "gnmt:0", "gnmt:2"):
        main([">", "--num-beams=2", "--max-new-tokens=12", f"--length-penalty={alpha}"])
        texts[alpha] = capsys.readouterr().out
    short, long = ">b\n", ">" + 12 * "a" + "\n"
    assert texts == {"0": short, "2": long, "gnmt:0": short, "gnmt:2": long}


def test_one_beam_is_greedy(capsys, early):
    main([PROMPT, "--model=shakespeare-early", "--num-beams=1", "--max-new-tokens=40", "--no-stream"])
    assert capsys.readouterr().out == text_of(early, 40, temperature=0) + "\n"


# Its numbers


def numbers(err):
    """The lines of --stats: name → the rest."""
    return dict(re.split(r"  +", line) for line in err.splitlines())


def test_stats_are_those_of_the_run(capsys, shakespeare):
    """On stderr, so that the text can go into a file; P + N − 1 tokens went through the model."""
    main([PROMPT, "--temperature=0", "--max-new-tokens=30"])
    plain = capsys.readouterr()
    main([PROMPT, "--temperature=0", "--max-new-tokens=30", "--stats"])
    out, err = capsys.readouterr()
    assert (out, plain.err) == (plain.out, "")
    found = numbers(err)
    made = generate(shakespeare[0], ids_of(shakespeare), max_new_tokens=30, params=SamplingParams(temperature=0))
    assert found["prompt tokens"] == str(len(PROMPT))
    assert found["new tokens"] == "30 (ended by: length)"
    assert found["tokens through the model"] == str(made.forward_tokens) == str(len(PROMPT) + 29)
    first = float(found["time to first token"].removesuffix(" s"))
    rate, seconds = map(float, re.match(r"([\d.]+) \(over ([\d.]+) s", found["tokens/s"]).groups())
    assert 0 < first < seconds
    assert rate * seconds == pytest.approx(30, rel=0.05)


def test_stats_of_beams(capsys):
    """One prompt through the model, then three beams a step."""
    main([PROMPT, "--num-beams=3", "--max-new-tokens=10", "--stats"])
    found = numbers(capsys.readouterr().err)
    assert found["tokens through the model"] == str(len(PROMPT) + 9 * 3)
    assert found["new tokens"] == "10 (ended by: length)"


def test_stats_of_nothing(capsys):
    main([PROMPT, "--max-new-tokens=0", "--stats"])
    out, err = capsys.readouterr()
    assert out == PROMPT + "\n"
    assert numbers(err) == {"prompt tokens": "7", "new tokens": "0", "tokens through the model": "0"}


def test_eos_counts_as_a_token(monkeypatch, capsys):
    written(monkeypatch, "ab", "--stats")
    assert "new tokens                3 (ended by: eos)" in capsys.readouterr().err


# How it ends


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "the following arguments are required: prompt"),
        ([PROMPT, "--temperature=-1"], "temperature=-1.0 must be a finite number, at least 0"),
        ([PROMPT, "--temperature", "-1"], "temperature=-1.0"),
        ([PROMPT, "--temperature=nan"], "temperature=nan"),
        ([PROMPT, "--temperature=warm"], "argument --temperature: invalid float value: 'warm'"),
        ([PROMPT, "--top-k=0"], "top_k=0 must be an integer of at least 1"),
        ([PROMPT, "--top-k=1.5"], "argument --top-k: invalid int value: '1.5'"),
        ([PROMPT, "--top-p=1.2"], "top_p=1.2 must be in (0, 1]"),
        ([PROMPT, "--repetition-penalty=0"], "repetition_penalty=0.0"),
        ([PROMPT, "--frequency-penalty=inf"], "frequency_penalty=inf"),
        ([PROMPT, "--no-repeat-ngram-size=0"], "no_repeat_ngram_size=0"),
        ([PROMPT, "--seed=-1"], "seed=-1"),
        ([PROMPT, "--order=alphabetical"], "argument --order: invalid choice: 'alphabetical'"),
        ([PROMPT, "--order=llama.cpp", "--eta=0.1"], "llama.cpp has no eta"),
        ([PROMPT, "--max-new-tokens=-1"], "max_new_tokens=-1"),
        ([PROMPT, "--model=gpt"], "argument --model: invalid choice: 'gpt'"),
        ([PROMPT, "--top=3"], "unrecognized arguments: --top=3"),
        ([PROMPT, "--chat"], "has no chat template"),
        ([""], "the prompt is empty"),
        (["é"], "the character 'é' is not among"),
        (["a" * 257], "the prompt has 257 tokens, context_length is 256"),
        ([PROMPT, "--length-penalty=1"], "--length-penalty is for beam search: give --num-beams too"),
        ([PROMPT, "--num-beams=0"], "num_beams=0"),
        ([PROMPT, "--num-beams=2", "--length-penalty=nan"], "length_penalty=nan"),
        ([PROMPT, "--num-beams=2", "--length-penalty=gnmt"], "--length-penalty: invalid length_penalty value: 'gnmt'"),
        ([PROMPT, "--num-beams=2", "--max-new-tokens=-1"], "max_new_tokens=-1"),
        ([PROMPT, "--num-beams=2", "--stream"], "--num-beams does not go with --stream"),
        *(
            ([PROMPT, "--num-beams=2", *flags({name: value})], f"not go with {flags({name: value})[0].split('=')[0]}:")
            for name, value in (VALUES | {"seed": 1, "order": "vllm"}).items()
            if name not in PENALTIES
        ),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments, says, capsys):
    assert says in refusal(arguments, capsys)


def test_logits_that_are_no_numbers(monkeypatch, capsys):
    """What goes wrong on the way is told in one line too, after the text so far."""
    tokenizer = byte_tokenizer()
    model = FaultyModel(torch.nan)
    model.config = dataclasses.replace(model.config, vocab_size=tokenizer.vocab_size)
    monkeypatch.setattr(command_line, "load", lambda name: (model, tokenizer))
    with pytest.raises(SystemExit) as end:
        main(["\0"])
    assert end.value.code == 2
    assert re.fullmatch(r"python -m minigpt: .*NaN.*\n", capsys.readouterr().err)


def test_help_groups_the_options(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (0, "")
    parts = re.split(r"^(\S.*):$", out, flags=re.M)
    groups = dict(zip(parts[1::2], parts[2::2], strict=True))
    named = {title: re.findall(r"^  (--[a-z-]+)", text, re.M) for title, text in groups.items()}
    assert [len(options) for options in named.values()] == [0, 3, len(DRAWING), len(PENALTIES), 2, 2]
    assert list(groups) == [
        "positional arguments",
        "options",
        "drawing the next token (a rule left out is off)",
        "penalties (for drawing and for beams)",
        "beam search, instead of drawing",
        "output",
    ]


def test_as_a_process(shakespeare):
    """Exit code 0, the text on stdout, the numbers on stderr; 2 for a bad value."""
    good = [*COMMAND, PROMPT, "--temperature=0", "--max-new-tokens=20", "--stats"]
    done = subprocess.run(good, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, text_of(shakespeare, 20, temperature=0) + "\n")
    assert numbers(done.stderr)["new tokens"] == "20 (ended by: length)"
    bad = subprocess.run([*COMMAND, PROMPT, "--top-p=7"], cwd=ROOT, capture_output=True, text=True)
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)


def running():
    """A run that has just begun to write; it hears Ctrl-C even where these tests run in the background of a shell."""
    process = subprocess.Popen(
        [*COMMAND, PROMPT, "--seed=1", "--max-new-tokens=240"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert os.read(process.stdout.fileno(), 1) == b"R"
    return process


def test_ctrl_c_ends_quietly():
    process = running()
    process.send_signal(signal.SIGINT)
    err = process.communicate()[1]
    assert (process.returncode, err) == (130, b"\n")


def test_a_closed_pipe_is_no_traceback():
    """As in `python -m minigpt … | head -1`."""
    process = running()
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(), err) == (141, b"")
