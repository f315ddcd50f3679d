"""What the pages around the chapters say is so: messages, sizes, figures, its list of chapters."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from conftest import ROOT

from minigpt import GPTConfig, MiniGPT, SamplingParams, generate, load, pretrained
from minigpt.__main__ import main
from minigpt.corpus import play_names
from minigpt.explorers import PlaygroundExplorer
from minigpt.train import TrainConfig

INTRO, HOW_TO_USE, NOTATION, PLAYGROUND = (
    (ROOT / f"book/{name}.md").read_text() for name in ("intro", "how_to_use", "notation", "playground")
)
FIGURE_SCRIPTS = [ROOT / f"minigpt/explorers/js/{name}.js" for name in ("playground", "playsettings", "playtext")]


def blocks(text, kind):
    """The fenced blocks of a kind."""
    return re.findall(rf"^```{re.escape(kind)}\n(.*?)\n```$", text, re.M | re.S)


def matches(quoted, message):
    """Whether a message is the quoted one: … stands for anything, and lines may be broken anywhere."""
    pattern = ".+".join(map(re.escape, " ".join(quoted.split()).split("…")))
    return re.fullmatch(pattern, message) is not None


def message_of(call, *args, **kwargs):
    """What the error of a call says."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def messages(tmp_path, monkeypatch):
    """Every message that the page on troubleshooting explains, as it really comes."""
    for name in ("Makefile", "requirements.txt", "requirements-dev.txt", "requirements-assets.txt", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "constraints.txt").touch()
    old_python = subprocess.run(["make", "book", "PYTHON=false"], cwd=tmp_path, capture_output=True, text=True).stdout
    yield next(line.strip() + " none" for line in old_python.splitlines() if line.startswith("Python"))

    monkeypatch.setenv("MINIGPT_CACHE", str(tmp_path))
    (tmp_path / "smollm2-135m-instruct.safetensors").write_bytes(b"half a file")
    yield message_of(load, "smollm2")
    (tmp_path / "smollm2-135m-instruct.safetensors").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        yield message_of(load, "smollm2")
        yield message_of(play_names)
        patch.setattr(pretrained, "WEIGHTS", tmp_path)
        yield message_of(load, "shakespeare")

    tokenizer = load("shakespeare-early")[1]
    yield message_of(tokenizer.encode, "é")
    yield message_of(tokenizer.chat, [])
    model = MiniGPT(GPTConfig(vocab_size=5, n_layers=1, n_heads=1, n_kv_heads=1, d_model=4, d_ff=4, context_length=3))
    yield message_of(generate, model, torch.zeros(1, 4, dtype=torch.long), max_new_tokens=1)
    yield message_of(model, torch.tensor([[5]]))

    yield message_of(SamplingParams, temperature=-1)
    yield message_of(SamplingParams, top_p=0)
    yield message_of(SamplingParams, top_k=0)

    scripts = {name: (ROOT / f"minigpt/explorers/js/{name}.js").read_text() for name in ("figure", "boot")}
    failed = re.search(r"failed: \(reason\) => `(.*)\$\{reason\}(.*)`", scripts["figure"])
    missing = re.search(r"error: `\$\{.*\} (could not be read)`", scripts["boot"])
    yield f"{failed[1]}distributions.js {missing[1]}{failed[2]}"


def test_messages_are_real(tmp_path, monkeypatch):
    """Each quoted message is what the program says, and each one provoked here is explained there."""
    quoted, real = blocks(HOW_TO_USE, "text"), list(messages(tmp_path, monkeypatch))
    assert [message for message in real if not any(matches(quote, message) for quote in quoted)] == []
    assert [quote for quote in quoted if not any(matches(quote, message) for message in real)] == []


@pytest.mark.smollm2
def test_example_runs(capsys):
    """The example of the package in use."""
    (source,) = blocks(HOW_TO_USE, "python")
    exec(source, {})
    assert capsys.readouterr().out.startswith("Once upon a time")


@pytest.mark.smollm2
def test_command_lines_run(capsys):
    """The commands beside it."""
    commands = [shlex.split(line) for block in blocks(HOW_TO_USE, "bash") for line in block.splitlines()]
    commands = [words[3:] for words in commands if words[1:3] == ["-m", "minigpt"]]
    assert len(commands) == 2
    for arguments in commands:
        main([*arguments, "--max-new-tokens", "3"])
        assert capsys.readouterr().out.startswith(arguments[0])


@pytest.mark.smollm2
def test_sizes(monkeypatch):
    """The two columns of the size table, and the sizes named in sentences."""
    rows = dict(re.findall(r"^\| \$(\w+|H_\{kv\})\$ \|.*?\| ([\d,]+ \| [\d,]+) \|$", NOTATION, re.M))
    fields = ("vocab_size", "n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim")
    play, real = load("shakespeare-early")[0], load("smollm2")[0]
    assert rows == {
        letter: f"{getattr(play.config, field):,} | {getattr(real.config, field):,}"
        for letter, field in zip(("V", "L", "C", "H", "H_{kv}", "D"), fields, strict=True)
    }
    assert f"among {real.config.vocab_size:,} tokens" in " ".join(INTRO.split())
    assert f"{sum(p.numel() for p in play.parameters()) / 1e6:.2f} million parameters" in INTRO
    assert f"{sum(p.nbytes for p in real.parameters()) / 1e6:.0f} MB" in HOW_TO_USE
    for variable in ("MINIGPT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert f"`~/{pretrained.cache_folder().relative_to(Path.home())}`" in HOW_TO_USE
    assert f"after {TrainConfig.early} steps" in " ".join(INTRO.split())


@pytest.mark.parametrize("page", [INTRO, PLAYGROUND])
def test_pages_name_what_the_figure_has(page):
    """Every word in bold before and just after the figure is one of its own."""
    words = " ".join(script.read_text() for script in FIGURE_SCRIPTS)
    around = page.partition("## ")[0]
    named = re.findall(r"\*\*(.+?)\*\*", around)
    assert len(named) >= 4
    assert [name for name in named if f'"{name}' not in words] == []


@pytest.mark.parametrize(("page", "settings"), [(INTRO, {"small": True}), (PLAYGROUND, {})])
def test_figures_of_pages(page, settings):
    """Their state is that of the explorer as it starts, and so is the still picture."""
    (figure,) = blocks(page, "{raw} html")
    state, picture = re.search(r'json">(.*?)</script><noscript>(.*)</noscript>', figure).groups()
    explorer = PlaygroundExplorer(**settings)
    assert explorer.state == json.loads(state)
    numbers = re.compile(r"[\d.]+")
    expected = explorer.still()
    assert numbers.sub("", picture) == numbers.sub("", expected)
    assert list(map(float, numbers.findall(picture))) == pytest.approx(
        list(map(float, numbers.findall(expected))), abs=0.15
    )


def test_front_page_lists_the_chapters():
    """Each chapter of the contents has its card, in order, and no card promises another."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text())
    chapters = [c["file"] for part in contents["parts"] for c in part["chapters"] if c["file"].startswith("notebooks")]
    assert re.findall(r"^:link: \.\./(\S+)$", INTRO, re.M) == chapters
