"""Greedy generation with and without a cache: seconds until the n-th new token, both models, beside a forecast.

The forecast has two numbers of the machine, measured in the same run: the FLOPs per second of one long pass and the
bytes per second of one decode step. A pass should take the longer of its FLOPs over the one and its bytes over the
other. On the play model a step's time is Python's more than memory's, so its bytes per second only stand for that.
"""

import argparse
import statistics
import time
from itertools import accumulate

import torch
from harness import median_ratio, read_bandwidth, report, seconds_of

from minigpt import KVCache, load
from minigpt.corpus import HELD_OUT, plays
from minigpt.costs import decode_flops, decode_read_bytes, prefill_flops, roofline_s, tokens_through_model
from minigpt.costs import weight_read_bytes as read_once
from minigpt.shapes import ModelShape

RUNS = {"shakespeare": (8, 248, 7), "smollm2": (16, 256, 3)}  # prompt, new tokens, repeats
LONG = 256  # tokens of the pass that shows the FLOPs per second
POINTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 248, 256)


@torch.no_grad()
def clocked(model, token_ids, n_new, cached):
    """Greedy: the text (1, P + N), and the seconds from the start until each new token."""
    cache = KVCache(model.config, 1, token_ids.size(1) + n_new) if cached else None
    seconds, start = [], time.perf_counter()
    for _ in range(n_new):
        new = token_ids if cache is None else token_ids[:, cache.length :]
        best = model(new, cache, num_logits=1).argmax(-1)  # (1, 1)
        token_ids = torch.cat((token_ids, best), 1)
        seconds.append(time.perf_counter() - start)
    return token_ids, seconds


@torch.no_grad()
def rates(model, token_ids, repeats=5):
    """FLOPs per second of a pass of all tokens (attention in full), and bytes per second of a decode step after 8."""
    shape, S = ModelShape.of(model.config), 8
    cache = KVCache(model.config, 1, 64)
    model(token_ids[:, :S], cache, num_logits=1)

    def step():
        model(token_ids[:, S : S + 1], cache, num_logits=1)
        cache.truncate(S)

    passes = seconds_of({"pass": lambda: model(token_ids, num_logits=1)}, repeats)["pass"]
    steps = seconds_of({"step": step}, 8 * repeats)["step"]
    flops = prefill_flops(shape, token_ids.size(1), convention="full").total
    n_bytes = decode_read_bytes(shape, S + 1, weight_bits=32, kv_bits=32)
    return {"flops_per_s": flops / statistics.median(passes), "bytes_per_s": n_bytes / statistics.median(steps)}


def expected(shape, P, N, cached, **rates):
    """Forecast of the seconds until each new token, in float32."""
    passes = []
    for S in range(P, P + N):
        if cached and S > P:
            work = decode_flops(shape, S).total, decode_read_bytes(shape, S, weight_bits=32, kv_bits=32)
        else:
            work = prefill_flops(shape, S, convention="full").total, read_once(shape, bits=32)
        passes.append(roofline_s(*work, **rates))
    return list(accumulate(passes))


def curve(name, P, N, repeats):
    """Rows of a model, one a number of new tokens, and the rates behind the forecast."""
    model, tokenizer = load(name)
    token_ids = torch.tensor([tokenizer.encode(plays(HELD_OUT)[: 8 * LONG])[:LONG]])
    measured, shape = rates(model, token_ids), ModelShape.of(model.config)
    runs = {True: [], False: []}
    for run in range(repeats + 1):  # the first one warms up
        texts = {}
        for cached, kept in runs.items():
            texts[cached], seconds = clocked(model, token_ids[:, :P], N, cached)
            kept.extend([seconds] if run else [])
        assert torch.equal(texts[True], texts[False]), "both must write the same text"
    forecast = {cached: expected(shape, P, N, cached, **measured) for cached in runs}
    rows = []
    for n in (n for n in POINTS if n <= N):
        at = {cached: [seconds[n - 1] for seconds in kept] for cached, kept in runs.items()}
        rows.append(
            {
                "model": name,
                "prompt tokens": P,
                "new tokens": n,
                "cached s": statistics.median(at[True]),
                "naive s": statistics.median(at[False]),
                "cached is faster by": median_ratio(at[False], at[True]),
                "tokens cached": tokens_through_model(P, n, cached=True),
                "tokens naive": tokens_through_model(P, n, cached=False),
                "expected cached s": forecast[True][n - 1],
                "expected naive s": forecast[False][n - 1],
            }
        )
    return rows, {"repeats": repeats, **measured}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, help="in place of 7 (play model) and 3 (SmolLM2)")
    options = parser.parse_args()
    rows, rates_of = [], {}
    for name, (P, N, repeats) in RUNS.items():
        part, rates_of[name] = curve(name, P, N, options.repeats or repeats)
        rows += part
    settings = {"dtype": "float32", "batch": 1, "read GB/s": read_bandwidth() / 1e9, "models": rates_of}
    report("cache", settings, rows)


if __name__ == "__main__":
    main()
