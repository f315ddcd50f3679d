"""Tokenizers: characters for the plays, byte-level BPE for SmolLM2. Chapter 01.

Both have one interface: `encode(text, special=False)`, `decode(ids)`, `decoder()` for streaming, `token_text(id)` for
display, `vocab_size`, `eos_token_id`, and `chat(messages)`.
"""


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
        """The text of the ids."""
        return "".join(self.characters[i] for i in ids)

    def decoder(self):
        """A streaming decoder: call it with each id in turn, get the text that id completes."""
        return lambda i: self.characters[i]

    def token_text(self, i):
        """How the token reads in a figure."""
        return visible(self.characters[i])

    def chat(self, messages):
        """The play model knows no chat.

        Raises:
            ValueError: always.
        """
        raise ValueError("the Shakespeare model has no chat template: give it plain text, or load('smollm2')")


def visible(text):
    """Make white space visible, as the figures show it: a space as ␣, a line break as ↵, a tab as ⇥."""
    return text.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥")
