"""Buffers in the worker's process, measured with the same calls on every side.

A side makes its buffer of the columns of a payload, a capacity, and the exponent of priorities, None of which draws
uniformly. The buffer has these methods:
  adder(rows)                 a call that adds these rows
  drawer(count)               a call that draws a batch, with importance weights where there are priorities
  updater(priorities)         a call of a batch that was drawn, which sets the priorities of its items
  read(batch)                 the columns of a batch as arrays, by their names, and what tells its items apart
"""

import itertools

import numpy as np
import payloads
import timing

__all__ = ["buffer_work"]

BETA = 0.4
# Batches that are updated in turn, so that not the same items are touched by every call.
BATCHES = 16

state = {}


def set_up(make, payload, capacity, exponent):
    """Makes the buffer that is measured, and fills it. `make` takes a payload, a capacity and an exponent."""
    check(make, payload, exponent)
    buffer = make(payload, capacity, exponent)
    add = buffer.adder(payloads.rows_of(payload, 1000))
    for _ in range(0, capacity, 1000):
        add()
    state.update(buffer=buffer, payload=payload)


def buffer_work(work, count, seconds):
    return timing.measure(call_of(work, count), seconds, count, warm_up=10)


def call_of(work, count):
    """One call without arguments, which `instructions_worker.py` counts.

    `add`, `sample`, `update` of batches that were drawn before, or `learn`: a draw and the update of what was drawn.
    """
    buffer = state["buffer"]
    if work == "add":
        return buffer.adder(payloads.rows_of(state["payload"], count))
    draw = buffer.drawer(count)
    if work == "sample":
        return draw
    update = buffer.updater(np.random.default_rng(0).uniform(0.5, 1.5, count))
    if work == "learn":
        return lambda: update(draw())
    batches = itertools.cycle([draw() for _ in range(BATCHES)])
    return lambda: update(next(batches))


def check(make, payload, exponent, count=256):
    """Checks on a small buffer that batches hold rows that were added, and that priorities decide what is drawn.

    Raises:
      AssertionError: They do not, so that figures of this side would mean nothing.
    """
    buffer = make(payload, count, exponent)
    rows = payloads.rows_of(payload, count)
    buffer.adder(rows)()
    draw = buffer.drawer(count)
    batch = draw()
    columns, items = buffer.read(batch)
    for name, column in rows.items():
        found = np.asarray(columns[name])
        assert (found.shape, found.dtype) == (column.shape, column.dtype), (name, found.shape, found.dtype)
        added = {row.tobytes() for row in column}
        assert all(row.tobytes() in added for row in found), f"{name}: a batch has rows that were not added"
    if exponent is None:
        return
    chosen = items[0]
    # To the power of 0.4, that of one item is 10,000 times as much as 1, which the others have at most.
    buffer.updater(np.where(items == chosen, 1e10, 1e-6))(batch)
    drawn = (buffer.read(draw())[1] == chosen).sum()
    assert drawn > 0.75 * count, f"after an update, {drawn} of {count} items are the one with nearly all the priority"
