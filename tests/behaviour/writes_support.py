"""All ways to insert an item."""

import numpy as np

import reverb
from reverb import structured

KINDS = (
    "insert",
    "insert_batch",
    "writer",
    "trajectory_writer",
    "structured_writer",
    "batched_writer",
    "adder",
)


def write(client, kind, priority="max"):
    """Inserts one item in one of all ways."""
    step = {"x": np.float32(1)}
    if kind == "insert":
        client.insert(step, {"table": priority})
    elif kind == "insert_batch":
        client.insert_batch({"x": np.ones(1, np.float32)}, {"table": priority})
    elif kind == "writer":
        with client.writer(1) as writer:
            writer.append(step)
            writer.create_item("table", 1, priority)
    elif kind == "trajectory_writer":
        with client.trajectory_writer(1) as writer:
            writer.append(step)
            writer.create_item("table", priority, {"x": writer.history["x"][-1:]})
    elif kind == "structured_writer":
        pattern = structured.pattern_from_transform(step, lambda x: {"x": x["x"][-1:]})
        with client.structured_writer([structured.create_config(pattern, "table")]) as writer:
            writer.append(step, priority=priority)
    elif kind == "batched_writer":
        with client.batched_writer(1, 1) as writer:
            writer.append({"x": np.ones(1, np.float32)})
            writer.create_items("table", priority, {"x": writer.history["x"][-1:]})
    else:
        with reverb.adders.SequenceAdder(client, "table", length=1, period=1, priority=priority) as adder:
            adder.add(step)
