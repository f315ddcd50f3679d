"""One look for all pictures: a colour and a marker for each strategy, sizes, labels.

A picture has an opaque light ground, so it reads the same on a dark page. Colours are told apart by colour-blind
readers and stand at least 3 : 1 against the ground; a marker or a direct label always says the same again.
"""

import matplotlib as mpl
from IPython import get_ipython
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter
from matplotlib_inline.backend_inline import set_matplotlib_formats

INK, QUIET, GRID, GROUND = "#1f2937", "#596170", "#e1e4e9", "#ffffff"
WIDTH = 7.0  # inches: the text column

# One colour and one marker per strategy, through the whole book.
STRATEGIES = {
    "greedy": (INK, "s"),
    "temperature": ("#d55e00", "o"),
    "top-k": ("#0072b2", "^"),
    "top-p": ("#008f68", "D"),
    "min-p": ("#aa4499", "v"),
    "typical": ("#332288", "P"),
    "epsilon": ("#882255", "X"),
    "eta": ("#85852b", "<"),
    "top-n-sigma": ("#3390cc", ">"),
    "beam": ("#7f4f24", "h"),
}


def use():
    """Give matplotlib the book's look; in a notebook, figures become sharp at any size (SVG)."""
    mpl.rcParams.update(
        {
            "figure.facecolor": GROUND,
            "axes.facecolor": GROUND,
            "axes.edgecolor": QUIET,
            "axes.labelcolor": INK,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.color": GRID,
            "text.color": INK,
            "xtick.color": QUIET,
            "ytick.color": QUIET,
            "font.size": 10,
            "legend.frameon": False,
            "lines.linewidth": 2,
            "hatch.linewidth": 0.8,
            "svg.hashsalt": "the next token",  # the same picture gives the same file
        }
    )
    if get_ipython() is not None:
        set_matplotlib_formats("svg", metadata={"Date": None})


def colour(strategy):
    """The strategy's colour, as a hexadecimal string."""
    return STRATEGIES[strategy][0]


def marker(strategy):
    """The strategy's marker."""
    return STRATEGIES[strategy][1]


def shades(strategy, n):
    """`n` shades of a strategy's colour, light to dark, for rising values of its setting: RGB tuples."""
    base = to_rgb(colour(strategy))
    steps = [0.15 - 0.8 * i / max(1, n - 1) for i in range(n)]  # above 0 towards white, below 0 towards black
    return [tuple(c + (1 - c) * s if s > 0 else c * (1 + s) for c in base) for s in steps]


def panels(columns=1, rows=1, height=3.2, **settings):
    """A figure as wide as the text.

    Args:
        columns, rows: how many panels.
        height: inches a row of panels.
        **settings: for `Figure.subplots`, such as `sharey=True`.

    Returns:
        `(figure, axes)`: one `Axes`, or an array of them.
    """
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, **settings)


def percent(axis):
    """Show the shares 0 to 1 of `ax.xaxis` or `ax.yaxis` as 0 % to 100 %."""
    axis.set_major_formatter(PercentFormatter(1, symbol=" %"))


def written_out(ax):
    """Write the major ticks of logarithmic axes as plain numbers, not as powers, and no others."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())


def direct_label(ax, x, y, text, **settings):
    """Write a line's name just right of its end (x, y): no legend to look up."""
    settings = {"va": "center", "ha": "left", "fontsize": 9, **settings}
    ax.annotate(text, (x, y), xytext=(5, 0), textcoords="offset points", annotation_clip=False, **settings)
