"""Settings by task, best-of-n, votes and entropy-guided temperature, tried on SmolLM2 (4-bit file, dequantised).

Each experiment asks all its prompts through the chat template. Prompts that share a call stand next to each other; the
call's seed is the place of its first prompt, so any call can be rerun by itself. Few and easy prompts: the counts show
directions, not the level of larger models. Experiments can be run one by one; the others' rows stay in the file.
"""

import argparse
import itertools
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from choosing_tasks import (
    ARITHMETIC,
    ARITHMETIC_SHOTS,
    CHAT,
    CODE,
    FACTS,
    JSON_KEYS,
    OPENINGS,
    SUMMARIES,
    TOOL_CALLS,
    TOOL_PROMPT,
    TOOL_SHOTS,
    TRANSLATION,
    TRANSLATION_SHOTS,
)
from harness import RESULTS, show, write

from minigpt import SamplingParams, generate, load
from minigpt.choosing import (
    EntropyTemperature,
    best_of_n,
    distinct_n,
    majority_vote,
    minimum_bayes_risk,
    pass_at_k,
    repeated_windows,
    token_f1,
)
from minigpt.search import beam_search, gnmt

LIMITS = {  # new tokens of an answer
    "arithmetic": 14,
    "facts": 24,
    "json": 40,
    "tools": 32,
    "code": 40,
    "open": 40,
    "chat": 64,
    "translation": 20,
    "summary": 40,
}
ROWS_A_CALL = 40


