"""A server in a notebook prints the address of its live page, which then opens."""

import http.client

import pytest
from jupyter_client.manager import start_new_kernel

pytestmark = pytest.mark.live

# Far longer than any machine needs: only a kernel that hangs reaches it.
PATIENCE_S = 120


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(startup_timeout=PATIENCE_S)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(kernel, source):
    """Runs a cell and returns what it printed, by stream."""
    printed = {"stdout": "", "stderr": ""}

    def note(message):
        if message["msg_type"] == "stream":
            printed[message["content"]["name"]] += message["content"]["text"]

    reply = kernel.execute_interactive(source, timeout=PATIENCE_S, output_hook=note)
    assert reply["content"]["status"] == "ok", reply["content"]
    return printed


def test_notebook_shows_the_address_of_the_page(kernel):
    started = run(kernel, "import reverb\nserver = reverb.Server([reverb.Table.queue('table', 9)])")
    url = run(kernel, "print(server.dashboard_url)")["stdout"].strip()
    port = run(kernel, "print(server.http_port)")["stdout"].strip()
    assert started == {"stdout": f"[Reverb] Live dashboard: http://localhost:{port}\n", "stderr": ""}
    assert url == f"http://localhost:{port}"
    page = http.client.HTTPConnection("localhost", int(port), timeout=PATIENCE_S)
    page.request("GET", "/")
    answer = page.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    page.close()


def test_page_answers_while_a_cell_computes(kernel):
    port = int(run(kernel, "print(server.http_port)")["stdout"])
    # A kernel computes in its main thread, and prints from another one.
    cell = kernel.execute("import ctypes\nprint('begun', flush=True)\nctypes.PyDLL(None).sleep(3)")
    while True:
        message = kernel.get_iopub_msg(timeout=PATIENCE_S)
        if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == cell:
            break
    page = http.client.HTTPConnection("localhost", port, timeout=PATIENCE_S)
    page.request("GET", "/readyz")
    assert page.getresponse().read().startswith(b"ready. ")
    page.close()


def test_server_without_http_prints_nothing(kernel):
    assert run(kernel, "quiet = reverb.Server([reverb.Table.queue('table', 9)], http_port=None)")["stdout"] == ""
