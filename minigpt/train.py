"""Train MiniGPT on the plays: `python -m minigpt.train` makes the shipped weights again. Chapter 01."""

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm.auto import tqdm

from minigpt.config import GPTConfig
from minigpt.corpus import HELD_OUT, training_split
from minigpt.model import MiniGPT
from minigpt.pretrained import WEIGHTS, save
from minigpt.tokenization import CharTokenizer


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a run; the defaults make the shipped weights.

    Args:
        steps: optimiser steps.
        batch_size: texts a step.
        length: characters a text.
        learning_rate: peak rate of AdamW, after the warm-up.
        final_learning_rate: where the cosine ends.
        warmup: steps of linear warm-up.
        weight_decay: on matrices only.
        clip: largest norm of the gradient.
        early: the step whose weights are kept as the looping sibling.
        seed: seed of the initial weights and of the batches.
    """

    steps: int = 5_600
    batch_size: int = 16
    length: int = 256
    learning_rate: float = 3e-3
    final_learning_rate: float = 1e-4
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0
    early: int = 200
    seed: int = 1337

    def rate(self, step):
        """Learning rate of a step: linear warm-up, then half a cosine."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * cosine


def play_config(vocab_size):
    """The shipped model's shape: 0.75 million parameters."""
    return GPTConfig(vocab_size, n_layers=4, n_heads=4, n_kv_heads=2, d_model=128, d_ff=352, context_length=256)


def loss_on(model, token_ids, length=256, batch_size=32):
    """Mean negative log-likelihood of a text, cut into windows of `length` predictions.

    Args:
        model: a `MiniGPT`.
        token_ids: the text, (N,) int64, with N > `length`; what does not fill a last window is left out.
        length: predictions a window; each window starts afresh, so its first ones have little to go on.
        batch_size: windows a forward pass.

    Returns:
        nats a token.

    Raises:
        ValueError: a text shorter than one window.
    """
    _check_length(token_ids, length)
    windows = (len(token_ids) - 1) // length
    inputs = token_ids[: windows * length].view(windows, length)
    targets = token_ids[1 : windows * length + 1].view(windows, length)
    with torch.inference_mode():
        losses = [
            F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item()
            for x, y in zip(inputs.split(batch_size), targets.split(batch_size), strict=True)
        ]
    return sum(losses) / (windows * length)


def train(model, token_ids, config=None, *, progress=True, after_step=None):
    """Train a model on one long text, next token by next token.

    Args:
        model: a `MiniGPT`, changed in place.
        token_ids: the text, (N,) int64.
        config: a `TrainConfig`; `None` is its defaults. Its seed draws the batches.
        progress: show a progress bar.
        after_step: called as `after_step(step, loss)` after each step, steps from 1.

    Returns:
        The loss of each step, in nats a token.

    Raises:
        ValueError: a text shorter than one window.
    """
    config = config or TrainConfig()
    _check_length(token_ids, config.length)
    generator = torch.Generator().manual_seed(config.seed)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    gains = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": gains, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95), fused=True)
    losses = []
    with tqdm(range(config.steps), desc="training", unit="step", disable=not progress, leave=False) as bar:
        for step in bar:
            starts = torch.randint(len(token_ids) - config.length, (config.batch_size,), generator=generator)
            windows = token_ids[starts[:, None] + torch.arange(config.length + 1)]  # (B, T + 1)
            logits = model(windows[:, :-1])  # (B, T, V)
            loss = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            for group in optimizer.param_groups:
                group["lr"] = config.rate(step)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
            if after_step is not None:
                after_step(step + 1, losses[-1])
    return losses


def _check_length(token_ids, length):
    if len(token_ids) <= length:
        raise ValueError(f"a text of {len(token_ids)} tokens has no window of length={length}: give more text")


def main(arguments=None):
    """Train the shipped model and its early sibling, and write weights and log."""
    parser = argparse.ArgumentParser(prog="python -m minigpt.train", description=main.__doc__)
    parser.add_argument("--steps", type=int, default=TrainConfig.steps, help="optimiser steps (default %(default)s)")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder for weights and log (default: the package's)")
    options = parser.parse_args(arguments)
    config = replace(TrainConfig(), steps=options.steps)
    training_text, held_out_text = training_split()
    tokenizer = CharTokenizer.from_text(training_text + held_out_text)
    training_ids, held_out_ids = (torch.tensor(tokenizer.encode(text)) for text in (training_text, held_out_text))
    torch.manual_seed(config.seed)
    model = MiniGPT(play_config(tokenizer.vocab_size))

    def save_half(name):
        half = {key: weight.detach().half() for key, weight in model.state_dict().items()}
        save(options.out / f"{name}.safetensors", model.config, half, tokenizer)

    validation, start = {}, time.perf_counter()

    def after_step(step, _):
        if step == config.early:
            save_half("shakespeare-early")
        if step % 400 == 0 or step in (config.early, config.steps):
            validation[step] = loss_on(model, held_out_ids)
            tqdm.write(f"step {step:5d}  held-out loss {validation[step]:.4f} nats a character")

    losses = train(model, training_ids, config, after_step=after_step)
    save_half("shakespeare")
    log = {
        "settings": asdict(config),
        "model": asdict(model.config),
        "parameters": sum(p.numel() for p in model.parameters()),
        "held_out_plays": HELD_OUT,
        "training_characters": len(training_ids),
        "held_out_characters": len(held_out_ids),
        "torch": torch.__version__.split("+")[0],
        "threads": torch.get_num_threads(),
        "seconds": round(time.perf_counter() - start),
        "held_out_loss": {step: round(loss, 4) for step, loss in validation.items()},
        "training_loss": {s: round(sum(losses[s - 50 : s]) / 50, 4) for s in range(50, len(losses) + 1, 50)},
    }
    (options.out / "training.json").write_text(json.dumps(log, indent=1) + "\n")


if __name__ == "__main__":
    main()
