"""Weights repacked for decoding: read once for all rows, and in fewer bytes if that is asked for. Chapter 09.

A decode step multiplies every weight matrix by a few rows, and PyTorch's usual float32 kernel reads the weights at a
fraction of the memory's speed then. oneDNN keeps them in blocks of its own; rounded to bfloat16, int8 or int4 there is
less to read. The operators are those that `torch.compile` uses when it freezes a model. They are not public, so each
kind is tried once before it is trusted.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

GROUP = 32  # weights of a row that share a scale and a zero point in int4


def round_int8(weight):
    """Round each row of a weight (N, C) to whole steps of a 127th of its largest value.

    Returns:
        codes (N, C) int8 from −127 to 127; scales (N, 1) bfloat16. The weight is about `codes * scales`.
    """
    scales = (weight.abs().amax(1, keepdim=True) / 127).bfloat16()
    return _steps(weight, scales).clamp(-127, 127).to(torch.int8), scales


def round_int4(weight):
    """Round each group of 32 weights in a row of a weight (N, C) to 16 levels from its smallest to its largest value.

    Returns:
        codes (N, C / 32, 32) int32 from 0 to 15; scales and zeros (N, C / 32, 1) bfloat16. The weight is about
        `(codes - 8) * scales + zeros`.
    """
    groups = weight.unflatten(1, (-1, GROUP))
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    scales = ((high - low) / 15).bfloat16()
    zeros = (low + 8 * scales.float()).bfloat16()
    return (_steps(groups - zeros.float(), scales) + 8).clamp(0, 15).int(), scales, zeros


def rounded(weight, weights):
    """The weight that a layer packed from weight (N, C) multiplies by, in float32; `weights` is a key of `KINDS`."""
    if weights == "int8":
        codes, scales = round_int8(weight)
        return codes.float() * scales.float()
    if weights == "int4":
        codes, scales, zeros = round_int4(weight)
        return ((codes - 8) * scales.float() + zeros.float()).flatten(1)
    return weight.to(KINDS[weights].dtype).float()


def _steps(weight, scales):
    scales = scales.float()
    return (weight / scales.where(scales != 0, 1)).round()  # a row of equal weights has scale 0


def _pack_float(weight, dtype):
    return (torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), None),)


def _multiply_float(rows, packed):
    return torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], "")


def _pack_int8(weight, dtype):
    codes, scales = round_int8(weight)
    return codes, scales.flatten()


def _pack_int4(weight, dtype):
    codes, scales, zeros = round_int4(F.pad(weight, (0, 0, 0, -len(weight) % 16)))  # the kernel's blocks of rows
    packed = torch._convert_weight_to_int4pack_for_cpu(codes.flatten(1), 1)  # two codes to a byte
    return packed, torch.cat((scales, zeros), 2).transpose(0, 1).contiguous()  # (C / 32, N, 2)


def _multiply_int4(rows, packed, scales_and_zeros):
    return torch._weight_int4pack_mm_for_cpu(rows, packed, GROUP, scales_and_zeros)


class _Kind(NamedTuple):
    dtype: torch.dtype  # of the activations inside the product
    step: int  # the inputs' width must be a multiple of it: past the end of a row the int8 kernel would crash
    pack: Callable
    multiply: Callable


KINDS = {
    "float32": _Kind(torch.float32, 1, _pack_float, _multiply_float),
    "bfloat16": _Kind(torch.bfloat16, 1, _pack_float, _multiply_float),
    "int8": _Kind(torch.bfloat16, 16, _pack_int8, lambda rows, *held: torch._weight_int8pack_mm(rows, *held)),
    "int4": _Kind(torch.bfloat16, GROUP, _pack_int4, _multiply_int4),
}


class PackedLinear(nn.Module):
    """A linear layer without bias whose weight lies as a fast kernel wants it; for inference only.

    Args:
        weight: (N, C) float32.
        weights: how they are kept, a key of `KINDS`: "float32"; "bfloat16"; "int8", a scale for each output; "int4", a
            scale and a zero point for each 32 weights. All but the first multiply in bfloat16, with sums in float32.

    Raises:
        ValueError: a width that the kernel cannot take.
    """

    def __init__(self, weight, weights="float32"):
        super().__init__()
        kind = KINDS[weights]
        _check_width(weight.size(1), weights)
        self.out_features, self.weights = weight.size(0), weights
        self._held = kind.pack(weight.detach(), kind.dtype)

    def forward(self, x):
        """Multiply x (…, C): (…, N) in the dtype of x, near `F.linear` with the `rounded` weight."""
        kind = KINDS[self.weights]
        rows = x.reshape(-1, x.size(-1)).to(kind.dtype).contiguous()
        y = kind.multiply(rows, *self._held)[:, : self.out_features]
        return y.to(x.dtype).reshape(*x.shape[:-1], -1)

    @property
    def nbytes(self):
        """Bytes held, scales and the kernel's own padding included."""
        return sum(torch.ops.mkldnn._nbytes(t) if t.is_mkldnn else t.nbytes for t in self._held)


