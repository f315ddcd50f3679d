"""Pictures of the book: `style` for all of them, then one module a part. A function draws one figure and returns it."""

from minigpt.figures.style import use

__all__ = ["use"]
