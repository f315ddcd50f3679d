"""How often each strategy loops: 100 texts a strategy and model, from the same prompts with the same seeds.

The prompts are the first four words of 100 lines, evenly spread over the two plays that the play models were not
trained on; the text from prompt i has seed i. A text loops if more than half of its 20-token windows stood in it
before. 20 characters are about four words, 20 tokens of SmolLM2 about a sentence; so the count with windows of 12
stands beside it and says how much hangs on that choice. Prompts do not count. A text ends early where the model says
so (EOS; the play models have none). A row that is in the file already is replaced, others are kept: a run can be made
in parts.
"""

import argparse
import json
import sys

import torch
from harness import RESULTS, show, write

from minigpt import SamplingParams, generate, load
from minigpt.choosing import distinct_n, repeated_windows
from minigpt.corpus import HELD_OUT, plays

MODELS = ("shakespeare-early", "shakespeare", "smollm2")
STRATEGIES = {
    "greedy": {"temperature": 0},
    "temperature": {"temperature": 0.8},
    "top-k": {"top_k": 50},
    "top-p": {"top_p": 0.95},
    "all three": {"temperature": 0.8, "top_k": 50, "top_p": 0.95},
    "plain sampling": {},
    "greedy, repetition penalty": {"temperature": 0, "repetition_penalty": 1.1},
    "greedy, no repeated 4-gram": {"temperature": 0, "no_repeat_ngram_size": 4},
}
SETTINGS = {"new_tokens": 220, "window": 20, "loops_above": 0.5, "prompt_words": 4}


def prompts(count=100):
    """The beginnings of lines of six words or more, no beginning twice."""
    lines = [line.split() for line in plays(HELD_OUT).splitlines()]
    beginnings = [" ".join(words[: SETTINGS["prompt_words"]]) for words in lines if len(words) >= 6]
    beginnings = list(dict.fromkeys(beginnings))
    return beginnings[:: len(beginnings) // count][:count]


def continuations(model, tokenizer, texts, settings, seeds):
    """The new tokens after each text, a list of ids a row; EOS and what comes after it are cut."""
    ids = [tokenizer.encode(text) for text in texts]
    width = max(map(len, ids))
    padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])  # (B, P)
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in ids])
    made = generate(
        model,
        padded,
        max_new_tokens=SETTINGS["new_tokens"],
        params=[SamplingParams(**settings, seed=seed) for seed in seeds],
        eos_token_id=tokenizer.eos_token_id,
        attention_mask=mask,
    )
    rows = made.new_token_ids.tolist()
    return [row[: row.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in row else row for row in rows]


def measured(texts):
    """What the file says of the texts of one strategy."""
    shares = [round(repeated_windows(text, SETTINGS["window"]), 3) for text in texts]
    return {
        "generations": len(texts),
        "new_tokens": sum(map(len, texts)),
        "ended_early": sum(len(text) < SETTINGS["new_tokens"] for text in texts),
        "looping": sum(share > SETTINGS["loops_above"] for share in shares),
        "looping_12": sum(repeated_windows(text, 12) > SETTINGS["loops_above"] for text in texts),
        "share_mean": round(sum(shares) / len(shares), 3),
        "distinct_2": round(distinct_n(texts), 3),
        "shares": shares,
    }


def merged(row):
    """The rows of the file with `row` in its place: by model, then strategy."""
    path = RESULTS / "loops.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    places = [(model, strategy) for model in MODELS for strategy in STRATEGIES]
    rows = {(r["model"], r["strategy"]): r for r in [*rows, row]}
    return [rows[place] for place in places if place in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, nargs="+", default=MODELS)
    parser.add_argument("--strategy", choices=STRATEGIES, nargs="+", default=list(STRATEGIES))
    parser.add_argument("--batch-size", type=int, default=50, help="changes no text, but for rounding")
    options = parser.parse_args()
    texts = prompts()
    for name in options.model:
        model, tokenizer = load(name)
        for strategy in options.strategy:
            made = []
            for first in range(0, len(texts), options.batch_size):
                seeds = range(len(texts))[first : first + options.batch_size]
                part = texts[first : first + options.batch_size]
                made += continuations(model, tokenizer, part, STRATEGIES[strategy], seeds)
                print(f"{name}, {strategy}: {len(made)} texts", file=sys.stderr)
            row = {"model": name, "strategy": strategy, "settings": STRATEGIES[strategy], **measured(made)}
            row["first_text"] = tokenizer.decode(made[0])
            rows = merged(row)
            write("loops", {**SETTINGS, "seeds": f"0 to {len(texts) - 1}", "prompts": texts}, rows)
    hidden = ("settings", "shares", "first_text")
    show([{key: value for key, value in row.items() if key not in hidden} for row in rows])


if __name__ == "__main__":
    main()
