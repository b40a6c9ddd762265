"""Our side of the area `loaders`."""

import importlib.util

import payloads
import timing

import reverb
from sides.ours_buffers import addresses_of, make_table

__all__ = [
    "loader_can",
    "loader_end",
    "loader_load",
    "loader_setup",
    "serve_drawn",
]

state = {"calls": {}, "loaders": []}


def serve_drawn(payload, items, exponent):
    """Starts a server with the same items in two tables, `out` and `prioritized`, and returns its addresses."""
    tables = [make_table("out", payload, items), make_table("prioritized", payload, items, exponent)]
    state["drawn"] = server = reverb.Server(tables=tables)
    client = reverb.Client(f"localhost:{server.port}")
    rows = payloads.rows_of(payload, 100)
    for _ in range(0, items, 100):
        client.insert_batch(rows, {"out": 1.0, "prioritized": 1.0})
    return addresses_of(server)


def loader_can(work):
    needed = {"TorchLoader": "torch", "JaxLoader": "jax", "sample_batch + device_put": "jax"}.get(work)
    return needed is None or importlib.util.find_spec(needed) is not None


def loader_setup(address, work, payload):
    state["calls"][work] = _call(reverb.Client(address), work, payloads.batch_size(payload))


def _call(client, work, size):
    if work == "sample_batch":
        return lambda: client.sample_batch("out", size)
    if work == "sample_batch + device_put":
        import jax

        return lambda: jax.block_until_ready(jax.device_put(client.sample_batch("out", size).data))
    loader = getattr(reverb.loaders, work)(client, "out", batch_size=size)
    state["loaders"].append(loader)
    batches = iter(loader)
    if work != "JaxLoader":
        return lambda: next(batches)
    import jax

    return lambda: jax.block_until_ready(next(batches).data)


def loader_load(work, payload, seconds):
    return timing.measure(state["calls"][work], seconds, payloads.batch_size(payload), warm_up=10)


def loader_end():
    for loader in state["loaders"]:
        loader.close()
    state.update(calls={}, loaders=[])
