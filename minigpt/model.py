"""MiniGPT: a Llama-shaped decoder-only transformer. Chapters 01 and 08.

RMSNorm (Zhang & Sennrich 2019), rotary positions on interleaved pairs (Su 2021), grouped-query attention
(Ainslie 2023), SwiGLU (Shazeer 2020), embedding and head tied, no biases.

Dimension key: B batch, T new tokens in this call, S keys visible after it, V vocabulary, H query heads,
H_kv KV heads, D head size, C model width.
"""

import torch
import torch.nn.functional as F
from torch import nn

from minigpt.packed_linear import pack


def rotary_tables(positions, head_dim, theta):
    """Cosines and sines for rotary embedding, always float32: bf16 cannot tell position 256 from 257.

    Args:
        positions: (T,) or (B, T) int64.
        head_dim: D.
        theta: base of the frequencies.

    Returns:
        cos, sin: (1 or B, 1, T, D / 2) float32.
    """
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim)
    angles = positions.float()[..., None] * frequencies  # (..., T, D/2)
    angles = angles.view(-1, 1, *angles.shape[-2:])  # (1 or B, 1, T, D/2): one for all heads
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Turn each pair (2i, 2i+1) of x (B, heads, T, D) by its position's angle."""
    even, odd = x[..., 0::2], x[..., 1::2]  # (B, heads, T, D/2)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention; a cache, if there is one, supplies the keys of earlier calls."""

    def __init__(self, config):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.d_model, config.n_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.d_model, config.n_kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.d_model, config.n_kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.n_heads * config.head_dim, config.d_model, bias=False)

    def forward(self, x, rotary, mask, cache, layer):
        B, T, C = x.shape
        q = self.q_proj(x).view(B, T, -1, self.head_dim).transpose(1, 2)  # (B, H, T, D)
        k = self.k_proj(x).view(B, T, -1, self.head_dim).transpose(1, 2)  # (B, H_kv, T, D)
        v = self.v_proj(x).view(B, T, -1, self.head_dim).transpose(1, 2)  # (B, H_kv, T, D)
        q, k = rotate(q, *rotary), rotate(k, *rotary)
        if cache is not None:
            k, v = cache.append(layer, k, v, q)  # (B, H_kv, S, D)
        causal = mask is None and T > 1  # no cache, no padding: the kernel's own causal mask will do
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))  # (B, T, C)


class FeedForward(nn.Module):
    """SwiGLU: silu(gate(x)) * up(x), projected down."""

    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.up_proj = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.down_proj = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention, then feed-forward, each on a normalised copy of the stream it adds to."""

    def __init__(self, config):
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, x, rotary, mask, cache, layer):
        x = x + self.attention(self.attention_norm(x), rotary, mask, cache, layer)
        return x + self.ffn(self.ffn_norm(x))


class MiniGPT(nn.Module):
    """A decoder-only language model: token ids in, logits of the next token out.

    Args:
        config: a `GPTConfig`.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.packed_head = None  # the embedding once more, packed by `optimize`
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # What is added to the stream starts smaller, so that its variance does not grow with depth (GPT-2).
                added = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * config.n_layers) ** 0.5 if added else 0.02)

    def forward(self, token_ids, cache=None, *, attention_mask=None, num_logits=None):
        """Logits of the token after each of the last `num_logits` positions.

        Args:
            token_ids: new tokens, (B, T) int64.
            cache: a `KVCache` (or its like) holding the text so far; it grows by T.
            attention_mask: (B, cached + T) bool over all columns of the text, `False` where there is padding; padding
                stands on the left only. Positions then count real tokens. A cache that has forgotten some of the
                columns still needs all of them here.
            num_logits: how many of the last positions go through the head (prefill needs 1); `None` is all T.

        Returns:
            logits: (B, T or num_logits, V).

        Raises:
            ValueError: an empty input, an id outside the vocabulary, a text past `context_length`, a mask of the wrong
                shape or with padding after a token.
        """
        T = self._check_ids(token_ids)
        mask = positions = None
        if cache is not None:
            mask, positions = cache.mask(T), cache.positions(T)
        else:
            positions = torch.arange(T)
        if attention_mask is not None:
            visible = mask if mask is not None or cache is not None else torch.ones(T, T, dtype=torch.bool).tril()
            columns = torch.arange(T) if cache is None else cache.columns(T)
            mask, positions = _padded(attention_mask, token_ids.size(0), T, columns, visible)
        if int(positions.max()) >= self.config.context_length:
            raise ValueError(
                f"position {int(positions.max())} is past context_length={self.config.context_length}: shorten the text"
            )
        device = token_ids.device
        mask = None if mask is None else mask.to(device)
        rotary = rotary_tables(positions.to(device), self.config.head_dim, self.config.rope_theta)
        x = self.embedding(token_ids)  # (B, T, C)
        for i, layer in enumerate(self.layers):
            x = layer(x, rotary, mask, cache, i)
        if cache is not None:
            cache.advance(T)
        if num_logits is not None:
            x = x[:, -num_logits:]
        x = self.norm(x)  # (B, T or num_logits, C)
        return F.linear(x, self.embedding.weight) if self.packed_head is None else self.packed_head(x)

    def optimize(self, weights="float32"):
        """Repack the weights for fast decoding and return the model, for inference only.

        Args:
            weights: "float32" has the same numbers but for the last bits, and leaves the model as it is where the
                machine cannot pack it; "bfloat16", "int8" and "int4" are rounded, see `packed_linear.pack`.

        Raises:
            ValueError: a model that is not in float32 on the CPU; weights that it, or this machine, cannot have.
        """
        return pack(self, weights)

    def _check_ids(self, token_ids):
        if token_ids.dim() != 2 or token_ids.numel() == 0:
            raise ValueError(f"token_ids has shape {tuple(token_ids.shape)}: it must be (B, T) with at least one token")
        low, high = int(token_ids.min()), int(token_ids.max())
        if low < 0 or high >= self.config.vocab_size:
            raise ValueError(
                f"token id {low if low < 0 else high} is outside the vocabulary of {self.config.vocab_size}: "
                "was this text encoded with the model's own tokenizer?"
            )
        return token_ids.size(1)


def _padded(attention_mask, B, T, columns, visible):
    """Attention mask (B, 1, T, S) and positions (B, T) of left-padded rows, from what the cache lets them see.

    The keys stand in the `columns` (S,) of the text, the new tokens in its last T.
    """
    length = int(columns[-1]) + 1
    if attention_mask.shape != (B, length):
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}: with {length - T} cached and {T} new tokens in "
            f"{B} rows it must be ({B}, {length})"
        )
    attention_mask = attention_mask.bool()
    if (attention_mask[:, :-1] & ~attention_mask[:, 1:]).any() or not attention_mask[:, -1].all():
        raise ValueError("attention_mask has padding after a token: pad on the left, and leave no row empty")
    positions = (attention_mask.cumsum(1) - 1).clamp(0)[:, -T:]  # (B, T)
    mask = attention_mask[:, columns][:, None, None]  # (B, 1, 1, S)
    return (mask.expand(B, 1, T, -1) if visible is None else mask & visible.to(mask.device)), positions
