"""Settings every test shares."""

import sys
from pathlib import Path

import hypothesis
import pytest

from minigpt.pretrained import load

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))  # book/build.py is no package: tests import it as `build`
pytest.register_assert_rewrite("figures")  # so that the checks in tests/browser/figures.py say what they compared

# The same examples on every machine and in every run, and no time limit that a busy machine could break.
hypothesis.settings.register_profile("book", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("book")


@pytest.fixture(scope="session")
def root():
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2 and its tokenizer, loaded once."""
    return load("smollm2")


@pytest.fixture(scope="session")
def shakespeare():
    """The finished play model and its tokenizer."""
    return load("shakespeare")


@pytest.fixture(scope="session")
def early():
    """The play model after 200 steps and its tokenizer."""
    return load("shakespeare-early")
