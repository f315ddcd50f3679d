"""Time to the first token and time per token after it, against the length of the prompt: SmolLM2, one row, float32."""

import argparse
import statistics
import time

import torch
from harness import report

from minigpt import KVCache, load
from minigpt.corpus import HELD_OUT, plays
from minigpt.costs import prefill_flops
from minigpt.shapes import ModelShape

PROMPTS = (16, 32, 64, 128, 256, 512, 1024, 2048)
STEPS = 16  # decode steps timed after each prompt


@torch.no_grad()
def latency(model, token_ids):
    """Seconds to the first token after token_ids (1, P), and the median of the decode steps after it."""
    cache, seconds = KVCache(model.config, 1, token_ids.size(1) + STEPS), []
    for _ in range(1 + STEPS):
        start = time.perf_counter()
        token_ids = model(token_ids, cache, num_logits=1).argmax(-1)  # (1, 1)
        seconds.append(time.perf_counter() - start)
    return seconds[0], statistics.median(seconds[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, nargs="+", default=PROMPTS)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model, tokenizer = load("smollm2")
    models = {"minigpt": model, "minigpt, packed": load("smollm2")[0].optimize()}
    longest = max(options.prompts)
    text = torch.tensor([tokenizer.encode(plays(HELD_OUT)[: 8 * longest])[:longest]])
    rows = []
    for P in options.prompts:
        runs = {name: [] for name in models}
        for run in range(options.repeats + 1):  # the first one warms up
            for name, m in models.items():
                once = latency(m, text[:, :P])
                runs[name].extend([once] if run else [])
        flops = prefill_flops(ModelShape.of(model.config), P, convention="full")
        for name, kept in runs.items():
            first, per_token = (statistics.median(times) for times in zip(*kept, strict=True))
            rows.append(
                {
                    "engine": name,
                    "prompt tokens": P,
                    "time to first token s": first,
                    "time per output token s": per_token,
                    "prefill tokens/s": P / first,
                    "prefill GFLOP/s": flops.total / first / 1e9,
                    "attention's share of FLOPs": flops.attention / flops.total,
                    "fastest s": min(kept)[0],
                    "slowest s": max(kept)[0],
                }
            )
    report("latency", {"model": "smollm2", "dtype": "float32", "batch": 1, "steps": STEPS, **vars(options)}, rows)


if __name__ == "__main__":
    main()
