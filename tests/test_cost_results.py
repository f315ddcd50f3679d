"""The measurements of chapter 09: what their files say is what the code gives, apart from the seconds."""

import json
import sys

import pytest
import torch
from conftest import ROOT
from toy_models import random_ids, tiny_model

from minigpt import SamplingParams, generate, generate_naive
from minigpt.costs import kv_bytes, prefill_flops, tokens_through_model
from minigpt.packed_linear import KINDS
from minigpt.shapes import MODELS

sys.path.insert(0, str(ROOT / "benchmarks"))
import batch  # noqa: E402
import cache  # noqa: E402
import latency  # noqa: E402

FILES = {
    name: json.loads((ROOT / f"benchmarks/results/{name}.json").read_text()) for name in ("cache", "latency", "batch")
}
SHAPES = {"shakespeare": MODELS["MiniGPT"], "smollm2": MODELS["SmolLM2-135M"]}


def test_curves_are_complete_and_their_tokens_are_the_formula():
    rows = FILES["cache"]["rows"]
    wanted = [(name, n) for name, (_, N, _) in cache.RUNS.items() for n in cache.POINTS if n <= N]
    assert [(row["model"], row["new tokens"]) for row in rows] == wanted
    for row in rows:
        P, N = row["prompt tokens"], row["new tokens"]
        assert P == cache.RUNS[row["model"]][0]
        assert row["tokens cached"] == tokens_through_model(P, N, cached=True)
        assert row["tokens naive"] == tokens_through_model(P, N, cached=False)


def test_forecasts_follow_from_the_two_rates():
    """Each stored forecast is the roofline's, summed; and it is of the right size at the end of each curve."""
    for name, (P, N, _) in cache.RUNS.items():
        rates = {k: v for k, v in FILES["cache"]["settings"]["models"][name].items() if k != "repeats"}
        for cached, key in ((True, "cached"), (False, "naive")):
            curve = cache.expected(SHAPES[name], P, N, cached, **rates)
            rows = [row for row in FILES["cache"]["rows"] if row["model"] == name]
            for row in rows:
                assert row[f"expected {key} s"] == pytest.approx(curve[row["new tokens"] - 1], rel=1e-9)
            assert 0.3 < rows[-1][f"{key} s"] / rows[-1][f"expected {key} s"] < 3


def test_the_cache_gains_with_the_length_on_both_models():
    for name in SHAPES:
        rows = [row for row in FILES["cache"]["rows"] if row["model"] == name]
        assert rows[-1]["cached is faster by"] > 2 > rows[1]["cached is faster by"]
        assert rows[-1]["tokens naive"] / rows[-1]["tokens cached"] > 10 * rows[-1]["cached is faster by"]


@pytest.mark.parametrize("cached", [True, False])
def test_the_clocked_loop_writes_what_generate_writes(cached):
    model, ids = tiny_model(), random_ids(0, 1, 5)
    text, seconds = cache.clocked(model, ids, 9, cached)
    greedy = {"max_new_tokens": 9, "params": SamplingParams(temperature=0)}
    run = generate if cached else generate_naive
    assert torch.equal(text, run(model, ids, **greedy).token_ids)
    assert len(seconds) == 9 and seconds == sorted(seconds)


def test_delays_are_complete_and_share_their_flops_with_the_formula():
    rows = FILES["latency"]["rows"]
    wanted = [(P, engine) for P in latency.PROMPTS for engine in ("minigpt", "minigpt, packed")]
    assert [(row["prompt tokens"], row["engine"]) for row in rows] == wanted
    for row in rows:
        flops = prefill_flops(SHAPES["smollm2"], row["prompt tokens"], convention="full")
        assert row["attention's share of FLOPs"] == pytest.approx(flops.attention / flops.total)
        assert row["prefill GFLOP/s"] * row["time to first token s"] == pytest.approx(flops.total / 1e9)
        assert row["fastest s"] <= row["time to first token s"] <= row["slowest s"]


def test_latency_times_the_prompt_and_the_steps_after_it():
    calls = []
    model = tiny_model()
    model.register_forward_pre_hook(lambda module, args: calls.append(args[0].size(1)))
    first, per_token = latency.latency(model, random_ids(0, 1, 7))
    assert calls == [7] + [1] * latency.STEPS and first > 0 and per_token > 0


def test_batches_are_complete_and_their_bytes_are_the_formula():
    rows = FILES["batch"]["rows"]
    packed = ["minigpt, packed" + (f" {kind}" if kind != "float32" else "") for kind in KINDS]
    wanted = {(name, 64, B) for name in (*packed, "minigpt") for B in batch.BATCHES}
    wanted |= {("minigpt, packed", 1024, B) for B in batch.BATCHES}
    assert {(row["engine"], row["context"], row["batch"]) for row in rows} == wanted and len(rows) == len(wanted)
    for row in rows:
        n_bytes = kv_bytes(SHAPES["smollm2"], row["context"] + 1, row["batch"], bits=32)
        assert row["MB of cache"] == pytest.approx(n_bytes / 1e6)
        assert row["bytes_per_s"] * row["step s"] == pytest.approx((row["MB of weights"] + row["MB of cache"]) * 1e6)
        assert row["tokens/s"] * row["step s"] == pytest.approx(row["batch"])


def test_a_filled_cache_has_the_text_in_every_row_and_goes_back_after_each_step():
    model, ids = tiny_model(), random_ids(0, 1, 6)
    held = batch.filled(model, ids, 3)
    assert held.length == 6
    with torch.no_grad():
        last = model(random_ids(1, 1, 1).repeat(3, 1), held)[:, -1]
        held.truncate(6)
        right = model(torch.cat((ids, random_ids(1, 1, 1)), 1))[:, -1]
    assert torch.allclose(last, right.expand(3, -1), atol=1e-5)
    assert len(batch.step_seconds(model, held, random_ids(1, 1, 1).repeat(3, 1))) == batch.STEPS and held.length == 6
