"""The generation figure: a recorded run, step by step. Chapter 01."""

import math

import torch
from traitlets import Int, List, validate

from minigpt.explorers.base import Explorer, check_index, read_prompt
from minigpt.generation import stream
from minigpt.sampling import SamplingParams


class GenerationExplorer(Explorer):
    """Step through recorded generations: the text so far, the candidates, the one chosen.

    Args:
        runs: what `record` returns, at least one.
        run: index of the run shown first.
        step: index of the token shown first.

    Raises:
        ValueError: no run, an index outside the runs or the tokens.
    """

    name = "generation"
    scripts = ("loops.js",)
    runs = List().tag(sync=True)
    run = Int(0).tag(sync=True)
    step = Int(0).tag(sync=True)

    @validate("runs")
    def _check_runs(self, proposal):
        if not all(run["steps"] for run in proposal.value):
            raise ValueError("a run without tokens: record() at least one")
        return proposal.value

    @validate("run")
    def _check_run(self, proposal):
        return check_index(proposal, self.runs)

    @validate("step")
    def _check_step(self, proposal):
        if proposal.value < 0:
            raise ValueError(f"step={proposal.value} must be at least 0")
        return proposal.value

    def __init__(self, runs, **traits):
        if not runs:
            raise ValueError("runs is empty: give what record() returns, at least one")
        super().__init__(runs=runs, **traits)

    def picture(self):
        """The candidates at the step shown."""
        run = self.runs[self.run]
        step = run["steps"][min(self.step, len(run["steps"]) - 1)]
        rows = [(run["tokens"][str(i)], math.exp(logprob), True) for i, logprob in step["top"][:8]]
        rest = 1 - sum(p for _, p, _ in rows)
        return [*rows, (f"{run['vocab_size'] - len(rows):,} others", max(0.0, rest), True)]


def record(model, tokenizer, prompt, *, max_new_tokens, params=SamplingParams(temperature=0), name=None, top=12):  # noqa: B008 (frozen)
    """Generate from a prompt and keep what `GenerationExplorer` shows.

    Args:
        model, tokenizer: as `load` returns them.
        prompt: a text, or a list of messages for the chat template.
        max_new_tokens: most tokens to add; the run ends early at the tokenizer's EOS.
        params: `SamplingParams`; the figure shows the model's own probabilities, before these settings.
        name: what the run is called in the figure; `None` is the prompt.
        top: how many candidates to keep a step, likeliest first.

    Returns:
        A dict that goes into JSON as it is.
    """
    ids, facts = read_prompt(tokenizer, prompt, name)
    run = {"max_new_tokens": max_new_tokens, "params": params, "eos_token_id": tokenizer.eos_token_id}
    decode = tokenizer.decoder()
    steps = [_step(step, decode, top) for step in stream(model, torch.tensor([ids]), **run)]
    shown = sorted({i for step in steps for i in (step["id"], *(other for other, _ in step["top"]))})
    return {
        **facts,
        "prompt_ids": ids,
        "vocab_size": model.config.vocab_size,
        "tokens": {str(i): tokenizer.token_text(i) for i in shown},
        "steps": steps,
    }


def _step(step, decode, top):
    log_probs = step.logits[0].double().log_softmax(-1)  # (V,)
    ids = log_probs.argsort(descending=True, stable=True)[:top].tolist()
    chosen = int(step.token_ids[0])
    return {
        "id": chosen,
        "text": decode(chosen),
        "logprob": round(float(log_probs[chosen]), 6),
        "top": [[i, round(float(log_probs[i]), 6)] for i in ids if log_probs[i] > -torch.inf],
    }
