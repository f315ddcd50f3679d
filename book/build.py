"""Build the book: run the notebooks whose results are out of date, then one strict Sphinx build.

`make book` and `make test` call this file. What it leaves in `_build`:
    html/                the book
    .jupyter_cache/      results of the notebooks, found again by their cells
    executed-with        a hash of all that results depend on besides the cells: when it changes, the cache goes
    built-from           a hash of all that the book depends on: written last, so a failed build leaves none
"""

import argparse
import fcntl
import hashlib
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
HTML, EXECUTED_WITH, BUILT_FROM = BUILD / "html", BUILD / "executed-with", BUILD / "built-from"
COPIES = ROOT / ".executing"  # outside _build, where nbmake collects nothing
MATHJAX = ROOT / "book" / "assets" / "mathjax"
MATHJAX_PIECES = ("tex-chtml.js", "input/tex/extensions", "output/chtml/fonts/woff-v2")
RESULTS = (
    *("minigpt/**/*.py", "minigpt/weights/*", "constraints.txt", "requirements-assets.txt", "book/build.py"),
    # what notebooks read besides: recorded experiments, and the tables that figures and pages share
    *("benchmarks/results/*.json", "minigpt/explorers/js/catalogue.js", "minigpt/explorers/js/recipes.js"),
)
PAGES = (*RESULTS, "minigpt/explorers/js/*", "notebooks/*.ipynb", "book/**/*", "_config.yml", "_toc.yml")
WIDGET, STATE = "application/vnd.jupyter.widget-view+json", "application/vnd.jupyter.widget-state+json"
LIVE_NOTE = '<p class="nt-live-note">Live in the notebook, where a kernel runs; here is its first picture.</p>'


def main():
    """Build what is out of date and print the page to open; the exit code is 0 only for a book without a fault."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--clean", action="store_true", help="build all pages anew even if nothing changed")
    parser.add_argument("--cell-timeout", type=int, default=300, help="seconds a cell may run (default %(default)s)")
    options = parser.parse_args()
    started = time.perf_counter()
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second build waits for the first
        if options.clean or not is_current():
            build(options.cell_timeout)
        else:
            say("Nothing changed since the last build")
    print(f"The book took {time.perf_counter() - started:.1f} s. Open it:\n  {(HTML / 'index.html').as_uri()}")


def build(cell_timeout):
    """Do every step; the hash is of the sources as they were before, so what changes meanwhile is built next time."""
    BUILT_FROM.unlink(missing_ok=True)
    copy_mathjax()
    say("Data of the live figures")
    run("-m", "minigpt.explorers")
    sources = fingerprint(PAGES)
    execute_stale(cell_timeout)
    build_pages()
    BUILT_FROM.write_text(sources)


def is_current():
    """Whether the pages in `_build` show the sources as they are now."""
    return BUILT_FROM.exists() and (HTML / "index.html").exists() and BUILT_FROM.read_text() == fingerprint(PAGES)


def fingerprint(patterns):
    """A hash of the names and contents of the files that match, and of the Python version."""
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}):
        if not {"mathjax", "__pycache__", ".ipynb_checkpoints"} & set(path.parts):
            digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def copy_mathjax():
    """Copy what typesets formulas out of its Python package, so that no page asks the network for it."""
    if MATHJAX.exists():
        return
    say("MathJax for the pages")
    source = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
    partial = MATHJAX.with_name("mathjax.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for piece in MATHJAX_PIECES:
        copy = shutil.copytree if (source / piece).is_dir() else shutil.copy
        (partial / piece).parent.mkdir(parents=True, exist_ok=True)
        copy(source / piece, partial / piece)
    partial.rename(MATHJAX)


def execute_stale(cell_timeout):
    """Run copies of the notebooks that have no current results, keep the faultless results, end the build otherwise."""
    dependencies = fingerprint(RESULTS)
    cache_path = BUILD / ".jupyter_cache"
    if not EXECUTED_WITH.exists() or EXECUTED_WITH.read_text() != dependencies:
        shutil.rmtree(cache_path, ignore_errors=True)  # cells alone do not tell that the package has changed
    cache = get_cache(cache_path)
    EXECUTED_WITH.write_text(dependencies)
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    stale = [path for path in notebooks if not is_cached(cache, path)]
    say(f"Notebooks: {len(notebooks) - len(stale)} unchanged, {len(stale)} to run")
    if stale:
        copies = [copy_of(path) for path in stale]
        options = ["--nbmake", "--overwrite", f"--nbmake-timeout={cell_timeout}", "-v", "--durations=0"]
        code = run("-m", "pytest", *options, "-p", "no:cacheprovider", *copies, check=False)
        faults = [fault for path in copies for fault in collect(cache, path)]
        shutil.rmtree(COPIES)
        if code or faults:
            sys.exit("\n".join([*faults, "The notebooks have faults: no book was built."]))


def is_cached(cache, path):
    """Whether the results of a notebook with these cells are known."""
    try:
        cache.match_cache_notebook(nbformat.read(path, as_version=4))
    except KeyError:
        return False
    return True


def copy_of(path):
    """A copy to run, with one more cell that moves every control, so that callbacks run too."""
    notebook = nbformat.read(path, as_version=4)
    source = f"# every control is moved\n{inspect.getsource(move_controls)}\n\nmove_controls()"
    notebook.cells.append(nbformat.v4.new_code_cell(source))
    copy = COPIES / path.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, copy)
    return copy


def move_controls():
    """Run every callback of the notebook's widgets once more, and let what they raise be seen (it runs in a kernel)."""
    import sys

    import ipywidgets
    from IPython import get_ipython
    from ipywidgets.widgets import widget_bool, widget_float, widget_int, widget_selection
    from ipywidgets.widgets.widget import _instances

    numbers = widget_int._BoundedInt, widget_float._BoundedFloat, widget_float._BoundedLogFloat
    shell, raised = get_ipython(), []
    shell.showtraceback = lambda *args, **kwargs: raised.append(sys.exc_info()[1])  # where ipywidgets puts an error
    try:
        for widget in list(_instances.values()):
            values = []
            if isinstance(widget, ipywidgets.Button):
                widget.click()
            elif isinstance(widget, numbers):
                base = getattr(widget, "base", None)
                values = [base**end if base else end for end in (widget.min, widget.max)]
            elif isinstance(widget, widget_selection._Selection):
                values = [value for _, value in widget._options_full]
            elif isinstance(widget, widget_bool._Bool):
                values = [not widget.value]
            for value in [*values, widget.value] if values else []:
                widget.value = value
    finally:
        del shell.showtraceback
    if raised:
        raise raised[0]


