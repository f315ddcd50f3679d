"""How probable texts are under a model: by people, sampled, greedy, and found by beams of several widths. Chapter 06.

A hundred passages, evenly spread over the two plays that the play models were not trained on, each begin with a prompt
and go on with as many tokens by their author as the strategies may write. No text ends early, so all are equally long.
(SmolLM2 may well have read the plays.) A row that is in the file already is replaced, others are kept: a run can be
made in parts.
"""

import argparse
import json
import sys

import torch
from harness import RESULTS, show, write

from minigpt import SamplingParams, generate, load, token_log_probs
from minigpt.choosing import repeated_windows
from minigpt.corpus import HELD_OUT, plays
from minigpt.search import beam_search

# Tokens of prompt and continuation, and of the windows whose repeats are counted.
LENGTHS = {"shakespeare": (64, 128, 12), "smollm2": (32, 48, 4)}
KINDS = {
    "people": None,
    "sampled": {"temperature": 1.0},
    "top-p": {"top_p": 0.9},
    "greedy": {"temperature": 0},
    "beams 2": 2,
    "beams 4": 4,
    "beams 8": 8,
}
PASSAGES = 100


def passages(tokenizer, name):
    """Prompts and their authors' continuations: ids (B, P) and (B, N)."""
    prompt, new, _ = LENGTHS[name]
    text = plays(HELD_OUT)
    starts = [text.index("\n\n", len(text) * i // (PASSAGES + 1)) + 2 for i in range(PASSAGES)]  # a speech begins
    ids = [tokenizer.encode(text[start : start + 8 * (prompt + new)])[: prompt + new] for start in starts]
    return torch.tensor(ids).split([prompt, new], dim=1)


def continued(model, prompts, people, kind, seeds):
    """The new tokens of one kind after some of the prompts, (B, N)."""
    how, new = KINDS[kind], people.size(1)
    if how is None:
        return people
    if isinstance(how, int):
        found = beam_search(model, prompts, num_beams=how, max_new_tokens=new)
        return torch.tensor([best.token_ids for (best,) in found])
    params = [SamplingParams(**how, seed=seed) for seed in seeds]
    return generate(model, prompts, max_new_tokens=new, params=params).new_token_ids


def measured(model, prompts, texts, window):
    """What the file says of the texts of one kind."""
    log_probs = torch.cat([token_log_probs(model, both) for both in torch.cat((prompts, texts), 1).split(10)])
    log_probs = log_probs[:, -texts.size(1) :].double()  # (B, N)
    repeats = [repeated_windows(text, window) for text in texts.tolist()]
    return {
        "texts": len(texts),
        "new_tokens": texts.numel(),
        "log_prob": round(float(log_probs.mean()), 4),
        "error": round(float(log_probs.mean(1).std() / len(texts) ** 0.5), 4),
        "repeated": round(sum(repeats) / len(repeats), 4),
        "by_text": [round(x, 3) for x in log_probs.mean(1).tolist()],
        "by_position": [round(x, 3) for x in log_probs.mean(0).tolist()],
    }


def merged(row):
    """The rows of the file with `row` in its place: by model, then kind."""
    path = RESULTS / "likelihood.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(r["model"], r["kind"]): r for r in [*rows, row]}
    return [rows[place] for place in [(model, kind) for model in LENGTHS for kind in KINDS] if place in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=LENGTHS, nargs="+", default=list(LENGTHS))
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--batch-size", type=int, default=20, help="changes no text, but for rounding")
    options = parser.parse_args()
    for name in options.model:
        model, tokenizer = load(name)
        prompts, people = passages(tokenizer, name)
        for kind in options.kind:
            texts = []
            for first in range(0, PASSAGES, options.batch_size):
                part = slice(first, first + options.batch_size)
                texts.append(continued(model, prompts[part], people[part], kind, range(PASSAGES)[part]))
                print(f"{name}, {kind}: {first + len(texts[-1])} texts", file=sys.stderr)
            row = {"model": name, "kind": kind, **measured(model, prompts, torch.cat(texts), LENGTHS[name][2])}
            rows = merged(row)
            lengths = {name: dict(zip(("prompt", "new", "window"), n, strict=True)) for name, n in LENGTHS.items()}
            write("likelihood", {"lengths": lengths, "kinds": KINDS, "seeds": f"0 to {PASSAGES - 1}"}, rows)
    show([{key: value for key, value in row.items() if not key.startswith("by_")} for row in rows])


if __name__ == "__main__":
    main()
