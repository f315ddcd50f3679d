"""What is committed: notebooks without outputs, links that lead somewhere, pins that agree."""

import importlib.metadata
import re
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT
from notebook_rules import dead_links, notebook_problems

from minigpt.explorers.base import SHARED_SCRIPTS

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TEXTS = [ROOT / "README.md", *sorted((ROOT / "book").glob("*.md"))]
GENERATED = {"distributions.js", "shakespeare.js", "shakespeare-early.js"}
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "requirements-assets.txt")


def pins(name):
    """The versions a requirement file fixes, by normalised name."""
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    unpinned = [line for line in lines if line and not re.fullmatch(r"[\w.-]+==[\w.]+", line)]
    assert not unpinned, f"{name}: {unpinned} are not pinned with =="
    return {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower(): line.split("==")[1] for line in lines if line}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_clean(path):
    """No outputs, counts or widget state; kernel python3; short cells; links that exist."""
    assert notebook_problems(path) == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path):
    """Relative links of the README and of the pages."""
    assert list(dead_links(path.read_text(), path.parent)) == []


def test_measured_numbers_are_those_of_the_benchmarks():
    """The README's table is what `benchmarks/measured.py` makes of the results."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from measured import table

    assert table() in (ROOT / "README.md").read_text()


def test_contents_list_every_page():
    """_toc.yml names each notebook once, in order, and only pages that exist."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text())
    pages = [contents["root"], *(chapter["file"] for part in contents["parts"] for chapter in part["chapters"])]
    assert [page for page in pages if page.startswith("notebooks/")] == [f"notebooks/{p.stem}" for p in NOTEBOOKS]
    assert sorted(page for page in pages if page.startswith("book/")) == [f"book/{p.stem}" for p in TEXTS[1:]]


def test_scripts_of_the_live_figures():
    """Every script is on the pages once: shared ones first, what mounts the figures last, the big data never."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]
    listed = [name for name, _ in config["html_js_files"] if not (ROOT / "book/assets" / name).exists()]
    present = {path.name for path in (ROOT / "minigpt/explorers/js").glob("*.js")} - GENERATED
    assert sorted(listed) == sorted(present)
    assert listed[: len(SHARED_SCRIPTS)] == list(SHARED_SCRIPTS) and listed[-1] == "boot.js"


def test_versions_agree():
    """Direct pins, the full list of versions and what is installed here are one and the same."""
    everything = pins("constraints.txt")
    for name in REQUIREMENTS:
        for package, version in pins(name).items():
            assert importlib.metadata.version(package).split("+")[0] == version, f"{name}: {package}"
            assert name == "requirements-assets.txt" or everything[package] == version, f"constraints.txt: {package}"


def test_jupyter_book_stays_below_2():
    """Version 2 reads no _config.yml: a fresh install that took it would not build."""
    assert importlib.metadata.version("jupyter-book").startswith("1.")
    assert pins("requirements.txt")["jupyter-book"].startswith("1.")


def test_nothing_generated_is_committed():
    """What a build or a run makes stays out of version control."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git clone")
    made = re.compile(r"^_build/|^\.executing/|(^|/)(mathjax/|\.ipynb_checkpoints/|__pycache__/)")
    names = listing.stdout.splitlines()
    assert [name for name in names if made.search(name) or name.rpartition("/")[2] in GENERATED] == []
