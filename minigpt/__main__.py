"""The command line: `python -m minigpt "ROMEO:" --temperature 0.8 --top-p 0.9`. Chapter 05."""

import argparse
import sys

import torch

from minigpt.generation import stream, stream_text
from minigpt.pretrained import MODELS, load
from minigpt.sampling import SamplingParams

SETTINGS = {
    "temperature": (float, "at least 0; 0 is greedy, 1 changes nothing"),
    "top_k": (int, "keep the k most likely tokens"),
    "top_p": (float, "keep the smallest set of tokens with this mass, in (0, 1]"),
    "min_p": (float, "keep tokens this many times as likely as the best, in [0, 1]"),
    "typical_p": (float, "keep the most typical tokens with this mass, in (0, 1]"),
    "epsilon": (float, "keep tokens of at least this probability, in (0, 1)"),
    "eta": (float, "the same, with a floor that sinks where the distribution is flat, in (0, 1)"),
    "top_n_sigma": (float, "keep logits within n standard deviations of the largest"),
    "seed": (int, "makes the text repeatable"),
}


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m minigpt", description="Continue a text, token by token.", argument_default=argparse.SUPPRESS
    )
    parser.add_argument("prompt", help="the text to continue")
    parser.add_argument("--model", choices=MODELS, default="shakespeare", help="default: %(default)s")
    parser.add_argument("--chat", action="store_true", default=False, help="put the prompt in the chat template")
    parser.add_argument("--max-new-tokens", type=int, default=200, metavar="N", help="default: %(default)s")
    choice = parser.add_argument_group("how to choose the next token (a rule left out is off)")
    for name, (kind, text) in SETTINGS.items():
        choice.add_argument("--" + name.replace("_", "-"), type=kind, metavar="X", help=text)
    return parser


def main(arguments=None):
    """Print the prompt and its continuation as it comes; a bad value ends with one line and exit code 2."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    settings = {name: options[name] for name in SETTINGS if name in options}
    try:
        params = SamplingParams(**settings)
        model, tokenizer = load(options["model"])
        if options["chat"]:
            ids = tokenizer.chat([{"role": "user", "content": options["prompt"]}])
        else:
            ids = tokenizer.encode(options["prompt"])
        eos = tokenizer.eos_token_id
        steps = stream(
            model, torch.tensor([ids]), max_new_tokens=options["max_new_tokens"], params=params, eos_token_id=eos
        )
        if not options["chat"]:
            print(options["prompt"], end="", flush=True)
        for piece in stream_text(steps, tokenizer):
            print(piece, end="", flush=True)
        print()
    except (ValueError, OSError) as error:
        print(f"python -m minigpt: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
