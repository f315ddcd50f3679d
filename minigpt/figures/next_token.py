"""Pictures of Part I, choosing the next token: chapters 01 to 03."""

import math

import numpy as np
from matplotlib.colors import ListedColormap

from minigpt.figures.style import GROUND, INK, QUIET, colour, direct_label, marker, panels, percent, shades

DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (4, 1, 1, 1)), (0, (8, 3)))


def loss_curve(losses, vocab_size):
    """The loss of each training step, its average over ten steps, and the loss of a guess that knows nothing.

    Args:
        losses: nats a token, one a step.
        vocab_size: V; guessing evenly costs log V.

    Returns:
        The figure.
    """
    figure, ax = panels()
    steps = np.arange(1, len(losses) + 1)
    smooth = np.convolve(losses, np.ones(10) / 10, mode="valid")
    ax.plot(steps, losses, color=QUIET, linewidth=0.8, alpha=0.6)
    ax.plot(steps[9:], smooth, color=INK)
    ax.axhline(math.log(vocab_size), color=QUIET, linestyle="--", linewidth=1)
    ax.annotate("every character equally likely", (len(losses), math.log(vocab_size)), ha="right", va="top", fontsize=9)
    direct_label(ax, steps[-1], smooth[-1], f"{smooth[-1]:.2f}")
    ax.set(xlabel="training step", ylabel="loss, nats a character", xlim=(0, len(losses)), ylim=(0, None))
    return figure


def recurrence(texts, window=8):
    """Each text against itself: a dot where the windows that start at two places are the same.

    The diagonal is a text meeting itself. Lines beside it are passages that come back; a loop fills the square.

    Args:
        texts: label → (token ids, strategy whose colour it takes), drawn side by side.
        window: tokens that must agree.

    Returns:
        The figure.
    """
    figure, axes = panels(len(texts), height=2.9, sharey=True)
    axes = np.atleast_1d(axes)
    for ax, (label, (ids, strategy)) in zip(axes, texts.items(), strict=True):
        windows = [tuple(ids[i : i + window]) for i in range(len(ids) - window + 1)]
        numbers = np.unique(windows, axis=0, return_inverse=True)[1].ravel()
        same = numbers[:, None] == numbers  # (windows, windows)
        same[1:] |= same[:-1].copy()  # two dots thick, to stay visible at any size
        ax.imshow(same, cmap=ListedColormap([GROUND, colour(strategy)]), interpolation="none")
        ax.grid(False)
        ax.set(xlabel=f"place in the text\n{label}")
    axes[0].set_ylabel("place in the text")
    return figure


def repeated_shares(shares, limit=0.5):
    """How much of each text had stood in it before: one mark a text, one row a model.

    Args:
        shares: label → shares of repeated windows, one a text.
        limit: above it a text counts as looping.

    Returns:
        The figure.
    """
    figure, ax = panels(height=0.55 * len(shares) + 0.9)
    for row, values in enumerate(shares.values()):
        values, heights = np.array(values), row + np.linspace(-0.25, 0.25, len(values))  # equal shares stay apart
        faces = [INK if value > limit else GROUND for value in values]
        ax.scatter(values, heights, c=faces, edgecolors=INK, marker=marker("greedy"), s=30)
    ax.axvline(limit, color=QUIET, linestyle="--", linewidth=1)
    ax.annotate("a loop →", (limit, 1), xycoords=("data", "axes fraction"), xytext=(4, 2), textcoords="offset points")
    ax.set_yticks(range(len(shares)), shares)
    ax.set(xlabel="share of 20-token windows that stood in the text before", xlim=(-0.03, 1.03))
    ax.set_ylim(len(shares) - 0.5, -0.5)
    percent(ax.xaxis)
    return figure


