"""The pictures of chapter 06: length penalties, the search that shrinks, likelihood of texts by people and machines."""

import math

from matplotlib.ticker import PercentFormatter

from minigpt.figures.style import INK, QUIET, colour, direct_label, marker, panels

BEAM = colour("beam")
KINDS = {
    "people": (INK, "*"),
    "sampled": (colour("temperature"), marker("temperature")),
    "top-p": (colour("top-p"), marker("top-p")),
    "greedy": (colour("greedy"), marker("greedy")),
}


def look(kind):
    """Colour and marker of a kind of text; all beams share theirs."""
    return KINDS.get(kind, (BEAM, marker("beam")))


def crossing(one, other):
    """The exponent of the power form at which two texts, each (sum of log-probs, length), score alike."""
    return math.log(one[0] / other[0]) / math.log(one[1] / other[1])


def penalties(lengths, divisors, alphas, scores, meet):
    """Two panels: what a sum is divided by, against the length; the scores of two texts, against α.

    Args:
        lengths: t.
        divisors: name → one number a length.
        alphas: α.
        scores: name → one number an α.
        meet: the α at which the scores meet, as from `crossing`.
    """
    figure, (left, right) = panels(2, height=3.0)
    for (name, line), style in zip(divisors.items(), ("-", "--", ":"), strict=False):
        left.plot(lengths, line, style, color=BEAM)
        direct_label(left, lengths[-1], line[-1], name, color=BEAM)
    left.set(xlabel="length t, tokens", ylabel="the sum is divided by", xlim=(0, lengths[-1] * 1.45))
    low, high = sorted(scores.items(), key=lambda item: item[1][-1])
    for (name, line), style, tint, side in ((low, "-", INK, "top"), (high, "--", BEAM, "bottom")):
        right.plot(alphas, line, style, color=tint)
        direct_label(right, alphas[-1], line[-1], name, color=tint, va=side)
    right.axvline(meet, color=QUIET, lw=1, ls=":")
    right.set(xlabel="α (power form)", ylabel="score", xlim=(alphas[0], alphas[-1] + 1.4))
    return figure


def wider(widths, sums, lengths, mode, people):
    """Two panels against the width: log-probability of the best text found, and its length.

    Args:
        widths: numbers of beams.
        sums, lengths: mean over prompts, one a width.
        mode: mean log-probability and length of the most probable text of all.
        people: mean log-probability and length of lines by people.
    """
    figure, axes = panels(2, height=3.0, sharex=True)
    for ax, line, one, other in zip(axes, (sums, lengths), mode, people, strict=True):
        ax.semilogx(widths, line, color=BEAM, marker=marker("beam"), base=2)
        for level, name, style, end, side in ((one, "the mode", "--", 0, "left"), (other, "people", ":", -1, "right")):
            ax.axhline(level, color=INK, lw=1.2, ls=style)
            place = {"xytext": (0, 3), "textcoords": "offset points", "ha": side}
            ax.annotate(name, (widths[end], level), fontsize=9, **place)
        ax.set(xlabel="width, beams")
        ax.set_xticks(widths, [str(width) for width in widths])
    axes[0].set(ylabel="mean log-probability, nats")
    axes[1].set(ylabel="mean length, characters", ylim=(0, None))
    return figure


def likelihood(rows):
    """A panel a model: log-probability per token against the share of repeats, one point a kind of text.

    Args:
        rows: of `benchmarks/results/likelihood.json`.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = panels(len(models), height=3.4)
    for ax, model in zip(axes, models, strict=True):
        for row in (row for row in rows if row["model"] == model):
            tint, shape = look(row["kind"])
            size = 12 if shape == "*" else 7
            ax.errorbar(row["repeated"], row["log_prob"], yerr=row["error"], color=tint, marker=shape, ms=size, ls="")
            side = {"people": "top", "sampled": "bottom"}.get(row["kind"], "center")  # these two lie together
            direct_label(ax, row["repeated"], row["log_prob"], f" {row['kind']}", color=tint, va=side)
        ax.set(xlabel=f"{model}: windows seen before", ylabel="log-probability per token, nats")
        ax.set_xlim(-0.03, max(row["repeated"] for row in rows if row["model"] == model) * 1.35 + 0.05)
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    return figure