class Asker:
    """A model that counts the tokens it is given, and what it takes to ask it."""

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer
        self.config, self.tokens = self.model.config, 0
        self.line_ends = [self.tokenizer.encode(end)[0] for end in ("\n", "\n\n")]

    def __call__(self, token_ids, *args, **kwargs):
        self.tokens += token_ids.numel()
        return self.model(token_ids, *args, **kwargs)

    def prompt(self, *turns, start=""):
        """Ids of a chat, user first, and of the beginning of the answer."""
        roles = itertools.cycle(("user", "assistant"))
        messages = [{"role": role, "content": content} for role, content in zip(roles, turns, strict=False)]
        return self.tokenizer.chat(messages) + self.tokenizer.encode(start)

    def text(self, ids, stops):
        return self.tokenizer.decode([i for i in ids if i not in stops]).strip()

    def ask(self, prompts, n, setting, limit, stops):
        """Give n answers to each prompt, in the order they were drawn: lists of (text, ids, mean log-probability)."""
        settings = dict(setting)
        entropy = settings.pop("entropy_temperature", None)
        num_beams, alpha = settings.pop("num_beams", None), settings.pop("gnmt", 0.0)
        common = {"max_new_tokens": limit, "eos_token_id": stops}
        answers = []
        step = max(1, ROWS_A_CALL // n)
        for first in range(0, len(prompts), step):
            ids, mask = padded(prompts[first : first + step])
            common["attention_mask"] = mask
            params = SamplingParams(**settings, seed=first)
            if num_beams:
                made = beam_search(
                    self, ids, num_beams=num_beams, num_return_sequences=n, length_penalty=gnmt(alpha), **common
                )
                rows = [[(h.token_ids, h.sum_log_prob / len(h.token_ids)) for h in found] for found in made]
            elif params.is_greedy:
                rows = [[pair] for pair in greedy(generate(self, ids, params=params, **common), stops)]
            else:
                drawn = itertools.count(0, -1)  # scores that keep the order in which the answers were drawn
                rules = (EntropyTemperature(*entropy),) if entropy else ()
                common["score"] = lambda ids: next(drawn)  # noqa: B023 (used up before the next call)
                made = best_of_n(self, ids, n=n, params=params, processors=rules, **common)
                rows = [[(c.token_ids, c.mean_log_prob) for c in found] for found in made]
            answers += [[(self.text(t, stops), list(t), log_prob) for t, log_prob in found] for found in rows]
        return answers


def padded(prompts):
    """Prompts on one another, padded on the left: ids and mask, (B, P)."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    return ids, torch.tensor([[False] * (width - len(p)) + [True] * len(p) for p in prompts])


def greedy(generation, stops):
    """Ids and mean log-probability of each row."""
    for ids, log_probs in zip(generation.new_token_ids.tolist(), generation.logprobs.tolist(), strict=True):
        length = next((i + 1 for i, token in enumerate(ids) if token in stops), len(ids))
        yield ids[:length], sum(log_probs[:length]) / length


def groups(items, size):
    """Disjoint groups of equal size, in order."""
    return [items[i : i + size] for i in range(0, len(items) - size + 1, size)]


def last_number(text):
    """The last whole number on the first line, or None."""
    found = re.findall(r"-?\d+", text.split("\n")[0])
    return int(found[-1]) if found else None


# Each experiment yields its rows: a setting and counts of what came out.


def shots():
    """The turns that show what an answer looks like: questions and answers."""
    return [turn for a, b in ARITHMETIC_SHOTS for turn in (f"What is {a} + {b}?", f"{a} + {b} = {a + b}")]


def arithmetic(asker):
    settings = [({"temperature": 0}, 1), ({"num_beams": 4}, 4), *(({"temperature": t}, 20) for t in (0.2, 0.6, 1.0))]
    harder = [{"temperature": 1.2}, {"temperature": 1.5}]
    harder += [{"entropy_temperature": [1.5, theta]} for theta in (0.5, -0.5)]
    for level in ARITHMETIC:
        for setting, n in settings + [(setting, 20) for setting in harder] * (level == "two digits"):
            yield sums(asker, level, setting, n)


def sums(asker, level, setting, n, count=None):
    """The row of a level (its first `count` questions) and a setting."""
    pairs = ARITHMETIC[level][:count]
    prompts = [asker.prompt(*shots(), f"What is {a} + {b}?") for a, b in pairs]
    right, before = [a + b for a, b in pairs], asker.tokens
    stops = [asker.tokenizer.eos_token_id, *asker.line_ends]
    asked = asker.ask(prompts, n, setting, LIMITS["arithmetic"], stops)
    numbers = [[last_number(text) for text, _, _ in answers] for answers in asked]
    return {
        "experiment": "arithmetic",
        "level": level,
        "setting": setting,
        "questions": len(pairs),
        "answers_each": n,
        **arithmetic_counts(numbers, right, [[p for _, _, p in answers] for answers in asked]),
        "tokens_through_model": asker.tokens - before,
        "new_tokens": sum(len(ids) for answers in asked for _, ids, _ in answers),
        "right_answers": " ".join(map(str, right)),
        "answers": [" ".join("-" if x is None else str(x) for x in row) for row in numbers],
        "mean_log_probs": [" ".join(f"{p:.4f}" for _, _, p in answers) for answers in asked],
    }


def arithmetic_counts(numbers, right, log_probs):
    """How many are right: single answers, votes, the likeliest of some, any of some; and pass@k."""
    n = len(numbers[0])
    c = [row.count(r) for row, r in zip(numbers, right, strict=True)]
    counts = {
        "single_right": sum(c),
        "first_right": sum(row[0] == r for row, r in zip(numbers, right, strict=True)),
        "unread": sum(row.count(None) for row in numbers),
        "distinct": sum(len(set(row)) for row in numbers),
    }
    pairs = [list(zip(p, x, strict=True)) for p, x in zip(log_probs, numbers, strict=True)]
    for size in (4, 5, 20):
        parts = [(part, r) for row, r in zip(pairs, right, strict=True) for part in groups(row, size)]
        if parts:
            counts |= {
                f"groups_of_{size}": len(parts),
                f"vote_of_{size}_right": sum(majority_vote(x for _, x in part)[0] == r for part, r in parts),
                f"likeliest_of_{size}_right": sum(max(part, key=lambda pair: pair[0])[1] == r for part, r in parts),
                f"any_of_{size}_right": sum(any(x == r for _, x in part) for part, r in parts),
            }
    return counts | passes(n, c)


def passes(n, c):
    """Mean over the questions of pass@1, pass@5 and pass@10, from c right ones of n for each."""
    return {f"pass_at_{k}": round(statistics.mean(pass_at_k(n, i, k) for i in c), 4) for k in (1, 5, 10) if n >= k}


def checked(asker, name, prompts, checks, stops, settings):
    """Ask, and count for each check how many answers pass it; `checks` maps a name to a function of (item, text)."""
    for setting, n in settings:
        asked = asker.ask(prompts, n, setting, LIMITS[name], stops)
        passed = {
            what: [sum(bool(check(i, text)) for text, _, _ in answers) for i, answers in enumerate(asked)]
            for what, check in checks.items()
        }
        yield {
            "experiment": name,
            "setting": setting,
            "questions": len(prompts),
            "answers_each": n,
            **{what: sum(counts) for what, counts in passed.items()},
            **{f"{what}_of_each": " ".join(map(str, counts)) for what, counts in passed.items()},
            "distinct": sum(len({text for text, _, _ in answers}) for answers in asked),
            "first_answers": [answers[0][0] for answers in asked],
        }


def facts(asker):
    stops = [asker.tokenizer.eos_token_id, *asker.line_ends]
    patterns = list(FACTS.values())
    checks = {"right": lambda i, text: re.search(patterns[i], text, re.IGNORECASE)}
    settings = [({"temperature": 0}, 1), ({"temperature": 0.3}, 10), ({"temperature": 1.0}, 10)]
    yield from checked(asker, "facts", [asker.prompt(q) for q in FACTS], checks, stops, settings)


def parsed(text):
    """The JSON value of a text, or None where `json.loads` refuses it."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def without_fence(text):
    """What stands between Markdown's code fences, if there are any."""
    return re.sub(r"^```(?:json)?\s*|\s*```$", "", text)


def json_answers(asker):
    keys = list(JSON_KEYS.values())
    prompts = [
        asker.prompt(f'Give a JSON object with the keys "{a}" and "{b}" for {what}. Only JSON.')
        for what, (a, b) in JSON_KEYS.items()
    ]
    checks = {
        "valid": lambda i, text: parsed(text) is not None,
        "valid_without_fence": lambda i, text: parsed(without_fence(text)) is not None,
        "right_keys": lambda i, text: isinstance(parsed(text), dict) and sorted(parsed(text)) == sorted(keys[i]),
    }
    settings = [({"temperature": 0}, 1), *(({"temperature": t}, 10) for t in (0.2, 0.5, 1.0))]
    yield from checked(asker, "json", prompts, checks, [asker.tokenizer.eos_token_id], settings)


def tools(asker):
    wanted = list(TOOL_CALLS.values())

    def right(i, text):
        call = parsed(text)
        return isinstance(call, dict) and sorted(call) == ["input", "tool"] and call["tool"] == wanted[i]

    checks = {"valid": lambda i, text: parsed(text) is not None, "right_tool": right}
    (first, call), *others = TOOL_SHOTS
    turns = [TOOL_PROMPT + first, call, *itertools.chain(*others)]
    prompts = [asker.prompt(*turns, question) for question in TOOL_CALLS]
    settings = [({"temperature": 0}, 1), *(({"temperature": t}, 10) for t in (0.2, 1.0))]
    yield from checked(asker, "tools", prompts, checks, [asker.tokenizer.eos_token_id], settings)


def code(asker):
    """The beginning ends with the colon: line end and indentation are one token, which a line end would forestall."""
    fence = asker.tokenizer.encode("```")
    prompts = [
        asker.prompt(f"Write a Python function {name} that {what}. Only code.", start=f"```python\ndef {name}:")
        for name, what, _ in CODE
    ]
    checks = {"passed": lambda i, text: runs(f"def {CODE[i][0]}:\n    {text.split('```')[0]}", CODE[i][2])}
    settings = [({"temperature": 0}, 1), *(({"temperature": t}, 10) for t in (0.2, 0.8))]
    stops = [asker.tokenizer.eos_token_id, *fence[:1]]
    for row in checked(asker, "code", prompts, checks, stops, settings):
        yield row | passes(row["answers_each"], [int(count) for count in row["passed_of_each"].split()])


def runs(source, tests, seconds=5):
    """Whether a program defines what the tests want: run by itself, without the network or files of its own to keep."""
    program = "\n".join([source, *(f"assert {test}" for test in tests)])
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", program],
                cwd=folder,
                env={},
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=seconds,
                preexec_fn=_limit,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


def _limit():
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def open_text(asker):
    """Beginnings of stories: how likely, how varied, how repetitive."""
    settings = [({"temperature": 0}, 1), ({"num_beams": 4, "gnmt": 1.0}, 1)]
    sampled = [{"temperature": t} for t in (0.7, 0.9, 1.2)]
    sampled += [{"temperature": 1.2, "top_p": 0.95}, {"temperature": 1.2, "top_p": 0.95, "presence_penalty": 0.6}]
    sampled += [{"entropy_temperature": [1.2, theta]} for theta in (0.5, -0.5)]
    yield from texts(asker, "open", OPENINGS, settings + [(s, 4) for s in sampled])


def chat(asker):
    settings = [{"temperature": 0.8, "top_p": 0.9}, {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.1}]
    yield from texts(asker, "chat", CHAT, [(s, 4) for s in settings])


def texts(asker, name, questions, settings):
    prompts = [asker.prompt(q) for q in questions]
    for setting, n in settings:
        asked = asker.ask(prompts, n, setting, LIMITS[name], [asker.tokenizer.eos_token_id])
        likeliest = [max(answers, key=lambda answer: answer[2]) for answers in asked]
        yield {
            "experiment": name,
            "setting": setting,
            "questions": len(prompts),
            "answers_each": n,
            **measured([answer for answers in asked for answer in answers]),
            "distinct_2_first_answers": distinct([answers[0] for answers in asked]),
            **{f"likeliest_{key}": value for key, value in measured(likeliest).items()},
            "first_answers": [answers[0][0] for answers in asked],
        }


def measured(answers):
    """Mean log-probability per token, share of 4-grams that stood in their text before, distinct-2."""
    return {
        "mean_log_prob": round(statistics.mean(p for _, _, p in answers), 3),
        "repeated_4_grams": round(statistics.mean(repeated_windows(ids, 4) for _, ids, _ in answers), 4),
        "distinct_2": distinct(answers),
        "new_tokens": sum(len(ids) for _, ids, _ in answers),
    }


def distinct(answers):
    return round(distinct_n([ids for _, ids, _ in answers]), 4)


def words(text):
    return re.findall(r"\w+", text.lower())


def referenced(asker, name, prompts, references, stops, settings):
    """Overlap of words with a reference: the answers one by one, the likeliest, the one of least Bayes risk."""
    for setting, n in settings:
        asked = asker.ask(prompts, n, setting, LIMITS[name], stops)
        scores = [[token_f1(words(t), words(r)) for t, _, _ in row] for row, r in zip(asked, references, strict=True)]
        likeliest = [max(range(n), key=lambda j: row[j][2]) for row in asked]  # noqa: B023
        agreed = [minimum_bayes_risk([words(text) for text, _, _ in row])[0] for row in asked]
        yield {
            "experiment": name,
            "setting": setting,
            "questions": len(prompts),
            "answers_each": n,
            "f1_single": round(statistics.mean(f for row in scores for f in row), 4),
            "f1_likeliest": round(statistics.mean(row[j] for row, j in zip(scores, likeliest, strict=True)), 4),
            "f1_least_risk": round(statistics.mean(row[j] for row, j in zip(scores, agreed, strict=True)), 4),
            "f1_best_possible": round(statistics.mean(map(max, scores)), 4),
            "exact": sum(f == 1 for row in scores for f in row),
            "first_answers": [answers[0][0] for answers in asked],
        }


def translation(asker):
    turns = [turn for a, b in TRANSLATION_SHOTS for turn in (f"Translate into French: {a}", b)]
    prompts = [asker.prompt(*turns, f"Translate into French: {text}") for text in TRANSLATION]
    stops = [asker.tokenizer.eos_token_id, *asker.line_ends]
    settings = [({"temperature": 0}, 1), ({"num_beams": 4, "gnmt": 0.6}, 1), ({"temperature": 0.7}, 10)]
    yield from referenced(asker, "translation", prompts, TRANSLATION.values(), stops, settings)


def summary(asker):
    prompts = [asker.prompt(f"Summarise in one sentence: {text}") for text, _ in SUMMARIES]
    stops = [asker.tokenizer.eos_token_id, *asker.line_ends]
    settings = [({"temperature": 0}, 1), ({"num_beams": 4, "gnmt": 0.6}, 1)]
    settings += [({"temperature": 0.4, "top_p": 0.9}, 6), ({"temperature": 1.0}, 6)]
    yield from referenced(asker, "summary", prompts, [reference for _, reference in SUMMARIES], stops, settings)


EXPERIMENTS = {
    "arithmetic": arithmetic,
    "facts": facts,
    "json": json_answers,
    "tools": tools,
    "code": code,
    "open": open_text,
    "translation": translation,
    "summary": summary,
    "chat": chat,
}


def save(name, made):
    """Put the rows of one experiment in their place in the file."""
    path = RESULTS / "choosing.json"
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = [row for row in old if row["experiment"] != name] + made
    rows.sort(key=lambda row: list(EXPERIMENTS).index(row["experiment"]))
    write("choosing", {"model": "smollm2", "new_tokens": LIMITS, "rows_a_call": ROWS_A_CALL}, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=EXPERIMENTS, nargs="+", default=list(EXPERIMENTS))
    options = parser.parse_args()
    asker = Asker(*load("smollm2"))
    for name in options.only:
        start, made = time.perf_counter(), []
        for row in EXPERIMENTS[name](asker):
            made.append(row)
            save(name, made)
            print(f"{name}: {row['setting']}, {time.perf_counter() - start:.0f} s", file=sys.stderr)
        keys = [key for key, value in made[-1].items() if not isinstance(value, list) and not key.endswith("of_each")]
        show([{key: row.get(key, "") for key in keys if key not in ("right_answers", "experiment")} for row in made])


if __name__ == "__main__":
    main()
