"""The data that are written and read, the same on every side."""

import numpy as np

STATE = {
    "observation": ((4,), "float32"),
    "step_count": ((1,), "int64"),
    "done": ((1,), "bool"),
    "terminated": ((1,), "bool"),
    "truncated": ((1,), "bool"),
}
# Columns by name: shape and dtype of one step.
PAYLOADS = {
    "0.4 kB": {"x": ((100,), "float32")},
    "4 kB": {"x": ((1000,), "float32")},
    "40 kB": {"x": ((10_000,), "float32")},
    "400 kB": {"x": ((100_000,), "float32")},
    "transition": {
        "obs": ((15,), "float64"),
        "act": ((3,), "float64"),
        "rew": ((), "float64"),
        "next_obs": ((15,), "float64"),
        "done": ((), "float64"),
    },
    "image": {
        "obs": ((32, 32, 3), "uint8"),
        "act": ((), "int32"),
        "rew": ((), "float32"),
        "discount": ((), "float32"),
    },
    # Four frames of Atari before a step, and four after it.
    "stacks": {
        "obs": ((4, 84, 84), "uint8"),
        "act": ((), "int64"),
        "rew": ((), "float32"),
        "next_obs": ((4, 84, 84), "uint8"),
        "done": ((), "bool"),
    },
    # What TorchRL's collector makes of CartPole.
    "frames": {
        "action": ((), "int64"),
        **STATE,
        **{f"next.{name}": column for name, column in STATE.items()},
        "next.reward": ((1,), "float32"),
    },
}
# Those that are sent to servers and back.
SENT = ("0.4 kB", "4 kB", "40 kB", "400 kB", "transition")


def bytes_of(payload):
    """Returns the size of one step in bytes."""
    columns = PAYLOADS[payload].values()
    return sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in columns)


def rows_of(payload, count):
    """Makes columns `[count, ...]` of random numbers from a fixed seed."""
    random = np.random.default_rng(0)
    return {
        name: random.standard_normal((count, *shape)).astype(dtype)
        for name, (shape, dtype) in PAYLOADS[payload].items()
    }


def steps_of(payload, count):
    """Makes the same data as steps of what Gymnasium returns: arrays, and NumPy scalars for single numbers."""
    rows = rows_of(payload, count)
    return [{name: column[index] for name, column in rows.items()} for index in range(count)]


def batch_size(payload):
    """Returns the number of items that a learner draws at a time."""
    return 32 if payload == "400 kB" else 256


def table_sizes(payload):
    """Returns the sizes of the table that is written to and of the one that is read from, in items."""
    size = bytes_of(payload)
    return max(300, min(100_000, int(100e6) // size)), max(500, min(10_000, int(50e6) // size))
