"""Beam search in float32: minigpt packed, plain and without cache, and transformers' generate; same weights."""

import argparse
import sys
from pathlib import Path

import torch
from harness import median_ratio, report, seconds_of

from minigpt import beam_search, load

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from peer import llama  # noqa: E402

PROMPTS = {"shakespeare": "ROMEO:\nO, she doth teach the torches to", "smollm2": "Once upon a time there was"}


def contenders(name, options):
    """The ways to search, as functions without arguments, once they are seen to find the same texts."""
    model, tokenizer = load(name)
    packed = load(name)[0].optimize()
    peer = llama(model)
    ids = torch.tensor([tokenizer.encode(PROMPTS[name])])
    new, beams = options.new_tokens, options.num_beams

    def ours(model, use_cache=True):
        search = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": new, "use_cache": use_cache}
        return [hypothesis.token_ids for hypothesis in beam_search(model, ids, **search)[0]]

    def theirs():
        search = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": new, "do_sample": False}
        found = peer.generate(ids, attention_mask=torch.ones_like(ids), min_new_tokens=new, **search)
        return [tuple(text) for text in found[:, ids.size(1) :].tolist()]

    assert ours(packed) == ours(model) == ours(model, use_cache=False) == theirs(), (
        "all must find the same texts in the same order"
    )
    return ids.size(1), {
        "minigpt, packed": lambda: ours(packed),
        "minigpt": lambda: ours(model),
        "minigpt, no cache": lambda: ours(model, use_cache=False),
        "transformers": theirs,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(PROMPTS), choices=list(PROMPTS))
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--num-beams", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for name in options.models:
        num_prompt_tokens, ways = contenders(name, options)
        seconds = seconds_of(ways, options.repeats)
        for way, runs in seconds.items():
            rows.append(
                {
                    "model": name,
                    "prompt tokens": num_prompt_tokens,
                    "engine": way,
                    "median s": sorted(runs)[len(runs) // 2],
                    "times transformers": median_ratio(seconds["transformers"], runs),
                    "times no cache": median_ratio(seconds["minigpt, no cache"], runs),
                    "fastest s": min(runs),
                    "slowest s": max(runs),
                }
            )
    report("search", {"dtype": "float32", **vars(options)}, rows)


if __name__ == "__main__":
    main()
