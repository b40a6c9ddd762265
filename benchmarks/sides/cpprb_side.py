"""The side of cpprb 11."""

import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import cpprb
import payloads

from sides import buffering
from sides.buffering import *  # noqa: F403 - a worker looks its calls up here


class Buffer:
    def __init__(self, payload, capacity, exponent):
        self._columns = payloads.PAYLOADS[payload]
        columns = {name: {"shape": shape or 1, "dtype": dtype} for name, (shape, dtype) in self._columns.items()}
        self._is_prioritized = exponent is not None
        if self._is_prioritized:
            self._buffer = cpprb.PrioritizedReplayBuffer(capacity, columns, alpha=exponent)
        else:
            self._buffer = cpprb.ReplayBuffer(capacity, columns)

    def adder(self, rows):
        return lambda: self._buffer.add(**rows)

    def drawer(self, count):
        if self._is_prioritized:  # Returns weights and indices with the batch.
            return lambda: self._buffer.sample(count, beta=buffering.BETA)
        return lambda: self._buffer.sample(count)

    def updater(self, priorities):
        return lambda batch: self._buffer.update_priorities(batch["indexes"], priorities)

    def read(self, batch):
        # A single number is an array of one here.
        columns = {name: batch[name].reshape(-1, *shape) for name, (shape, _) in self._columns.items()}
        return columns, batch.get("indexes")


buffer_setup = functools.partial(buffering.set_up, Buffer)
