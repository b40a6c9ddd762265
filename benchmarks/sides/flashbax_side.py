"""The side of Flashbax, on the CPU."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import flashbax
import jax
import payloads
import timing

state = {}


def buffer_setup(payload, capacity, exponent):
    assert exponent is None, "only the uniform buffer of frames"

    def make(batch_size=256):
        return flashbax.make_item_buffer(capacity, 1, batch_size, add_batches=True)

    state.update(make=make, payload=payload, key=jax.random.PRNGKey(0))
    buffer = make()
    rows = payloads.rows_of(payload, 1000)
    held = buffer.init({name: column[0] for name, column in rows.items()})
    state["add"] = jax.jit(buffer.add, donate_argnums=0)
    for _ in range(0, capacity, 1000):
        held = state["add"](held, rows)
    state["held"] = jax.block_until_ready(held)


def buffer_add(count, seconds):
    rows = payloads.rows_of(state["payload"], count)

    def add():
        state["held"] = jax.block_until_ready(state["add"](state["held"], rows))

    return timing.measure(add, seconds, count, warm_up=3)


def buffer_sample(count, seconds):
    sample = jax.jit(state["make"](count).sample)

    def draw():
        state["key"], key = jax.random.split(state["key"])
        return jax.block_until_ready(sample(state["held"], key))

    return timing.measure(draw, seconds, count, warm_up=3)
