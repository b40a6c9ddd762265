"""Our buffers of the worker's process: without a server, and a table of a server."""

import functools

import numpy as np
import payloads

import reverb
from reverb import rate_limiters, selectors
from reverb.tensor_spec import TensorSpec
from sides import buffering
from sides.buffering import buffer_work

__all__ = ["addresses_of", "buffer_setup", "buffer_work", "make_table", "table_setup"]


def specs_of(payload):
    return {name: TensorSpec(shape, np.dtype(dtype)) for name, (shape, dtype) in payloads.PAYLOADS[payload].items()}


def make_table(name, payload, max_size, exponent=None):
    return reverb.Table(
        name,
        selectors.Uniform() if exponent is None else selectors.Prioritized(exponent),
        selectors.Fifo(),
        max_size,
        rate_limiters.MinSize(1),
        signature=specs_of(payload),
    )


def addresses_of(server):
    """The addresses of a server by their roads."""
    return {
        "same_process": f"localhost:{server.port}",
        "unix": f"unix:{server.unix_path}",
        "tcp": f"ipv4:127.0.0.1:{server.port}",
    }


class Buffer:
    """A buffer of `reverb.buffers`."""

    def __init__(self, payload, capacity, exponent):
        if exponent is None:
            self._buffer = reverb.buffers.UniformBuffer(specs_of(payload), capacity)
        else:
            self._buffer = reverb.buffers.PrioritizedBuffer(specs_of(payload), capacity, exponent=exponent)

    def adder(self, rows):
        return lambda: self._buffer.add(rows)

    def drawer(self, count):
        return lambda: self._buffer.sample(count)

    def updater(self, priorities):
        return lambda batch: self._buffer.update_priorities(batch, priorities)

    def read(self, batch):
        return batch.data, batch.ids


class Table:
    """A table, whose server is in this process."""

    def __init__(self, payload, capacity, exponent):
        self._server = reverb.Server(tables=[make_table("table", payload, capacity, exponent)])
        self._client = reverb.Client(f"localhost:{self._server.port}")
        self._is_prioritized = exponent is not None

    def adder(self, rows):
        return lambda: self._client.insert_batch(rows, {"table": 1.0})

    def drawer(self, count):
        def draw():
            return self._client.sample_batch("table", count, squeeze_time=True), None

        def draw_weighted():
            batch = self._client.sample_batch("table", count, squeeze_time=True)
            return batch, reverb.importance_weights(batch.info, buffering.BETA)

        return draw_weighted if self._is_prioritized else draw

    def updater(self, priorities):
        return lambda batch: self._client.update_priorities("table", batch[0].info.key, priorities)

    def read(self, batch):
        return batch[0].data, batch[0].info.key


buffer_setup = functools.partial(buffering.set_up, Buffer)
table_setup = functools.partial(buffering.set_up, Table)
