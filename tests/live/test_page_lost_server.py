"""The live page while its server is gone, and behind a proxy that serves it below a path of its own."""

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from behaviour_support import program
from page_support import PATIENCE_MS, column_of
from playwright.sync_api import expect

import reverb
from reverb import rate_limiters, selectors

pytestmark = pytest.mark.live

# What the browser reports of requests to a port at which nobody listens, or whose server ends meanwhile.
LOST = r"net::ERR_(CONNECTION_\w+|EMPTY_RESPONSE|INVALID_HTTP_RESPONSE|ABORTED)"
SERVE = """
import sys
import numpy as np
import reverb

limiter = reverb.rate_limiters.MinSize(1)
table = reverb.Table(sys.argv[2], reverb.selectors.Uniform(), reverb.selectors.Fifo(), 100, limiter)
server = reverb.Server([table], http_port=int(sys.argv[1]))
reverb.Client(f"localhost:{server.port}").insert(np.float32(1), {sys.argv[2]: 1.0})
print(server.http_port, flush=True)
sys.stdin.read()
"""


class SubPath(BaseHTTPRequestHandler):
    """Forwards what is asked below `/tools/reverb/`, as a notebook server does, and knows nothing else."""

    protocol_version = "HTTP/1.1"
    prefix = "/tools/reverb/"

    def do_GET(self):
        if not self.path.startswith(self.prefix):
            self.send_error(404)
            return
        connection = http.client.HTTPConnection("localhost", self.server.target, timeout=20)
        connection.request("GET", "/" + self.path.removeprefix(self.prefix), headers={"Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "date", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        connection.close()

    def log_message(self, *_):
        pass


def test_a_lost_server_is_noticed_and_found_again(page):
    page.watch.allow(LOST)
    verdict = page.locator(".verdict-line")
    disconnected = re.compile("^Disconnected")
    with program(SERVE, 0, "before") as server:
        port = int(server.line())
        page.goto(f"http://localhost:{port}/")
        expect(page.get_by_role("link", name="before", exact=True)).to_be_visible()
        expect(verdict).not_to_have_text(disconnected)
    expect(verdict).to_have_text(disconnected, timeout=PATIENCE_MS)
    expect(verdict).to_contain_text("reconnects by itself")
    expect(page).to_have_title(re.compile("^\u25cf Disconnected"))
    expect(page.get_by_role("link", name="before", exact=True)).to_be_visible()
    with program(SERVE, port, "after") as server:
        assert int(server.line()) == port
        expect(page.get_by_role("link", name="after", exact=True)).to_be_visible(timeout=PATIENCE_MS)
        expect(verdict).not_to_have_text(disconnected)
        expect(page.get_by_role("link", name="before", exact=True)).to_have_count(0)
        # The last answers of the page come before the server ends.
        page.close()


def test_the_page_works_below_a_path(page):
    table = reverb.Table("table", selectors.Uniform(), selectors.Fifo(), 100, rate_limiters.MinSize(1))
    server = reverb.Server([table])
    reverb.Client(f"localhost:{server.port}").insert(np.arange(64, dtype=np.uint8), {"table": 1.0})
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), SubPath)
    proxy.daemon_threads = True
    proxy.target = server.http_port
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        page.goto(f"http://127.0.0.1:{proxy.server_port}{SubPath.prefix}")
        page.get_by_role("link", name="table", exact=True).click()
        expect(column_of(page, "data/0").locator("rect")).to_have_count(64)
        assert all(f"{proxy.server_port}{SubPath.prefix}" in url for url in page.watch.requests)
        page.watch.allow(LOST)
        page.close()
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop()
