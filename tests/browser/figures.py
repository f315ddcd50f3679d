"""What the tests of the live figures share: a page with figures, a probe into one, checks that fit them all."""

import base64
import math

import torch

from minigpt.explorers import distributions
from minigpt.explorers.base import SHARED_SCRIPTS, STYLE

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"

# What the tests ask a page that holds figures.
PROBE = """
globalThis.probe = {
  // A figure over a model of its own, which the tests can set and look into.
  async mount(name, state) {
    const place = document.body.appendChild(document.createElement("div"));
    probe.model = new nextToken.StaticModel(state);
    probe.dispose = nextToken.explorers[name].render({ model: probe.model, el: place });
    probe.figure = place.querySelector(".nt-figure");
    for (let i = 0; i < 200 && probe.figure.getAttribute("aria-busy") === "true"; i++)
      await new Promise((resolve) => setTimeout(resolve, 50));
    probe.button("Table")?.click();
  },
  button: (text) => [...probe.figure.querySelectorAll("button")].find((b) => b.textContent === text),
  press(text) { probe.button(text).click(); },
  async set(changes) {
    for (const [key, value] of Object.entries(changes)) probe.model.set(key, value);
    for (let i = 0; i < 200 && (i === 0 || probe.figure.getAttribute("aria-busy") === "true"); i++)
      await new Promise((resolve) => setTimeout(resolve, i));
    return probe.read();
  },
  // The table, cell by cell, and the sentence.
  read: () => ({
    rows: [...probe.figure.querySelectorAll(".nt-table tbody tr")].map((line) =>
      [...line.cells].map((cell) => cell.textContent)),
    words: probe.figure.querySelector(".nt-readout").textContent,
  }),
  // The distribution that the sampler makes of a source, or of logits: under these steps, or settings in this order.
  kept({ source, logits, steps, settings, order }) {
    const { sampler, ready } = nextToken;
    const { state, ids } = source ? ready[source] : { state: sampler.distribution(logits), ids: [] };
    const final = sampler.run(state, steps ?? sampler.steps(settings, order), { ids, promptLength: ids.length });
    const bytes = (array) => {
      const raw = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      let text = "";
      for (let i = 0; i < raw.length; i += 8192) text += String.fromCharCode(...raw.subarray(i, i + 8192));
      return btoa(text);
    };
    const p = sampler.softmax(final);
    return { ids: bytes(Int32Array.from(final.ids)), p: bytes(p), ...sampler.summary(p) };
  },
  // What Copy gives from now on is in window.copied.
  catchCopies() {
    if (navigator.clipboard) navigator.clipboard.writeText = async (text) => { window.copied = text; };
    document.execCommand = () => { window.copied = document.activeElement.value; };
  },
};
"""

# Everything the Tab key must stop at; of a group of radio buttons the chosen one.
CONTROLS = """() => [...document.querySelectorAll("button, input, select, .nt-figure [tabindex='0']")].filter((n) =>
  !n.disabled && n.tabIndex >= 0 && n.checkVisibility() && (n.type !== "radio" || n.checked))"""

# What a screen reader calls the element that has the focus: nothing if it is no control.
NAME = """(controls) => {
  const node = document.activeElement;
  if (!controls.includes(node)) return null;
  const own = node.matches("input, select") ? "" : node.textContent;
  const name = [node.labels?.[0]?.textContent, node.getAttribute("aria-label"), own].find((text) => text?.trim());
  return [controls.indexOf(node), name ?? ""];
}"""

OUTSIDE = """(nodes) => [...document.querySelectorAll(".nt-figure")].flatMap((figure) => {
  const { left, right } = figure.getBoundingClientRect();
  return [...figure.querySelectorAll(nodes)].filter((node) => {
    const box = node.getBoundingClientRect();
    return box.width && (box.left < left - 1 || box.right > right + 1);
  }).map((node) => node.textContent);
})"""

THREE_TIMES = """([name, state]) => {
  const model = new nextToken.StaticModel(state), el = document.body.appendChild(document.createElement("div"));
  const listeners = () => Object.values(model.handlers).map((handlers) => handlers.size);
  const disposers = [1, 2, 3].map(() => nextToken.explorers[name].render({ model, el }));
  const during = [el.querySelectorAll(".nt-figure").length, ...new Set(listeners())];
  disposers[2]();
  return [during, el.childNodes.length, Math.max(...listeners())];
}"""


