"""A browser of the machine, the built book over http and as files, and pages with nothing but live figures."""

import contextlib
import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest
import torch
from build import HTML, is_current
from figures import PROBE, page_of, scripts_of
from playwright.sync_api import sync_playwright

from minigpt.explorers import distributions

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ASK = Path(__file__).with_name("ask.js")
torch.set_num_threads(1)  # the other core is the browser's: threads that wait for it spin
# The theme writes this line on the first visit of every page; it is none of ours.
FROM_THE_THEME = "Got invalid theme mode"


def find_chromium():
    """Path of a Chromium or Chrome, or None; the variable CHROMIUM names one that is elsewhere."""
    named = os.environ.get("CHROMIUM")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, NAMES)), None)


def no_browser():
    """Skip with one line, or fail where a browser is required (as in CI)."""
    message = "no Chromium or Chrome found: install one, or name it in the variable CHROMIUM"
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(f"REQUIRE_BROWSER=1, but {message}", pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests."""
    path = find_chromium() or no_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def html(browser):
    """The folder of the built book; a book older than its sources is no book to test, nor is one nobody can open."""
    if not is_current():
        pytest.fail("the built book is missing, or older than its sources: run `make book`", pytrace=False)
    return HTML


@pytest.fixture(scope="session")
def site(html):
    """Address of the built book over http, on a free port of this machine."""
    with serve(html) as address:
        yield address


@contextlib.contextmanager
def serve(folder):
    """Serve a folder on a free local port and give its address."""
    handler = functools.partial(QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A file server that writes no log."""

    def log_message(self, *args):
        pass


@pytest.fixture
def open_page(browser):
    """Open an address in a fresh profile: `open_page(url, width=..., dark=...)` gives a page with a `.log`."""
    with contextlib.ExitStack() as contexts:

        def opened(url, width=1200, dark=False):
            options = {"viewport": {"width": width, "height": 900}, "color_scheme": "dark" if dark else "light"}
            context = contexts.enter_context(contextlib.closing(browser.new_context(**options)))
            context.add_init_script(path=ASK)
            context.set_default_timeout(120_000)  # ms: a busy machine is no fault of the page
            page = context.new_page()
            page.log = Log(page)
            page.goto(url, wait_until="load")
            return page

        yield opened


@pytest.fixture(scope="session")
def real_distributions():
    """The real distributions, in the file that pages load."""
    distributions.write()


@pytest.fixture
def show(request, real_distributions, open_page, tmp_path):
    """Open a page with figures (their HTML), as a double click does; a module's FIGURES says whose scripts it has."""

    def opened(*figures, folder=distributions.JS, **how):
        path = tmp_path / "page.html"
        path.write_text(page_of(figures, scripts_of(*request.module.FIGURES), folder))
        page = open_page(path.as_uri(), **how)
        page.evaluate(PROBE)
        page.wait_for_function("!document.querySelector('.nt-figure[aria-busy=true]')")
        return page

    return opened


@pytest.fixture
def page(show):
    """A page without figures; nobody complained and nobody outside was asked."""
    page = show()
    yield page
    assert page.log.complaints == [] and page.log.outside == []


class Log:
    """What a page complains about and whom it asks."""

    def __init__(self, page):
        self.complaints, self.outside = [], []
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("console", self._console)
        page.on("requestfailed", lambda request: self.complaints.append(f"not loaded: {request.url}"))
        page.on("response", self._response)
        page.on("request", self._request)

    def _console(self, message):
        if message.type == "error" and FROM_THE_THEME not in message.text:
            self.complaints.append(f"console: {message.text}")

    def _response(self, response):
        if response.status >= 400:
            self.complaints.append(f"{response.status}: {response.url}")

    def _request(self, request):
        if not request.url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:")):
            self.outside.append(request.url)