def _check_width(width, weights):
    if width % (step := KINDS[weights].step):
        raise ValueError(f"a layer takes {width} inputs: {weights} weights need multiples of {step}, pack in float32")


@functools.cache
def is_available(weights="float32"):
    """Whether this build of PyTorch has the operators of a kind, and they multiply as `F.linear` does."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 96, generator=generator)
    tolerance = 1e-5 if weights == "float32" else 1e-2  # of the largest product: last bits of bfloat16
    try:
        with torch.no_grad():
            layer, exact = PackedLinear(weight, weights), rounded(weight, weights)
            for n_rows in (1, 3, 8):
                x = torch.randn(n_rows, 96, generator=generator)
                y = F.linear(x, exact)
                if not (layer(x) - y).abs().max() <= tolerance * y.abs().max():
                    return False
            return layer.nbytes > 0
    except (RuntimeError, AttributeError, TypeError):  # another build, or operators that have changed
        return False


def pack(model, weights="float32"):
    """Replace every linear layer of a float32 model by a `PackedLinear`, and give its head a packed copy.

    The plain weights are let go, the embedding apart: what is left can neither be trained nor saved. Embedding, norms,
    attention and cache stay in float32.

    Args:
        model: a `MiniGPT` on the CPU, in float32.
        weights: "float32", "bfloat16", "int8" or "int4", see `PackedLinear`. The logits of the last three have the
            precision of bfloat16: two tokens can tie that do not in float32.

    Returns:
        The same model; unchanged where "float32" is asked for and `is_available()` is false.

    Raises:
        ValueError: another dtype or device; other `weights`, or ones this machine cannot multiply; a width that the
            kernel cannot take; a model that is packed already, otherwise.
    """
    weight = model.embedding.weight
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        raise ValueError(f"weights are {weight.dtype} on {weight.device}: only float32 on the CPU can be packed")
    if weights not in KINDS:
        raise ValueError(f"weights={weights!r} is not known: choose one of {', '.join(KINDS)}")
    held = weights if model.packed_head is None else model.packed_head.weights
    if held != weights:
        raise ValueError(f"the model is packed in {held} already: load it again to have weights={weights!r}")
    if model.packed_head is not None:
        return model
    if not is_available(weights):
        if weights == "float32":
            return model  # the same numbers, only slower
        raise ValueError(f"this build of PyTorch cannot multiply {weights} weights on this processor: keep float32")
    linears = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    for layer in linears.values():
        _check_width(layer.in_features, weights)  # all of them before any is replaced
    model.requires_grad_(False)
    for name, layer in linears.items():
        model.set_submodule(name, PackedLinear(layer.weight, weights))
    model.packed_head = PackedLinear(weight, weights)
    return model


def packed_nbytes(model):
    """Bytes of weights that one decode step of a packed model reads: all linear layers and the head."""
    return sum(module.nbytes for module in model.modules() if isinstance(module, PackedLinear))