def confidence(texts, window=10):
    """The probability of each chosen token along a text, averaged over the last few.

    Args:
        texts: label → (log-probabilities of the chosen tokens, whether the text loops).
        window: tokens a mean.

    Returns:
        The figure.
    """
    figure, ax = panels()
    for label, (log_probs, loops) in texts.items():
        smooth = np.convolve(np.exp(log_probs), np.ones(window) / window, mode="valid")
        places = np.arange(window, len(log_probs) + 1)
        ax.plot(places, smooth, color=colour("greedy"), linestyle="-" if loops else ":")
        direct_label(ax, places[-1], smooth[-1], f"{label}\n{'loops' if loops else 'does not loop'}")
    ax.set(
        xlabel="token", ylabel=f"probability of the choice\n(mean of {window} tokens)", ylim=(0, 1.03), xlim=(0, None)
    )
    percent(ax.yaxis)
    return figure


def against_temperature(temperatures, effective, outside, k):
    """How open a choice is and how much of it lies in the tail, over the temperature.

    Args:
        temperatures: rising, above 0.
        effective: name of a distribution → its effective number of tokens at each temperature.
        outside: name, all or some of the same → its mass outside the k likeliest tokens.
        k: that number of tokens.

    Returns:
        The figure.
    """
    figure, (left, right) = panels(2)
    looks = dict(zip(effective, zip(shades("temperature", len(effective)), DASHES, strict=False), strict=False))
    for ax, curves in ((left, effective), (right, outside)):
        ax.axvline(1, color=QUIET, linewidth=1)
        for name, values in curves.items():
            shade, dash = looks[name]
            ax.plot(temperatures, values, color=shade, linestyle=dash, label=name)
        ax.set(xlabel="temperature T")
    left.set(ylabel="effective number of tokens", yscale="log")
    right.set(ylabel=f"mass outside the top {k}")
    figure.legend(handles=left.lines[1:], loc="outside upper center", ncols=len(effective), handlelength=3)
    percent(right.yaxis)
    return figure


def two_ends(temperatures, probs, names):
    """Probabilities of a few tokens over a logarithmic temperature: one-hot at one end, uniform at the other.

    Args:
        temperatures: (n,), rising, above 0.
        probs: (n, V), for a small V.
        names: how the V tokens read, likeliest first.

    Returns:
        The figure.
    """
    figure, ax = panels()
    ax.axhline(1 / len(names), color=QUIET, linewidth=1)
    ax.annotate(f"uniform: 1/{len(names)}", (temperatures[0], 1 / len(names)), (0, 4), textcoords="offset points")
    middle = len(temperatures) // 2
    offsets = [(6, 3), *[(-30, 6)] * (len(names) - 2), (8, -12)]  # above the first curve, below the last
    for i, (name, shade) in enumerate(zip(names, shades("temperature", len(names)), strict=True)):
        ax.plot(temperatures, probs[:, i], color=shade, linestyle=DASHES[i])
        ax.annotate(name, (temperatures[middle], probs[middle, i]), offsets[i], textcoords="offset points")
    ax.set(xlabel="temperature T, logarithmic", ylabel="probability", xscale="log")
    ticks = [t for t in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if temperatures[0] <= t <= temperatures[-1]]
    ax.set_xticks(ticks, map(str, ticks))
    ax.minorticks_off()
    percent(ax.yaxis)
    return figure


def answers_against_temperature(temperatures, distinct, correct, answers):
    """How varied and how right the answers to some questions are.

    Args:
        temperatures: the n temperatures tried.
        distinct: question → n numbers of different answers.
        correct: question → n triples: share that is right, and the ends of its interval (equal: no interval).
        answers: how many answers each number is about.

    Returns:
        The figure.
    """
    figure, (left, right) = panels(2)
    for i, (name, shade) in enumerate(zip(distinct, shades("temperature", len(distinct)), strict=True)):
        look = {"color": shade, "linestyle": DASHES[i], "marker": "os^D"[i % 4]}
        left.plot(temperatures, distinct[name], label=name, **look)
        share, low, high = (list(values) for values in zip(*correct[name], strict=True))
        below = [s - a for s, a in zip(share, low, strict=True)]
        above = [b - s for s, b in zip(share, high, strict=True)]
        right.errorbar(temperatures, share, (below, above), capsize=3, **look)
    left.set(xlabel="temperature T", ylabel=f"different answers, of {answers}", xticks=temperatures)
    right.set(xlabel="temperature T", ylabel="correct answers", xticks=temperatures)
    percent(right.yaxis)
    left.legend(handlelength=3)
    return figure


