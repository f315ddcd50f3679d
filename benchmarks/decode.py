"""Greedy decoding of SmolLM2 in float32: tokens/s of minigpt against transformers' generate with the same weights."""

import argparse
import sys
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
    prompt = torch.tensor([tokenizer.encode(PROMPT)])
    rows = []
    for batch_size in options.batch_sizes:
        ids = prompt.repeat(batch_size, 1)
        new = options.new_tokens

        def ours(ids=ids, new=new):
            return generate(model, ids, max_new_tokens=new, params=SamplingParams(temperature=0)).token_ids

        def theirs(ids=ids, new=new):
            mask = torch.ones_like(ids)
            return peer.generate(ids, attention_mask=mask, do_sample=False, min_new_tokens=new, max_new_tokens=new)

        assert torch.equal(ours(), theirs()), "both must write the same tokens"
        seconds = seconds_of({"minigpt": ours, "transformers": theirs}, options.repeats)
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
