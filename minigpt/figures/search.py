"""The pictures of chapter 06: length penalties, the search that shrinks, likelihood of texts by people and machines."""

from minigpt.figures.style import INK, QUIET, colour, direct_label, marker, panels, percent

# A beam search is a search for the mode; its widths are shades of one colour.
BEAM = "#5b4b8a"
KINDS = {
    "people": (INK, "*"),
    "sampled": (colour("temperature"), marker("temperature")),
    "top-p": (colour("top-p"), marker("top-p")),
    "greedy": (colour("greedy"), marker("greedy")),
}


def look(kind):
    """Colour and marker of a kind of text; all beams share theirs."""
    return KINDS.get(kind, (BEAM, "h"))


def penalties(lengths, divisors, alphas, scores, crossing):
    """Two panels: what a sum is divided by, against the length; the scores of two texts, against α.

    Args:
        lengths: t.
        divisors: name → one number a length.
        alphas: α.
        scores: name → one number an α.
        crossing: the α at which the scores meet.
    """
    figure, (left, right) = panels(2, height=3.0)
    for (name, line), style in zip(divisors.items(), ("-", "--", ":"), strict=False):
        left.plot(lengths, line, style, color=BEAM)
        direct_label(left, lengths[-1], line[-1], name, color=BEAM)
    left.set(xlabel="length t, tokens", ylabel="the sum is divided by", xlim=(0, lengths[-1] * 1.45))
    for (name, line), style, tint in zip(scores.items(), ("-", "--"), (INK, BEAM), strict=True):
        right.plot(alphas, line, style, color=tint)
        direct_label(right, alphas[-1], line[-1], name, color=tint)
    right.axvline(crossing, color=QUIET, lw=1, ls=":")
    right.set(xlabel="α (power form)", ylabel="score", xlim=(alphas[0], alphas[-1] * 1.35))
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
        ax.semilogx(widths, line, color=BEAM, marker="h", base=2)
        for level, name, style in ((one, "the mode", "--"), (other, "people", ":")):
            ax.axhline(level, color=INK, lw=1.2, ls=style)
            ax.annotate(name, (widths[0], level), xytext=(0, 3), textcoords="offset points", fontsize=9)
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
            direct_label(ax, row["repeated"], row["log_prob"], f" {row['kind']}", color=tint)
        ax.set(xlabel=f"{model}: windows seen before", ylabel="log-probability per token, nats")
        ax.set_xlim(-0.03, max(row["repeated"] for row in rows if row["model"] == model) * 1.35 + 0.05)
        percent(ax.xaxis)
    return figure


def by_position(rows, model, smooth=8):
    """Log-probability per token along the text, one line a kind, each a running mean over `smooth` positions."""
    figure, ax = panels(height=3.0)
    for row in (row for row in rows if row["model"] == model):
        line = row["by_position"]
        means = [sum(line[i : i + smooth]) / smooth for i in range(len(line) - smooth + 1)]
        tint, _ = look(row["kind"])
        style = {"people": ":", "greedy": "--"}.get(row["kind"], "-")
        ax.plot(range(smooth, len(line) + 1), means, style, color=tint, lw=1.6)
        direct_label(ax, len(line), means[-1], row["kind"], color=tint)
    ax.set(xlabel="position in the continuation, tokens", ylabel="log-probability per token, nats")
    ax.set_xlim(0, len(line) * 1.14)
    return figure
