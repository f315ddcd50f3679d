"""What all live figures share: an anywidget in a notebook, the same figure without a kernel in a page."""

import base64
import html
import json

import anywidget
from traitlets import Float, HasTraits, Unicode, validate

from minigpt.explorers import weights
from minigpt.explorers.distributions import JS, distribution, entry, real
from minigpt.processors import Temperature
from minigpt.sampling import apply

# In this order: each script registers what the next ones use.
SHARED_SCRIPTS = ("catalogue.js", "random.js", "sampler.js", "sources.js", "chart.js", "figure.js")
STYLE = "explorers.css"


def read_script(name):
    """The text of a file in `js/`."""
    return (JS / name).read_text(encoding="utf-8")


class Explorer(anywidget.AnyWidget):
    """A live figure. Subclasses give `name`, their traits, `picture()`, and the `scripts` that are theirs alone.

    In JupyterLab, VS Code and Colab its traits follow the controls and the controls follow the traits. A static page
    shows the HTML beside the widget view: the state as JSON, which `boot.js` mounts.
    """

    name = None
    scripts = ()
    _css = read_script(STYLE)

    def __init_subclass__(cls, **kwargs):
        if "name" in vars(cls):  # traitlets makes further subclasses of its own
            scripts = "\n".join(map(read_script, (*SHARED_SCRIPTS, *cls.scripts, f"{cls.name}.js")))
            cls._esm = f'{scripts}\nexport default globalThis.nextToken.explorers["{cls.name}"];\n'
        super().__init_subclass__(**kwargs)

    def __init__(self, **traits):
        unknown = sorted(traits.keys() - self.class_trait_names())
        if unknown:
            raise ValueError(f"{type(self).__name__} has no {unknown[0]!r}: it takes {', '.join(self.state)}")
        super().__init__(**traits)
        self.on_msg(self._answer)

    @property
    def state(self):
        """Name → value of the traits that make up the figure's state."""
        base = anywidget.AnyWidget.class_trait_names()
        own = [name for name in self.trait_names(sync=True) if name not in base and not name.startswith("_")]
        return {name: getattr(self, name) for name in own}

    def picture(self):
        """What a page without JavaScript shows: rows `(token, probability, kept)`, most likely first."""
        raise NotImplementedError

    def still(self):
        """The picture, as SVG."""
        return draw_picture(self.picture())

    def to_html(self):
        """The figure for a static page."""
        state = json.dumps(self.state, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
        return (
            f'<div class="nt-explorer" data-explorer="{self.name}"><script type="application/json">{state}</script>'
            f"<noscript>{self.still()}</noscript></div>"
        )

    def _repr_mimebundle_(self, **kwargs):
        data, metadata = super()._repr_mimebundle_(**kwargs)
        return {**data, "text/html": self.to_html()}, metadata

    def _answer(self, _, content, buffers):
        """Send the front end what it asks for and is too large for a trait: a distribution, or a model's weights."""
        answers = {"distribution": _distribution_message, "weights": _weights_message}
        if content.get("kind") not in answers:
            return
        try:
            reply, values = answers[content["kind"]](content)
        except (ValueError, OSError) as error:
            self.send({**content, "error": str(error)})
        else:
            self.send(reply, buffers=[values])


def _distribution_message(content):
    data, source = real(), content["source"]
    tokens = data["tokens"] if content.get("tokens") else None
    reply = {"kind": "distribution", "source": source, "tokens": tokens, "ids": data["prompts"][source]}
    return reply, base64.b64decode(data["logits"][source])


def _weights_message(content):
    if content["model"] not in weights.NAMES:
        raise ValueError(f"no play model named {content['model']!r}: choose one of {', '.join(weights.NAMES)}")
    facts, values = weights.export(content["model"])
    return {"kind": "weights", "model": content["model"], "facts": facts}, values


class OfDistribution(HasTraits):
    """Traits of a figure about one next-token distribution: which one, and its temperature."""

    source = Unicode("capital").tag(sync=True)
    temperature = Float(1.0).tag(sync=True)

    @validate("source")
    def _check_source(self, proposal):
        return entry("sources", proposal.value)["name"]

    @validate("temperature")
    def _check_temperature(self, proposal):
        return check_between(proposal, 0, 2, ", the range of the slider; 0 is greedy")

    def likeliest(self, params, count=8):
        """Rows `(token, probability, kept)` of the likeliest tokens under these settings, and one for all others.

        A kept token has its final probability, a cut one what it had before the cut.
        """
        tokens, logits = distribution(self.source)
        before = Temperature(params.temperature)(None, logits[None])  # (1, V)
        after = apply(params.pipeline(), None, logits[None])[0].double().softmax(-1)
        before = before[0].double().softmax(-1)
        ids = logits.argsort(descending=True, stable=True)[:count].tolist()
        rows = [(tokens[i], float(after[i] or before[i]), bool(after[i] > 0)) for i in ids]
        others = len(tokens) - len(ids)
        rest = max(0.0, 1 - float(after[ids].sum()))
        return [*rows, (f"{others:,} others", rest, rest > 0)] if others else rows


def check_choice(proposal, names):
    """The proposed value of a trait that is one of `names`; ValueError otherwise."""
    name, value = proposal.trait.name, proposal.value
    if value not in names:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(names)}")
    return value


def check_between(proposal, low, high, meaning=""):
    """The proposed value of a trait from `low` to `high`; ValueError otherwise, ending with `meaning`."""
    name, value = proposal.trait.name, proposal.value
    if not low <= value <= high:
        raise ValueError(f"{name}={value} must be in {low:,} to {high:,}{meaning}")
    return value


def check_index(proposal, items):
    """The proposed value of a trait that counts `items` from 0, such as `run` of the runs; ValueError outside them."""
    name, value = proposal.trait.name, proposal.value
    if not 0 <= value < max(1, len(items)):
        raise ValueError(f"{name}={value}: there are {len(items)} {name}s, counted from 0")
    return value


def read_prompt(tokenizer, prompt, name=None):
    """The start of a record.

    Args:
        tokenizer: as `load` returns it.
        prompt: a text, or a list of messages for the chat template.
        name: what the record is called in the figure; `None` is the prompt.

    Returns:
        `(ids, facts)`: the prompt's token ids, and its `"name"` and `"prompt"`.
    """
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else tokenizer.chat(prompt)
    text = tokenizer.decode(ids)
    return ids, {"name": name or text, "prompt": text}


def draw_picture(rows, width=560, row_height=22):
    """Rows `(token, probability, kept)` as bars in an SVG; cut tokens are outlined only."""
    scale = (width - 210) / max(p for _, p, _ in rows)
    lines = []
    for i, (token, p, kept) in enumerate(rows):
        y = i * row_height
        look = 'fill="currentColor"' if kept else 'fill="none" stroke="currentColor" stroke-dasharray="2 2"'
        lines.append(
            f'<text x="120" y="{y + 15}" text-anchor="end">{html.escape(token)}</text>'
            f'<rect x="130" y="{y + 4}" width="{max(1, p * scale):.1f}" height="{row_height - 8}" {look}/>'
            f'<text x="{135 + p * scale:.1f}" y="{y + 15}">{p:.1%}{"" if kept else " (cut)"}</text>'
        )
    return (
        f'<svg role="img" aria-label="Bars: probabilities of the next token" viewBox="0 0 {width} '
        f'{len(rows) * row_height}" font-size="13" fill="currentColor" width="100%">{"".join(lines)}</svg>'
    )
