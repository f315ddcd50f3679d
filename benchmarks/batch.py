"""One decode step against the number of rows: SmolLM2, plain and packed, after a short text and after a long one.

The weights are read once for all rows, the cache of each row for itself: after 1,024 tokens it passes the float32
weights between 8 and 16 rows. Every row holds the same text; it is prefilled once and its cache fanned out.
"""

import argparse
import statistics
import time

import torch
from decode import packed_models, weight_bytes
from harness import read_bandwidth, report

from minigpt import KVCache, load
from minigpt.corpus import HELD_OUT, plays
from minigpt.costs import kv_bytes
from minigpt.shapes import ModelShape

BATCHES = (1, 2, 4, 8, 16, 32)
CONTEXTS = {64: None, 1024: ("minigpt, packed",)}  # tokens in the cache → engines, None for all
STEPS = 5  # timed in each round; after each the cache goes back


@torch.no_grad()
def filled(model, token_ids, batch_size):
    """A cache with the tokens (1, P) in batch_size rows, and room for one more."""
    cache = KVCache(model.config, 1, token_ids.size(1) + 1)
    model(token_ids, cache, num_logits=1)
    cache.reorder([0] * batch_size)
    return cache


@torch.no_grad()
def step_seconds(model, cache, last_ids):
    """Seconds of each of STEPS decode steps of last_ids (B, 1), all at the same place; one more warms up."""
    seconds, held = [], cache.length
    for _ in range(STEPS + 1):
        start = time.perf_counter()
        model(last_ids, cache, num_logits=1).argmax(-1)
        seconds.append(time.perf_counter() - start)
        cache.truncate(held)
    return seconds[1:]


def measure(models, text, context, repeats):
    """Rows of one context: engine and batch size in turn, `repeats` rounds."""
    shape = ModelShape.of(next(iter(models.values())).config)
    seconds = {(name, batch): [] for name in models for batch in BATCHES}
    for _ in range(repeats):
        for batch in BATCHES:
            cache = filled(models["minigpt, packed"], text[:, :context], batch)
            for name, model in models.items():
                seconds[name, batch] += step_seconds(model, cache, text[:, context : context + 1].repeat(batch, 1))
    step = {key: statistics.median(times) for key, times in seconds.items()}
    rows = []
    for (name, batch), median in step.items():
        weights = weight_bytes(models[name])
        cache = kv_bytes(shape, context + 1, batch, bits=32)
        rows.append(
            {
                "engine": name,
                "context": context,
                "batch": batch,
                "step s": median,
                "tokens/s": batch / median,
                "times batch 1": batch * step[name, 1] / median,
                "MB of weights": weights / 1e6,
                "MB of cache": cache / 1e6,
                "bytes_per_s": (weights + cache) / median,
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model, tokenizer = load("smollm2")
    models = {**packed_models(), "minigpt": model}
    text = torch.tensor([tokenizer.encode(plays(HELD_OUT)[:20_000])[: max(CONTEXTS) + 1]])
    rates, rows = [read_bandwidth()], []
    for context, names in CONTEXTS.items():
        chosen = {name: m for name, m in models.items() if names is None or name in names}
        rows += measure(chosen, text, context, options.repeats)
        rates.append(read_bandwidth())
    bandwidth = statistics.median(rates)
    for row in rows:
        row["share of read bandwidth"] = row["bytes_per_s"] / bandwidth
    settings = {"model": "smollm2", "dtype": "float32 but for the weights named", "steps": STEPS}
    report("batch", {**settings, "read GB/s": bandwidth / 1e9, **vars(options)}, rows)


if __name__ == "__main__":
    main()
