"""The pictures of chapter 08: attention row by row, bytes that a cache writes, differences by dtype, the museum."""

import matplotlib as mpl
import torch
from matplotlib.colors import ListedColormap

from minigpt.figures.style import GRID, INK, QUIET, colour, direct_label, marker, panels

# New work is warm, what is reused cool, as in the live figures.
NEW, REUSED = colour("temperature"), colour("top-k")
WEIGHTS = ListedColormap(mpl.colormaps["Oranges"](torch.linspace(0.18, 1, 256).numpy()))  # 0 is not white: masked is
DTYPES = {
    "float64": (colour("top-k"), marker("top-k"), "-"),
    "float32": (colour("top-p"), marker("top-p"), "--"),
    "bfloat16": (colour("temperature"), marker("temperature"), ":"),
}


def attention_rows(blocks, labels):
    """The attention of one head, a panel a call: prefill fills a triangle, each decode step adds one row.

    Args:
        blocks: one map a call, (T, S).
        labels: what each position of the text is, S of the last call.
    """
    size = len(labels)
    figure, axes = panels(2, height=3.6, sharey=True, width_ratios=(1, 1))
    for ax in axes:
        ax.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), xlabel="key", aspect="equal")
        ax.set_xticks(range(size), labels)
        ax.set_yticks(range(size), labels)
        ax.tick_params(labelcolor=INK, labelsize=11)
        ax.grid(False)
    top = max(float(block.max()) for block in blocks)
    _block(axes[0], blocks[0], 0, top)
    row = len(blocks[0])
    axes[1].axhspan(-0.5, row - 0.5, color=GRID, lw=0)
    axes[1].text(size / 2 - 0.5, row / 2 - 0.5, "not computed again", ha="center", va="center", color=QUIET)
    for block in blocks[1:]:
        _block(axes[1], block, row, top)
        axes[1].axhline(row - 0.5, color=QUIET, lw=0.8)
        row += len(block)
    axes[0].set(ylabel="query")
    return figure


def _block(ax, block, row, top):
    T, S = block.shape
    hidden = torch.ones(T, S, dtype=torch.bool).triu(S - T + 1)  # what the causal mask keeps out stays blank
    place = (-0.5, S - 0.5, row + T - 0.5, row - 0.5)
    ax.imshow(block.masked_fill(hidden, torch.nan), cmap=WEIGHTS, vmin=0, vmax=top, extent=place, aspect="equal")


def written(tokens, growing, preallocated):
    """Megabytes written against new tokens, for a cache that is joined anew at each step and one that is filled.

    Args:
        tokens: how many tokens were in the cache.
        growing, preallocated: bytes written up to then.
    """
    figure, ax = panels(height=2.8)
    for line, name, tint, style in (
        (growing, "joined with cat", NEW, "-"),
        (preallocated, "preallocated", REUSED, "--"),
    ):
        ax.plot(tokens, [n / 1e6 for n in line], style, color=tint)
        direct_label(ax, tokens[-1], line[-1] / 1e6, name, color=tint)
    ax.set(xlabel="tokens in the cache", ylabel="written so far, MB", xlim=(0, tokens[-1] * 1.22))
    ax.set_ylim(-0.06 * growing[-1] / 1e6, None)  # the low line and its label stand clear of the axis
    return figure


def exactness(positions, differences, margins):
    """Two panels: the largest difference of a logit along the text, and the margins that it would have to bridge.

    Args:
        positions: positions in the text.
        differences: dtype → largest difference at each position.
        margins: distance of the two largest logits, all positions and texts.
    """
    figure, (left, right) = panels(2, height=3.2, sharey=True)
    for name, line in differences.items():
        tint, _, style = DTYPES[name]
        left.semilogy(positions, line, style, color=tint, lw=1.5)
        direct_label(left, positions[-1], line[-1], name, color=tint)
        right.axhline(max(line), color=tint, ls=style, lw=1.5)
    left.set(xlabel="position in the text, tokens", ylabel="difference of logits")
    left.set_xlim(positions[0] - 2, positions[-1] + 0.45 * (positions[-1] - positions[0]))
    ranked = sorted(margins)
    share = [(i + 1) / len(ranked) for i in range(len(ranked))]
    right.plot(share, ranked, color=INK, clip_on=False)
    right.annotate(
        "margin", (0.5, ranked[len(ranked) // 2]), xytext=(-6, 7), textcoords="offset points", ha="right", fontsize=9
    )
    right.set(xlabel="share of positions with a smaller margin", xlim=(0, 1))
    right.set_ylim(None, 30 * ranked[-1])
    return figure


def museum(exhibits, probes, seen):
    """Which probe sees which fault.

    Args:
        exhibits: names of the faults, from top to bottom.
        probes: names of the probes, from left to right.
        seen: a row an exhibit, `True` where the probe turns red.
    """
    figure, ax = panels(height=0.34 * len(exhibits) + 1.5)
    ax.imshow(seen, cmap=ListedColormap(["#ffffff", "#f6c9a8"]), vmin=0, vmax=1, aspect="auto")
    for row, line in enumerate(seen):
        for column, red in enumerate(line):
            mark = {"marker": "X", "color": NEW} if red else {"marker": ".", "color": QUIET}
            ax.plot(column, row, ls="", ms=8 if red else 3, **mark)
    ax.set_xticks(range(len(probes)), probes, rotation=35, ha="left", rotation_mode="anchor")
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(exhibits)), exhibits)
    ax.tick_params(length=0)
    ax.grid(False)
    for side in ax.spines.values():
        side.set_visible(False)
    return figure
