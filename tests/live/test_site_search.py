"""The search of the site of the documentation, in pages that are opened as files and in those of a web server."""

import contextlib
import functools
import http.server
import pathlib
import re
import threading

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.live

SITE = pathlib.Path(__file__).parents[2] / "site"


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Requests are not news."""


@contextlib.contextmanager
def web_server():
    """The address of a server of the site."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=SITE)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("opened", [lambda: contextlib.nullcontext(SITE.as_uri()), web_server], ids=["file", "http"])
def test_a_word_is_found_and_leads_to_its_place(page, opened):
    with opened() as address:
        page.goto(f"{address}/tutorial.html")
        page.get_by_role("button", name="Search").first.click()
        page.keyboard.type("hindsight")
        expect(page.get_by_text("reverb.adders.HindsightAdder").first).to_be_visible()
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("hindsight"))
        expect(page.get_by_role("main")).to_contain_text("HindsightAdder")
