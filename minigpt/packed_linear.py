"""Weights repacked for decoding: the same products from a layout that is read once for all rows. Chapter 09.

A decode step multiplies every weight matrix by a few rows, and PyTorch's usual float32 kernel reads the weights at a
fraction of the memory's speed then. oneDNN keeps them in blocks of its own. Its operators are what `torch.compile` uses
when it freezes a model; they are not public, so they are tried once before they are trusted.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn


class PackedLinear(nn.Module):
    """A linear layer without bias whose weight lies in oneDNN's layout; for inference only.

    Args:
        weight: (N, C) float32. The packed copy takes as many bytes.
    """

    def __init__(self, weight):
        super().__init__()
        self.out_features = weight.size(0)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    def forward(self, x):
        """Multiply x (…, C): (…, N), equal to `F.linear` but for the last bits."""
        rows = x.reshape(-1, x.size(-1))
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, None, "none", [], "").view(*x.shape[:-1], -1)


@functools.cache
def is_available():
    """Whether this build of PyTorch has the operators, and they multiply as `F.linear` does."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(48, 32, generator=generator), torch.randn(3, 32, generator=generator)
    try:
        with torch.no_grad():
            return torch.allclose(PackedLinear(weight)(x), F.linear(x, weight), atol=1e-4)
    except (RuntimeError, AttributeError, TypeError):  # another build, or operators that have changed
        return False


def pack(model):
    """Replace every linear layer of a float32 model by a `PackedLinear`, and give its head a packed copy.

    The plain weights are let go, the embedding apart: what is left can neither be trained nor saved.

    Args:
        model: a `MiniGPT` on the CPU, in float32.

    Returns:
        The same model; unchanged where `is_available()` is false.

    Raises:
        ValueError: another dtype or device.
    """
    weight = model.embedding.weight
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        raise ValueError(f"weights are {weight.dtype} on {weight.device}: only float32 on the CPU can be packed")
    if is_available() and model.packed_head is None:
        model.requires_grad_(False)
        linears = [
            (parent, name, layer)
            for parent in model.modules()
            for name, layer in parent.named_children()
            if isinstance(layer, nn.Linear)
        ]
        for parent, name, layer in linears:
            setattr(parent, name, PackedLinear(layer.weight))
        model.packed_head = PackedLinear(weight)
    return model