def scripts_of(*explorers):
    """Names of the scripts of a page with these figures: those that a notebook loads for them."""
    own = [script for explorer in explorers for script in (*explorer.scripts, f"{explorer.name}.js")]
    return (*SHARED_SCRIPTS, *own, "boot.js")


def page_of(figures, scripts, folder=distributions.JS):
    """The text of a page with figures (their HTML) and the scripts of a folder."""
    tags = "".join(f'<script defer src="{(folder / name).as_uri()}"></script>' for name in scripts)
    style = f'<link rel="stylesheet" href="{(folder / STYLE).as_uri()}">'
    head = f'<meta charset="utf-8"><title>figures</title>{style}{tags}'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(figures)}</body></html>'


def mount(page, explorer):
    """Mount a figure that the probe can look into; what it shows."""
    page.evaluate("([name, state]) => probe.mount(name, state)", [explorer.name, explorer.state])
    return page.evaluate("probe.read()")


def set_state(page, **changes):
    """Change the state of the mounted figure; what it then shows."""
    return page.evaluate("(changes) => probe.set(changes)", changes)


def kept(page, **question):
    """What `probe.kept` answers: ids, their probabilities, and the summary."""
    answer = page.evaluate("(question) => probe.kept(question)", question)
    ids, p = (bytearray(base64.b64decode(answer.pop(key))) for key in ("ids", "p"))
    return torch.frombuffer(ids, dtype=torch.int32).long(), torch.frombuffer(p, dtype=torch.float64), answer


def press_preset(page, name):
    """Press a named state of the mounted figure, which is then the one marked; the sentence."""
    page.evaluate("(name) => probe.press(name)", name)
    words = set_state(page)["words"]
    assert page.locator(".nt-presets [aria-pressed=true]").all_text_contents() == [name]
    return words


def press_keys(page, where, keys):
    """Press keys one by one; after each, `where` shows the place that stands beside it."""
    for key, place in keys:
        page.keyboard.press(key)
        assert where.text_content() == place, key


def check_tab_stops(page):
    """Tab stops at everything that can be used, and each stop has a name; gives how many there are."""
    controls = page.evaluate_handle(CONTROLS)
    expected, seen = controls.evaluate("controls => controls.length"), set()
    for _ in range(expected + 12):
        page.keyboard.press("Tab")
        stop = page.evaluate(NAME, controls)
        if stop:
            assert stop[1], f"control {stop[0]} has no name"
            seen.add(stop[0])
    assert len(seen) == expected
    return expected


def check_fits(page, width, nodes="span, b, text, button, output, label"):
    """The page is no wider than the screen, and none of these nodes hangs out of its figure."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE, nodes) == []


def check_nothing_ran(page):
    """Hostile text became neither an element of a figure nor code."""
    assert page.locator(".nt-figure img, .nt-figure script").count() == 0
    assert page.evaluate("window.hacked") is None


def check_rendered_once(page, explorer):
    """Case 130: one figure and one listener a trait after three renderings, none after the last is removed."""
    assert page.evaluate(THREE_TIMES, [explorer.name, explorer.state]) == [[1, 1], 0, 0]


def sources():
    """Names of all distributions."""
    return [source["name"] for source in distributions.catalogue()["sources"]]


def random_value(pick, method):
    """A legal value of a rule: sometimes the slider's end, else anywhere between; of k also far above V."""
    low, high = method["low"], method["high"]
    if pick.random() < 0.2:
        return pick.choice((low, high))
    if method["setting"] == "top_k":
        return round(math.exp(pick.uniform(0, math.log(100_000))))
    logarithmic = method["scale"] == "log"
    return math.exp(pick.uniform(math.log(low), math.log(high))) if logarithmic else pick.uniform(low, high)


def random_temperature(pick):
    """0, 1, a stop of the slider or anything between 0 and 2."""
    return pick.choice((0, 1, pick.randrange(41) / 20, pick.uniform(0, 2)))
