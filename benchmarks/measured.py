"""Write the table "Measured" of the README from the files in results/; a test compares the two."""

import json
from pathlib import Path

from harness import RESULTS

ROOT = Path(__file__).resolve().parent.parent
README, TRAINING = ROOT / "README.md", ROOT / "minigpt/weights/training.json"
HEAD = "| what | measured |\n| --- | --- |\n"
MODELS = {"shakespeare": "play model", "smollm2": "SmolLM2"}


def kind(engine):
    """An engine of this package in words: plain, or how its weights are packed."""
    return {"minigpt": "plain", "minigpt, packed": "packed float32"}.get(engine, engine.removeprefix("minigpt, "))


def rows_of(name, **wanted):
    """Rows of a results file that have these values."""
    rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def decoding():
    """Speed against transformers in float32, at both batch sizes; with its perplexity."""
    for one in rows_of("decode", batch=1):
        if one["engine"] != "transformers":
            (eight,) = rows_of("decode", batch=8, engine=one["engine"])
            first, second = (f"{row['tokens/s']:.0f} ({row['times transformers']:.2f} ×)" for row in (one, eight))
            value = f"tokens/s {first}, 8 rows {second}; perplexity {one['perplexity']:.1f}"
            yield f"SmolLM2, {kind(one['engine'])}", value


def caching():
    """Time without a cache over time with one, at the longest text."""
    for key, model in MODELS.items():
        last = max(rows_of("cache", model=key), key=lambda row: row["new tokens"])
        what = f"{model}, cache, {last['new tokens']} tokens after {last['prompt tokens']}"
        fewer = last["tokens naive"] / last["tokens cached"]
        yield what, f"{last['cached is faster by']:.2f} × faster, {fewer:.0f} × fewer tokens through the model"


def searching():
    """Beam search against transformers' and against itself without a cache."""
    for row in rows_of("search"):
        if row["engine"] in ("minigpt", "minigpt, packed"):
            what = f"{MODELS[row['model']]}, {kind(row['engine'])}, beam search, 4 beams, 64 tokens"
            yield what, f"{row['times transformers']:.2f} × `transformers`, {row['times no cache']:.2f} × no cache"


def starting():
    """Import and loading."""
    for row in rows_of("start")[1:]:
        yield row["what"], f"{row['median s']:.2f} s"


def building():
    """The book: time to build, its pages, its sliders."""
    rows = {row["what"]: row for row in rows_of("book")}
    pages = [row["value"] for what, row in rows.items() if what.endswith(".html, KB")]
    delays = [row["value"] for what, row in rows.items() if "slider" in what]
    yield "book, cold build without set-up", f"{rows['cold build, s']['value']:.0f} s"
    yield "book, build with no change", f"{rows['no-change build, s']['value']:.1f} s"
    yield f"book, largest of {len(pages)} pages", f"{max(pages):.0f} KB"
    yield "slider to new layout, 49,152 tokens", f"medians {min(delays):.1f} to {max(delays):.1f} ms"


def in_a_browser():
    """The playground: tokens per second of the play model in Chromium."""
    for row in rows_of("web"):
        faster = f"{row['cached is faster by']:.0f} × no cache for {row['ratio of tokens']:.0f} × fewer tokens"
        what = f"playground in Chromium, from character {row['position']} on"
        yield what, f"{row['cached tokens/s']:.0f} tokens/s, {faster}"
    settings = json.loads((RESULTS / "web.json").read_text())["settings"]
    for name, value in settings.items():
        if " ms " in name:
            yield f"playground, {name.replace(' ms', '')}", f"{value:.0f} ms"


def training():
    """The shipped model."""
    log = json.loads(TRAINING.read_text())
    what = f"training, {log['settings']['steps']:,} steps, {log['parameters']:,} parameters, one thread"
    loss = list(log["held_out_loss"].values())[-1]
    yield what, f"{log['seconds']:,.0f} s, loss {loss:.4f} nats a character on plays held out"


def table():
    """The table as it stands in the README."""
    parts = (decoding, caching, searching, starting, building, in_a_browser, training)
    return HEAD + "".join(f"| {what} | {value} |\n" for part in parts for what, value in part())


def main():
    text = README.read_text()
    start = text.index(HEAD)
    README.write_text(text[:start] + table() + text[text.index("\n\n", start) + 1 :])


if __name__ == "__main__":
    main()
