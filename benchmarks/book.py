"""The book: seconds of a cold and of a no-change build, KB of each page, milliseconds from slider to new picture."""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import report
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
# From the input event until the browser has laid out the new picture; every step draws V = 49,152 tokens afresh.
MOVE_SLIDER = """async (slider) => {
  const times = [], low = +slider.min, high = +slider.max, steps = 60;
  for (let i = 0; i <= steps; i++) {
    slider.value = low + (high - low) * i / steps;
    const start = performance.now();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await null; // the figure draws in a microtask, which comes first
    slider.closest(".nt-explorer").getBoundingClientRect();
    times.push(performance.now() - start);
    await new Promise(requestAnimationFrame);
  }
  return times;
}"""


def seconds_of_build():
    start = time.perf_counter()
    subprocess.run([sys.executable, ROOT / "book" / "build.py"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def slider_rows(chromium):
    rows = []
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=chromium, args=FLAGS).new_page()
        for name in ("02_temperature", "03_truncation"):
            page.goto((HTML / "notebooks" / f"{name}.html").as_uri())
            page.wait_for_function("globalThis.nextToken?.distributions !== undefined")
            page.wait_for_timeout(1000)
            for i, slider in enumerate(page.query_selector_all(".nt-explorer input[type=range]")):
                times = slider.evaluate(MOVE_SLIDER)
                label = slider.evaluate("s => s.getAttribute('aria-label') || s.labels[0]?.innerText || ''")
                what = f"{name} slider {i} ({' '.join(label.split())}), median and largest ms"
                rows.append({"what": what, "value": statistics.median(times), "largest": max(times)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--no-cold", action="store_true", help="leave _build as it is")
    options = parser.parse_args()
    rows = []
    if not options.no_cold:
        shutil.rmtree(ROOT / "_build", ignore_errors=True)
        rows.append({"what": "cold build, s", "value": seconds_of_build(), "largest": ""})
    rows.append({"what": "no-change build, s", "value": seconds_of_build(), "largest": ""})
    for page in sorted(HTML.glob("[!_]*/*.html")):
        rows.append({"what": f"{page.relative_to(HTML)}, KB", "value": page.stat().st_size / 1000, "largest": ""})
    report("book", {"vocabulary": 49_152}, rows + slider_rows(options.chromium))


if __name__ == "__main__":
    main()
