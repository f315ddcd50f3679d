"""Pictures of chapter 05, pipelines: which rules commute, what each stage leaves, who still loops."""

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from minigpt.figures.style import GROUND, INK, QUIET, STRATEGIES, colour, panels

# The engines have no colour of their own: ink, and a marker each.
ENGINES = {"transformers": "o", "vLLM": "s", "llama.cpp": "^"}


def commuting(names, shares):
    """For each pair of rules, how often their order matters.

    Args:
        names: the n rules.
        shares: n lists of n, share of the distributions on which the two orders differ; symmetric.

    Returns:
        The figure.
    """
    figure, ax = panels(height=4.2)
    shares = np.array(shares, dtype=float)
    np.fill_diagonal(shares, np.nan)
    shade = LinearSegmentedColormap.from_list("order", [GROUND, colour("temperature")])
    ax.imshow(shares, cmap=shade, vmin=0, vmax=1.3, aspect="auto")
    for row, column in np.ndindex(shares.shape):
        if row != column:
            ax.text(column, row, _how_often(shares[row, column]), ha="center", va="center", fontsize=8, color=INK)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(names)), names)
    ax.grid(False)
    ax.tick_params(length=0)
    return figure


def _how_often(share):
    if share in (0, 1):
        return "always" if share else "never"
    return f"{100 * share:.0f} %" if share >= 0.01 else "<1 %"


def stages(orders):
    """How many tokens are alive after each rule, for every place of a text: a panel an engine.

    Args:
        orders: engine → list of `(rule, counts)` in its order, the counts one a place.

    Returns:
        The figure.
    """
    figure, axes = panels(len(orders), height=3.2, sharey=True)
    for ax, (engine, steps) in zip(axes, orders.items(), strict=True):
        counts = np.array([numbers for _, numbers in steps])  # (stages, places)
        ax.plot(counts, color=QUIET, linewidth=0.6, alpha=0.35)
        medians = np.median(counts, axis=1)
        ax.plot(medians, color=INK, marker=ENGINES[engine])
        for at, median in enumerate(medians):
            if at == 0 or median != medians[at - 1]:
                ax.annotate(f"{median:,.0f}", (at, median), (3, 5), textcoords="offset points", fontsize=8)
        ax.set_xticks(range(len(steps)), [rule for rule, _ in steps], rotation=45, ha="right", rotation_mode="anchor")
        ax.set(yscale="log", xlabel=engine, xlim=(-0.25, len(steps) - 0.5), ylim=(0.8, None))
    axes[0].set_ylabel("tokens alive")
    return figure


def looping(models, limit=0.5):
    """The share of repeated windows of every text, a panel a model and a row a strategy, with the number that loop.

    Args:
        models: model → list of `(strategy, shares, looping)`: its name, a share a text, how many texts loop. A name
            that has no look of its own is drawn in grey.
        limit: above it a text counts as looping.

    Returns:
        The figure.
    """
    rows = max(map(len, models.values()))
    figure, axes = panels(len(models), height=0.42 * rows + 1.1, sharex=True, sharey=True)
    for ax, (model, texts) in zip(np.atleast_1d(axes), models.items(), strict=True):
        for row, (strategy, shares, loops) in enumerate(texts):
            ink, shape = STRATEGIES.get(strategy, (QUIET, "o"))
            heights = row + np.linspace(-0.28, 0.28, len(shares))  # equal shares stay apart
            ax.scatter(shares, heights, color=ink, marker=shape, s=9, linewidths=0, alpha=0.6)
            ax.text(1.04, row, f"{loops} of {len(shares)}", va="center", fontsize=8, clip_on=False)
        ax.axvline(limit, color=QUIET, linestyle="--", linewidth=1)
        ax.set(xlim=(-0.04, 1.0), xlabel=model, ylim=(rows - 0.5, -0.5))
    labels = [label for label, *_ in max(models.values(), key=len)]
    np.atleast_1d(axes)[0].set_yticks(range(rows), labels)
    figure.supxlabel("share of 20-token windows that stood in the text before", fontsize=10)
    return figure
