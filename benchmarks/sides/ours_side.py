"""Our side: the calls that a worker with this package can execute."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import payloads
import timing
from checkpointing import checkpoint_load, checkpoint_make, checkpoint_save  # noqa: F401 - called by name

import reverb
from reverb import rate_limiters, selectors
from reverb.tensor_spec import TensorSpec
from sides import writing
from sides.mixing import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_environments import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_leaves import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_operations import *  # noqa: F403 - a worker looks its calls up here
from sides.ours_readers import *  # noqa: F403 - a worker looks its calls up here

state = {}


def make_table(name, payload, max_size, exponent=None):
    return reverb.Table(
        name,
        selectors.Uniform() if exponent is None else selectors.Prioritized(exponent),
        selectors.Fifo(),
        max_size,
        rate_limiters.MinSize(1),
        signature={
            column: TensorSpec(shape, np.dtype(dtype)) for column, (shape, dtype) in payloads.PAYLOADS[payload].items()
        },
    )


# The survey, all in this process.


def survey_setup(size, exponent):
    table = make_table("table", "transition", size, exponent)
    state["server"] = server = reverb.Server(tables=[table])
    state["client"] = client = reverb.Client(f"localhost:{server.port}")
    for _ in range(0, size, 64):
        client.insert_batch(payloads.rows_of("transition", 64), {"table": 1.0})


def survey_add(count, seconds):
    return timing.measure(survey_call("add", count, False), seconds, count, warm_up=10)


def survey_sample(count, seconds, prioritized):
    return timing.measure(survey_call("sample", count, prioritized), seconds, count, warm_up=10)


def survey_call(work, count, prioritized):
    """One call of the survey, without arguments; `instructions_worker.py` counts it."""
    client = state["client"]
    if work == "add":
        rows = payloads.rows_of("transition", count)
        return lambda: client.insert_batch(rows, {"table": 1.0})

    def draw():
        return client.sample_batch("table", count, squeeze_time=True)

    def draw_weighted():
        batch = client.sample_batch("table", count, squeeze_time=True)
        return batch, reverb.importance_weights(batch.info, 0.4)

    return draw_weighted if prioritized else draw


# Server and load generators.


def serve(payload):
    into, out = payloads.table_sizes(payload)
    stop()
    state["server"] = server = reverb.Server(tables=[make_table("in", payload, into), make_table("out", payload, out)])
    client = reverb.Client(f"localhost:{server.port}")
    rows = payloads.rows_of(payload, 50)
    for _ in range(0, out, 50):
        client.insert_batch(rows, {"out": 1.0})
    return {
        "same_process": f"localhost:{server.port}",
        "unix": f"unix:{server.unix_path}",
        "tcp": f"ipv4:127.0.0.1:{server.port}",
    }


def serve_empty(max_size):
    """Starts a server with one empty table of transitions, and returns its addresses."""
    stop()
    state["server"] = server = reverb.Server(tables=[make_table("in", "transition", max_size)])
    return {
        "same_process": f"localhost:{server.port}",
        "unix": f"unix:{server.unix_path}",
        "tcp": f"ipv4:127.0.0.1:{server.port}",
    }


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


def bare_gather(count, seconds):
    """Gathers 256 random rows of an array of transitions, which is the cost of memory access alone."""
    rows = np.zeros((count, 35))
    rows[:] = np.arange(35.0)
    random = np.random.default_rng(0)
    return timing.measure(lambda: rows[random.integers(0, count, 256)], seconds, 256)
