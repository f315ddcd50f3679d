"""Models whose answers are known by heart, a tiny random MiniGPT, and tokenizers of a few bytes."""

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import nn

from minigpt.config import GPTConfig
from minigpt.model import MiniGPT
from minigpt.tokenization import _BYTES, BPETokenizer

BYTE_TOKENS = [character for character, _ in sorted(_BYTES.items(), key=lambda item: item[1])]  # id = byte
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_config(**changes):
    """Two layers, four query heads on two KV heads, head_dim that is not d_model / n_heads."""
    shape = {
        "vocab_size": 23,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "d_model": 24,
        "d_ff": 40,
        "context_length": 160,
        "head_dim": 8,
    }
    return GPTConfig(**(shape | changes))


def tiny_model(seed=0, dtype=torch.float32, **changes):
    """A random MiniGPT with weights large enough for its texts to wander."""
    generator = torch.Generator().manual_seed(seed)
    model = MiniGPT(tiny_config(**changes)).to(dtype).eval()
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(0.35 * noise if weight.dim() == 2 else 1 + 0.1 * noise)
    return model


def random_ids(seed, *shape, vocab_size=23):
    """Token ids of a given shape, the same for the same seed."""
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


class TableModel:
    """The logits after a token are the row of a table; counts its calls and the tokens it is given.

    Args:
        table: (V, V), row t = logits after token t.
        context_length: of its `config`.
    """

    def __init__(self, table, context_length=64):
        self.table = torch.as_tensor(table, dtype=torch.float32)
        self.config = GPTConfig(
            len(self.table), n_layers=1, n_heads=1, n_kv_heads=1, d_model=2, d_ff=1, context_length=context_length
        )
        self.calls, self.tokens = 0, 0

    def __call__(self, token_ids, cache=None, *, attention_mask=None, num_logits=None):
        self.calls += 1
        self.tokens += token_ids.numel()
        logits = self.logits(token_ids, 0 if cache is None else cache.length)
        if cache is not None:
            cache.advance(token_ids.size(1))
        return logits if num_logits is None else logits[:, -num_logits:]

    def logits(self, token_ids, start):
        """Logits (B, T, V); column 0 of `token_ids` is column `start` of the text."""
        return self.table[token_ids]


class ScriptModel(TableModel):
    """Row r says `script[r]` word for word after a prompt of `prompt_length` tokens.

    Args:
        script: for each row, the tokens it wants, equally many.
        prompt_length: P.
        vocab_size: V.
    """

    def __init__(self, script, prompt_length, vocab_size, context_length=64):
        super().__init__(torch.zeros(vocab_size, vocab_size), context_length)
        self.script, self.prompt_length = torch.tensor(script), prompt_length

    def logits(self, token_ids, start):
        step = torch.arange(start, start + token_ids.size(1)) - self.prompt_length + 1
        wanted = self.script[:, step.clamp(0, self.script.size(1) - 1)]  # (B, T)
        return nn.functional.one_hot(wanted, self.config.vocab_size) * 8.0


class FaultyModel(TableModel):
    """A model whose logits are not numbers, or leave no token.

    Args:
        value: what every logit is.
    """

    def __init__(self, value):
        super().__init__(torch.full((5, 5), value))


def byte_tokenizer(merges=(), specials=("<|im_start|>", "<|im_end|>"), template=TEMPLATE):
    """Byte-level BPE: one token a byte (id = byte), then the merges, then special tokens; the last one is EOS.

    Args:
        merges: pairs of byte-level tokens, as ("a", "a").
        specials: special tokens.
        template: Jinja source of the chat format.
    """
    tokens = [*BYTE_TOKENS, *(a + b for a, b in merges), *specials]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return BPETokenizer(tokenizer, len(tokens) - 1, template)
