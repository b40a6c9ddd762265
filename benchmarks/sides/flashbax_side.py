"""The side of Flashbax, on the CPU: its calls are compiled, their state is donated, and each waits for its results."""

import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Otherwise columns of float64 would become float32, half of what the other sides hold.
os.environ.setdefault("JAX_ENABLE_X64", "1")

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
import payloads

from sides import buffering
from sides.buffering import *  # noqa: F403 - a worker looks its calls up here


class Buffer:
    def __init__(self, payload, capacity, exponent):
        self._capacity, self._exponent = capacity, exponent
        buffer = self._make(1)
        self._state = buffer.init({name: column[0] for name, column in payloads.rows_of(payload, 1).items()})
        self._add = jax.jit(buffer.add, donate_argnums=0)
        self._key = jax.random.PRNGKey(0)
        if exponent is not None:
            self._update = jax.jit(buffer.set_priorities, donate_argnums=0)

    def _make(self, batch_size):
        if self._exponent is None:
            return flashbax.make_item_buffer(self._capacity, 1, batch_size, add_batches=True)
        return flashbax.make_prioritised_item_buffer(
            self._capacity, 1, batch_size, add_batches=True, priority_exponent=self._exponent, device="cpu"
        )

    def adder(self, rows):
        def add():
            self._state = jax.block_until_ready(self._add(self._state, rows))

        return add

    def drawer(self, count):
        buffer, capacity, is_prioritized = self._make(count), self._capacity, self._exponent is not None

        @jax.jit
        def sample(state, key):
            key, key_of_draw = jax.random.split(key)
            batch = buffer.sample(state, key_of_draw)
            if not is_prioritized:
                return key, batch, None
            weights = (capacity * batch.probabilities) ** -buffering.BETA
            return key, batch, weights / jnp.max(weights)

        def draw():
            self._key, batch, weights = jax.block_until_ready(sample(self._state, self._key))
            return batch, weights

        return draw

    def updater(self, priorities):
        priorities = jnp.asarray(priorities, jnp.float32)

        def update(batch):
            self._state = jax.block_until_ready(self._update(self._state, batch[0].indices, priorities))

        return update

    def read(self, batch):
        columns = {name: np.asarray(column) for name, column in batch[0].experience.items()}
        return columns, None if self._exponent is None else np.asarray(batch[0].indices)


buffer_setup = functools.partial(buffering.set_up, Buffer)
