"""The pictures of chapter 09: seconds along a generation, delays, the roofline, speed against the number of rows."""

import numpy as np
from matplotlib.ticker import LogLocator

from minigpt.figures.style import QUIET, colour, direct_label, marker, panels, written_out

WITHOUT, WITH = colour("temperature"), colour("top-k")  # warm: work done again; cool: with the cache
ENGINES = {  # name in the benchmarks → label, strategy whose look it takes
    "minigpt": ("plain", "greedy"),
    "minigpt, packed": ("float32", "top-k"),
    "minigpt, packed bfloat16": ("bfloat16", "top-p"),
    "minigpt, packed int8": ("int8", "temperature"),
    "minigpt, packed int4": ("int4", "min-p"),
}


def seconds(curves):
    """Two panels, one a model: seconds until the n-th new token, measured and forecast.

    Args:
        curves: (model, cached or not) → (measured, forecast), each a list of seconds, one a new token.
    """
    names = list(dict.fromkeys(name for name, _ in curves))
    figure, axes = panels(len(names), height=3.3)
    for ax, name in zip(axes, names, strict=True):
        for cached, tint, label in ((False, WITHOUT, "no cache"), (True, WITH, "cache")):
            measured, forecast = curves[name, cached]
            tokens = np.arange(1, len(measured) + 1)
            ax.loglog(tokens, measured, color=tint, ls="-" if cached else "--")
            ax.loglog(tokens, forecast, color=tint, ls=":", lw=1.2)
            direct_label(ax, tokens[-1], measured[-1], label, color=tint)
        ax.set(xlabel=f"new tokens, {name}", xlim=(1, 4 * tokens[-1]))
        ax.set_xticks([1, 10, 100])
        written_out(ax)
    axes[0].set_ylabel("seconds until then")
    return figure


def latency(rows):
    """Seconds to the first token and per token after it, against the length of the prompt.

    Args:
        rows: dicts with `engine`, `prompt tokens`, `time to first token s`, `time per output token s`.
    """
    figure, ax = panels(height=3.4)
    kinds = {
        "first token": ("time to first token s", "-", "o"),
        "each later one": ("time per output token s", "--", "s"),
    }
    for engine in dict.fromkeys(row["engine"] for row in rows):
        label, strategy = ENGINES[engine]
        label = "packed" if strategy == "top-k" else label
        line = [row for row in rows if row["engine"] == engine]
        tokens = [row["prompt tokens"] for row in line]
        for kind, (key, style, mark) in kinds.items():
            ys = [row[key] for row in line]
            ax.loglog(tokens, ys, color=colour(strategy), ls=style, marker=mark, ms=4)
            side = "bottom" if label == "plain" else "top"  # the lines end close to each other
            direct_label(ax, tokens[-1], ys[-1], f"{kind}, {label}", color=colour(strategy), va=side)
    ax.set(xlabel="prompt, tokens", ylabel="seconds", xlim=(tokens[0] / 1.2, 9 * tokens[-1]))
    ax.set_xticks([16, 64, 256, 1024])
    written_out(ax)
    return figure


def roofline(decode, prefill, bytes_per_s):
    """FLOPs per second against FLOPs per byte, under the machine's two limits.

    Args:
        decode: rows in the batch → (FLOP a byte, FLOP a second) of a decode step.
        prefill: tokens of the prompt → the same of its pass.
        bytes_per_s: the memory's bandwidth; the roof is the fastest of the prefills.
    """
    figure, ax = panels(height=3.6)
    top = max(rate for _, rate in prefill.values())
    ends = min(x for x, _ in decode.values()) / 2, 2 * max(x for x, _ in prefill.values())
    corner = top / bytes_per_s
    ax.loglog([ends[0], corner, ends[1]], [ends[0] * bytes_per_s / 1e9, top / 1e9, top / 1e9], color=QUIET, lw=1.5)
    for points, word, strategy in ((decode, "{} row", "top-k"), (prefill, "{} tokens", "temperature")):
        xs, ys = zip(*points.values(), strict=True)
        ax.loglog(xs, [y / 1e9 for y in ys], ls="", marker=marker(strategy), color=colour(strategy))
        for number in (min(points), max(points)):
            name = word.format(f"{number:,}") + ("s" if word.endswith("row") and number > 1 else "")
            x, y = points[number]
            at = (
                {"xytext": (0, -14), "ha": "center"} if strategy == "temperature" else {"xytext": (7, -9), "ha": "left"}
            )
            ax.annotate(name, (x, y / 1e9), textcoords="offset points", fontsize=9, color=colour(strategy), **at)
    ax.text(1.15 * ends[0], top / 3e9, f"memory, {bytes_per_s / 1e9:.0f} GB/s", fontsize=9)
    ax.annotate(
        "fastest prefill", (ends[1], top / 1e9), xytext=(0, 5), textcoords="offset points", ha="right", fontsize=9
    )
    ax.set(
        xlabel="FLOPs for each byte read",
        ylabel="GFLOP/s",
        xlim=ends,
        ylim=(min(y for _, y in decode.values()) / 2e9, 2.5 * top / 1e9),
    )
    written_out(ax)
    return figure


def batches(rows, context=64):
    """Tokens per second against rows in the batch, a line an engine.

    Args:
        rows: dicts with `engine`, `context`, `batch`, `tokens/s`.
        context: only rows of this context.
    """
    figure, ax = panels(height=3.6)
    ends = {}
    for engine, (label, strategy) in ENGINES.items():
        line = [(row["batch"], row["tokens/s"]) for row in rows if (row["engine"], row["context"]) == (engine, context)]
        if line:
            xs, ys = zip(*sorted(line), strict=True)
            ax.loglog(xs, ys, color=colour(strategy), marker=marker(strategy), ms=5)
            ends[label] = ys[-1], colour(strategy)
            if engine == "minigpt, packed":
                ax.loglog(xs, [ys[0] * x for x in xs], color=QUIET, ls=":", lw=1.2)
    spread = _apart({label: np.log(y) for label, (y, _) in ends.items()}, 0.2)
    for label, (_, tint) in ends.items():
        direct_label(ax, xs[-1], np.exp(spread[label]), label, color=tint)
    ax.set(xlabel="rows in the batch", ylabel="tokens/s, all rows", xlim=(0.9, 1.7 * xs[-1]))
    ax.set_xticks(xs)
    ax.set_yticks([20, 50, 100, 200, 500])
    ax.xaxis.set_minor_locator(LogLocator(subs=()))
    written_out(ax)
    return figure


def _apart(values, least):
    """The same names with values pushed up until neighbours are `least` apart."""
    moved, last = {}, -np.inf
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        last = moved[name] = max(value, last + least)
    return moved
