"""The recipe finder's Python side: the table of recipes, its traits, its picture without JavaScript."""

import re

import pytest
import torch

from minigpt import SamplingParams
from minigpt.explorers import RecipeExplorer, distributions
from minigpt.explorers.recipe import kept_by, recipes

TASKS = ("translation", "code-one", "code-many", "creative", "facts", "json", "chat", "summary", "tools")


def test_table_of_recipes(root):
    """The eight tasks of the guide (code counts twice), each with its reason; what it cites is in the bibliography."""
    assert tuple(recipes()) == TASKS
    known = set(re.findall(r"^@\w+\{([^,]+),", (root / "book/references.bib").read_text(), re.MULTILINE))
    for recipe in recipes().values():
        assert recipe["label"] and recipe["range"] and recipe["reason"] and recipe["source"]
        assert set(recipe["cite"]) <= known
        assert recipe["cite"] or recipe["source"] == "often advised"
        if "num_beams" in recipe["settings"]:
            assert set(recipe["settings"]) == {"num_beams", "alpha"}
        else:
            SamplingParams(**recipe["settings"])


@pytest.mark.parametrize(
    ("traits", "message"),
    [
        ({"recipe": "poems"}, "'poems' is not among the recipes: choose one of translation, code-one"),
        ({"changes": {"top_p": 1.5}}, "top_p=1.5"),
        ({"changes": {"temperature": None}}, "temperature=None"),
        ({"changes": {"typical_p": 0.9}}, "no knob 'typical_p': change temperature, top_k"),
        ({"recipe": "translation", "changes": {"temperature": 1}}, "no knob 'temperature': change num_beams, alpha"),
        ({"recipe": "translation", "changes": {"num_beams": 0}}, "num_beams=0 must be an integer from 1 to 16"),
        ({"recipe": "translation", "changes": {"num_beams": True}}, "num_beams=True"),
        ({"recipe": "translation", "changes": {"alpha": -1}}, r"alpha=-1 must be in \[0, 2\]"),
        ({"sources": ["nowhere"]}, "'nowhere' is not among the sources"),
        ({"sources": []}, "sources=\\[\\]"),
        ({"tested": {"poems": "yes"}}, "'poems' is not among the recipes"),
        ({"task": "chat"}, "RecipeExplorer has no 'task'"),
    ],
)
def test_illegal_traits_are_refused(traits, message):
    with pytest.raises(ValueError, match=message):
        RecipeExplorer(**traits)


def test_changes_belong_to_the_recipe_they_come_with():
    explorer = RecipeExplorer(recipe="translation", changes={"num_beams": 5})
    assert explorer.settings == {"num_beams": 5, "alpha": 0.6}
    explorer = RecipeExplorer(recipe="chat", changes={"top_p": None, "top_k": 50})
    assert explorer.settings == {"temperature": 0.8, "repetition_penalty": 1.1, "top_k": 50}


@pytest.fixture
def two_tokens(monkeypatch):
    """Toys in place of SmolLM2, and a prompt."""
    data = {"prompts": {"capital": [0, 0, 2]}}
    monkeypatch.setattr("minigpt.explorers.recipe.real", lambda: data)
    tokens, logits = ["␣a", "␣b", "␣c"], torch.tensor([2.0, 1.0, -1.0])
    monkeypatch.setattr("minigpt.explorers.recipe.distribution", lambda name: (tokens, logits))


def test_what_is_kept(two_tokens):
    """Penalties see the prompt: repetition counts it, presence does not; beams keep the model's own probability."""
    own = torch.tensor([2.0, 1.0, -1.0], dtype=torch.float64).softmax(-1)
    assert torch.allclose(kept_by({"num_beams": 2, "alpha": 0.6}, "capital"), own * torch.tensor([1.0, 1, 0]))
    expected = torch.tensor([1.0, 1.0, -2.0], dtype=torch.float64).softmax(-1)
    assert torch.allclose(kept_by({"repetition_penalty": 2.0, "presence_penalty": 5.0}, "capital"), expected)
    assert kept_by({"temperature": 0}, "capital").tolist() == [1, 0, 0]


def test_picture_without_javascript(two_tokens):
    """The first prompt's likeliest tokens, kept or cut, and what the others hold."""
    rows = RecipeExplorer(recipe="facts", sources=["capital"]).picture(count=2)
    assert [(token, kept) for token, _, kept in rows] == [("␣a", True), ("␣b", False), ("1 others", False)]
    html = RecipeExplorer(recipe="facts", sources=["capital"], tested={"facts": "</script>"}).to_html()
    assert "␣a" in html and '</script>"' not in html and "<noscript>" in html


@pytest.mark.smollm2
def test_real_prompts_have_ids():
    """Every real distribution brings its prompt, so that penalties count the same tokens in page and package."""
    data = distributions.real()
    for source in distributions.catalogue()["sources"]:
        if "logits" not in source:
            assert len(data["prompts"][source["name"]]) >= 4
    assert kept_by({"temperature": 0}, "capital").argmax() == data["tokens"].index("␣Paris")
