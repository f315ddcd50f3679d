"""Training: the loop on a tiny model, and what the shipped run left behind."""

import itertools
import json
from dataclasses import asdict, dataclass, replace

import pytest
import torch
from toy_models import random_ids, tiny_config, tiny_model

import minigpt.train
from minigpt.choosing import repeated_windows
from minigpt.corpus import HELD_OUT, training_split
from minigpt.generation import generate
from minigpt.model import MiniGPT
from minigpt.pretrained import WEIGHTS
from minigpt.sampling import SamplingParams
from minigpt.train import TrainConfig, loss_on, main, play_config, train

SHORT = TrainConfig(steps=40, batch_size=4, length=12, learning_rate=1e-2, final_learning_rate=1e-3, warmup=5)
TEXT = torch.arange(400) % 7 * (torch.arange(400) % 3)  # a pattern to learn


def trained(config=SHORT):
    """A fresh model, trained quietly, and its losses."""
    torch.manual_seed(config.seed)
    model = MiniGPT(tiny_config())
    return model, train(model, TEXT, config, progress=False)


def test_a_run_is_its_seed():
    (a, losses_a), (b, losses_b) = trained(), trained()
    assert losses_a == losses_b
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert trained(replace(SHORT, seed=1))[1] != losses_a


def test_the_batches_come_from_the_runs_own_seed():
    """The global seed is neither used nor moved."""
    losses = []
    for seed in (0, 1):
        model = tiny_model()
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        losses.append(train(model, TEXT, replace(SHORT, steps=3), progress=False))
        assert torch.equal(torch.get_rng_state(), before)
    assert losses[0] == losses[1]


def test_the_loss_falls():
    model, losses = trained()
    assert len(losses) == 40
    assert losses[0] == pytest.approx(torch.tensor(23.0).log().item(), abs=0.1)  # at first it knows nothing
    assert sum(losses[-5:]) / 5 < 0.6 * losses[0]
    assert loss_on(model, TEXT, length=12) < 0.6 * losses[0]


def test_the_learning_rate_warms_up_then_falls_on_a_cosine():
    config = TrainConfig()
    peak, final = config.learning_rate, config.final_learning_rate
    rates = [config.rate(step) for step in range(config.steps + 1)]
    assert rates[0] == pytest.approx(peak / config.warmup)
    assert rates[config.warmup - 1] == rates[config.warmup] == max(rates) == peak
    assert rates[(config.warmup + config.steps) // 2] == pytest.approx((peak + final) / 2)
    assert rates[-1] == min(rates[config.warmup :]) == pytest.approx(final)
    steps = [b - a for a, b in itertools.pairwise(rates[: config.warmup])]
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert all(a > b for a, b in itertools.pairwise(rates[config.warmup :]))


def test_loss_on_is_the_mean_over_windows_that_start_afresh():
    model, ids = tiny_model(), random_ids(3, 51)
    losses = [loss for start in range(0, 50, 10) for loss in window_losses(model, ids, start)]
    assert loss_on(model, ids, length=10, batch_size=2) == pytest.approx(sum(losses) / 50, rel=1e-5)
    # the last target gone, its window is not whole
    assert loss_on(model, ids[:50], length=10) == pytest.approx(sum(losses[:40]) / 40, rel=1e-5)


def window_losses(model, ids, start):
    """Negative log-probability of each of ten tokens after `start`, given those of the window before it."""
    found = []
    for end in range(start + 1, start + 11):
        with torch.no_grad():
            log_probs = model(ids[None, start:end])[0, -1].log_softmax(-1)
        found.append(-log_probs[ids[end]].item())
    return found


def test_only_matrices_decay(monkeypatch):
    seen = {}
    optimizer = torch.optim.AdamW

    def watch(groups, **settings):
        seen.update({g["weight_decay"]: {p.dim() for p in g["params"]} for g in groups})
        return optimizer(groups, **settings)

    monkeypatch.setattr(torch.optim, "AdamW", watch)
    train(MiniGPT(tiny_config()), TEXT, replace(SHORT, steps=1), progress=False)
    assert seen == {0.1: {2}, 0.0: {1}}


def test_after_step_counts_from_one():
    calls = []
    losses = train(tiny_model(), TEXT, replace(SHORT, steps=3), progress=False, after_step=lambda *a: calls.append(a))
    assert calls == list(enumerate(losses, 1))


def test_the_progress_bar_shows_itself_and_leaves_nothing(capfd):
    train(tiny_model(), TEXT, replace(SHORT, steps=2))
    assert "training" in capfd.readouterr().err
    train(tiny_model(), TEXT, replace(SHORT, steps=2), progress=False)
    assert capfd.readouterr() == ("", "")


def test_a_text_without_a_window_is_refused():
    for call in (lambda: train(tiny_model(), TEXT[:12], SHORT), lambda: loss_on(tiny_model(), TEXT[:12], length=12)):
        with pytest.raises(ValueError, match="a text of 12 tokens has no window of length=12: give more text"):
            call()


@dataclass(frozen=True)
class ShortTexts(TrainConfig):
    """The default run, with less in a step."""

    batch_size: int = 2
    length: int = 16


def test_the_command_writes_weights_and_log(monkeypatch, tmp_path):
    """The whole of `python -m minigpt.train`, on a tiny shape and a short text."""
    monkeypatch.setattr(minigpt.train, "TrainConfig", ShortTexts)
    monkeypatch.setattr(minigpt.train, "training_split", lambda: ("abcab " * 200, "cab abc " * 40))
    monkeypatch.setattr(minigpt.train, "play_config", lambda V: tiny_config(vocab_size=V, context_length=256))
    main(["--steps", "200", "--out", str(tmp_path)])
    log = json.loads((tmp_path / "training.json").read_text())
    monkeypatch.setattr("minigpt.pretrained.WEIGHTS", tmp_path)
    (model, tokenizer), (early, _) = (minigpt.pretrained.load(name) for name in ("shakespeare", "shakespeare-early"))
    assert tokenizer.characters == " abc"
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), early.parameters(), strict=True))
    held_out = torch.tensor(tokenizer.encode("cab abc " * 40))
    assert log["held_out_loss"] == {"200": pytest.approx(loss_on(model, held_out), abs=0.01)}
    assert (log["training_characters"], log["held_out_characters"]) == (1200, 320)
    assert list(log["training_loss"]) == ["50", "100", "150", "200"]
    assert log["settings"] == asdict(ShortTexts(steps=200))
    assert log["parameters"] == sum(p.numel() for p in model.parameters())