def collect(cache, path):
    """Put the results of a run into the cache if they have no fault.

    Args:
        cache: the jupyter-cache.
        path: the copy that was run.

    Returns:
        One line a fault, naming notebook and cell.
    """
    notebook, name = nbformat.read(path, as_version=4), path.relative_to(COPIES)
    widgets = notebook.metadata.pop("widgets", {}).get(STATE, {}).get("state", {})
    faults = [f"{name}, {fault}" for fault in find_faults(notebook.cells)]
    notebook.cells.pop()  # the one that moved the controls
    if not faults:
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs = [still for output in cell.outputs for still in without_kernel(output, widgets)]
        cache.cache_notebook_bundle(CacheBundleIn(notebook, str(name)), check_validity=False, overwrite=True)
    return faults


def find_faults(cells):
    """What is wrong with cells that ran: "cell 7 (its first line): the error". After an error nothing more is said."""
    for number, cell in enumerate(cells, start=1):
        if cell.cell_type != "code" or "skip-execution" in cell.metadata.get("tags", ()) or not cell.source.strip():
            continue
        where, timing = f"cell {number} ({cell.source.strip().splitlines()[0]})", cell.metadata.get("execution", {})
        errors = [f"{output.ename}: {output.evalue}" for output in cell.outputs if output.output_type == "error"]
        if "shell.execute_reply" not in timing:
            errors = ["ran too long and was stopped" if timing else "never ran"]
        if errors:
            yield f"{where}: {errors[0]}"
            return
        yield from (f"{where}: writes to stderr: {o.text.strip()}" for o in cell.outputs if o.get("name") == "stderr")


def without_kernel(output, widgets):
    """What a page shows of one output: a live figure its HTML, any other widget the pictures it holds and a note."""
    data = output.get("data", {})
    view = data.pop(WIDGET, None)
    if view is None or "text/html" in data:
        return [output]
    held = list(held_by(view["model_id"], widgets))
    return [*held, nbformat.v4.new_output("display_data", {"text/html": LIVE_NOTE})] if held else []  # a progress bar


def held_by(model_id, widgets):
    """All that was displayed in a widget or in those inside it."""
    state = widgets.get(model_id, {}).get("state", {})
    yield from (nbformat.from_dict(output) for output in state.get("outputs", ()))
    for child in state.get("children", ()):
        yield from held_by(child.removeprefix("IPY_MODEL_"), widgets)


def build_pages():
    """Build all pages from clean: a warning is an error, and nothing of an earlier build survives."""
    say("Pages (a warning is an error)")
    for leftover in (HTML, BUILD / ".doctrees"):
        shutil.rmtree(leftover, ignore_errors=True)
    jupyter_book = "from jupyter_book.cli.main import main; main()"  # it has no python -m of its own
    run("-c", jupyter_book, "build", ".", "-n", "-W", "--keep-going", "--all", "-q")


def run(*arguments, check=True):
    """Run Python in the project's root and give its exit code; a failure ends the build unless `check` is off."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    code = subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, env=environment).returncode
    if check and code:
        sys.exit(f"python {' '.join(map(str, arguments))} failed: no book was built.")
    return code


def say(text):
    """Say what is being done."""
    print(f"-- {text}", flush=True)


if __name__ == "__main__":
    main()
