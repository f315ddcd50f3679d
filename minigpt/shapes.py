"""Sizes of real models and machines, each with its source: what the formulas of chapters 09 and 10 are fed with."""

import numbers
from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only model that decide what it costs.

    Args:
        n_layers, n_heads, n_kv_heads, head_dim, d_model, d_ff, vocab_size, context_length: as in `GPTConfig`.
        gated: three matrices in the feed-forward (SwiGLU), or two.
        tied: the head is the embedding matrix, stored once.
        window: keys a query may see, itself included; `None` is all. A model with layers of two kinds (local, global)
            is two shapes: add their bytes.
        kv_latent: numbers kept per token and layer in place of keys and values (MLA); `None` keeps both.
        total_params: parameters of a model whose blocks are not attention and one feed-forward (experts, MLA); only
            its memory is then known.
        source: repository on huggingface.co whose config.json has the sizes, or a paper.

    Raises:
        ValueError: a size below 1, heads that do not divide.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_model: int
    d_ff: int
    vocab_size: int
    context_length: int
    gated: bool = True
    tied: bool = False
    window: int | None = None
    kv_latent: int | None = None
    total_params: int | None = None
    source: str = ""

    def __post_init__(self):
        sizes = {k: v for k, v in vars(self).items() if k not in ("gated", "tied", "source") and v is not None}
        check_whole(1, **sizes)
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads={self.n_heads} is not a multiple of n_kv_heads={self.n_kv_heads}: "
                "give the number of KV heads, not of query heads in a group"
            )

    @classmethod
    def of(cls, config):
        """The shape of a `MiniGPT`, from its `GPTConfig`."""
        sizes = {k: v for k, v in vars(config).items() if k not in ("rope_theta", "norm_eps")}
        return cls(**sizes, tied=True, source="minigpt")

    @property
    def layer_params(self):
        """Weights of all matrices in the blocks, each used once for every token.

        Raises:
            ValueError: blocks of another make.
        """
        if self.kv_latent is not None or self.total_params is not None:
            raise ValueError(
                f"kv_latent={self.kv_latent}, total_params={self.total_params}: which weights a token uses is not "
                "known for blocks with experts or a latent; ask for memory only"
            )
        attention = 2 * self.d_model * self.head_dim * (self.n_heads + self.n_kv_heads)  # q and o, k and v
        ffn = (3 if self.gated else 2) * self.d_model * self.d_ff
        return self.n_layers * (attention + ffn)

    @property
    def head_params(self):
        """Weights of the head, V · C: a matrix product also when tied (a look-up in the embedding is none)."""
        return self.vocab_size * self.d_model

    @property
    def n_params(self):
        """Parameters held: embedding, blocks, two norms a block and a last one, the head unless it is tied.

        Left out are biases, position tables and norms inside attention: under 1 % of any model here.
        """
        if self.total_params is not None:
            return self.total_params
        norms = (2 * self.n_layers + 1) * self.d_model
        return self.head_params * (1 if self.tied else 2) + self.layer_params + norms

    @property
    def kv_numbers_per_token(self):
        """Numbers a token leaves in the cache, all layers: a key and a value for each KV head, or the latent."""
        return self.n_layers * (self.kv_latent or 2 * self.n_kv_heads * self.head_dim)


@dataclass(frozen=True)
class GPU:
    """A machine as its data sheet has it, GB = 1e9.

    Args:
        memory_bytes: size of its memory.
        bytes_per_s: bandwidth of that memory.
        flops_per_s: peak of dense products of 16-bit matrices.
        source: where the numbers stand.
    """

    memory_bytes: float
    bytes_per_s: float
    flops_per_s: float
    source: str


def check_whole(low, **values):
    """Raise a ValueError that names each value which is no whole number or below `low`."""
    for name, value in values.items():
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name}={value!r} must be a whole number, at least {low}")


MODELS = {  # layers, heads, KV heads, head_dim, d_model, d_ff, vocabulary, context
    "MiniGPT": ModelShape(4, 4, 2, 32, 128, 352, 75, 256, tied=True, source="minigpt"),
    "GPT-2 small": ModelShape(
        *(12, 12, 12, 64, 768, 3072, 50_257, 1024), gated=False, tied=True, source="openai-community/gpt2"
    ),
    "SmolLM2-135M": ModelShape(
        *(30, 9, 3, 64, 576, 1536, 49_152, 8192), tied=True, source="HuggingFaceTB/SmolLM2-135M-Instruct"
    ),
    "Qwen3-4B": ModelShape(36, 32, 8, 128, 2560, 9728, 151_936, 40_960, tied=True, source="Qwen/Qwen3-4B"),
    "LLaMA-7B": ModelShape(32, 32, 32, 128, 4096, 11_008, 32_000, 2048, source="huggyllama/llama-7b"),
    "Llama-2-7B": ModelShape(32, 32, 32, 128, 4096, 11_008, 32_000, 4096, source="meta-llama/Llama-2-7b-hf"),
    "Llama-3-8B": ModelShape(32, 32, 8, 128, 4096, 14_336, 128_256, 8192, source="meta-llama/Meta-Llama-3-8B"),
    "Llama-3-70B": ModelShape(80, 64, 8, 128, 8192, 28_672, 128_256, 8192, source="meta-llama/Meta-Llama-3-70B"),
    "Mistral-7B": ModelShape(
        *(32, 32, 8, 128, 4096, 14_336, 32_000, 8192), window=4096, source="Jiang et al. 2023, table 1 (version 0.1)"
    ),
    "DeepSeek-V2": ModelShape(  # MLA: a latent of 512 and one rotary key of 64; 160 experts a layer
        *(60, 128, 128, 128, 5120, 12_288, 102_400, 163_840),
        kv_latent=512 + 64,
        total_params=235_741_434_880,
        source="deepseek-ai/DeepSeek-V2",
    ),
}

GPUS = {
    "RTX 4090": GPU(24e9, 1.008e12, 165.2e12, "NVIDIA Ada GPU architecture (2022), appendix"),
    "A100": GPU(80e9, 2.039e12, 312e12, "NVIDIA A100 80 GB SXM, data sheet"),
    "H100": GPU(80e9, 3.35e12, 989.4e12, "NVIDIA H100 SXM, data sheet: half of what it gives with sparsity"),
    "H200": GPU(141e9, 4.8e12, 989.4e12, "NVIDIA H200 SXM, data sheet: half of what it gives with sparsity"),
}
