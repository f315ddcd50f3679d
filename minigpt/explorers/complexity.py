"""The complexity chart: FLOPs of a whole generation against its length, without a KV cache and with one. Chapter 09."""

import math

from traitlets import Dict, Int, Unicode, default, validate

from minigpt.costs import generation_flops
from minigpt.explorers.base import Explorer, check_between, check_choice
from minigpt.shapes import MODELS, ModelShape

PLAIN = "plain"
RANGES = {"prompt": (1, 100_000), "new_tokens": (1, 100_000), "d_model": (64, 16_384), "layers": (1, 128)}
CONVENTIONS = ("full", "causal")
STILL_N = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)
TEXT = {
    "label": "FLOPs of a generation against the number of new tokens, both axes logarithmic",
    "sides": {False: "without a cache", True: "with a cache"},
    "axes": ("new tokens N", "FLOPs, linear layers and attention"),
}


def plain_shape(d_model, layers):
    """A `ModelShape` of plain sizes: H·D = d_model, no grouped heads, a feed-forward of 4·d_model: 12·d² a layer."""
    return ModelShape(layers, 1, 1, d_model, d_model, 4 * d_model, 1, 1, gated=False)


def model_table():
    """Name → sizes that decide the FLOPs, for every model of `MODELS` whose weights per token are known."""
    known = {name: shape for name, shape in MODELS.items() if shape.kv_latent is None and shape.total_params is None}
    return {
        name: {
            "weights": shape.layer_params,
            "layers": shape.n_layers,
            "d_model": shape.d_model,
            "width": shape.n_heads * shape.head_dim,
            "window": shape.window,
        }
        for name, shape in known.items()
    }


class ComplexityExplorer(Explorer):
    """FLOPs of N new tokens after a prompt, linear layers and attention apart, without a cache and with one.

    Args:
        prompt: tokens of the prompt, P, 1 to 100,000.
        new_tokens: the N that is marked and put in words, 1 to 100,000.
        model: a name of `minigpt.shapes.MODELS`, or `"plain"` for the two sizes below at 12·d² weights a layer.
        d_model: width of a plain model, 64 to 16,384.
        layers: layers of a plain model, 1 to 128.
        convention: how attention counts, as in `minigpt.costs.attention_pairs`: `"full"` or `"causal"`.

    Raises:
        ValueError: a number outside its range, an unknown model or convention.
    """

    name = "complexity"
    scripts = ("flops.js",)
    prompt = Int(183).tag(sync=True)
    new_tokens = Int(64).tag(sync=True)
    model = Unicode("SmolLM2-135M").tag(sync=True)
    d_model = Int(768).tag(sync=True)
    layers = Int(12).tag(sync=True)
    convention = Unicode("full").tag(sync=True)
    models = Dict(read_only=True).tag(sync=True)

    @default("models")
    def _models(self):
        return model_table()

    @validate(*RANGES)
    def _check_size(self, proposal):
        return check_between(proposal, *RANGES[proposal.trait.name])

    @validate("model")
    def _check_model(self, proposal):
        return check_choice(proposal, (PLAIN, *self.models))

    @validate("convention")
    def _check_convention(self, proposal):
        return check_choice(proposal, CONVENTIONS)

    @property
    def shape(self):
        """The `ModelShape` of the figure's settings."""
        return plain_shape(self.d_model, self.layers) if self.model == PLAIN else MODELS[self.model]

    def picture(self):
        """Curves up to 1,000 new tokens: cached or not → points `(N, linear, attention)`, in FLOPs."""
        how = {"convention": self.convention}
        return {
            cached: [(N, *generation_flops(self.shape, self.prompt, N, cached=cached, **how)[:2]) for N in STILL_N]
            for cached in TEXT["sides"]
        }

    def still(self):
        """The sums of the two kinds as an SVG."""
        title = f"{self.model}, prompt of {self.prompt:,}, attention {self.convention}"
        return draw_curves(title, {cached: [(N, a + b) for N, a, b in line] for cached, line in self.picture().items()})


def draw_curves(title, curves, width=560, height=300, left=52, right=110, top=40, bottom=40):
    """Two curves of points (x, y), cached or not → points, on logarithmic axes as an SVG."""
    values = [y for line in curves.values() for _, y in line]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    last = max(x for line in curves.values() for x, _ in line)
    across = lambda x: left + (width - left - right) * math.log(x) / math.log(last)  # noqa: E731
    up = lambda y: height - bottom - (height - top - bottom) * (math.log10(y) - low) / (high - low)  # noqa: E731
    marks = [f'<text x="0" y="14">{title}</text><text x="0" y="32">{TEXT["axes"][1]}</text>']
    for power in range(low, high + 1):
        marks.append(f'<text x="{left - 6}" y="{up(10.0**power) + 4:.1f}" text-anchor="end">1e{power}</text>')
    for N in (1, 10, 100, 1000):
        marks.append(f'<text x="{across(N):.1f}" y="{height - bottom + 16}" text-anchor="middle">{N:,}</text>')
    marks.append(f'<text x="{left}" y="{height - 4}">{TEXT["axes"][0]}</text>')
    for cached, line in curves.items():
        points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line)
        dash = "" if cached else ' stroke-dasharray="6 3"'
        marks.append(f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="2"{dash}/>')
        marks.append(f'<text x="{across(last) + 6:.1f}" y="{up(line[-1][1]) + 4:.1f}">{TEXT["sides"][cached]}</text>')
    return (
        f'<svg role="img" aria-label="{TEXT["label"]}" viewBox="0 0 {width} {height}" width="{width}" font-size="13" '
        f'fill="currentColor">{"".join(marks)}</svg>'
    )
