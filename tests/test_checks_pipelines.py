"""The checkers of chapter 05: each accepts the folded solution and turns down, kindly, what people get wrong."""

import nbformat
import pytest
import torch
from peer import llama
from toy_models import tiny_model
from transformers import GenerationConfig

from minigpt.checks import pipelines as checks
from minigpt.sampling import ORDERS, PENALTIES, RULES

LOGITS = 3 * torch.randn(1, 2000, generator=torch.Generator().manual_seed(0))
KEPT = {"transformers": 1, "vLLM": 1, "llama.cpp": 11}


@pytest.mark.parametrize("cell_id", ["solution-kept", "solution-engines", "solution-pipeline"])
def test_the_folded_solution_is_accepted(root, capsys, cell_id):
    notebook = nbformat.read(root / "notebooks" / "05_pipelines.ipynb", as_version=4)
    source = next(cell.source for cell in notebook.cells if cell.id == cell_id)
    known = {"checks": checks, "logits": {"for i in range(": LOGITS}}
    exec(source, known | {"RULES": RULES, "PENALTIES": PENALTIES, "ORDERS": ORDERS})
    assert capsys.readouterr().out.splitlines()[0].startswith("Right")


@pytest.mark.parametrize(
    ("name", "wrong", "hint"),
    [
        ("transformers", 11, "temperature comes first"),
        ("llama.cpp", 1, "temperature comes last"),
        ("vLLM", 11, "before min-p here too"),
        ("vLLM", ..., "say how many tokens vLLM keeps"),  # the stub as it stands
    ],
)
def test_a_wrong_count_is_named(name, wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_kept(KEPT | {name: wrong})
    with pytest.raises(AssertionError, match="say how many"):
        checks.check_kept({})


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"temperature": 1.2, "top_p": 0.9}, "two are alike"),
        ({"temperature": 1.0, "min_p": 0.05, "top_p": 0.9}, "two are alike"),
        ({"typical_p": 0.9}, "vLLM has no typical_p"),
        ({"top_k": 50, "top_p": 0.9, "temperature": 1.5, "min_p": 0.05}, "leave top_k out"),  # stands in the table
        ({"repetition_penalty": 1.2, "temperature": 1.3, "min_p": 0.02}, "penalties count a text"),
        (..., "a dict of settings"),
    ],
)
def test_settings_that_part_no_engines_are_turned_down(settings, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_engines(settings, LOGITS)


def pipeline(settings, order, *, follow=True, off=True, greedy=True, penalties=True):
    """A pipeline of the reader's own with one part that can be got wrong."""
    order = [name for name in (order if follow else settings) if name in settings]
    if off:
        order = [name for name in order if settings[name] is not None]
    if greedy and settings.get("temperature") == 0:
        order = [name for name in order if name in PENALTIES and penalties] + ["temperature"]
    return [RULES[name](settings[name] or 0) if settings[name] is not None else RULES[name](1) for name in order]


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda s, o: pipeline(s, o, follow=False), "not by the dict"),
        (lambda s, o: pipeline(s, o, off=False), "None is off"),
        (lambda s, o: pipeline(s, o, greedy=False), "skip truncation"),
        (lambda s, o: pipeline(s, o, penalties=False), "keep them at temperature 0"),
        (
            lambda s, o: pipeline(s, o)[:-1] if s.get("temperature") == 0 else pipeline(s, o),
            r"has to be in the pipeline",
        ),
        (lambda s, o: pipeline(s, sorted(o)), "keeps other tokens"),
        (lambda s, o: None, "return a list of processors"),
        (lambda s, o: list(s), "return a list of processors"),
    ],
)
def test_a_wrong_pipeline_is_told_what_is_wrong(wrong, hint):
    with pytest.raises(AssertionError, match=hint):
        checks.check_pipeline(wrong)


def test_the_plain_pipeline_is_right(capsys):
    checks.check_pipeline(pipeline)
    assert "Right" in capsys.readouterr().out


def test_transformers_fills_top_k_when_nothing_is_set():
    """What chapter 05 says of its defaults: an unset top_k is 50, top_p 1, temperature 1, and nothing is drawn."""
    defaults = GenerationConfig._get_default_generation_params()
    assert (defaults["top_k"], defaults["top_p"], defaults["temperature"]) == (50, 1.0, 1.0)
    assert defaults["do_sample"] is False
    peer = llama(tiny_model(vocab_size=90))
    request = {"do_sample": True, "max_new_tokens": 1, "output_scores": True, "return_dict_in_generate": True}
    ids = torch.tensor([[1, 2, 3]])
    assert int(peer.generate(ids, **request).scores[0].isfinite().sum()) == 50
    assert int(peer.generate(ids, top_k=0, **request).scores[0].isfinite().sum()) == 90
