"""Items of a cluster that enter with the largest priority: that of all shards, as the client has last heard."""

import contextlib

import numpy as np
import pytest
from behaviour_support import eventually, make_table
from cluster_support import ShardProcesses
from writes_support import KINDS, write

from reverb.adders import NStepTransitionAdder
from reverb.cluster import connect


def start(shards):
    return shards.start(2, tables=lambda: [make_table(sampler="uniform")])


def insert_at(client, number, priority=1.0):
    """Inserts items until one is at this shard. Returns its key."""
    while (key := client.insert({"x": np.int64(1)}, {"table": priority})) >> 56 != number:
        pass
    return key


def priorities(client):
    return set(client.sample_batch("table", 100).info.priority.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_of_one_shard_gets_what_the_client_has_set_at_another(shards, kind):
    client = start(shards)
    client.update_priorities("table", [insert_at(client, 0)], [40.0])
    # Items of several kinds cannot be drawn together.
    client.delete("table", list(shards.keys()[1]) if shards.sizes()[1] else [])
    while shards.sizes()[1] == 0:
        write(client, kind)
    assert priorities(shards.each()[1]) == {40.0}


def test_an_actor_hears_of_the_updates_of_a_learner_from_its_own_episodes(shards):
    learner = start(shards)
    with NStepTransitionAdder(shards.connect(), "table", n=1, discount=0.9, priority="max") as adder:

        def add_at(number):
            size = shards.sizes()[number]
            while shards.sizes()[number] == size:
                adder.add(0, 0, 0.0, 1, terminated=True)
                adder.flush()

        add_at(0)
        add_at(1)
        assert priorities(learner) == {1.0}
        learner.update_priorities("table", [min(shards.keys()[0])], [40.0])
        add_at(0)
        learner.delete("table", list(shards.keys()[1]))
        add_at(1)
    assert priorities(shards.each()[1]) == {40.0}


def test_after_a_reset_items_get_1_again_from_all_clients(shards):
    client = start(shards)
    client.update_priorities("table", [insert_at(client, 0), insert_at(client, 1)], [40.0, 30.0])
    other = shards.connect()
    assert priorities(other) >= {30.0, 40.0}
    client.reset("table")
    for writer in (other, client, other, client):
        for number in (1, 0):
            insert_at(writer, number, "max")
    assert priorities(client) == {1.0}


@pytest.fixture
def processes():
    with contextlib.ExitStack() as stack:
        yield ShardProcesses(stack, 2)


def lose(processes):
    """A client that has heard of a priority of 40 at shard 0, which is lost since."""
    client = connect(processes.address("tcp"))
    client.update_priorities("table", [insert_at(client, 0)], [40.0])
    processes.kill(0)
    eventually(lambda: client.road == "tcp (1 of 2 servers)")
    return client


def test_what_a_lost_shard_has_said_still_counts(processes):
    client = lose(processes)
    items, _ = client.get("table", [insert_at(client, 1, "max")])
    assert items.info.priority.tolist() == [40.0]


def test_what_a_shard_had_said_before_it_was_back_without_its_items_does_not_count(processes):
    client = lose(processes)
    processes.start(0)
    insert_at(client, 0)
    items, _ = client.get("table", [insert_at(client, 1, "max")])
    assert items.info.priority.tolist() == [1.0]
