"""Greedy decoding of SmolLM2 in float32: minigpt, packed and plain, against transformers' generate; same weights."""

import argparse
import sys
from functools import partial
from pathlib import Path

import torch
from harness import median_ratio, report, seconds_of

from minigpt import SamplingParams, generate, load

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from peer import llama  # noqa: E402

PROMPT = "Once upon a time there was"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    model, tokenizer = load("smollm2")
    peer = llama(model)
    packed = load("smollm2")[0].optimize()
    prompt = torch.tensor([tokenizer.encode(PROMPT)])
    rows = []
    for batch_size in options.batch_sizes:
        ids = prompt.repeat(batch_size, 1)
        new = options.new_tokens

        def ours(model, ids=ids, new=new):
            return generate(model, ids, max_new_tokens=new, params=SamplingParams(temperature=0)).token_ids

        def theirs(ids=ids, new=new):
            mask = torch.ones_like(ids)
            return peer.generate(ids, attention_mask=mask, do_sample=False, min_new_tokens=new, max_new_tokens=new)

        ways = {"minigpt, packed": partial(ours, packed), "minigpt": partial(ours, model), "transformers": theirs}
        assert all(torch.equal(way(), theirs()) for way in ways.values()), "all must write the same tokens"
        seconds = seconds_of(ways, options.repeats)
        for name, runs in seconds.items():
            median = sorted(runs)[len(runs) // 2]
            ratio = median_ratio(seconds["transformers"], runs)
            rows.append(
                {
                    "engine": name,
                    "batch": batch_size,
                    "tokens/s": batch_size * new / median,
                    "times transformers": ratio,
                    "fastest s": min(runs),
                    "slowest s": max(runs),
                }
            )
    settings = {"model": "smollm2", "dtype": "float32", "prompt tokens": prompt.size(1), **vars(options)}
    report("decode", settings, rows)


if __name__ == "__main__":
    main()
