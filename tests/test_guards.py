"""The guards can fail: each fault is planted in a small copy of the book, and the check goes red."""

import os
import shutil
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT
from notebook_rules import dead_links, notebook_problems

REAL = ("_config.yml", "pyproject.toml", "constraints.txt", "requirements-assets.txt", "book/build.py", "book/assets")
TINY_TOC = """\
format: jb-book
root: book/intro
chapters:
  - file: notebooks/chapter
"""
GOOD = "import minigpt\n\nprint(f'the number is {minigpt.NUMBER}')"
MEASURED = """\
from pathlib import Path

print("measured:", (Path(minigpt.__file__).parents[1] / "benchmarks/results/run.json").read_text())"""
RAISING = "answer = 6 * 7\nanswer / 0"
ENDLESS = "while True:\n    pass"
TO_STDERR = "import warnings\n\nwarnings.warn('this goes to stderr')"
OBSERVER = """\
import ipywidgets

slider = ipywidgets.IntSlider(value=1, min=1, max=5)
slider.observe(lambda change: 1 / (change.new - 5), "value")
slider"""
INTERACT = """\
import ipywidgets


@ipywidgets.interact(x=(0, 5))
def show(x=2):
    print(1 / x)"""
BUTTON = """\
import ipywidgets

button = ipywidgets.Button(description="Draw")
button.on_click(lambda _: {}["no such key"])
button"""


def write_notebook(path, *sources, kernel="python3"):
    """A notebook of a title and code cells, stripped as committed ones are."""
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": kernel, "display_name": kernel}})
    notebook.cells = [nbformat.v4.new_markdown_cell("# A chapter"), *map(nbformat.v4.new_code_cell, sources)]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def write_book(folder):
    """A book of two pages with the real settings and build script, and a package of one number."""
    for name in REAL:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    scripts = folder / "minigpt" / "explorers" / "js"
    scripts.mkdir(parents=True)
    for script in (ROOT / "minigpt/explorers/js").glob("*.js"):
        (scripts / script.name).touch()
    (folder / "minigpt/__init__.py").write_text("NUMBER = 41\n")
    (folder / "minigpt/explorers/__main__.py").write_text("")
    (folder / "_toc.yml").write_text(TINY_TOC)
    (folder / "book/references.bib").write_text("")
    (folder / "book/intro.md").write_text("# A book\n\nSee [the chapter](../notebooks/chapter.ipynb).\n")
    write_notebook(folder / "notebooks/chapter.ipynb", GOOD)
    return folder


def build(folder, *options):
    """Run the build script of a small book as the two commands do; its package comes before the installed one."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1"}
    command = [sys.executable, "book/build.py", *options]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return run.returncode, run.stdout + run.stderr


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A book with a good chapter and one notebook for each fault, built twice."""
    folder = write_book(tmp_path_factory.mktemp("faulty"))
    faults = {
        "raising": RAISING,
        "endless": ENDLESS,
        "to_stderr": TO_STDERR,
        "observer": OBSERVER,
        "interact": INTERACT,
        "button": BUTTON,
    }
    for name, source in faults.items():
        write_notebook(folder / f"notebooks/{name}.ipynb", "first = 1", source)
    write_notebook(folder / "notebooks/kernel.ipynb", "first = 1", kernel="conda-env-mine-py")
    code, output = build(folder, "--cell-timeout=6")
    return folder, code, output


@pytest.mark.parametrize(
    "fault",
    [
        "notebooks/raising.ipynb, cell 3 (answer = 6 * 7): ZeroDivisionError",
        "notebooks/endless.ipynb, cell 3 (while True:): ran too long",
        "notebooks/to_stderr.ipynb, cell 3 (import warnings): writes to stderr",
        "notebooks/observer.ipynb, cell 4 (# every control is moved): ZeroDivisionError",
        "notebooks/interact.ipynb, cell 4 (# every control is moved): ZeroDivisionError",
        "notebooks/button.ipynb, cell 4 (# every control is moved): KeyError: 'no such key'",
        "notebooks/kernel.ipynb, cell 2 (first = 1): never ran",
    ],
)
def test_planted_fault_is_named(faulty, fault):
    """Notebook and cell are told, also for a callback that only raises when somebody moves its slider."""
    _, code, output = faulty
    assert code != 0
    assert fault in output


