"""Servers and data of the area `protocols`, with the same calls on both sides."""

import payloads

import reverb
from reverb import rate_limiters, selectors

__all__ = ["fill", "serve_plain", "stop_plain"]

state = {}


def serve_plain(payload):
    """Starts a server with two empty tables, `in` and `out`, without signatures. Returns its address."""
    stop_plain()
    tables = [
        reverb.Table(name, selectors.Uniform(), selectors.Fifo(), size, rate_limiters.MinSize(1))
        for name, size in zip(("in", "out"), payloads.table_sizes(payload), strict=True)
    ]
    state["server"] = server = reverb.Server(tables=tables)
    return f"ipv4:127.0.0.1:{server.port}"


def stop_plain():
    server = state.pop("server", None)
    if server is not None:
        server.stop()


def fill(address, payload):
    """Fills the table `out` with items of one step, one by one."""
    client, steps = reverb.Client(address), payloads.steps_of(payload, 10)
    for index in range(payloads.table_sizes(payload)[1]):
        client.insert(steps[index % 10], {"out": 1.0})
