"""The complexity chart on Python's side: traits, the models it offers, the still picture."""

import pytest
from traitlets import TraitError

from minigpt.costs import attention_pairs, linear_flops
from minigpt.explorers import ComplexityExplorer
from minigpt.explorers.complexity import plain_shape
from minigpt.shapes import MODELS


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"prompt": 0}, "prompt=0 must be in 1 to 100,000"),
        ({"new_tokens": 100_001}, "new_tokens=100001 must be in 1 to 100,000"),
        ({"d_model": 63}, "d_model=63 must be in 64 to 16,384"),
        ({"layers": 129}, "layers=129 must be in 1 to 128"),
        ({"model": "GPT-5"}, "model='GPT-5' must be one of plain, MiniGPT, GPT-2 small"),
        ({"model": "DeepSeek-V2"}, "model='DeepSeek-V2' must be one of"),  # weights per token are not known
        ({"convention": "half"}, "convention='half' must be one of full, causal"),
        ({"heads": 4}, "ComplexityExplorer has no 'heads': it takes"),
    ],
)
def test_illegal_traits_are_refused(traits, message):
    with pytest.raises(ValueError, match=message):
        ComplexityExplorer(**traits)


@pytest.mark.parametrize("traits", [{"prompt": 2.5}, {"layers": 2.5}, {"models": {}}])
def test_fractions_and_other_tables_are_refused(traits):
    with pytest.raises(TraitError):
        ComplexityExplorer(**traits)


def test_models_are_those_of_shapes():
    """The state carries what `minigpt.shapes` says of each model but the one whose blocks are not known."""
    table = ComplexityExplorer().state["models"]
    assert set(MODELS) - set(table) == {"DeepSeek-V2"}
    for name, sizes in table.items():
        shape = MODELS[name]
        assert sizes["weights"] == shape.layer_params and sizes["width"] == shape.n_heads * shape.head_dim
        assert (sizes["layers"], sizes["d_model"], sizes["window"]) == (shape.n_layers, shape.d_model, shape.window)


def test_plain_sizes_have_twelve_d_squared_weights_a_layer():
    assert plain_shape(768, 12).layer_params == 12 * 768**2 * 12 == MODELS["GPT-2 small"].layer_params


@pytest.mark.parametrize(("convention", "attention"), [("full", 667.0), ("causal", 334.0)])
def test_a_thousand_tokens_from_one(convention, attention):
    """The last point of the still picture: 500.5 times for the linear layers, and what attention saves."""
    picture = ComplexityExplorer(prompt=1, convention=convention).picture()
    (N, *naive), (_, *cached) = picture[False][-1], picture[True][-1]
    assert N == 1000
    assert [a / b for a, b in zip(naive, cached, strict=True)] == [500.5, attention]


def test_points_are_sums_over_passes():
    """A plain model with a prompt: every point by tokens and pairs counted pass by pass."""
    explorer = ComplexityExplorer(model="plain", prompt=7, d_model=64, layers=3)
    for cached, line in explorer.picture().items():
        for N, linear, attention in line[:8]:
            calls = [(1 if cached and S > 7 else S, S) for S in range(7, 7 + N)]
            assert linear == linear_flops(sum(T for T, _ in calls), explorer.shape.layer_params)
            pairs = sum(attention_pairs(T, S, convention="full") for T, S in calls)
            assert attention == 4 * 3 * 64 * pairs


def test_without_javascript_there_are_two_curves():
    """The page's still picture: both sums, named, and what they are of."""
    html = ComplexityExplorer().to_html()
    assert html.count("<polyline") == 2 and "SmolLM2-135M, prompt of 183, attention full" in html
    assert "<noscript><svg" in html and "without a cache" in html and "with a cache" in html
    assert len(html) < 10_000
