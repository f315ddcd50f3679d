"""Pictures of chapter 07, choosing a strategy."""

import numpy as np

from minigpt.figures.style import INK, QUIET, colour, direct_label, marker, panels, percent, shades

DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (4, 1, 1, 1)))


def estimates_of_pass(ks, truth, estimates):
    """Two estimates of pass@k, averaged over many experiments, against the true value.

    Args:
        ks: numbers of tries.
        truth: pass@k of a model whose chance is known.
        estimates: name → mean of the estimates at each k.

    Returns:
        The figure.
    """
    figure, ax = panels()
    ax.plot(ks, truth, color=QUIET, linewidth=6, alpha=0.35, solid_capstyle="round")
    direct_label(ax, ks[-1], truth[-1] + 0.03, "the truth", color=QUIET)
    for (name, values), mark, shift in zip(estimates.items(), ("o", "X"), (-0.02, -0.04), strict=True):
        shade = INK if mark == "o" else colour("temperature")
        ax.plot(ks, values, color=shade, marker=mark, linestyle="none" if mark == "o" else "--", markersize=5)
        direct_label(ax, ks[-1], values[-1] + shift, name, color=shade)
    ax.set(xlabel="tries allowed, k", ylabel="pass@k", ylim=(0, 1.03), xticks=ks)
    percent(ax.yaxis)
    figure.get_layout_engine().set(rect=(0, 0, 0.86, 1))
    return figure


def against_temperature(temperatures, panels_of):
    """Shares over the temperature, one panel a level of difficulty.

    Args:
        temperatures: rising.
        panels_of: title of a panel → name of a curve → shares, at the first of the temperatures or at all.

    Returns:
        The figure.
    """
    figure, axes = panels(len(panels_of), sharey=True)
    for ax, (title, curves) in zip(np.atleast_1d(axes), panels_of.items(), strict=True):
        tints = shades("temperature", len(curves))
        for (name, shares), shade, dash, mark in zip(curves.items(), tints, DASHES, "osD^", strict=False):
            ax.plot(temperatures[: len(shares)], shares, color=shade, linestyle=dash, marker=mark, label=name)
        ax.set(xlabel=f"temperature T\n{title}", ylim=(0, 1.03), xticks=temperatures)
    axes = np.atleast_1d(axes)
    axes[0].set_ylabel("share right")
    percent(axes[0].yaxis)
    figure.legend(handles=axes[0].lines, loc="outside upper center", ncols=len(axes[0].lines), handlelength=3.5)
    return figure


def distance_from_the_model(ns, bound, exact):
    """KL divergence of best-of-N from the model over N, against its bound.

    Args:
        ns: numbers of samples.
        bound: ln N − (N − 1)/N, in nats.
        exact: name of a distribution → the exact divergences.

    Returns:
        The figure.
    """
    figure, ax = panels()
    ax.plot(ns, bound, color=QUIET, linewidth=6, alpha=0.35, solid_capstyle="round")
    middle = len(ns) // 2
    direct_label(ax, ns[middle] * 0.75, bound[middle] + 0.2, "bound", color=QUIET, ha="right")
    for (name, values), shade, dash, mark in zip(
        exact.items(), shades("top-p", len(exact)), DASHES, "osD^", strict=False
    ):
        ax.plot(ns, values, color=shade, linestyle=dash, marker=mark, markersize=4)
        direct_label(ax, ns[-1], values[-1], name, color=shade)
    ax.set(xlabel="samples N", ylabel="KL(best of N ‖ model), nats", xscale="log", ylim=(-0.1, None))
    ax.set_xticks(ns, [f"{n:,}" for n in ns])
    ax.minorticks_off()
    figure.get_layout_engine().set(rect=(0, 0, 0.84, 1))
    return figure


def proxy_and_value(ns, proxy, values, names):
    """What best-of-N is chosen by, and what it is wanted for, over N.

    Args:
        ns: numbers of samples.
        proxy: mean score of the chosen answers.
        values: (name → mean) of what is wanted, one panel each.
        names: label of the axis of the proxy.

    Returns:
        The figure.
    """
    figure, axes = panels(1 + len(values), height=2.6)
    for i, (ax, (name, means)) in enumerate(zip(axes, [(names, proxy), *values.items()], strict=True)):
        shade = colour("temperature") if i else INK
        ax.plot(ns, means, color=shade, marker=marker("temperature") if i else marker("greedy"), markersize=4)
        ax.set(xlabel="samples N", ylabel=name, xscale="log")
        ax.set_xticks(ns[::2], [f"{n:,}" for n in ns[::2]])
        ax.minorticks_off()
    return figure


def temperature_by_entropy(entropies, curves, seen):
    """The temperature that an entropy-guided rule takes over the entropy, and where real steps lie.

    Args:
        entropies: nats, rising.
        curves: name → T at each of them.
        seen: entropies of real steps, in nats.

    Returns:
        The figure.
    """
    figure, (top, bottom) = panels(1, 2, height=2.0, sharex=True, gridspec_kw={"height_ratios": (3, 1)})
    for (name, values), shade, dash in zip(curves.items(), shades("temperature", len(curves)), DASHES, strict=False):
        top.plot(entropies, values, color=shade, linestyle=dash, label=name)
    top.set(ylabel="temperature T", ylim=(0, None))
    top.legend(loc="lower right", handlelength=3)
    bottom.hist(seen, bins=np.linspace(entropies[0], entropies[-1], 40), color=QUIET)
    bottom.set(xlabel="entropy of the step at T = 1, nats", ylabel="steps")
    return figure


def entropies(groups, limit=None):
    """Entropy of many steps, sorted, one line a kind of prompt: the share of steps at or below each entropy.

    Args:
        groups: name → entropies in bits.
        limit: right end of the axis.

    Returns:
        The figure.
    """
    figure, ax = panels()
    for (name, values), shade, dash in zip(groups.items(), (INK, colour("temperature")), DASHES, strict=False):
        values = np.sort(values)
        shares = np.arange(1, len(values) + 1) / len(values)
        ax.step(values, shares, where="post", color=shade, linestyle=dash)
        at = np.searchsorted(shares, 0.6 if dash == "-" else 0.4)
        direct_label(ax, values[at], shares[at] - 0.04, name, color=shade)
    ax.set(xlabel="entropy of the step, bits", ylabel="share of steps", ylim=(0, 1.03), xlim=(0, limit))
    percent(ax.yaxis)
    return figure
