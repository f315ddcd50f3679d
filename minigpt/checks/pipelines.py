"""Checkers of chapter 05, pipelines."""

import random

import torch

from minigpt.processors import Processor
from minigpt.sampling import ORDERS, PENALTIES, SamplingParams, apply

_NAMES = {"transformers": "huggingface", "vLLM": "vllm", "llama.cpp": "llama.cpp"}


def one_and_ten():
    """The distribution of the first exercise: one token of probability .95 and ten of .005, logits (1, 11)."""
    return torch.tensor([[0.95] + [0.005] * 10]).log()


def kept(settings, order, logits):
    """Number of tokens that these settings keep in an engine's order.

    Args:
        settings: as for `SamplingParams`.
        order: a name in `minigpt.sampling.ORDERS`.
        logits: (1, V).
    """
    return int(apply(SamplingParams(**settings, order=order).pipeline(), None, logits).isfinite().sum())


def check_kept(answer):
    """Check how many of the eleven tokens each engine keeps at temperature .5 with min-p .001.

    Args:
        answer: `{"transformers": n, "vLLM": n, "llama.cpp": n}`.

    Raises:
        AssertionError: a number is wrong; the message says which and why.
    """
    reasons = {
        "transformers": "temperature comes first: at T = .5 the ratio of two probabilities is squared",
        "vLLM": "temperature comes before min-p here too",
        "llama.cpp": "temperature comes last, so min-p compares the probabilities as they are: .005 with .00095",
    }
    for name, order in _NAMES.items():
        right = kept({"temperature": 0.5, "min_p": 0.001}, order, one_and_ten())
        assert name in answer and answer[name] is not ..., f"say how many tokens {name} keeps"
        assert answer[name] == right, f"{name} does not keep {answer[name]}. Think again: {reasons[name]}"
    print("Right: a temperature below 1 turns the case round, and this time it is llama.cpp that keeps all eleven.")


def check_engines(settings, logits):
    """Check settings, without top-k, with which three engines keep three different numbers of tokens.

    Args:
        settings: a dict as for `SamplingParams`, without `order` and without `top_k`.
        logits: the distribution, (1, V).

    Raises:
        AssertionError: top-k or a penalty is set, an engine lacks a rule, or two engines keep the same number.
    """
    assert isinstance(settings, dict), "give a dict of settings, such as {'temperature': 1.2, 'top_p': 0.9}"
    top_k = "top-k is the case of the table above: leave top_k out, it can be done with three of the other rules"
    assert settings.get("top_k") is None, top_k
    for name, order in _NAMES.items():
        lacks = [rule for rule in settings if rule in ORDERS["huggingface"] and rule not in ORDERS[order]]
        assert not lacks, f"{name} has no {', '.join(lacks)}: choose among the rules that all three have"
    penalties = [rule for rule in PENALTIES if settings.get(rule) is not None]
    assert not penalties, f"{', '.join(penalties)}: penalties count a text, and here are only logits: leave them out"
    numbers = {name: kept(settings, order, logits) for name, order in _NAMES.items()}
    text = ", ".join(f"{name} {n:,}" for name, n in numbers.items())
    hint = "vLLM parts from transformers only where min-p meets top-p, llama.cpp only where T is not 1"
    assert len(set(numbers.values())) == 3, f"{text}: two are alike. Hint: {hint}"
    print(f"Right, one request and three answers: {text}.")


def check_pipeline(answer):
    """Check a function that makes a pipeline out of settings and an order.

    Args:
        answer: a function `(settings, order) -> processors`; `settings` is a dict of names and values, `None` is off;
            `order` a sequence of names.

    Raises:
        AssertionError: something is wrong; the message says what.
    """
    made = answer({"top_p": 0.9, "temperature": 0.5}, ("temperature", "top_p"))
    assert made is not None and all(isinstance(p, Processor) for p in made), "return a list of processors"
    names = [type(p).__name__ for p in made]
    assert names == ["Temperature", "TopP"], f"the order is given by `order`, not by the dict: you made {names}"
    names = [type(p).__name__ for p in answer({"top_k": None, "top_p": 0.9}, ("top_k", "top_p"))]
    assert names == ["TopP"], f"None is off, and a rule that is not in the settings too: you made {names}"
    names = [
        type(p).__name__ for p in answer({"temperature": 0, "repetition_penalty": 1.2, "top_k": 3}, ORDERS["vllm"])
    ]
    assert "Temperature" in names, "temperature 0 is greedy: Temperature(0) has to be in the pipeline"
    assert "RepetitionPenalty" in names, "penalties apply to greedy decoding too: keep them at temperature 0"
    _check_greedy(answer)
    pick = random.Random(0)
    logits = 3 * torch.randn(3, 200, generator=torch.Generator().manual_seed(0))
    token_ids = torch.randint(0, 200, (3, 12), generator=torch.Generator().manual_seed(1))
    values = {"temperature": (0, 0.5, 1, 1.7), "top_k": (3, 50), "top_p": (0.5, 0.9), "min_p": (0.05, 0.3)}
    values |= {"repetition_penalty": (1.2, 2.0), "presence_penalty": (0.5,)}
    for trial in range(60):
        order = list(ORDERS)[trial % 3]
        settings = {name: pick.choice(choices) for name, choices in values.items() if pick.random() < 0.6}
        yours = apply(answer(dict(settings), ORDERS[order]), token_ids, logits)
        right = apply(SamplingParams(**settings, order=order).pipeline(), token_ids, logits)
        assert torch.equal(yours.isfinite(), right.isfinite()), f"{settings} in the order of {order} keeps other tokens"
    print("Right: the order is a list of names, None is off, and greedy needs no truncation.")


def _check_greedy(answer):
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    pipeline = answer({"temperature": 0, "typical_p": 0.2}, ("typical_p", "temperature"))
    left = apply(pipeline, torch.zeros(1, 1, dtype=torch.int64), logits).isfinite()[0].nonzero().flatten().tolist()
    assert left == [0], f"greedy is the argmax, token 0; your pipeline leaves {left}: at temperature 0 skip truncation"
