"""Questions with one right answer, asked of SmolLM2: sampled, greedy, and by beams. Chapter 06.

Sums of two numbers from 3 to 8, and capitals of 36 countries, through the chat template. A sum is right if the last
number of the answer is the sum, a capital if the answer names it.
"""

import argparse
import json
import re
import sys

import torch
from harness import RESULTS, show, write

from minigpt import SamplingParams, generate, load
from minigpt.search import beam_search

CAPITALS = """
France Paris, Germany Berlin, Italy Rome, Spain Madrid, Portugal Lisbon, Austria Vienna, Poland Warsaw, Greece Athens,
Russia Moscow, Ireland Dublin, Norway Oslo, Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Hungary Budapest,
Belgium Brussels, Egypt Cairo, Kenya Nairobi, Nigeria Abuja, Ghana Accra, Morocco Rabat, Japan Tokyo, China Beijing,
Thailand Bangkok, Vietnam Hanoi, Iran Tehran, Iraq Baghdad, Turkey Ankara, Cuba Havana, Peru Lima, Chile Santiago,
Canada Ottawa, Colombia Bogotá, Australia Canberra, Indonesia Jakarta, Ukraine Kyiv
"""
TASKS = {
    "sums": {f"What is {a} + {b}?": str(a + b) for a in range(3, 9) for b in range(3, 9)},
    "capitals": {
        f"What is the capital of {country}?": city
        for country, city in (pair.split() for pair in CAPITALS.replace("\n", " ").split(","))
    },
}
STRATEGIES = {
    "sampled": {},
    "greedy": {"temperature": 0},
    "beams 4, α = 0": {"num_beams": 4, "length_penalty": 0.0},
    "beams 4, α = 1": {"num_beams": 4, "length_penalty": 1.0},
}
NEW_TOKENS = 32


def is_right(task, answer, expected):
    """Whether an answer is the expected one."""
    if task == "sums":
        return re.findall(r"\d+", answer)[-1:] == [expected]
    return expected in answer


def padded(tokenizer, questions):
    """Chat prompts in one batch: ids (B, P) and which are no padding."""
    ids = [tokenizer.chat([{"role": "user", "content": question}]) for question in questions]
    width = max(map(len, ids))
    rows = torch.tensor([[0] * (width - len(row)) + row for row in ids])
    return rows, torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in ids])


def answers(model, tokenizer, questions, strategy, first_seed=0):
    """The answer to each question, without EOS."""
    prompts, mask = padded(tokenizer, questions)
    request = {"max_new_tokens": NEW_TOKENS, "eos_token_id": tokenizer.eos_token_id, "attention_mask": mask}
    how = STRATEGIES[strategy]
    if "num_beams" in how:
        texts = [best.token_ids for (best,) in beam_search(model, prompts, **how, **request)]
    else:
        params = [SamplingParams(**how, seed=first_seed + i) for i in range(len(questions))]
        texts = generate(model, prompts, params=params, **request).new_token_ids.tolist()
    eos = tokenizer.eos_token_id
    return [tokenizer.decode(text[: text.index(eos)] if eos in text else text) for text in map(list, texts)]


def merged(row):
    """The rows of the file with `row` in its place: by task, then strategy."""
    path = RESULTS / "closed.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(r["task"], r["strategy"]): r for r in [*rows, row]}
    return [rows[place] for place in [(task, strategy) for task in TASKS for strategy in STRATEGIES] if place in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, nargs="+", default=list(TASKS))
    parser.add_argument("--strategy", choices=STRATEGIES, nargs="+", default=list(STRATEGIES))
    parser.add_argument("--batch-size", type=int, default=16, help="changes no answer, but for rounding")
    options = parser.parse_args()
    model, tokenizer = load("smollm2")
    for task in options.task:
        questions = list(TASKS[task])
        for strategy in options.strategy:
            said = []
            for first in range(0, len(questions), options.batch_size):
                said += answers(model, tokenizer, questions[first : first + options.batch_size], strategy, first)
                print(f"{task}, {strategy}: {len(said)} answers", file=sys.stderr)
            right = [is_right(task, *pair) for pair in zip(said, TASKS[task].values(), strict=True)]
            words = sum(len(answer.split()) for answer in said) / len(said)
            row = {"task": task, "strategy": strategy, "questions": len(said), "answers_each": 1, "right": sum(right)}
            row["right_of_each"] = " ".join(str(int(one)) for one in right)
            rows = merged({**row, "mean_words": round(words, 1), "answers": said})
            write(
                "closed", {"new_tokens": NEW_TOKENS, "strategies": STRATEGIES, "seeds": "the question's number"}, rows
            )
    show([{key: value for key, value in row.items() if key != "answers"} for row in rows])


if __name__ == "__main__":
    main()
