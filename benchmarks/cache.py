"""The play model with and without its cache: tokens/s at several total lengths, greedy, from a prompt of 8."""

import argparse

import torch
from harness import median_ratio, report, seconds_of

from minigpt import SamplingParams, generate, generate_naive, load
from minigpt.corpus import HELD_OUT, play

PROMPT = 8  # tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--totals", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    model, tokenizer = load("shakespeare")
    ids = torch.tensor([tokenizer.encode(play(HELD_OUT[0])[:PROMPT])])
    rows = []
    for total in options.totals:
        settings = {"max_new_tokens": total - PROMPT, "params": SamplingParams(temperature=0)}
        cached, naive = generate(model, ids, **settings), generate_naive(model, ids, **settings)
        assert torch.equal(cached.token_ids, naive.token_ids), "both must write the same text"
        seconds = seconds_of(
            {
                "cached": lambda settings=settings: generate(model, ids, **settings),
                "naive": lambda settings=settings: generate_naive(model, ids, **settings),
            },
            options.repeats,
        )
        middle = {name: sorted(runs)[len(runs) // 2] for name, runs in seconds.items()}
        rows.append(
            {
                "total length": total,
                "cached tokens/s": settings["max_new_tokens"] / middle["cached"],
                "naive tokens/s": settings["max_new_tokens"] / middle["naive"],
                "cached is faster by": median_ratio(seconds["naive"], seconds["cached"]),
                "tokens through the model": f"{cached.forward_tokens} / {naive.forward_tokens}",
                "ratio of tokens": naive.forward_tokens / cached.forward_tokens,
            }
        )
    settings = {"model": "shakespeare", "dtype": "float32", "batch": 1, "prompt tokens": PROMPT, **vars(options)}
    report("cache", settings, rows)


if __name__ == "__main__":
    main()
