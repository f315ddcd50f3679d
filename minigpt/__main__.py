"""The command line: `python -m minigpt "ROMEO:" --temperature 0.8 --top-p 0.9`. Chapter 05."""

import argparse
import os
import sys
import time

import torch

from minigpt.generation import stream, stream_text
from minigpt.pretrained import MODELS, load
from minigpt.sampling import ORDERS, SamplingParams
from minigpt.search import beam_search, gnmt


def length_penalty(text):
    """A power of the length, such as `0.6`; or `gnmt:0.6`, the length penalty of Wu et al. 2016."""
    return gnmt(float(text.removeprefix("gnmt:"))) if text.startswith("gnmt:") else float(text)


DRAWING = {
    "temperature": (float, "T", "at least 0; 0 is greedy, 1 changes nothing (default: 1)"),
    "top_k": (int, "K", "keep the k most likely tokens"),
    "top_p": (float, "P", "keep the smallest set of tokens with this mass, in (0, 1]"),
    "min_p": (float, "P", "keep tokens at least this many times as likely as the best, in [0, 1]"),
    "typical_p": (float, "P", "keep the most typical tokens with this mass, in (0, 1]"),
    "epsilon": (float, "E", "keep tokens of at least this probability, in (0, 1)"),
    "eta": (float, "E", "the same, with a floor that sinks where the distribution is flat, in (0, 1)"),
    "top_n_sigma": (float, "N", "keep logits within n standard deviations of the largest"),
    "order": (str, None, "the engine whose order the rules follow (default: huggingface)"),
    "seed": (int, "S", "makes the text repeatable"),
}
PENALTIES = {
    "repetition_penalty": (float, "X", "divide positive logits of tokens seen, multiply others; 1 changes nothing"),
    "frequency_penalty": (float, "X", "subtract this for every time that the answer used a token"),
    "presence_penalty": (float, "X", "subtract this once from every token that the answer used"),
    "no_repeat_ngram_size": (int, "N", "let no n tokens in a row come a second time"),
}
SEARCH = {
    "num_beams": (int, "K", "keep the k most probable texts; 1 is greedy"),
    "length_penalty": (
        length_penalty,
        "A",
        "divide by length to this power: larger favours longer texts (default: 1); gnmt:A for GNMT's penalty",
    ),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; --help lists the options\n")


def _parser():
    parser = _Parser(
        prog="python -m minigpt",
        description="Continue a text, token by token.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("prompt", help="the text to continue")
    parser.add_argument("--model", choices=MODELS, default="shakespeare", help="default: %(default)s")
    parser.add_argument("--chat", action="store_true", default=False, help="put the prompt in the chat template")
    parser.add_argument("--max-new-tokens", type=int, default=200, metavar="N", help="default: %(default)s")
    for title, rules in (
        ("drawing the next token (a rule left out is off)", DRAWING),
        ("penalties (for drawing and for beams)", PENALTIES),
        ("beam search, instead of drawing", SEARCH),
    ):
        group = parser.add_argument_group(title)
        for name, (kind, letter, text) in rules.items():
            choices = ORDERS if name == "order" else None
            group.add_argument(_flag(name), type=kind, metavar=letter, choices=choices, help=text)
    output = parser.add_argument_group("output")
    output.add_argument("--stream", action=argparse.BooleanOptionalAction, help="show the text as it comes (default)")
    output.add_argument("--stats", action="store_true", default=False, help="print counts and times to stderr")
    return parser


def _flag(name):
    return "--" + name.replace("_", "-")


def _check_together(options):
    """Refuse settings of which one would be ignored."""
    if "num_beams" not in options:
        if "length_penalty" in options:
            raise ValueError("--length-penalty is for beam search: give --num-beams too, or leave it out")
        return
    unused = [_flag(name) for name in DRAWING if name in options] + ["--stream"] * options.get("stream", False)
    if unused:
        reason = "beam search draws nothing, and shows its text at the end"
        raise ValueError(f"--num-beams does not go with {', '.join(unused)}: {reason}")


class Meter:
    """Stands in for a model, and counts and times what goes through it.

    Args:
        model: a `MiniGPT`, or anything with `.config` and its `forward`.
        prompt_tokens: tokens of the prompt.
    """

    def __init__(self, model, prompt_tokens):
        self.model, self.config = model, model.config
        self.prompt_tokens, self.new_tokens, self.forward_tokens = prompt_tokens, 0, 0
        self.finish_reason = None
        self.start = self.first = self.last = time.perf_counter()

    def __call__(self, token_ids, *args, **settings):
        """The model's own forward."""
        self.forward_tokens += token_ids.numel()
        return self.model(token_ids, *args, **settings)

    def note(self, count, finish_reason):
        """New tokens are there now."""
        self.last = time.perf_counter()
        if not self.new_tokens:
            self.first = self.last
        self.new_tokens += count
        self.finish_reason = finish_reason

    def lines(self):
        """The report, one line a number; loading the model is no part of the times."""
        ended = f" (ended by: {self.finish_reason})" if self.new_tokens else ""
        yield f"prompt tokens             {self.prompt_tokens}"
        yield f"new tokens                {self.new_tokens}{ended}"
        yield f"tokens through the model  {self.forward_tokens}"
        if self.new_tokens:
            seconds = self.last - self.start
            yield f"time to first token       {self.first - self.start:.3f} s"
            yield f"tokens/s                  {self.new_tokens / seconds:.1f} (over {seconds:.3f} s, prompt included)"


def _drawn(meter, tokenizer, ids, params, options):
    """The continuation, in pieces as they come."""

    def steps():
        for step in made:
            meter.note(1, step.finish_reasons[0])
            yield step

    settings = {"max_new_tokens": options["max_new_tokens"], "eos_token_id": tokenizer.eos_token_id}
    made = stream(meter, ids, params=params, **settings)  # checks its settings now
    return stream_text(steps(), tokenizer)


def _searched(meter, tokenizer, ids, params, options):
    """The most probable continuation found, in one piece."""
    settings = {name: options[name] for name in ("max_new_tokens", *SEARCH) if name in options}
    eos = tokenizer.eos_token_id
    ((best,),) = beam_search(meter, ids, processors=params.pipeline(), eos_token_id=eos, **settings)
    meter.note(len(best.token_ids), best.finish_reason)
    decode = tokenizer.decoder()
    return ["".join(decode(i) for i in best.token_ids if i != eos)]


def _run(options):
    _check_together(options)
    params = SamplingParams(**{name: options[name] for name in (*DRAWING, *PENALTIES) if name in options})
    model, tokenizer = load(options["model"])
    prompt = options["prompt"]
    prompt.encode()  # half a character, as a terminal may send it, is an error here
    ids = tokenizer.chat([{"role": "user", "content": prompt}]) if options["chat"] else tokenizer.encode(prompt)
    if not ids:
        raise ValueError("the prompt is empty: give at least one character")
    meter = Meter(model, len(ids))
    run = _searched if "num_beams" in options else _drawn
    pieces = run(meter, tokenizer, torch.tensor([ids]), params, options)
    pieces = (piece for part in ([] if options["chat"] else [prompt], pieces, ["\n"]) for piece in part)
    for piece in pieces if options.get("stream", True) else ["".join(pieces)]:
        print(piece, end="", flush=True)
    if options["stats"]:
        print("\n".join(meter.lines()), file=sys.stderr)


def main(arguments=None):
    """Print the prompt and its continuation as it comes.

    Exit codes: 2 after one line on a bad value, 130 after Ctrl-C, 141 when nobody reads the text any more.
    """
    options = vars(_parser().parse_args(arguments))
    try:
        _run(options)
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the terminal's next prompt gets a line of its own
        sys.exit(130)
    except BrokenPipeError:  # as in `| head -1`; what is still to be written goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (ValueError, OSError) as error:
        print(f"python -m minigpt: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
