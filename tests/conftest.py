"""Settings every test shares."""

import sys
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book"))  # book/build.py is no package: tests import it as `build`

# The same examples on every machine and in every run, and no time limit that a busy machine could break.
hypothesis.settings.register_profile("book", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("book")


@pytest.fixture(scope="session")
def root():
    """The project's folder."""
    return ROOT
