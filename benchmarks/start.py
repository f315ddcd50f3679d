"""How long a reader waits: importing minigpt (after torch), and loading each model, each in fresh processes."""

import argparse
import statistics
import subprocess
import sys

from harness import report

IMPORT_TORCH = "import time, torch; start = time.perf_counter(); "
PRINT = "; print(time.perf_counter() - start)"
WAITS = {
    "import torch": "import time; start = time.perf_counter(); import torch",
    "import minigpt, torch there": IMPORT_TORCH + "import minigpt",
    **{
        f"load {name}": f"import minigpt, time; start = time.perf_counter(); minigpt.load({name!r})"
        for name in ("shakespeare", "shakespeare-early", "smollm2")
    },
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for what, code in WAITS.items():
        command = [sys.executable, "-c", code + PRINT]
        runs = [float(subprocess.check_output(command)) for _ in range(options.repeats + 1)][1:]
        rows.append({"what": what, "median s": statistics.median(runs), "min s": min(runs), "max s": max(runs)})
    report("start", vars(options), rows)


if __name__ == "__main__":
    main()
