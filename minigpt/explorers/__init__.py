"""Live figures: the same JavaScript as a widget in a notebook and, with no kernel, in the book's pages.

`python -m minigpt.explorers` writes the data that the pages need.
"""

from minigpt.explorers.beam import BeamExplorer, TreeModel, record_tree, toy_tree, toy_trees
from minigpt.explorers.cache import CacheExplorer
from minigpt.explorers.complexity import ComplexityExplorer
from minigpt.explorers.generation import GenerationExplorer, record
from minigpt.explorers.memory import MemoryExplorer
from minigpt.explorers.order import OrderExplorer
from minigpt.explorers.penalties import PenaltyExplorer
from minigpt.explorers.playground import PlaygroundExplorer
from minigpt.explorers.recipe import RecipeExplorer
from minigpt.explorers.temperature import TemperatureExplorer
from minigpt.explorers.truncation import TruncationExplorer

__all__ = [
    "BeamExplorer",
    "CacheExplorer",
    "ComplexityExplorer",
    "GenerationExplorer",
    "MemoryExplorer",
    "OrderExplorer",
    "PenaltyExplorer",
    "PlaygroundExplorer",
    "RecipeExplorer",
    "TemperatureExplorer",
    "TreeModel",
    "TruncationExplorer",
    "record",
    "record_tree",
    "toy_tree",
    "toy_trees",
]
