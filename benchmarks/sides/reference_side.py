"""The side of dm-reverb 0.14."""

import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import payloads
import tensorflow as tf
import timing
from checkpointing import checkpoint_load, checkpoint_make, checkpoint_save  # noqa: F401 - called by name

import reverb
from reverb import rate_limiters, selectors
from sides import buffering, writing
from sides.buffering import *  # noqa: F403 - a worker looks its calls up here
from sides.mixing import *  # noqa: F403 - a worker looks its calls up here

state = {}


def make_table(name, max_size, exponent=None):
    sampler = selectors.Uniform() if exponent is None else selectors.Prioritized(exponent)
    return reverb.Table(name, sampler, selectors.Fifo(), max_size, rate_limiters.MinSize(1))


class Buffer:
    """A table, whose server is in this process. Items are inserted and drawn one by one: there is no other call."""

    def __init__(self, payload, capacity, exponent):
        self._columns = payloads.PAYLOADS[payload]
        self._server = reverb.Server(tables=[make_table("table", capacity, exponent)])
        self._client = reverb.Client(f"localhost:{self._server.port}")

    def adder(self, rows):
        count = len(next(iter(rows.values())))
        steps = [{name: column[index] for name, column in rows.items()} for index in range(count)]

        def add():
            for step in steps:
                self._client.insert(step, {"table": 1.0})

        return add

    def drawer(self, count):
        # Without weights: the caller must compute them, whose cost would be lost in that of the draws.
        return lambda: list(self._client.sample("table", count))

    def updater(self, priorities):
        def update(batch):
            keys = [sample[0].info.key for sample in batch]
            self._client.mutate_priorities("table", dict(zip(keys, priorities, strict=True)))

        return update

    def read(self, batch):
        # A step has its columns in the order of their names.
        rows = zip(*(sample[0].data for sample in batch), strict=True)
        columns = {name: np.stack(column) for name, column in zip(sorted(self._columns), rows, strict=True)}
        return columns, np.array([sample[0].info.key for sample in batch])


table_setup = functools.partial(buffering.set_up, Buffer)


# Server and load generators.


def serve(payload):
    into, out = payloads.table_sizes(payload)
    stop()
    state["server"] = server = reverb.Server(tables=[make_table("in", into), make_table("out", out)])
    client = reverb.Client(f"localhost:{server.port}")
    steps = payloads.steps_of(payload, 10)
    for index in range(out):
        client.insert(steps[index % 10], {"out": 1.0})
    return {"tcp": f"localhost:{server.port}"}


def serve_empty(max_size):
    stop()
    state["server"] = server = reverb.Server(tables=[make_table("in", max_size)])
    return {"tcp": f"localhost:{server.port}"}


def stop():
    server = state.pop("server", None)
    if server is not None:
        server.stop()


def load(address, work, payload, seconds):
    """Repeats one kind of call."""
    client = reverb.Client(address)
    if work == "insert":
        step = payloads.steps_of(payload, 1)[0]
        return timing.measure(lambda: client.insert(step, {"in": 1.0}), seconds)
    if work in writing.CALLS:
        return timing.measure(writing.CALLS[work](client, payloads.steps_of(payload, 10), "in"), seconds, writing.ITEMS)
    count = 100
    draw = lambda: [None for _ in client.sample("out", count, emit_timesteps=False)]  # noqa: E731
    return timing.measure(draw, seconds, count, warm_up=1)


def load_dataset(address, payload, seconds, in_flight, workers, prefetch):
    """Reads batches with tf.data, which is the reference's fastest reader."""
    columns = payloads.PAYLOADS[payload]
    dataset = reverb.TrajectoryDataset(
        server_address=address,
        table="out",
        dtypes={name: tf.dtypes.as_dtype(dtype) for name, (_, dtype) in columns.items()},
        shapes={name: tf.TensorShape([1, *shape]) for name, (shape, _) in columns.items()},
        max_in_flight_samples_per_worker=in_flight,
        num_workers_per_iterator=workers,
    )
    size = payloads.batch_size(payload)
    batches = dataset.batch(size, drop_remainder=True).prefetch(prefetch).as_numpy_iterator()
    # Batches prefetched before the clock starts must not count, so the warm-up uses them up.
    return timing.measure(lambda: next(batches), seconds, size, warm_up=3 + 2 * in_flight * workers // size)


# Memory.


def write(address, count, batch):
    """Inserts transitions one by one: the reference has no other call without a writer."""
    assert batch == 1
    client = reverb.Client(address)
    for step in payloads.steps_of("transition", 1000) * (count // 1000):
        client.insert(step, {"in": 1.0})
