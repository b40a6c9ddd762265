"""Requests to the HTTP port of a server."""

import contextlib
import http.client
import json
import socket

from behaviour_support import PATIENCE_S

# A program that inserts an item into `table` of the server at its first argument, and ends with its input.
INSERTER = """
import sys, numpy as np, reverb
client = reverb.Client(sys.argv[1])
client.insert(np.int64(1), {"table": 1.0})
print("done", flush=True)
sys.stdin.read()
"""


class Answer:
    """The answer to one request."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode(errors="replace")


def ask(port, path, method="GET", host="127.0.0.1", headers=(), body=None, source=None):
    """Sends one request on a connection of its own. `headers` are pairs, `Host` included if it matters.
    `source` is the address that it comes from."""
    here = None if source is None else (source, 0)
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S, source_address=here)
    with contextlib.closing(connection):
        names = [name.lower() for name, _ in headers]
        connection.putrequest(method, path, skip_host="host" in names)
        for name, value in headers:
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return Answer(connection.getresponse())


def get(server, path):
    """Returns a document of the HTTP port of a server."""
    return json.loads(ask(server.http_port, f"/api/v1/{path}").text)


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
