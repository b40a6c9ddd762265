"""Clients of a shard give its items keys that tell the shard."""

import numpy as np
import pytest
from behaviour_support import draw, info_of, insert_values, make_table

import reverb
from reverb import structured
from reverb.adders import NStepTransitionAdder
from reverb.cluster import Shard

SHARD_ID = 201


@pytest.fixture
def client(serve):
    """A client of a shard that has reached it: some writers make their first items before they connect."""
    client = serve(make_table(max_times_sampled=1), shard=Shard(id=SHARD_ID, cluster="replay"))
    client.server_info()
    return client


def owners(keys):
    """The shards that the keys belong to."""
    return {int(key) >> 56 for key in keys}


def assert_own(client, count, returned=()):
    """Asserts that the table has this number of items, all with keys of the shard, and among them those that calls have
    returned. Removes them."""
    assert info_of(client).current_size == count
    keys = {int(sample.info.key) for sample in draw(client, count)}
    assert len(keys) == count
    assert owners(keys) == {SHARD_ID}
    assert {int(key) for key in returned} <= keys


def config():
    pattern = structured.pattern_from_transform({"x": None}, lambda step: {"x": step["x"][-1]})
    return structured.create_config(pattern, "table")


def test_inserts(client):
    insert_values(client, range(3))
    keys = [client.insert(np.int64(value), {"table": 1.0}) for value in range(3)]
    more = client.insert_batch(np.arange(20), {"table": 1.0})
    assert_own(client, 26, [*keys, *more])


def test_trajectory_writers_that_check_items_or_do_not(client):
    keys = []
    for validate_items in (True, False):
        with client.trajectory_writer(1, validate_items=validate_items) as writer:
            for value in range(3):
                writer.append({"x": np.int64(value)})
                keys.append(writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]}))
    assert_own(client, 6, keys)


def test_writers(client):
    with client.writer(2) as writer:
        keys = []
        for value in range(3):
            writer.append(np.int64(value))
            keys.append(writer.create_item("table", 1, 1.0))
    assert_own(client, 3, keys)


def test_structured_writers(client):
    writer = client.structured_writer([config()])
    for value in range(3):
        writer.append({"x": np.int64(value)})
    writer.end_episode()
    writer.flush()
    assert_own(client, 3)


def test_batched_writers_with_patterns_and_without(client):
    with client.batched_writer(4) as writer:
        writer.append({"x": np.arange(4)})
        _, keys = writer.create_items("table", 1.0, {"x": writer.history["x"][-1:]}, return_keys=True)
    with client.batched_writer(4, configs=[config()]) as writer:
        for value in range(2):
            writer.append({"x": np.arange(4) + value})
    assert_own(client, 12, keys)


def test_adders(client):
    with NStepTransitionAdder(client, "table", n=1, discount=0.9) as adder:
        for step in range(3):
            adder.add(step, 0, 1.0, step + 1, terminated=step == 2)
    assert_own(client, 3)


def test_a_server_that_is_no_shard_has_keys_of_all(serve):
    client = serve(make_table())
    keys = client.insert_batch(np.arange(1000), {"table": 1.0})
    assert len(owners(keys)) > 200


def test_a_shard_that_starts_again_has_the_same_keys(tmp_path):
    shard = Shard(id=SHARD_ID, cluster="replay")

    def start():
        checkpointer = reverb.checkpointers.DefaultCheckpointer(str(tmp_path))
        return reverb.Server([make_table(max_times_sampled=1)], checkpointer=checkpointer, shard=shard)

    server = start()
    client = server.localhost_client()
    keys = [client.insert(np.int64(0), {"table": 1.0})]
    client.checkpoint()
    server.stop()
    server = start()
    client = server.localhost_client()
    keys.append(client.insert(np.int64(1), {"table": 1.0}))
    assert_own(client, 2, keys)
    server.stop()
