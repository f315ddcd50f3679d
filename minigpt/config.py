"""Frozen facts about a model. Chapter 01 reads them; chapters 09 and 10 compute costs from them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a decoder-only transformer.

    Args:
        vocab_size: number of tokens, V.
        n_layers: number of transformer blocks, L.
        n_heads: query heads, H.
        n_kv_heads: key and value heads, H_kv; divides `n_heads` (equal: plain multi-head attention).
        d_model: width of the residual stream, C.
        d_ff: inner width of the SwiGLU feed-forward.
        context_length: longest text the model may see, in tokens.
        head_dim: size of one head, D, even; `None` means `d_model // n_heads`.
        rope_theta: base of the rotary frequencies.
        norm_eps: epsilon of RMSNorm.

    Raises:
        ValueError: a size below 1, heads that do not divide, an odd head size.
    """

    vocab_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_ff: int
    context_length: int
    head_dim: int | None = None
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def __post_init__(self):
        for name in ("vocab_size", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_ff", "context_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads={self.n_heads} is not a multiple of n_kv_heads={self.n_kv_heads}: "
                "every KV head serves the same number of query heads"
            )
        if self.head_dim is None:
            if self.d_model % self.n_heads:
                raise ValueError(
                    f"d_model={self.d_model} is not a multiple of n_heads={self.n_heads}: give head_dim yourself"
                )
            object.__setattr__(self, "head_dim", self.d_model // self.n_heads)
        if self.head_dim < 2 or self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even: rotary embedding turns pairs of dimensions")
