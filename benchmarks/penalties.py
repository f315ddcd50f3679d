"""What penalties break: loops, which is what they are for, and good text that has to repeat itself.

Loops: greedy continuations, without and with each penalty, of the prompts of `loops.py` (the first so many of them). A
text loops if more than half of its windows stood in it before: 20 tokens of SmolLM2, and 12 of the play model, whose
tokens are characters. Prompts do not count. Good text: SmolLM2
continues JSON records, Python constructors and a dialogue, ten of each. Whether a continuation is right is decided by
rules that know nothing of its taste: the record is valid JSON with the keys of the records before it (in the long task:
so is every record that it completes), the lines of the constructor are the ones that follow, the next two turns bear
the two names. Everything is greedy, so there is no seed.
"""

import argparse
import json
import sys

import torch
from harness import RESULTS, show, write
from loops import prompts

from minigpt import SamplingParams, generate, load
from minigpt.choosing import repeated_windows

STRATEGIES = {
    "none": {},
    "repetition 1.1": {"repetition_penalty": 1.1},
    "repetition 1.3": {"repetition_penalty": 1.3},
    "frequency 0.5": {"frequency_penalty": 0.5},
    "presence 0.5": {"presence_penalty": 0.5},
    "no repeated 3-gram": {"no_repeat_ngram_size": 3},
    "no repeated 8-gram": {"no_repeat_ngram_size": 8},
}
SETTINGS = {
    "texts": {"shakespeare-early": 100, "smollm2": 24},
    "window": {"shakespeare-early": 12, "smollm2": 20},
    "new_tokens": {"shakespeare-early": 220, "smollm2": 120},
    "loops_above": 0.5,
}
GOOD_TOKENS = {"JSON": 40, "long JSON": 140, "code": 40, "dialogue": 40}

RECORDS = [
    ("name", "age", ("Ada", 36), ("Alan", 41), "Grace"),
    ("city", "population", ("Oslo", 700000), ("Rome", 2800000), "Paris"),
    ("title", "year", ("Hamlet", 1603), ("Macbeth", 1606), "Othello"),
    ("item", "price", ("pen", 2), ("book", 12), "lamp"),
    ("animal", "legs", ("dog", 4), ("bird", 2), "spider"),
    ("planet", "moons", ("Earth", 1), ("Mars", 2), "Jupiter"),
    ("country", "capital", ("France", "Paris"), ("Italy", "Rome"), "Spain"),
    ("word", "length", ("cat", 3), ("horse", 5), "bee"),
    ("colour", "hex", ("red", "#ff0000"), ("green", "#00ff00"), "blue"),
    ("user", "active", ("anna", True), ("ben", False), "clara"),
]
CLASSES = [
    ("Box", "width", "height", "depth"),
    ("Person", "name", "age", "city"),
    ("Point", "x", "y", "z"),
    ("Book", "title", "author", "year"),
    ("Car", "brand", "model", "colour"),
    ("Song", "artist", "title", "length"),
    ("Room", "length", "width", "height"),
    ("Planet", "mass", "radius", "distance"),
    ("Loan", "amount", "rate", "years"),
    ("Match", "home", "away", "score"),
]
SPEAKERS = [
    ("Alice", "Bob"),
    ("Anna", "Ben"),
    ("Romeo", "Juliet"),
    ("Teacher", "Student"),
    ("Doctor", "Patient"),
    ("Mary", "John"),
    ("Emma", "Paul"),
    ("Customer", "Waiter"),
    ("Mother", "Son"),
    ("Sarah", "Tom"),
]


def _is_record(text, keys):
    try:
        return tuple(json.loads(text)) == keys
    except ValueError:
        return False


def records():
    """`(prompt, whether a continuation is right)` for JSON: the third record has its first key and value."""
    for first, second, *known, third in RECORDS:
        lines = [json.dumps({first: a, second: b}) for a, b in known]
        begun = f'{{"{first}": "{third}", "'

        def right(text, begun=begun, keys=(first, second)):
            record, end, _ = text.partition("}")
            return _is_record(begun + record + end, keys)

        yield "[" + ",\n ".join([*lines, begun]), right


