"""The order lab on Python's side: its traits, its picture, and the orders that Python and JavaScript share."""

import pytest
import torch

from minigpt import SamplingParams
from minigpt.explorers import OrderExplorer
from minigpt.explorers.distributions import catalogue, distribution
from minigpt.explorers.order import CARDS
from minigpt.sampling import ORDERS, apply


def test_engine_orders_have_one_meaning():
    """The catalogue that JavaScript reads says what `minigpt.sampling` does, name by name."""
    orders = {order["name"]: tuple(order["rules"]) for order in catalogue()["orders"]}
    assert orders == ORDERS and list(orders) == list(ORDERS)


def test_cards_are_rules():
    """Each card is a rule of `SamplingParams`, once; transformers' order has them all."""
    assert len(set(CARDS)) == len(CARDS) and set(CARDS) <= set(ORDERS["huggingface"])


def test_the_two_toys_are_the_cases():
    """Logits 3, 2, 1 and probabilities .95, ten times .005: what each order keeps of them."""
    probs = distribution("toy-sure")[1].softmax(-1)
    assert torch.allclose(probs, torch.tensor([0.95] + [0.005] * 10), atol=1e-7)
    assert distribution("toy-three")[1].tolist() == [3, 2, 1]
    for source, settings, kept in (
        ("toy-three", {"temperature": 0.5, "top_p": 0.8}, {"huggingface": 1, "vllm": 1, "llama.cpp": 2}),
        ("toy-sure", {"temperature": 2.0, "min_p": 0.05}, {"huggingface": 11, "vllm": 11, "llama.cpp": 1}),
    ):
        logits = distribution(source)[1][None]
        for order, count in kept.items():
            pipeline = SamplingParams(**settings, order=order).pipeline()
            assert int(apply(pipeline, None, logits).isfinite().sum()) == count
        assert OrderExplorer(source=source, settings=settings).picture()[1][2] == (kept["huggingface"] > 1)
        last = OrderExplorer(source=source, settings=settings, order=["top_p", "min_p", "temperature"])
        assert sum(row[2] for row in last.picture()) == kept["llama.cpp"]


def test_processors_follow_the_reader():
    """The order given, then the others; temperature 0 is greedy wherever it stands."""
    settings = {"temperature": 0.5, "top_p": 0.9, "repetition_penalty": 1.2}
    lab = OrderExplorer(source="toy", settings=settings, order=["top_p", "temperature"])
    assert [type(p).__name__ for p in lab.processors()] == ["TopP", "Temperature", "RepetitionPenalty"]
    lab.settings = {**settings, "temperature": 0}
    assert [type(p).__name__ for p in lab.processors()] == ["RepetitionPenalty", "Temperature"]
    assert [row[2] for row in lab.picture()] == [True, False, False]


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"source": "rome"}, "'rome' is not among the sources"),
        ({"settings": {"top_q": 1}}, "settings: 'top_q' has no card: choose from repetition_penalty"),
        ({"settings": {"top_k": 0}}, "top_k=0 must be an integer of at least 1"),
        ({"settings": {"temperature": 3.0}}, r"temperature=3.0 must be in \[0, 2\]"),
        ({"order": ["top_k", "top_k"]}, "names a rule twice"),
        ({"order": ["seed"]}, "order: 'seed' has no card"),
        ({"shown": "mlx"}, "'mlx' is not among the orders"),
    ],
)
def test_bad_settings(traits, message):
    """Each says its value, the rule and the way out."""
    with pytest.raises(ValueError, match=message):
        OrderExplorer(**traits)
