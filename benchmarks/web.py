"""The play model in headless Chromium: tokens per second with and without its cache; how soon it starts and stops."""

import argparse
import random
import shutil
import statistics
import sys
from pathlib import Path
from types import SimpleNamespace

from harness import report
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/browser"))
from figures import page_of, scripts_of  # noqa: E402

from minigpt.corpus import HELD_OUT, play  # noqa: E402
from minigpt.costs import tokens_through_model  # noqa: E402
from minigpt.explorers import PlaygroundExplorer  # noqa: E402
from minigpt.explorers.weights import write  # noqa: E402

POSITIONS, NEW = (16, 240), 16
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
LATE = {"model": "shakespeare", "prompt": "x" * 240, "cached": False, "slide": False}
ENGINE = SimpleNamespace(scripts=("engine.js",), name="session")

# Seconds for new tokens after a prompt that has been read, greedy.
TIMED = """async ([text, n, cached]) => {
  const lm = nextToken.playModel("shakespeare");
  const settings = { temperature: 0 }, ids = lm.tokenizer.encode(text).ids;
  const session = new nextToken.Session(lm, ids, { settings, cached, slide: false });
  session.work();
  session.step();
  const start = performance.now();
  for (let i = 1; i < n; i++) { session.work(); session.step(); }
  return (performance.now() - start) / 1000;
}"""
LOADED = """() => new Promise((resolve, reject) => nextToken.fetchModel(new nextToken.StaticModel({}), "shakespeare",
  (error) => (error ? reject(new Error(error)) : resolve())))"""
FIRST = """() => new Promise((resolve) => {
  const there = () => document.querySelector(".nt-readout")?.textContent;
  const look = () => (there() ? resolve(performance.now()) : setTimeout(look, 5));
  look();
})"""
# When the reader pressed Stop, by the browser's own clock, and when the text last changed.
WATCH = """() => {
  const [text, run] = [".nt-play", ".nt-run"].map((name) => document.querySelector(name));
  run.addEventListener("click", (event) => { window.pressed = event.timeStamp; }, true);
  new MutationObserver(() => { window.changed = performance.now(); }).observe(text, { childList: true });
}"""


def stop_times(page, repeats):
    """Milliseconds from a press of Stop to the last change of the text, where a pass takes longest."""
    page.evaluate(WATCH)
    for _ in range(repeats):
        page.get_by_role("button", name="From the prompt").click()
        page.get_by_role("button", name="Run").click()
        page.wait_for_function("document.querySelectorAll('.nt-play > [data-step]').length > 1")
        page.wait_for_timeout(random.randrange(200))
        page.get_by_role("button", name="Stop").click()
        page.wait_for_timeout(600)
        yield max(0, page.evaluate("changed - pressed"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    options = parser.parse_args()
    write()
    text, folder = play(HELD_OUT[0]), Path(__file__).parent / "results"
    path, rows = folder / "web.partial.html", []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=FLAGS)
        try:
            path.write_text(page_of([], scripts_of(ENGINE)))
            page = browser.new_page()
            page.goto(path.as_uri())
            page.evaluate(LOADED)
            for position in POSITIONS:
                asked = [[text[: position - 1], NEW, cached] for cached in (True, False)]
                runs = [[page.evaluate(TIMED, how) for how in asked] for _ in range(options.repeats + 1)][1:]
                cached, naive = (statistics.median(times) for times in zip(*runs, strict=True))
                tokens = [tokens_through_model(position, NEW - 1, cached=c) for c in (True, False)]
                rows.append(
                    {
                        "position": position,
                        "cached tokens/s": (NEW - 1) / cached,
                        "naive tokens/s": (NEW - 1) / naive,
                        "cached is faster by": statistics.median(b / a for a, b in runs),
                        "ratio of tokens": tokens[1] / (NEW - 1),  # the prompt was read before
                    }
                )
            path.write_text(page_of([PlaygroundExplorer().to_html()], scripts_of(PlaygroundExplorer)))
            ready = []
            for _ in range(options.repeats):
                page = browser.new_page()
                page.goto(path.as_uri())
                ready.append(page.evaluate(FIRST))
                page.close()
            path.write_text(page_of([PlaygroundExplorer(**LATE).to_html()], scripts_of(PlaygroundExplorer)))
            page = browser.new_page()
            page.goto(path.as_uri())
            page.evaluate(FIRST)
            stops = list(stop_times(page, options.repeats))
        finally:
            path.unlink(missing_ok=True)
            version = browser.version
            browser.close()
    settings = {"model": "shakespeare", "new tokens": NEW, "chromium": version, "repeats": options.repeats}
    settings["median ms from loading to the first distribution"] = statistics.median(ready)
    settings["largest ms from Stop to the last change, no cache"] = max(stops)
    report("web", settings, rows)


if __name__ == "__main__":
    main()
