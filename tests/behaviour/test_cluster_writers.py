"""Whatever a client of a cluster inserts has a key of its shard, so that updates go to one shard only."""

import numpy as np
import pytest
from behaviour_support import make_table

from reverb import structured
from reverb.adders import NStepTransitionAdder


def config():
    pattern = structured.pattern_from_transform({"x": None}, lambda step: {"x": step["x"][-1]})
    return structured.create_config(pattern, "table")


def append_rows(client, validate_items):
    with client.trajectory_writer(1, validate_items=validate_items) as writer:
        writer.append({"x": np.int64(1)})
        writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})


def write_rows(client):
    with client.writer(1) as writer:
        writer.append({"x": np.int64(1)})
        writer.create_item("table", 1, 1.0)


def write_patterns(client):
    writer = client.structured_writer([config()])
    writer.append({"x": np.int64(1)})
    writer.end_episode()
    writer.flush()


def write_batch(client):
    with client.batched_writer(2) as writer:
        writer.append({"x": np.arange(2)})
        writer.create_items("table", 1.0, {"x": writer.history["x"][-1:]})


def add_steps(client):
    with NStepTransitionAdder(client, "table", n=1, discount=0.9) as adder:
        adder.add(0, 0, 1.0, 1, terminated=True)


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.insert({"x": np.int64(1)}, {"table": 1.0}),
        lambda client: client.insert_batch({"x": np.arange(3)}, {"table": 1.0}),
        lambda client: append_rows(client, True),
        lambda client: append_rows(client, False),
        write_rows,
        write_patterns,
        write_batch,
        add_steps,
    ],
    ids=["insert", "insert_batch", "trajectories", "unchecked", "rows", "patterns", "batched", "adder"],
)
def test_keys_of_items_are_those_of_their_shard(shards, write):
    shards.start(tables=lambda: [make_table(sampler="prioritized")])
    while min(shards.sizes()) == 0:
        # A client that has not reached the shards yet.
        write(shards.connect())
    shards.assert_own()
