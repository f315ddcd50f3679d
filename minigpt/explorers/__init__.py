"""Live figures: the same JavaScript as a widget in a notebook and, with no kernel, in the book's pages.

`python -m minigpt.explorers` writes the data that the pages need.
"""

from minigpt.explorers.generation import GenerationExplorer, record
from minigpt.explorers.temperature import TemperatureExplorer
from minigpt.explorers.truncation import TruncationExplorer

__all__ = ["GenerationExplorer", "TemperatureExplorer", "TruncationExplorer", "record"]
