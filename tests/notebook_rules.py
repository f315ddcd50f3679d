"""What a committed notebook and a page must be like; the guards plant what these must find."""

import re
from pathlib import Path

import nbformat

LONGEST_CELL = 30  # lines
LINK = re.compile(r"\]\(([^)\s]+?)(?:#[^)\s]*)?\)")


def notebook_problems(path):
    """Everything wrong with a notebook as committed, one line each."""
    notebook = nbformat.read(path, as_version=4)
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    problems = []
    if kernel != "python3":
        problems.append(f"kernel {kernel!r} instead of 'python3'")
    if "widgets" in notebook.metadata:
        problems.append("widget state")
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "code":
            problems += [f"cell {number}: {problem}" for problem in _code_cell_problems(cell)]
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    problems += [f"dead link {target}" for target in dead_links(text, path.parent)]
    return [f"{path.name}: {problem}" for problem in problems]


def _code_cell_problems(cell):
    if cell.outputs:
        yield "has outputs (take them out with .venv/bin/nbstripout --keep-id)"
    if cell.execution_count is not None:
        yield "has a run count"
    if "execution" in cell.metadata:
        yield "has times of a run"
    if len(cell.source.splitlines()) > LONGEST_CELL:
        yield f"is longer than {LONGEST_CELL} lines"


def dead_links(markdown, folder):
    """Files that relative links and images name and that do not exist (the strict build looks after labels)."""
    for target in LINK.findall(markdown):
        if re.search(r"[./]", target) and not re.match(r"[a-z]+:", target) and not (Path(folder) / target).exists():
            yield target
