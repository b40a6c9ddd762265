"""Our side: the calls that a worker with this package can execute."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import payloads
import timing
from checkpointing import checkpoint_load, checkpoint_make, checkpoint_save  # noqa: F401 - called by name

import reverb
from sides import writing
from sides.mixing import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_buffers import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_buffers import addresses_of, make_table
from sides.ours_clients import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_environments import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_leaves import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_operations import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_readers import *  # noqa: F403 - a worker looks its calls up here

state = {}


# Server and load generators.


def serve(payload):
    into, out = payloads.table_sizes(payload)
    stop()
    state["server"] = server = reverb.Server(tables=[make_table("in", payload, into), make_table("out", payload, out)])
    client = reverb.Client(f"localhost:{server.port}")
    rows = payloads.rows_of(payload, 50)
    for _ in range(0, out, 50):
        client.insert_batch(rows, {"out": 1.0})
    return addresses_of(server)


def serve_empty(max_size, exponent=None):
    """Starts a server with one empty table of transitions, and returns its addresses."""
    stop()
    state["server"] = server = reverb.Server(tables=[make_table("in", "transition", max_size, exponent)])
    return addresses_of(server)


def stop():
    server = state.pop("server", None)
    if server is not None:
        server.stop()


def load(address, work, payload, seconds, threads=1, table=None):
    """Repeats one kind of call on one or more threads, each with its own client."""

    def make_call():
        client = reverb.Client(address)
        size = payloads.batch_size(payload)
        if work == "insert":
            step = payloads.steps_of(payload, 1)[0]
            return lambda: client.insert(step, {"in": 1.0})
        if work == "insert_batch":
            rows = payloads.rows_of(payload, 64)
            return lambda: client.insert_batch(rows, {"in": 1.0})
        if work in writing.CALLS:
            return writing.CALLS[work](client, payloads.steps_of(payload, 10), "in")
        if work == "sample":
            count = items_per_call(work, payload)
            return lambda: [None for _ in client.sample(table or "out", count, emit_timesteps=False)]
        if work == "NumpyLoader":
            # The clock starts once the batches prefetched before have been used up.
            batches = reverb.loaders.NumpyLoader(client, table or "out", batch_size=size)
            return lambda: next(batches)
        return lambda: client.sample_batch(table or "out", size)

    return timing.measure_threads(make_call, threads, seconds, items_per_call(work, payload))


def items_per_call(work, payload):
    if work in writing.CALLS:
        return writing.ITEMS
    size = payloads.batch_size(payload)
    return {"insert": 1, "insert_batch": 64, "sample": 100, "sample_batch": size, "NumpyLoader": size}[work]


# Memory and scale.


def write(address, count, batch):
    """Inserts transitions, one by one or in batches."""
    client = reverb.Client(address)
    if batch == 1:
        for step in payloads.steps_of("transition", 1000) * (count // 1000):
            client.insert(step, {"in": 1.0})
    else:
        rows = payloads.rows_of("transition", batch)
        for _ in range(count // batch):
            client.insert_batch(rows, {"in": 1.0})


def fill(address, count, way):
    """Inserts transitions in one of the ways of the area `scale`."""
    if way == "trajectory_writer":
        call = writing.trajectory_writer(reverb.Client(address), payloads.steps_of("transition", 1000), "in")
        for _ in range(count // writing.ITEMS):
            call()
    else:
        write(address, count, 1 if way == "insert" else 1000)


def bare_gather(count, seconds):
    """Gathers 256 random rows of an array of transitions, which is the cost of memory access alone."""
    rows = np.zeros((count, 35))
    rows[:] = np.arange(35.0)
    random = np.random.default_rng(0)
    return timing.measure(lambda: rows[random.integers(0, count, 256)], seconds, 256)


def bare_gather_columns(count, seconds):
    """Gathers the same rows of an array for each column, as a buffer made of arrays does."""
    columns = [np.ones((count, *shape), dtype) for shape, dtype in payloads.PAYLOADS["transition"].values()]
    random = np.random.default_rng(0)

    def gather():
        indices = random.integers(0, count, 256)
        return [column[indices] for column in columns]

    return timing.measure(gather, seconds, 256)
