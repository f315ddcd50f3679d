"""Does a cache change the numbers? Logits with and without one, in three dtypes, and tokens counted. Chapter 08.

A text of 247 tokens from a play that the play model has not read. With the cache its first 183 go through the model at
once and the others one by one; without it all at once, as in training. `layers` is how many of SmolLM2's 30 are used:
a model of its first six is no good writer, but float64 is quick on it.
"""

import argparse
from dataclasses import replace

import torch
from harness import report

from minigpt import KVCache, MiniGPT, SamplingParams, generate, generate_naive, load
from minigpt.corpus import HELD_OUT, plays

P, N = 183, 64
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
GENERATIONS = [(24, 8), (60, 20), (P, N)]  # prompt, new tokens


def shortened(model, n_layers):
    """A model of the first layers, with weights of its own; norm and head are those of the whole."""
    short = MiniGPT(replace(model.config, n_layers=n_layers))
    names = set(short.state_dict())
    short.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if name in names})
    return short.eval()


@torch.no_grad()
def both_ways(model, token_ids, n_prompt):
    """Logits (B, S − P + 1, V) of the prompt's last position and all after it: without a cache, and with one."""
    cache = KVCache(model.config, *token_ids.shape)
    parts = [model(token_ids[:, :n_prompt], cache, num_logits=1)]
    parts += [model(new, cache) for new in token_ids[:, n_prompt:].split(1, dim=1)]
    return model(token_ids, num_logits=token_ids.size(1) - n_prompt + 1), torch.cat(parts, 1)


def differences(model, token_ids, n_prompt):
    """Largest difference of a logit, and positions where another token is the likeliest."""
    naive, cached = both_ways(model, token_ids, n_prompt)
    return {
        "positions": naive.shape[0] * naive.shape[1],
        "largest difference": float((naive.double() - cached.double()).abs().max()),
        "other argmax": int((naive.argmax(-1) != cached.argmax(-1)).sum()),
    }


def counted(model, token_ids, n_new):
    """Greedy both ways: tokens that a hook sees go through the model, and whether the texts are equal."""
    row, texts = {"prompt": token_ids.size(1), "new": n_new}, []
    for name, run in (("cached", generate), ("uncached", generate_naive)):
        seen = []
        hook = model.register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args[0].numel()))
        texts.append(run(model, token_ids, max_new_tokens=n_new, params=SamplingParams(temperature=0)).token_ids)
        hook.remove()
        row[f"tokens {name}"] = sum(seen)
    return row | {"same text": torch.equal(*texts)}


def passage(tokenizer, n_tokens):
    """The first tokens of the held-out plays: (1, n_tokens)."""
    return torch.tensor([tokenizer.encode(plays(HELD_OUT)[: 8 * n_tokens])[:n_tokens]])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[6, 30])
    options = parser.parse_args()
    model, tokenizer = load("smollm2")
    token_ids = passage(tokenizer, P + N)
    generations = [counted(model, token_ids[:, :p], n) for p, n in GENERATIONS]
    rows = []
    for layers in options.layers:
        for name, dtype in DTYPES.items():
            part = shortened(model, layers).to(dtype)
            rows.append({"layers": layers, "dtype": name, **differences(part, token_ids, P)})
    settings = {"model": "smollm2 (4-bit file, dequantised)", "prompt": P, "new": N, "generations": generations}
    report("exactness", settings, rows)


if __name__ == "__main__":
    main()
