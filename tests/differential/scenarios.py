"""Scenarios for the driver, made from fixed seeds."""

import itertools
import random

import numpy as np

DETERMINISTIC = (["fifo"], ["lifo"], ["min_heap"], ["max_heap"])
LIMITERS = (
    ["MinSize", 1],
    ["MinSize", 4],
    ["SampleToInsertRatio", 2.0, 3, 4.0],
    ["SampleToInsertRatio", 0.5, 2, 3.0],
    ["SampleToInsertRatio", 1.5, 1, [-2.0, 6.0]],
    ["RateLimiter", 3.0, 2, 0.0, 9.0],
    ["Queue", 5],
    ["Stack", 5],
)
ERRORS = (
    *("sample", "insert", "insert nothing", "insert nan", "reset", "mutate", "zero samples", "minus two samples"),
    *("unpack", "empty name", "no room", "no tables", "min size", "small buffer", "high buffer", "no ratio"),
    *("bad key", "None leaf"),
)
NUMBERS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
SHAPES = ((), (1,), (3,), (2, 3), (0,), (0, 3), (2, 0, 3))


def table_spec(name, sampler, remover, limiter, max_size, max_times_sampled):
    return {
        "name": name,
        "sampler": sampler,
        "remover": remover,
        "limiter": limiter,
        "max_size": max_size,
        "max_times_sampled": max_times_sampled,
    }


def least_size(limiter):
    """The smallest table that this limiter lets sample: we refuse others, in which the reference waits forever."""
    kind, *numbers = limiter
    return numbers[0] if kind == "MinSize" else 1 if kind in ("Queue", "Stack") else numbers[1]


def deterministic(seed, sampler, remover, limiter, num_ops=60):
    """Random ops on a table with deterministic draws and removals. Every entry must be equal on both sides."""
    choose = random.Random(seed)
    max_size = max(choose.choice([1, 3, 5, 50]), least_size(limiter))
    spec = table_spec("t", sampler, remover, limiter, max_size, choose.choice([0, 0, 1, 2, 3]))
    tables = [spec]
    if choose.random() < 0.3:
        tables.append({"name": "q", "kind": choose.choice(["queue", "stack"]), "max_size": choose.choice([1, 4])})
    names = [table["name"] for table in tables]
    values = itertools.count()
    ops = [{"op": "repr", "table": name} for name in names]
    used = []
    for _ in range(num_ops):
        table = choose.choice(names)
        kind = choose.choices(
            ["insert", "sample", "mutate", "can", "info", "reset", "mutate_unknown"], [10, 8, 4, 3, 3, 0.3, 0.5]
        )[0]
        if kind == "insert":
            value = next(values)
            used.append(value)
            targets = [name for name in names if name == table or choose.random() < 0.2]
            # Few distinct priorities, so that ties occur; also negative ones, which these tables accept.
            priorities = {name: choose.choice([-1.0, 0.0, 0.5, 1.0, 1.0, 2.0, 1e9]) for name in targets}
            ops.append({"op": "insert", "value": value, "priorities": priorities})
        elif kind == "sample":
            ops.append({"op": "sample", "table": table, "count": choose.choice([1, 1, 2, 5])})
        elif kind == "mutate":
            recent = used[-8:] or [0]
            updates = [[choose.choice(recent), choose.choice([0.0, 1.0, 3.0])] for _ in range(choose.randrange(3))]
            deletes = [choose.choice(recent) for _ in range(choose.randrange(2))]
            ops.append({"op": "mutate", "table": table, "updates": updates, "deletes": deletes})
        else:
            ops.append({"op": kind, "table": table})
    ops += [{"op": kind, "table": name} for name in names for kind in ("can", "info")]
    return {"tables": tables, "ops": ops}


def all_deterministic():
    """Each sampler with each remover and each limiter."""
    combinations = itertools.product(DETERMINISTIC, DETERMINISTIC, LIMITERS)
    return [deterministic(seed, *combination) for seed, combination in enumerate(combinations)]


