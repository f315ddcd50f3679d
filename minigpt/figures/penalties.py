"""Pictures of chapter 04, penalties."""

import numpy as np

from minigpt.figures.style import GROUND, INK, QUIET, direct_label, panels, percent

# A colour and a marker for each penalty, in every picture of the chapter.
PENALTIES = {
    "none": (INK, "s"),
    "repetition": ("#d55e00", "o"),
    "frequency": ("#0072b2", "^"),
    "presence": ("#3390cc", "v"),
    "no repeated": ("#008f68", "D"),
}


def look(strategy):
    """Colour and marker of a strategy, by the beginning of its name."""
    return next(value for name, value in PENALTIES.items() if strategy.startswith(name))


def five_tokens(words, before, after):
    """Probabilities of a few tokens before (outlines) and after each penalty (bars); a banned token has none.

    Args:
        words: names of the tokens.
        before: their probabilities.
        after: name of a penalty → probabilities under it.

    Returns:
        The figure.
    """
    figure, axes = panels(len(after), height=2.3, sharey=True)
    for ax, (name, probs) in zip(np.atleast_1d(axes), after.items(), strict=True):
        rows = range(len(words))
        ax.barh(rows, before, height=0.75, facecolor=GROUND, edgecolor=QUIET, linestyle="--")
        ax.barh(rows, probs, height=0.5, color=look(name)[0])
        for row, p in enumerate(probs):
            if p == 0:
                ax.annotate("−∞", (0, row), xytext=(3, 0), textcoords="offset points", va="center", fontsize=9)
        ax.set(xlabel=f"probability\n{name}", xlim=(0, 0.85), yticks=rows, ylim=(len(words) - 0.5, -0.5))
        ax.set_yticklabels(words)
        percent(ax.xaxis)
    return figure


def shares(strategies, counts, label):
    """How many texts have a property under each penalty, one panel for each kind of text.

    Args:
        strategies: names, one a row of the picture, from above.
        counts: kind of text → (count, texts) for each strategy.
        label: what is counted.

    Returns:
        The figure.
    """
    figure, axes = panels(len(counts), height=0.3 * len(strategies) + 0.9, sharey=True)
    for ax, (kind, pairs) in zip(np.atleast_1d(axes), counts.items(), strict=True):
        for row, (name, (count, texts)) in enumerate(zip(strategies, pairs, strict=True)):
            colour, marker = look(name)
            ax.plot([0, count / texts], [row, row], color=colour, linewidth=1.5)
            ax.plot(count / texts, row, color=colour, marker=marker, linestyle="none", clip_on=False)
            ax.annotate(
                str(count), (count / texts, row), xytext=(7, 0), textcoords="offset points", va="center", fontsize=9
            )
        ax.set(xlabel=f"{label}\n{kind}", xlim=(0, 1.12), xticks=(0, 0.5, 1), ylim=(len(strategies) - 0.5, -0.5))
        ax.set_yticks(range(len(strategies)), strategies)
        percent(ax.xaxis)
    return figure


def along_text(tokens, logits, penalised, favourite):
    """The logit of the token that really comes at each place of a text, without and with a penalty.

    Args:
        tokens: how each token reads.
        logits, penalised: its logit, before and after; `-inf` is drawn as a cross at the foot.
        favourite: whether it is still the likeliest after the penalty, one a token.

    Returns:
        The figure.
    """
    figure, ax = panels(height=2.9)
    places, foot = np.arange(len(tokens)), min(z for z in (*logits, *penalised) if np.isfinite(z)) - 2
    ax.plot(places, logits, color=QUIET, marker=".", linewidth=1)
    for place, z, top in zip(places, penalised, favourite, strict=True):
        colour = PENALTIES["repetition"][0]
        if np.isfinite(z):
            ax.plot(place, z, marker="o", color=colour, markerfacecolor=colour if top else GROUND, linestyle="none")
        else:
            ax.plot(place, foot, marker="x", color=INK, linestyle="none")
    direct_label(ax, places[-1], logits[-1], "before")
    ax.set(ylabel="logit of the token\nthat really comes", xlim=(-0.7, len(tokens) + 3))
    ax.set_xticks(places, [token.replace("$", r"\$") for token in tokens], rotation=90, fontsize=7)
    return figure
