"""Tokenizers: characters for the plays, byte-level BPE for SmolLM2. Chapter 01.

Both have one interface: `encode(text, special=False)`, `decode(ids)`, `decoder()` for streaming, `token_text(id)` for
display, `vocab_size`, `eos_token_id`, `chat(messages)`; `header()` is what a weights file says of them.
"""

import json

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


class CharTokenizer:
    """One token a character.

    Args:
        characters: the vocabulary, in id order.
    """

    eos_token_id = None

    def __init__(self, characters):
        self.characters = "".join(characters)
        self._ids = {character: i for i, character in enumerate(self.characters)}
        self.vocab_size = len(self.characters)

    @classmethod
    def from_text(cls, text):
        """The tokenizer of all characters that `text` uses, sorted."""
        return cls(sorted(set(text)))

    def header(self):
        """What a weights file must say to make this tokenizer again."""
        return {"characters": self.characters}

    def encode(self, text, special=False):
        """Ids of the characters; there are no special tokens, so `special` changes nothing.

        Raises:
            ValueError: a character outside the vocabulary.
        """
        unknown = sorted(set(text) - self._ids.keys())
        if unknown:
            raise ValueError(
                f"the character {unknown[0]!r} is not among the {self.vocab_size} this model knows: "
                f"use {self.characters.strip()}, spaces and line breaks"
            )
        return [self._ids[character] for character in text]

    def decode(self, ids):
        """The text of the ids.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        return "".join(self.characters[_checked(i, self.vocab_size)] for i in ids)

    def decoder(self):
        """A streaming decoder: call it with each id in turn, get the text that id completes."""
        return lambda i: self.characters[_checked(i, self.vocab_size)]

    def token_text(self, i):
        """How the token reads in a figure."""
        return visible(self.characters[_checked(i, self.vocab_size)])

    def chat(self, messages):
        """The play model knows no chat.

        Raises:
            ValueError: always.
        """
        raise ValueError("the Shakespeare model has no chat template: give it plain text, or load('smollm2')")


class BPETokenizer:
    """Byte-level BPE: every text can be encoded, and a token may be part of a character.

    Args:
        tokenizer: a `tokenizers.Tokenizer`.
        eos_token_id: the token that ends an answer.
        chat_template: Jinja source of the chat format.
    """

    def __init__(self, tokenizer, eos_token_id, chat_template):
        self._tokenizer, self._template = tokenizer, chat_template
        self.eos_token_id = eos_token_id
        self.vocab_size = tokenizer.get_vocab_size()

    @classmethod
    def from_gguf(cls, fields):
        """Build it from the fields of a GGUF file (`gguf.GGUFReader(...).fields`)."""
        tokens = fields["tokenizer.ggml.tokens"].contents()
        merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
        tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
        split_digits = pre_tokenizers.Digits(individual_digits=True)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split_digits, byte_level])
        tokenizer.decoder = decoders.ByteLevel()
        control = 3  # GGUF's token type of special tokens
        kinds = fields["tokenizer.ggml.token_type"].contents()
        tokenizer.add_special_tokens(
            [AddedToken(t, special=True) for t, k in zip(tokens, kinds, strict=True) if k == control]
        )
        eos_token_id = fields["tokenizer.ggml.eos_token_id"].contents()
        return cls(tokenizer, eos_token_id, fields["tokenizer.chat_template"].contents())

    @classmethod
    def from_header(cls, header):
        """Build it from what `header()` gave."""
        rest = json.loads(header["tokenizer_settings"])
        return cls(Tokenizer.from_str(header["tokenizer"]), **rest)

    def header(self):
        """What a weights file must say to make this tokenizer again."""
        rest = {"eos_token_id": self.eos_token_id, "chat_template": self._template}
        return {"tokenizer": self._tokenizer.to_str(), "tokenizer_settings": json.dumps(rest)}

    def encode(self, text, special=False):
        """Ids of the text; a marker such as `<|im_end|>` in it stays plain text unless `special` is true."""
        self._tokenizer.encode_special_tokens = not special
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        """The text of the ids; bytes that are no character, as at a cut, become U+FFFD.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        return self._tokenizer.decode([_checked(i, self.vocab_size) for i in ids], skip_special_tokens=False)

    def decoder(self):
        """A streaming decoder: call it with each id in turn, get the text that is complete with it, perhaps none."""
        decode_stream = decoders.DecodeStream(skip_special_tokens=False)
        return lambda i: decode_stream.step(self._tokenizer, _checked(i, self.vocab_size)) or ""

    def token_text(self, i):
        """How the token reads in a figure; bytes that are no whole character stand as hexadecimal, like ⟨F0⟩⟨9F⟩."""
        token = self._tokenizer.id_to_token(_checked(i, self.vocab_size))
        if any(c not in _BYTES for c in token):  # a special token
            return token
        raw = bytes(_BYTES[c] for c in token)
        try:
            return visible(raw.decode())
        except UnicodeDecodeError:
            return "".join(f"⟨{byte:02X}⟩" for byte in raw)

    def chat(self, messages):
        """Ids of a conversation, ready for the model's answer.

        Args:
            messages: dicts with `"role"` (`"system"`, `"user"`, `"assistant"`) and `"content"`. Markers inside a
                content stay text: nobody can speak for another role.

        Raises:
            ValueError: a message without these two strings, or of another role.
        """
        for message in messages:
            known = isinstance(message, dict) and message.get("role") in ("system", "user", "assistant")
            if not (known and isinstance(message.get("content"), str)):
                raise ValueError(
                    f"message {message!r} must be a dict with a 'role' ('system', 'user' or 'assistant') "
                    "and a 'content', a string"
                )
        # The template is rendered around stand-ins, so that only its own markers are read as special tokens.
        stand_ins = [dict(message, content=f"\0{i}\0") for i, message in enumerate(messages)]
        template = ImmutableSandboxedEnvironment().from_string(self._template)
        pieces = template.render(messages=stand_ins, add_generation_prompt=True).split("\0")
        ids = []
        for i, piece in enumerate(pieces):
            ids += self.encode(messages[int(piece)]["content"]) if i % 2 else self.encode(piece, special=True)
        return ids


def _checked(i, vocab_size):
    if not 0 <= i < vocab_size:
        raise ValueError(f"token id {i} is outside the vocabulary of {vocab_size}: does it come from another model?")
    return int(i)


def visible(text):
    """Make what does not print visible, as the figures show it: a space as ␣, a line break as ↵, a tab as ⇥."""
    text = text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")
    return "".join(c if c.isprintable() else f"⟨{ord(c):02X}⟩" for c in text)


def _byte_table():
    """The byte that each character of a byte-level token stands for: GPT-2's table, with no blank character in it."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_table()
