import dataclasses

import pytest
from toy_models import tiny_config

from minigpt.config import GPTConfig


def test_head_dim_defaults_to_an_equal_share():
    config = GPTConfig(10, n_layers=1, n_heads=4, n_kv_heads=2, d_model=128, d_ff=1, context_length=8)
    assert (config.head_dim, config.rope_theta, config.norm_eps) == (32, 10_000.0, 1e-5)


def test_head_dim_may_be_its_own():
    """Qwen3-4B has heads of 128 in a stream of 2560 with 32 heads: head_dim is not always d_model / n_heads."""
    assert tiny_config(d_model=2560, n_heads=32, head_dim=128).head_dim == 128
    assert tiny_config(d_model=25, head_dim=8).head_dim == 8


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        tiny_config().n_layers = 3


SIZES = ("vocab_size", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_ff", "context_length")


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1])
def test_a_size_below_one_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be at least 1"):
        tiny_config(**{name: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 4, "n_kv_heads": 3}, "n_heads=4 is not a multiple of n_kv_heads=3"),
        ({"n_heads": 2, "n_kv_heads": 4}, "n_heads=2 is not a multiple of n_kv_heads=4"),
        ({"d_model": 25, "head_dim": None}, "d_model=25 is not a multiple of n_heads=4: give head_dim yourself"),
        ({"head_dim": 7}, "head_dim=7 must be even"),
        ({"head_dim": 0}, "head_dim=0 must be even"),
        ({"head_dim": -2}, "head_dim=-2 must be even"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**changes)
