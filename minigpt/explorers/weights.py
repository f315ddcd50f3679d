"""The play models for the browser: scripts that the playground loads on first use, from the shipped weights.

A page opened with a double click may load scripts and nothing else, so the bytes stand as base64 in one.
"""

import base64
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch

from minigpt.explorers.distributions import JS, write_whole
from minigpt.pretrained import WEIGHTS, load

NAMES = ("shakespeare", "shakespeare-early")


def script(name):
    """Path of a model's script."""
    return JS / f"{name}.js"


def export(name):
    """What a page needs of a play model, one of `NAMES`.

    Returns:
        `(facts, bytes)`: `{"config": sizes, "characters": the vocabulary, "tensors": [[name, values], …]}`, and the
        values of all tensors in that order, little-endian float16, as they were shipped.
    """
    model, tokenizer = load(name)
    tensors = {key: tensor.to(torch.float16).numpy() for key, tensor in model.state_dict().items()}
    listed = [[key, tensor.size] for key, tensor in tensors.items()]
    facts = {"config": asdict(model.config), "characters": tokenizer.characters, "tensors": listed}
    return facts, b"".join(tensor.astype("<f2").tobytes() for tensor in tensors.values())


def write():
    """Write the scripts that are missing or not of these weights, each whole or not at all; the names of those."""
    return [name for name in NAMES if _write_one(name)]


def _write_one(name):
    sources = (WEIGHTS / f"{name}.safetensors", Path(__file__))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    start = f'((globalThis.nextToken ??= {{}}).models ??= {{}})["{name}"] = {{"key":"{key}",'
    if script(name).exists() and script(name).read_text(encoding="utf-8").startswith(start):
        return False
    facts, values = export(name)
    rest = json.dumps({**facts, "weights": base64.b64encode(values).decode("ascii")}, separators=(",", ":"))
    write_whole(script(name), f"{start}{rest[1:]};\n")
    return True
