"""The pictures of chapter 10: what grows with the length of a text, and how many users fit."""

from minigpt.figures.style import colour, direct_label, marker, panels, written_out

KEPT, LINEAR, ATTENTION = colour("top-k"), colour("greedy"), colour("temperature")
MODELS = {"Llama-2-7B": "greedy", "Llama-3-8B": "top-k", "Mistral-7B": "top-p"}  # name → strategy whose look it takes


def growth(lengths, gib, linear, attention):
    """Two panels: memory of the cache, and FLOPs of a prefill.

    Args:
        lengths: tokens of the text.
        gib: GiB of the cache at each.
        linear, attention: FLOPs of a prefill of each, by kind.
    """
    figure, (left, right) = panels(2, height=3.1)
    left.loglog(lengths, gib, color=KEPT, marker="o", ms=4)
    left.set(ylabel="cache, GiB")
    for line, name, tint, style in ((linear, "linear", LINEAR, "-"), (attention, "attention", ATTENTION, "--")):
        right.loglog(lengths, [flops / 1e12 for flops in line], style, color=tint)
        direct_label(right, lengths[-1], line[-1] / 1e12, name, color=tint)
    right.set(ylabel="prefill, TFLOP", xlim=(lengths[0], 8 * lengths[-1]))
    for ax in (left, right):
        ax.set(xlabel="text, tokens")
        _token_axis(ax)
    return figure


def users(lengths, lines):
    """Users that fit on a GPU against the tokens that each one has.

    Args:
        lengths: tokens a user.
        lines: model → users that fit, one a length.
    """
    figure, ax = panels(height=3.3)
    for name, line in lines.items():
        tint, mark = colour(MODELS[name]), marker(MODELS[name])
        shown = [(S, n) for S, n in zip(lengths, line, strict=True) if n]
        ax.loglog(*zip(*shown, strict=True), color=tint, marker=mark, ms=5)
        direct_label(ax, *shown[-1], name, color=tint)
    ax.set(xlabel="text of each user, tokens", ylabel="users that fit", xlim=(lengths[0] / 1.2, 3 * lengths[-1]))
    _token_axis(ax)
    return figure


def _token_axis(ax):
    """Powers of ten on both axes, written out."""
    ax.set_xticks([1000, 10_000, 100_000])
    written_out(ax)
