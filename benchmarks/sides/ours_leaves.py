"""Our side of the area `leaves`."""

import ml_dtypes
import numpy as np
import timing

import reverb
from reverb import structured

__all__ = ["leaves_setup", "leaves_write"]

KINDS = {
    "0-d array": np.array(1.0),
    "float": 1.0,
    "np.float64": np.float64(1),
    "np.float32": np.float32(1),
    "np.float16": np.float16(1),
    "np.int64": np.int64(1),
    "np.bool_": np.bool_(True),
    "np.complex128": np.complex128(1),
    "bfloat16": ml_dtypes.bfloat16(1),
    "str": "left",
    "np.str_": np.str_("left"),
    "row": np.zeros((8, 8))[0],
    "strided row": np.zeros((8, 8))[:, 0],
}

state = {}


def insert(client, step):
    return lambda: client.insert(step, {"table": 1.0})


def trajectory_writer(client, step):
    writer = client.trajectory_writer(1)
    return lambda: writer.append(step)


def nested(client, step):
    """Does the same with four values at several depths."""
    return trajectory_writer(client, {"a": step, "b": [step, (step, {"c": step})]})


def writer(client, step):
    writer = client.writer(1)
    return lambda: writer.append(step)


def structured_writer(client, step):
    # The pattern never applies, so that only the step is measured.
    never = structured.Condition.step_index() < 0
    pattern = structured.pattern_from_transform(step, lambda x: x[-1:])
    writer = client.structured_writer([structured.create_config(pattern, "table", [never])])
    return lambda: writer.append(step)


def sequence_adder(client, step):
    """Makes an item of every step."""
    adder = reverb.adders.SequenceAdder(client, "table", length=1, period=1)
    return lambda: adder.add(step)


WAYS = {
    "trajectory_writer": trajectory_writer,
    "trajectory_writer, 4 values in a nest": nested,
    "writer": writer,
    "structured_writer": structured_writer,
    "SequenceAdder": sequence_adder,
    "insert": insert,
}


def leaves_setup():
    table = reverb.Table(
        "table", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 1000, reverb.rate_limiters.MinSize(1)
    )
    state["server"] = server = reverb.Server([table])
    state["client"] = reverb.Client(f"localhost:{server.port}")
    return list(KINDS), list(WAYS)


def leaves_write(way, kind, count, seconds):
    write = WAYS[way](state["client"], KINDS[kind])

    def call():
        for _ in range(count):
            write()

    return timing.measure(call, seconds, count)