def choices_along(tokens, choices):
    """The effective number of tokens at each step of a text, on a logarithmic scale.

    Args:
        tokens: how the text's tokens read.
        choices: name → exp(H) before each of them.

    Returns:
        The figure.
    """
    figure, ax = panels()
    for i, ((name, values), shade) in enumerate(zip(choices.items(), shades("temperature", len(choices)), strict=True)):
        ax.plot(values, color=shade, linestyle=DASHES[i], marker="os^D"[i % 4])
        direct_label(ax, len(tokens) - 1, values[-1], name)
    ax.set(xlabel="the token that came next in the greedy answer", ylabel="effective number of tokens", yscale="log")
    ax.set_xticks(range(len(tokens)), tokens)
    return figure


def kept_and_cut(words, probs, rules):
    """The same few tokens under several rules, a small panel each: kept in colour, cut hatched.

    Args:
        words: the tokens, most likely first.
        probs: their probabilities before the cut.
        rules: `(strategy, label, keep)` for each panel; `keep` is a list of booleans.

    Returns:
        The figure.
    """
    figure, axes = panels(4, -(-len(rules) // 4), height=1.75, sharex=True, sharey=True)
    for ax in axes.flat[len(rules) :]:
        ax.set_visible(False)
    for ax, (strategy, label, keep) in zip(axes.flat, rules, strict=False):
        for row, (p, kept) in enumerate(zip(probs, keep, strict=True)):
            look = {"fc": colour(strategy)} if kept else {"fc": "none", "ec": QUIET, "hatch": "////"}
            ax.barh(row, p, height=0.7, **look)
            ax.text(p + 0.015, row, "kept" if kept else "cut", va="center", fontsize=8, color=QUIET)
        ax.set_title(label, fontsize=9, loc="left", pad=3)
        ax.grid(False)
    axes.flat[0].set(xlim=(0, 1.35 * max(probs)), yticks=range(len(words)), yticklabels=words)
    axes.flat[0].invert_yaxis()
    figure.supxlabel("probability before the cut", fontsize=10)
    return figure


def kept_by_temperature(temperatures, kept):
    """How many tokens each rule keeps as the temperature rises.

    Args:
        temperatures: the values of T, rising.
        kept: `{label: (strategy, counts)}`.

    Returns:
        The figure.
    """
    figure, ax = panels(height=3.8)
    above = math.inf
    for label, (strategy, counts) in sorted(kept.items(), key=lambda item: -item[1][1][-1]):
        ax.plot(temperatures, counts, color=colour(strategy), marker=marker(strategy), markersize=5)
        above = min(counts[-1], above / 1.5)  # names that would touch move down
        direct_label(ax, temperatures[-1], above, label, color=colour(strategy))
    ax.axvline(1, color=QUIET, linewidth=1, linestyle=":")
    ax.set(yscale="log", xlabel="temperature T, applied before the rule", ylabel="tokens kept")
    return figure


def nucleus_sizes(prompts, k):
    """How many tokens top-p keeps for every p, a line a prompt, beside top-k's fixed number.

    Args:
        prompts: `{prompt: sorted_probs}`, each (V,), falling.
        k: the k of top-k.

    Returns:
        The figure.
    """
    figure, ax = panels(height=3.8)
    most = 0.95
    for (prompt, probs), dashes, shade in zip(prompts.items(), DASHES, shades("top-p", len(prompts)), strict=True):
        mass = probs.cumsum(-1).tolist()
        n = 1 + sum(m < most for m in mass)
        edges = [0, *mass[: n - 1], most]  # the n-th token is the last one needed somewhere below `most`
        ax.stairs(range(1, n + 1), edges, baseline=None, color=shade, linestyle=dashes, linewidth=1.8)
        direct_label(ax, most, n, f"{prompt} …", fontsize=8)
    ax.axhline(k, color=colour("top-k"), linewidth=1.2)
    ax.text(0.01, 1.12 * k, f"top-k {k}", color=colour("top-k"), fontsize=9)
    ax.set(yscale="log", xlim=(0, most), xlabel="p, the mass to reach", ylabel="tokens kept by top-p")
    percent(ax.xaxis)
    return figure


def nucleus_along(tokens, sizes, ranks, k, came="the real token"):
    """How many tokens top-p keeps at each place of a text, and the rank of the token that came.

    Args:
        tokens: the text, one label a place.
        sizes: tokens kept at each place.
        ranks: rank of the token that came, 1 for the likeliest.
        k: the k of top-k.
        came: what to call that token.

    Returns:
        The figure.
    """
    figure, ax = panels(height=3.6)
    ax.bar(range(len(tokens)), sizes, width=0.7, color=colour("top-p"), alpha=0.45, label="kept by top-p")
    outside = [rank > size for rank, size in zip(ranks, sizes, strict=True)]
    for out, look, ink, label in ((False, "o", INK, came), (True, "X", colour("temperature"), "… cut")):
        at = [i for i, o in enumerate(outside) if o == out]
        if not at:
            continue
        ax.plot(at, [ranks[i] for i in at], look, color=ink, markersize=8 if out else 4.5, label=label)
    ax.axhline(k, color=colour("top-k"), linewidth=1.2, label=f"top-k {k}")
    ax.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
    ax.set(yscale="log", ylim=(0.7, None), xlim=(-0.8, len(tokens) - 0.2), ylabel="tokens kept; rank")
    ax.grid(axis="x", visible=False)
    ax.legend(ncols=4, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), handlelength=1.2)
    return figure


def trade_off(points, human, xlabel, ylabels):
    """Measures of text against its diversity, a panel each: a line a strategy, a point a setting.

    Args:
        points: `{strategy: [(setting, [x, y, …])]}`, each measure `(mean, standard error)`; the setting stands at its
            point in the first panel.
        human: `[x, y, …]` of text by people.
        xlabel: what x measures.
        ylabels: what each y measures.

    Returns:
        The figure.
    """
    figure, axes = panels(1, len(ylabels), height=3.6, sharex=True)
    offsets = ((6, 3), (-6, 7), (4, -9), (-14, -9), (6, -6), (5, 6))  # of the settings' names, one a strategy
    for i, (ax, ylabel) in enumerate(zip(axes, ylabels, strict=True), start=1):
        (x, dx), (y, dy) = human[0], human[i]
        ax.axhline(y, color=QUIET, linewidth=0.8, linestyle=":")
        ax.axvline(x, color=QUIET, linewidth=0.8, linestyle=":")
        for (strategy, settings), offset in zip(points.items(), offsets, strict=False):
            (at, across), (up, along) = (zip(*[measures[j] for _, measures in settings], strict=True) for j in (0, i))
            look = {"color": colour(strategy), "marker": marker(strategy), "label": strategy.replace("-sigma", "σ")}
            ax.errorbar(at, up, along, across, linewidth=1.2, elinewidth=0.6, **look)
            for (name, _), *place in zip(settings if i == 1 else (), at, up, strict=i == 1):
                ax.annotate(name, place, offset, textcoords="offset points", fontsize=7, color=colour(strategy))
        ax.errorbar(x, y, dy, dx, color=INK, marker="*", markersize=14, linestyle="none", label="people")
        ax.set_ylabel(ylabel)
    axes[-1].set_xlabel(xlabel)
    axes[0].legend(fontsize=9)
    return figure


def cost_after_seam(costs, strategies, group):
    """What true text costs after a middle part of one kind or another, by distance from the seam.

    Args:
        costs: label → mean nats a character of each group of characters.
        strategies: label → strategy that wrote the middle part; true text has no entry.
        group: characters a group.

    Returns:
        The figure.
    """
    figure, ax = panels()
    lines = iter(("-", ":"))
    for label, values in costs.items():
        places = group * np.arange(1, len(values) + 1)
        if label in strategies:
            look = {"color": colour(strategies[label]), "marker": marker(strategies[label])}
        else:
            look = {"color": QUIET, "linestyle": next(lines), "marker": "d", "markerfacecolor": GROUND}
        ax.plot(places, values, label=label, markersize=5, **look)
    ax.set(xlabel="true characters since the seam", ylabel="cost, nats a character", xlim=(0, None), xticks=places)
    ax.legend()
    return figure