def long_records():
    """The same prompts; right is a list in which every record that was completed is."""
    for (first, second, *_, third), (prompt, _) in zip(RECORDS, records(), strict=True):
        begun = f'{{"{first}": "{third}", "'

        def right(text, begun=begun, keys=(first, second)):
            *complete, _ = (begun + text).partition("]")[0].split("}")
            return bool(complete) and all(_is_record(one.strip(" ,\n") + "}", keys) for one in complete)

        yield prompt, right


def constructors():
    """The same for Python: the second of three assignments has begun."""
    for name, a, b, c in CLASSES:
        prompt = f"class {name}:\n    def __init__(self, {a}, {b}, {c}):\n        self.{a} = {a}\n        self.{b} ="

        def right(text, wanted=(b, f"self.{c} = {c}")):
            return tuple(line.strip() for line in text.splitlines()[:2]) == wanted

        yield prompt, right


def dialogues():
    """The same for two speakers in turn, four turns are there."""
    for a, b in SPEAKERS:

        def right(text, names=(a, b)):
            lines = text.splitlines()
            return len(lines) > 1 and all(line.startswith(f"{who}:") for who, line in zip(names, lines, strict=False))

        yield f"{a}: Hello!\n{b}: Hello!\n{a}: How are you?\n{b}: Fine. And you?\n", right


TASKS = {"JSON": records, "long JSON": long_records, "code": constructors, "dialogue": dialogues}


def greedy(model, tokenizer, texts, settings, new_tokens):
    """The new tokens after each text, cut at EOS: a list of ids a row."""
    ids = [tokenizer.encode(text) for text in texts]
    width, eos = max(map(len, ids)), tokenizer.eos_token_id
    padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])  # (B, P)
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in ids])
    params = SamplingParams(temperature=0, **settings)
    run = {"max_new_tokens": new_tokens, "params": params, "attention_mask": mask, "eos_token_id": eos}
    rows = generate(model, padded, **run).new_token_ids.tolist()
    return [row[: row.index(eos)] if eos in row else row for row in rows]


def loop_row(name, model, tokenizer, strategy):
    """How many of the continuations loop."""
    texts = prompts()[: SETTINGS["texts"][name]]
    made = greedy(model, tokenizer, texts, STRATEGIES[strategy], SETTINGS["new_tokens"][name])
    shares = [repeated_windows(row, SETTINGS["window"][name]) for row in made]
    return {
        "what": "loops",
        "on": name,
        "strategy": strategy,
        "texts": len(made),
        "tokens": sum(map(len, made)),
        "count": sum(share > SETTINGS["loops_above"] for share in shares),
        "share_mean": round(sum(shares) / len(shares), 3),
        "shares": [round(share, 3) for share in shares],
    }


def good_row(task, model, tokenizer, strategy):
    """How many of ten continuations of a task are right."""
    prompts, rules = zip(*TASKS[task](), strict=True)
    made = greedy(model, tokenizer, prompts, STRATEGIES[strategy], GOOD_TOKENS[task])
    texts = [tokenizer.decode(row) for row in made]
    right = [rule(text) for rule, text in zip(rules, texts, strict=True)]
    row = {"what": "right", "on": task, "strategy": strategy, "texts": len(made), "tokens": sum(map(len, made))}
    return {**row, "count": sum(right), "right": right, "continuations": texts}


def merged(row):
    """The rows of the file with `row` in its place."""
    path = RESULTS / "penalties.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {(r["on"], r["strategy"]): r for r in [*rows, row]}
    return [rows[place] for on in ON for strategy in STRATEGIES if (place := (on, strategy)) in rows]


ON = (*SETTINGS["texts"], *TASKS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", choices=ON, nargs="+", default=ON, help="models that loop, tasks for SmolLM2")
    for on in parser.parse_args().on:
        name = on if on in SETTINGS["texts"] else "smollm2"
        model, tokenizer = load(name)
        for strategy in STRATEGIES:
            make = loop_row if on == name else good_row
            row = make(on, model, tokenizer, strategy)
            print(f"{on}, {strategy}: {row['count']} of {row['texts']}", file=sys.stderr)
            rows = merged(row)
            write("penalties", {**SETTINGS, "good_tokens": GOOD_TOKENS, "prompts": prompts()}, rows)
    show([{key: row[key] for key in ("what", "on", "strategy", "texts", "tokens", "count")} for row in rows])


if __name__ == "__main__":
    main()