def test_no_book_with_faulty_notebooks(faulty):
    """No page of a run that failed, and the next run fails as well."""
    folder, _, output = faulty
    assert "notebooks/chapter.ipynb, cell" not in output
    assert not (folder / "_build/html").exists()
    for name in ("endless", "interact", "observer", "button", "to_stderr", "kernel"):
        (folder / f"notebooks/{name}.ipynb").unlink()
    code, output = build(folder)
    assert code != 0 and "1 unchanged, 1 to run" in output


def test_stale_number(tmp_path):
    """A change in the package or in recorded results reaches the page; no change builds nothing."""
    folder = write_book(tmp_path)
    write_notebook(folder / "notebooks/chapter.ipynb", GOOD, MEASURED)
    recorded = folder / "benchmarks/results/run.json"
    recorded.parent.mkdir(parents=True)
    recorded.write_text("15")
    page = folder / "_build/html/notebooks/chapter.html"
    code, output = build(folder)
    assert code == 0, output
    assert "the number is 41" in page.read_text()
    assert "Nothing changed" in build(folder)[1]
    (folder / "minigpt/__init__.py").write_text("NUMBER = 42\n")
    code, output = build(folder)
    assert code == 0, output
    assert "the number is 42" in page.read_text() and "the number is 41" not in page.read_text()
    recorded.write_text("16")
    code, output = build(folder)
    assert code == 0, output
    assert "measured: 16" in page.read_text() and "measured: 15" not in page.read_text()


def test_broken_page_fails_every_time(tmp_path):
    """A warning of Sphinx is an error, and not only in the first run."""
    folder = write_book(tmp_path)
    (folder / "book/intro.md").write_text("# A book\n\n{ref}`nowhere`\n")
    for _ in range(2):
        code, output = build(folder)
        assert code != 0 and "nowhere" in output


def test_unstripped_notebook(tmp_path):
    """Outputs, run counts, times and widget state are found, by our rules and by nbstripout."""
    path = write_notebook(tmp_path / "chapter.ipynb", GOOD)
    verify = [sys.executable, "-m", "nbstripout", "--keep-id", "--verify", path]
    assert notebook_problems(path) == []
    assert subprocess.run(verify, capture_output=True).returncode == 0
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="the number is 41\n")]
    notebook.cells[1].execution_count = 1
    notebook.cells[1].metadata["execution"] = {"iopub.status.idle": "2026-01-01T00:00:00"}
    notebook.metadata["widgets"] = {}
    nbformat.write(notebook, path)
    problems = "\n".join(notebook_problems(path))
    assert all(problem in problems for problem in ("widget state", "outputs", "run count", "times of a run"))
    assert subprocess.run(verify, capture_output=True).returncode != 0


def test_foreign_kernel(tmp_path):
    """The name of an author's own environment would break every other machine."""
    path = write_notebook(tmp_path / "chapter.ipynb", GOOD, kernel="conda-env-mine-py")
    assert notebook_problems(path) == ["chapter.ipynb: kernel 'conda-env-mine-py' instead of 'python3'"]


def test_long_cell_and_dead_link(tmp_path):
    """A cell of 31 lines, a link to a page that is not there."""
    path = write_notebook(tmp_path / "chapter.ipynb", "\n".join(["x = 1"] * 31))
    assert notebook_problems(path) == ["chapter.ipynb: cell 2: is longer than 30 lines"]
    text = "[gone](../book/gone.md#part) [here](chapter.ipynb) [outside](https://example.org) [below](#part)"
    assert list(dead_links(text, tmp_path)) == ["../book/gone.md"]


@pytest.mark.parametrize(("required", "code", "words"), [("0", 0, "skipped"), ("1", 1, "REQUIRE_BROWSER=1, but no")])
def test_no_browser(required, code, words):
    """Where there is no browser its tests skip and say so; where one is required that is a failure."""
    environment = {**os.environ, "CHROMIUM": "/nowhere/chromium", "REQUIRE_BROWSER": required}
    command = [sys.executable, "-m", "pytest", "tests/browser/test_book.py", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == code, run.stdout
    assert words in run.stdout and "no Chromium or Chrome found" in run.stdout
