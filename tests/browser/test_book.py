"""The built book in a browser: as a website, and opened from a double click."""

import functools
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urlsplit

import nbformat
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from build import BUILD, ROOT
from jupyter_cache import get_cache

CONTENTS = yaml.safe_load((ROOT / "_toc.yml").read_text())
CHAPTERS = [CONTENTS["root"], *(chapter["file"] for part in CONTENTS["parts"] for chapter in part["chapters"])]
NOTEBOOKS = [chapter for chapter in CHAPTERS if chapter.startswith("notebooks/")]
PAGES = [*(f"{chapter}.html" for chapter in CHAPTERS), "search.html", "genindex.html"]
FIGURE = 'class="nt-explorer"'
LARGEST_PAGE = 400_000  # bytes
RELOADS = 10
FORMULA = re.compile(r'class="[^"]*\bmath\b')
RAW_FORMULA = re.compile(r"\$[^$\n]+\$|\\begin\{|\\frac|\\sum")
# What no page may hold, and what it would be.
DEBRIS = {
    "\r": "frames of a progress bar",
    "%|": "a progress bar",
    "Warning:": "a warning",
    "Traceback (most recent call last)": "a traceback",
    "widget-view": "a widget without a kernel",
    "require.js": "a loader",
    "requirejs": "a loader",
    "Explorer(": "a figure as plain text",
    "HBox(": "a widget as plain text",
}
# Faults of the theme, which no page of ours can mend: the rule, and what the element's selector holds.
# Its sidebar is no landmark, its hints hang below the body; and docutils marks up sources in a deprecated way.
OF_THE_THEME = [
    ("region", ".title"),
    ("region", "#tooltip"),
    ("aria-allowed-role", "#id"),
    ("aria-deprecated-role", "#id"),
    ("aria-required-children", ".citation-list"),
]


@pytest.fixture(params=["http", "file"])
def address(request, html):
    """Where the pages are: on a web server, or in a folder."""
    return request.getfixturevalue("site") if request.param == "http" else html.as_uri()


@pytest.mark.parametrize("name", PAGES)
def test_page_is_whole(name, address, html, open_page):
    """No other host is asked, nothing complains, every figure is drawn, every formula set, a phone need not scroll."""
    source = (html / name).read_text()
    page = open_page(f"{address}/{name}")
    figures = page.evaluate("ask.settled()")
    assert figures == {"figures": source.count(FIGURE), "drawn": source.count(FIGURE)}
    if name.removesuffix(".html") in CHAPTERS:
        assert not RAW_FORMULA.search(page.evaluate("ask.prose()"))
        assert page.locator("mjx-container").count() == len(FORMULA.findall(source))
    for width in (1200, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.log.complaints == []
    assert page.log.outside == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_reloads(name, site, html, open_page):
    """Formulas and figures come out every time, not only when scripts happen to load in a lucky order."""
    if FIGURE not in (html / f"{name}.html").read_text():
        return
    page = open_page(f"{site}/{name}.html")
    first = page.evaluate("ask.settled()"), page.locator("mjx-container").count()
    for _ in range(RELOADS):
        page.reload(wait_until="load")
        assert (page.evaluate("ask.settled()"), page.locator("mjx-container").count()) == first
    assert page.log.complaints == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_sliders_need_no_kernel(name, html, open_page):
    """The first slider to be seen in every figure changes what the figure says, with no server behind the page."""
    page = open_page(f"{html.as_uri()}/{name}.html")
    page.evaluate("ask.settled()")
    for figure in page.query_selector_all(".nt-explorer"):
        before = figure.evaluate("ask.figureText")
        figure.evaluate_handle("ask.slider").evaluate("ask.move")
        page.evaluate("ask.settled()")
        assert figure.evaluate("ask.figureText") != before
    assert page.log.complaints == []


@pytest.mark.parametrize("dark", ["light", "by button", "by system"])
@pytest.mark.parametrize("name", CHAPTERS)
def test_text_can_be_read(name, dark, site, open_page):
    """Contrast of at least 4.5 in both colour schemes, however the dark one was chosen, and nothing axe objects to."""
    page = open_page(f"{site}/{name}.html", dark=dark == "by system")
    for _ in range(3 if dark == "by button" else 0):
        if page.locator("html[data-theme=dark]").count() == 0:
            page.locator(".theme-switch-button:visible").click()
    assert page.locator(f"html[data-theme={'light' if dark == 'light' else 'dark'}]").count() == 1
    page.evaluate("ask.settled()")
    page.wait_for_timeout(300)  # colours glide
    assert page.evaluate("ask.faint()") == {}
    assert violations(page) == []


def violations(page):
    """What axe objects to, but for what the theme brings: "rule: selector"."""
    found = Axe().run(page).response["violations"]
    named = [(rule["id"], str(node["target"])) for rule in found for node in rule["nodes"]]
    return [
        f"{rule}: {target}" for rule, target in named if not any(rule == r and s in target for r, s in OF_THE_THEME)
    ]


@pytest.mark.parametrize("name", PAGES)
def test_page_holds_no_debris(name, html):
    """Small, and free of what a run leaves behind."""
    source = (html / name).read_bytes().decode()
    assert len(source.encode()) < LARGEST_PAGE
    assert [what for text, what in DEBRIS.items() if text in source] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_figure_got_lost(name, html):
    """As many live figures in the page as the notebook displayed."""
    notebook = nbformat.read(ROOT / f"{name}.ipynb", as_version=4)
    _, executed = get_cache(BUILD / ".jupyter_cache").merge_match_into_notebook(notebook)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    displayed = sum("".join(o.get("data", {}).get("text/html", "")).count(FIGURE) for o in outputs)
    assert displayed >= 1
    assert (html / f"{name}.html").read_text().count(FIGURE) == displayed


def test_first_page_opens(address, open_page):
    """index.html, the page that `make book` names, leads to the front page and its live figure."""
    page = open_page(f"{address}/index.html")
    page.wait_for_url("**/book/intro.html")
    assert page.evaluate("ask.settled()")["drawn"] >= 1


@functools.cache
def links(path):
    """The links of a page and the names on it."""
    found = Links()
    found.feed(path.read_text())
    return found


class Links(HTMLParser):
    """Targets of a page's links, and the names that links may lead to."""

    def __init__(self):
        super().__init__()
        self.targets, self.names = [], set()

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("id", "name"):
                self.names.add(value)
            if (tag, key) in (("a", "href"), ("img", "src")) and value and not urlsplit(value).scheme:
                self.targets.append(value)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name, html):
    """Every link inside the book has a page and, on it, the part it names."""
    dead = []
    for target in links(html / name).targets:
        file, part = urldefrag(unquote(target))
        path = (html / name).parent / file.split("?")[0] if file else html / name
        if not path.exists() or (part and path.suffix == ".html" and part not in links(path).names):
            dead.append(target)
    assert dead == []
