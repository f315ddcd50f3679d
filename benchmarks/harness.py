"""What all benchmarks share: the machine they ran on, fair repeats, a table, a JSON file."""

import json
import os
import platform
import statistics
import time
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def machine():
    """Where the numbers come from: processor, threads, versions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def seconds_of(contenders, repeats):
    """Time several functions in turn, A B A B …, after one warm-up each, so that drift of the machine hits all alike.

    Args:
        contenders: name → function without arguments.
        repeats: counted runs of each.

    Returns:
        name → list of seconds, one a run.
    """
    seconds = {name: [] for name in contenders}
    for run in range(repeats + 1):
        for name, function in contenders.items():
            start = time.perf_counter()
            function()
            if run:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def median_ratio(above, below):
    """Median of the ratios pair by pair."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def read_bandwidth(n_bytes=2**30, repeats=5):
    """Bytes per second at which this machine reads memory: the fastest of several sums over a long tensor."""
    numbers = torch.ones(n_bytes // 8, dtype=torch.float64)
    return n_bytes / min(seconds_of({"sum": numbers.sum}, repeats)["sum"])


def report(name, settings, rows):
    """Print rows (dicts with the same keys) as a table and write them, with machine and settings, to `results/`."""
    print(json.dumps({"machine": machine(), "settings": settings}))
    show(rows)
    write(name, settings, rows)


def show(rows):
    """Print rows (dicts with the same keys) as a table."""
    cells = [list(rows[0])] + [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    for line in cells:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def write(name, settings, rows):
    """Write `results/<name>.json`, whole or not at all."""
    RESULTS.mkdir(exist_ok=True)
    partial = RESULTS / f"{name}.partial"
    partial.write_text(json.dumps({"machine": machine(), "settings": settings, "rows": rows}, indent=1) + "\n")
    partial.replace(RESULTS / f"{name}.json")
