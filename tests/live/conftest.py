"""A real browser, and pages of it that fail their test for whatever goes wrong in them."""

import contextlib
import importlib.util
import re
from urllib.parse import urlsplit

import pytest
from page_support import PATIENCE_MS

# Without these packages the tests cannot be imported, not even to leave them out by their marker.
_PACKAGES = ("axe_playwright_python", "grpc", "grpc_health", "jupyter_client", "playwright", "prometheus_client")
collect_ignore_glob = ["test_*.py"] if any(importlib.util.find_spec(name) is None for name in _PACKAGES) else []

CHROMIUM = "/usr/bin/chromium"
# No name is looked up but the page's own: the page has to work where nothing else can be reached.
BROWSER_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
)
REPORT_VIOLATIONS = (
    "addEventListener('securitypolicyviolation', e => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI}`))"
)


class Watch:
    """Notes what goes wrong in one page: errors, failed answers, and requests that the page must not make.

    Args:
      page: A page of Playwright, before its first address.
    """

    def __init__(self, page):
        self.problems = []
        self.requests = []
        self._allowed = []
        self._origin = None
        page.add_init_script(REPORT_VIOLATIONS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._note(f"uncaught {error}"))
        page.on("dialog", lambda dialog: (self._note(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", self._on_request)
        page.on("requestfailed", lambda request: self._note(f"failed {request.url}: {request.failure}"))
        page.on("response", self._on_response)

    def allow(self, pattern):
        """Accepts problems whose text the pattern matches, those already noted included."""
        self._allowed.append(re.compile(pattern))
        self.problems = [problem for problem in self.problems if not self._allowed[-1].search(problem)]

    def _note(self, problem):
        if not any(pattern.search(problem) for pattern in self._allowed):
            self.problems.append(problem)

    def _on_console(self, message):
        if message.type in ("error", "warning"):
            self._note(f"console {message.text} at {message.location.get('url')}")

    def _on_request(self, request):
        self.requests.append(request.url)
        origin = urlsplit(request.url)[:2]
        self._origin = self._origin or origin
        if origin != self._origin:
            self._note(f"request to another origin: {request.url}")
        if request.method != "GET":
            self._note(f"request that is not GET: {request.method} {request.url}")

    def _on_response(self, response):
        if response.status >= 400:
            self._note(f"status {response.status} of {response.url}")


@pytest.fixture(scope="module")
def browser():
    """Chromium, once for each module."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(BROWSER_ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Opens watched pages: `open_page(width=390, color_scheme="dark")`. The watch of a page is `page.watch`."""
    with contextlib.ExitStack() as contexts:
        watches = []

        def open_one(width=1280, height=900, **options):
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            contexts.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.watch = Watch(page)
            watches.append(page.watch)
            return page

        yield open_one
        # Before the pages close, which cuts their requests.
        problems = [problem for watch in watches for problem in watch.problems]
    assert not problems, "\n".join(problems)


@pytest.fixture
def page(open_page):
    """A watched page of the width of a desk, in light colors."""
    return open_page()


@pytest.fixture
def watch(page):
    """The watch of `page`."""
    return page.watch
