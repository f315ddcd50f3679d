"""The memory calculator: weights and KV cache of real models against real GPUs. Chapter 10."""

import html
from dataclasses import asdict, replace

from traitlets import Dict, Int, Unicode, validate

from minigpt.costs import kv_bytes, quantised_bits, users_that_fit, weight_bytes
from minigpt.explorers.base import Explorer, check_between, check_choice
from minigpt.shapes import GPUS, MODELS

LONGEST, MOST_USERS, GROUP = 2**20, 1024, 32
WEIGHT_BITS = {"fp32": 32, "16-bit": 16, "8-bit": 8, "4-bit": quantised_bits(4, GROUP, zero_bits=0)}
KV_BITS = {
    **{name: WEIGHT_BITS[name] for name in ("fp32", "16-bit", "8-bit")},
    **{f"{bits}-bit": quantised_bits(bits, GROUP) for bits in (4, 2)},
}
ATTENTION = ("as it is", "MHA", "GQA", "MQA", "window")
FACTS = {
    "models": {name: {**asdict(shape), "n_params": shape.n_params} for name, shape in MODELS.items()},
    "gpus": {name: {"memory_bytes": gpu.memory_bytes, "source": gpu.source} for name, gpu in GPUS.items()},
    "weight_bits": WEIGHT_BITS,
    "kv_bits": KV_BITS,
    "group": GROUP,
}
CHOICES = {"model": MODELS, "gpu": GPUS, "weights": WEIGHT_BITS, "kv": KV_BITS, "attention": ATTENTION}
RANGES = {"context": LONGEST, "users": MOST_USERS, "groups": MOST_USERS, "window": LONGEST}


class MemoryExplorer(Explorer):
    """What a model's weights and the KV caches of its users take of a GPU's memory, and how many users fit.

    Args:
        model: a name in `shapes.MODELS`.
        gpu: a name in `shapes.GPUS`.
        context: tokens that each user's cache has seen, 1 to 2**20, also beyond what the model is made for.
        users: rows with a cache of their own, 1 to 1024.
        weights: `"fp32"`, `"16-bit"`, `"8-bit"`, or `"4-bit"` (with a 16-bit scale for each 32).
        kv: the same for keys and values, or `"2-bit"`; 4 and 2 bits with a 16-bit scale and zero point for each 32.
        attention: `"as it is"`, or what else would be kept: `"MHA"`, `"GQA"`, `"MQA"`, `"window"`.
        groups: KV heads under `"GQA"`: the most that divide the query heads and are no more than this.
        window: keys that a query sees under `"window"`, its own included.

    Raises:
        ValueError: a name that is not known, a number outside its range.
    """

    name = "memory"
    model = Unicode("Llama-3-8B").tag(sync=True)
    gpu = Unicode("A100").tag(sync=True)
    context = Int(8192).tag(sync=True)
    users = Int(64).tag(sync=True)
    weights = Unicode("16-bit").tag(sync=True)
    kv = Unicode("16-bit").tag(sync=True)
    attention = Unicode("as it is").tag(sync=True)
    groups = Int(8).tag(sync=True)
    window = Int(4096).tag(sync=True)
    facts = Dict(FACTS, read_only=True).tag(sync=True)

    @validate(*CHOICES)
    def _check_choice(self, proposal):
        return check_choice(proposal, CHOICES[proposal.trait.name])

    @validate(*RANGES)
    def _check_range(self, proposal):
        return check_between(proposal, 1, RANGES[proposal.trait.name])

    @property
    def shape(self):
        """The `ModelShape` that is shown: the model's own, or with the attention asked for.

        Weights of keys and values follow the number of KV heads, unless only the model's total is known (MLA).
        """
        shape = MODELS[self.model]
        if self.attention == "as it is":
            return shape
        if self.attention == "window":
            return replace(shape, window=self.window)
        divisors = [n for n in range(1, shape.n_heads + 1) if shape.n_heads % n == 0]
        most = {"MHA": shape.n_heads, "GQA": self.groups, "MQA": 1}[self.attention]
        return replace(shape, kv_latent=None, n_kv_heads=max(n for n in divisors if n <= most))

    def picture(self):
        """Rows `(name, bytes, users that fit or None)`: weights, cache of one user, of all users, every GPU."""
        bits = {"weight_bits": WEIGHT_BITS[self.weights], "kv_bits": KV_BITS[self.kv]}
        cache = {n: kv_bytes(self.shape, self.context, n, bits=bits["kv_bits"]) for n in (1, self.users)}
        fit = {name: users_that_fit(self.shape, self.context, gpu.memory_bytes, **bits) for name, gpu in GPUS.items()}
        return [
            ("weights", weight_bytes(self.shape, bits=bits["weight_bits"]), None),
            ("KV cache, one user", cache[1], None),
            (f"KV cache, all users: {self.users:,}", cache[self.users], None),
            *((name, round(GPUS[name].memory_bytes), users) for name, users in fit.items()),
        ]

    def still(self):
        """The rows as bars on one scale, as SVG."""
        return draw_memory(f"{self.model}, {self.context:,} tokens a user", self.picture())


def draw_memory(label, rows, width=560, row_height=22):
    """Rows `(name, bytes, users or None)` as bars in an SVG; memory of GPUs is outlined only."""
    scale = (width - 350) / max(n_bytes for _, n_bytes, _ in rows)
    lines = []
    for i, (name, n_bytes, users) in enumerate(rows):
        y, length = i * row_height, max(1, n_bytes * scale)
        look = 'fill="currentColor"' if users is None else 'fill="none" stroke="currentColor"'
        note = f"{n_bytes / 1e9:,.2f} GB" + ("" if users is None else f": {users:,} fit")
        lines.append(
            f'<text x="170" y="{y + 15}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="180" y="{y + 4}" width="{length:.1f}" height="{row_height - 8}" {look}/>'
            f'<text x="{185 + length:.1f}" y="{y + 15}">{note}</text>'
        )
    return (
        f'<svg role="img" aria-label="Bars: memory. {html.escape(label)}" viewBox="0 0 {width} '
        f'{len(rows) * row_height}" font-size="13" fill="currentColor" width="100%">{"".join(lines)}</svg>'
    )