def random_draws(seed, sampler):
    """Fills a table and draws often, before and after changes. The draws are compared as a whole.

    Priorities lie close together, so that no item of any weight is rarer than one in 20: 400 draws miss it once in 10⁹.
    """
    choose = random.Random(seed)
    size = 6
    ops = [
        {"op": "insert", "value": value, "priorities": {"t": choose.choice([1.0, 1.25, 1.5, 2.0])}}
        for value in range(size)
    ]
    ops += [{"op": "repr", "table": "t"}, {"op": "sample", "table": "t", "count": 400}, {"op": "info", "table": "t"}]
    ops.append({"op": "mutate", "table": "t", "updates": [[0, 2.5], [3, 0.0]], "deletes": [1]})
    ops += [{"op": "sample", "table": "t", "count": 400}, {"op": "info", "table": "t"}]
    if sampler != ["prioritized", 0.5]:  # The reference's sums keep rounding errors of irrational weights.
        updates = [[value, 0.0] for value in range(size)]
        ops.append({"op": "mutate", "table": "t", "updates": updates, "deletes": []})
        ops += [{"op": "sample", "table": "t", "count": 400}, {"op": "info", "table": "t"}]
    ops += [{"op": "insert", "value": value, "priorities": {"t": 1.0}} for value in range(size, 20)]
    ops.append({"op": "info", "table": "t"})
    return {"tables": [table_spec("t", sampler, ["uniform"], ["MinSize", 1], 8, 0)], "ops": ops}


def all_random():
    samplers = (["uniform"], ["prioritized", 0.0], ["prioritized", 0.5], ["prioritized", 1.0], ["prioritized", 2.0])
    return [random_draws(seed, sampler) for seed, sampler in enumerate(samplers)]


def leaf(dtype, shape, random_bytes):
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    bits = random_bytes(size)
    if dtype == np.dtype(bool):
        bits = bytes(byte & 1 for byte in bits)
    return {"dtype": dtype.str, "shape": list(shape), "hex": bits.hex()}


def round_trips():
    """Every dtype that both sides know, in many shapes. The returned values must be equal bit for bit."""
    random_bytes = random.Random(0).randbytes
    items = [[leaf(dtype, shape, random_bytes) for shape in SHAPES] for dtype in NUMBERS]
    texts = ["", "61", "c3a9", "00ff00", "ab" * 1000]
    items.append([{"dtype": "bytes", "shape": [len(texts)], "items": texts}])
    items.append([{"dtype": "bytes", "shape": [], "items": ["6162"]}, {"dtype": "bytes", "shape": [0, 2], "items": []}])
    ops = []
    for leaves in items:
        for emit_timesteps in (False, True):
            ops.append({"op": "insert_leaves", "table": "t", "leaves": leaves})
            ops.append({"op": "sample_leaves", "table": "t", "emit_timesteps": emit_timesteps})
    return {"tables": [{"name": "t", "kind": "queue", "max_size": 10}], "ops": ops}


def errors():
    """Calls that must fail in the same way, and the errors of a table with a signature for data that do not fit."""
    signed = table_spec("s", ["fifo"], ["fifo"], ["MinSize", 1], 5, 0)
    signed["signature"] = [["a", "float32", [2]], ["b", "int64", []]]
    random_bytes = random.Random(0).randbytes
    misfits = (
        [("f4", (2,)), ("i8", ())],
        [("f8", (2,)), ("i8", ())],
        [("f4", (3,)), ("i8", ())],
        [("f4", (2, 2)), ("i8", ())],
        [("f4", (2,)), ("i4", ())],
        [("f4", (2,))],
        [("f4", (2,)), ("i8", ()), ("i8", ())],
        [("f4", (2,)), ("i8", (1,))],
    )
    ops = [{"op": "table_error", "table": "t", "call": call} for call in ERRORS]
    for misfit in misfits:
        leaves = [leaf(dtype, shape, random_bytes) for dtype, shape in misfit]
        ops.append({"op": "insert_leaves", "table": "s", "leaves": leaves})
    ops += [{"op": "info", "table": "t"}, {"op": "info", "table": "s"}]
    return {"tables": [table_spec("t", ["fifo"], ["fifo"], ["MinSize", 1], 5, 0), signed], "ops": ops}
