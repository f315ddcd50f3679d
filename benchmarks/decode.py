"""Greedy decoding of SmolLM2: minigpt, plain and packed, against transformers' generate in float32; same weights.

Packed in float32 it must write the same tokens; in bfloat16, int8 or int4 it may not, and its perplexity on a fixed
text stands beside its speed. The share of the machine's read bandwidth counts the weights of each step, nothing else.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import torch
from harness import median_ratio, read_bandwidth, report, seconds_of

from minigpt import SamplingParams, generate, load, token_log_probs
from minigpt.corpus import play
from minigpt.packed_linear import KINDS, is_available, packed_nbytes

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from peer import llama  # noqa: E402

PROMPT = "Once upon a time there was"
PLAY, NUM_TEXT_TOKENS = "henry-vi-part-3", 512  # its opening: the weights were rounded without looking at any text


def packed_models():
    """SmolLM2 packed in each kind of weights that this machine can multiply: name of the engine → model."""
    kinds = [kind for kind in KINDS if is_available(kind)]
    names = ["minigpt, packed" if kind == "float32" else f"minigpt, packed {kind}" for kind in kinds]
    return {name: load("smollm2")[0].optimize(kind) for name, kind in zip(names, kinds, strict=True)}


def quality(model, ids, reference):
    """Perplexity on a text, and the share of its positions at which the first choice is that of the plain model."""
    with torch.no_grad():
        same = (model(ids).argmax(-1) == reference(ids).argmax(-1)).double().mean().item()
    return {"perplexity": token_log_probs(model, ids).mean().neg().exp().item(), "same first choice": same}


def weight_bytes(model):
    """Bytes of weights in one decode step: packed ones as held, plain ones in float32, the embedding as the head."""
    return packed_nbytes(model) or sum(weight.nbytes for weight in model.parameters() if weight.dim() == 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    model, tokenizer = load("smollm2")
    models = {**packed_models(), "minigpt": model}
    peer = llama(model)
    text = torch.tensor([tokenizer.encode(play(PLAY))[:NUM_TEXT_TOKENS]])
    measured = {name: quality(m, text, model) for name, m in models.items()}
    measured["transformers"] = measured["minigpt"]  # the same weights and, below, the same tokens
    read = {name: weight_bytes(m) for name, m in models.items()}
    read["transformers"] = read["minigpt"]
    bytes_per_s = read_bandwidth()
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

        ways = {**{name: partial(ours, m) for name, m in models.items()}, "transformers": theirs}
        exact = [way for name, way in ways.items() if name in ("minigpt, packed", "minigpt")]
        assert all(torch.equal(way(), theirs()) for way in exact), "all in float32 must write the same tokens"
        seconds = seconds_of(ways, options.repeats)
        for name, runs in seconds.items():
            median = sorted(runs)[len(runs) // 2]
            rows.append(
                {
                    "engine": name,
                    "batch": batch_size,
                    "tokens/s": batch_size * new / median,
                    "times transformers": median_ratio(seconds["transformers"], runs),
                    "fastest s": min(runs),
                    "slowest s": max(runs),
                    "MB of weights": read[name] / 1e6,
                    "share of read bandwidth": read[name] * new / median / bytes_per_s,
                    **measured[name],
                }
            )
    settings = {
        "model": "smollm2",
        "dtype": "float32 but for the weights named",
        "prompt tokens": prompt.size(1),
        "text of the perplexity": f"first {text.size(1)} tokens of {PLAY}",
        "read GB/s": bytes_per_s / 1e9,
        **vars(options),
    }
    report("decode", settings, rows)


if __name__ == "__main__":
    main()
