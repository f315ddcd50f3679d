"""The memory calculator on Python's side: traits, the shape it shows, the facts it sends, the still picture."""

import json
import re

import pytest
from traitlets import TraitError

from minigpt.costs import kv_bytes, quantised_bits, users_that_fit, weight_bytes
from minigpt.explorers import MemoryExplorer
from minigpt.shapes import GPUS, MODELS


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"model": "Llama-4"}, "model='Llama-4' must be one of MiniGPT, GPT-2 small"),
        ({"gpu": "B200"}, "gpu='B200' must be one of RTX 4090, A100"),
        ({"weights": "2-bit"}, "weights='2-bit' must be one of fp32, 16-bit, 8-bit, 4-bit$"),
        ({"kv": "bf16"}, "kv='bf16' must be one of fp32, 16-bit, 8-bit, 4-bit, 2-bit"),
        ({"attention": "MLA"}, "attention='MLA' must be one of as it is, MHA"),
        ({"context": 0}, "context=0 must be in 1 to 1,048,576"),
        ({"context": 2**20 + 1}, "context=1048577 must be in 1 to 1,048,576"),
        ({"users": 1025}, "users=1025 must be in 1 to 1,024"),
        ({"groups": 0}, "groups=0 must be in 1 to 1,024"),
        ({"window": 0}, "window=0 must be in 1 to 1,048,576"),
        ({"batch": 4}, "MemoryExplorer has no 'batch': it takes"),
    ],
)
def test_illegal_traits_are_refused(traits, message):
    with pytest.raises(ValueError, match=message):
        MemoryExplorer(**traits)


@pytest.mark.parametrize("name", ["context", "users", "groups", "window", "facts"])
def test_fractions_and_other_facts_are_refused(name):
    with pytest.raises(TraitError, match=name):
        MemoryExplorer(**{name: 2.5})


def test_facts_are_those_of_the_package():
    """The browser gets every model and GPU with the sizes that `shapes` has, and the bits that `costs` gives."""
    html = MemoryExplorer().to_html()
    facts = json.loads(re.search(r'json">(.*?)</script>', html).group(1))["facts"]
    assert list(facts["models"]) == list(MODELS) and list(facts["gpus"]) == list(GPUS)
    for name, shape in MODELS.items():
        sent = facts["models"][name]
        assert sent.pop("n_params") == shape.n_params and sent == vars(shape)
    assert {name: gpu["memory_bytes"] for name, gpu in facts["gpus"].items()} == {
        name: gpu.memory_bytes for name, gpu in GPUS.items()
    }
    assert facts["kv_bits"] == {
        **{"fp32": 32, "16-bit": 16, "8-bit": 8},
        **{"4-bit": quantised_bits(4, 32), "2-bit": quantised_bits(2, 32)},
    }
    assert facts["kv_bits"]["2-bit"] == 3.0 and facts["weight_bits"]["4-bit"] == 4.5
    assert len(html) < 8000


@pytest.mark.parametrize(
    ("model", "attention", "groups", "n_kv_heads"),
    [
        ("Llama-3-8B", "as it is", 8, 8),
        ("Llama-3-8B", "MHA", 8, 32),
        ("Llama-3-8B", "MQA", 8, 1),
        ("Llama-3-8B", "GQA", 4, 4),
        ("Llama-3-8B", "GQA", 5, 4),
        ("Llama-3-8B", "GQA", 1024, 32),
        ("SmolLM2-135M", "GQA", 8, 3),
    ],
)
def test_variants_of_attention(model, attention, groups, n_kv_heads):
    """KV heads change and with them the weights that make keys and values; nothing else does."""
    own, shape = MODELS[model], MemoryExplorer(model=model, attention=attention, groups=groups).shape
    assert shape.n_kv_heads == n_kv_heads
    more = 2 * own.n_layers * own.d_model * own.head_dim * (n_kv_heads - own.n_kv_heads)
    assert shape.n_params == own.n_params + more


def test_windows_and_latents():
    """A window is the model's own, or the one asked for; MHA in place of MLA keeps a key and a value for each head."""
    assert MemoryExplorer(model="Mistral-7B").shape.window == 4096
    assert MemoryExplorer(model="Mistral-7B", attention="window", window=7).shape.window == 7
    latent, mha = (MemoryExplorer(model="DeepSeek-V2", attention=way).shape for way in ("as it is", "MHA"))
    assert kv_bytes(latent, 1, bits=16) == 69_120
    assert kv_bytes(mha, 1, bits=16) == 2 * 60 * 128 * 128 * 2 and mha.n_params == latent.n_params


def test_picture_is_costs():
    """Rows are what `costs` gives; the start shows more users than fit."""
    shape, rows = MODELS["Llama-3-8B"], MemoryExplorer().picture()
    fit = {gpu: users_that_fit(shape, 8192, GPUS[gpu].memory_bytes, weight_bits=16, kv_bits=16) for gpu in GPUS}
    assert rows == [
        ("weights", weight_bytes(shape, bits=16), None),
        ("KV cache, one user", 2**30, None),
        ("KV cache, all users: 64", 64 * 2**30, None),
        *((gpu, int(GPUS[gpu].memory_bytes), fit[gpu]) for gpu in GPUS),
    ]
    assert fit["A100"] == 59 < 64


def test_without_javascript_there_are_bars():
    """The page's still picture: a bar for each row, in words and numbers."""
    html = MemoryExplorer().to_html()
    assert "<noscript><svg" in html and html.count("<rect") == 3 + len(GPUS)
    assert "80.00 GB: 59 fit" in html and "Llama-3-8B, 8,192 tokens a user" in html