# What the shipped run left behind


@pytest.fixture(scope="module")
def log():
    """The shipped training log."""
    return json.loads((WEIGHTS / "training.json").read_text())


def test_the_log_is_that_of_the_default_settings(log, shakespeare):
    model, tokenizer = shakespeare
    assert log["settings"] == asdict(TrainConfig())
    assert log["model"] == asdict(play_config(tokenizer.vocab_size)) == asdict(model.config)
    assert log["parameters"] == sum(p.numel() for p in model.parameters())
    assert log["held_out_plays"] == list(HELD_OUT)
    training, held_out = training_split()
    assert (log["training_characters"], log["held_out_characters"]) == (len(training), len(held_out))
    losses = list(log["training_loss"].values())
    assert len(losses) == log["settings"]["steps"] // 50
    assert losses[-1] < 1.3 < 2.4 < losses[0]


@pytest.mark.parametrize("name", ["shakespeare", "early"])
def test_the_shipped_weights_have_the_loss_of_the_log(log, name, request):
    """Over both held-out plays, whole, with the float16 weights as shipped."""
    model, tokenizer = request.getfixturevalue(name)
    step = log["settings"]["early" if name == "early" else "steps"]
    loss = loss_on(model, torch.tensor(tokenizer.encode(training_split()[1])))
    assert loss == pytest.approx(log["held_out_loss"][str(step)], abs=0.01)
    if name == "shakespeare":
        assert loss <= 1.32


@pytest.fixture(scope="module")
def greedy_texts(shakespeare, early):
    """20 greedy texts of either model, from the same beginnings, each as long as the context: name → strings."""
    text = training_split()[1]
    prompts = [text[start : start + 16] for start in range(0, len(text) - 16, len(text) // 20)][:20]
    texts = {}
    for name, (model, tokenizer) in (("finished", shakespeare), ("early", early)):
        ids = torch.tensor([tokenizer.encode(prompt) for prompt in prompts])
        made = generate(model, ids, max_new_tokens=240, params=SamplingParams(temperature=0))
        assert made.token_ids.shape == (20, model.config.context_length)
        texts[name] = [tokenizer.decode(row) for row in made.new_token_ids.tolist()]
    return texts


def test_under_greedy_the_early_model_goes_round_and_the_finished_one_less(greedy_texts):
    """Within the context, 240 characters are few for whole lines to come back: windows of 12 characters are counted."""
    loops = {
        name: sum(repeated_windows(map(ord, text), 12) > 0.5 for text in texts) for name, texts in greedy_texts.items()
    }
    assert loops["early"] >= 16
    assert loops["finished"] <= 10


def test_under_greedy_the_early_model_has_a_handful_of_words(greedy_texts):
    words = {name: sorted(len(set(text.split())) for text in texts) for name, texts in greedy_texts.items()}
    assert words["early"][-1] < words["finished"][10]  # the richest early text against the median
    assert words["early"][10] < 0.7 * words["finished"][10]
