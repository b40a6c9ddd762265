"""A client of a cluster has the calls of a client: what each does, where items go, and what draws are."""

import asyncio
import pickle
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, eventually, make_table
from cluster_support import insert_each, prioritized_table

import reverb
from reverb.adders import NStepTransitionAdder
from reverb.cluster import ClusterStats
from reverb.loaders import NumpyLoader


def test_draws_are_those_of_one_table(shards):
    client = shards.start()
    assert client.road == "unconnected"
    values = {key: value for value, key in insert_each(client, range(1, 31)).items()}
    batch = client.sample_batch("table", 500)
    assert client.road == f"{shards.road} (3 servers)"
    assert len(set(batch.info.key.tolist())) > 20
    total = sum(range(1, 31))
    np.testing.assert_allclose(batch.info.probability, [values[int(key)] / total for key in batch.info.key])
    np.testing.assert_array_equal(batch.info.table_size, np.full(500, 30))
    np.testing.assert_array_equal(batch.data["x"].ravel(), [values[int(key)] for key in batch.info.key])
    [sample] = client.sample("table", emit_timesteps=False)
    assert sample.info.table_size == 30
    assert sample.info.probability == pytest.approx(values[int(sample.info.key)] / total)


def test_inserts_go_to_all_shards_and_their_keys_tell_which(shards):
    client = shards.start()
    count = 0
    while min(shards.sizes()) == 0:
        insert_each(client, [1, 2])
        client.insert_batch({"x": np.arange(1, 4)}, {"table": 1.0})
        count += 5
    shards.assert_own()
    assert client.server_info()["table"].current_size == count


def test_one_shard_is_a_cluster(shards):
    client = shards.start(1)
    insert_each(client, [1, 3])
    batch = client.sample_batch("table", 4)
    np.testing.assert_allclose(batch.info.probability, batch.data["x"].ravel() / 4)
    assert client.stats().rounds == 1
    assert client.road == shards.road
    shards.assert_own()


def test_updates_and_deletes_reach_the_shard_that_owns_the_key(shards):
    client = shards.start()
    keys = insert_each(client, range(1, 13), priority=1.0)
    assert client.update_priorities("table", list(keys.values()), [float(value) for value in keys]) == 12
    batch = client.sample_batch("table", 100)
    np.testing.assert_allclose(batch.info.priority, batch.data["x"].ravel())
    assert client.mutate_priorities("table", {keys[1]: 5.0}, [keys[2]]) == 2
    assert client.delete("table", [keys[3], 77]) == 1
    items, found = client.get("table", list(keys.values()))
    assert found.tolist() == [True, False, False, *[True] * 9]
    assert items.data["x"].ravel().tolist() == [1, *range(4, 13)]
    assert client.server_info()["table"].current_size == 10
    client.configure_table("table", max_size=500)
    assert {other.server_info()["table"].max_size for other in shards.each()} == {500}
    client.reset("table")
    assert client.server_info()["table"].current_size == 0


def test_an_invalid_priority_changes_nothing_at_any_shard(shards):
    client = shards.start()
    keys = list(insert_each(client, range(1, 13), priority=1.0).values())
    with pytest.raises(reverb.errors.InvalidPriorityError, match="Nothing was changed"):
        client.update_priorities("table", keys, [2.0] * 11 + [-1.0])
    assert set(client.sample_batch("table", 100).info.priority) == {1.0}


def test_checkpoints_of_all_shards(shards):
    client = shards.start()
    paths = client.checkpoint().splitlines()
    assert len(set(paths)) == 3
    shards.servers[1].stop()
    with pytest.raises(reverb.errors.UnavailableError, match=str(shards.ports[1])):
        client.checkpoint()


def test_shards_describe_themselves_and_missing_ones_do_not(shards):
    client = shards.start()
    insert_each(client, range(1, 13))
    alive = client.shards()
    assert [shard.id for shard in alive] == [0, 1, 2]
    assert all(shard.alive and shard.node and shard.pid for shard in alive)
    assert sum(shard.items for shard in alive) == 12
    assert sum(shard.bytes for shard in alive) == 12 * 8
    shards.servers[1].stop()
    missing = client.shards()
    assert [(shard.id, shard.alive, shard.items) for shard in missing if not shard.alive] == [(1, False, None)]
    assert missing[1].address == alive[1].address


def test_shards_that_were_never_reached_are_listed(shards):
    shards.start(2)
    shards.stop()
    client = shards.connect()
    assert [(shard.id, shard.alive) for shard in client.shards(timeout=2.0)] == [(None, False)] * 2


def test_stats_count_rounds(shards):
    client = shards.start()
    assert client.stats() == ClusterStats(0, 0, (), (), 0)
    insert_each(client, range(1, 10))
    for _ in range(5):
        client.sample_batch("table", 8)
    stats = client.stats()
    assert stats.rounds >= 5
    assert stats.spare_arrivals > 0
    assert stats.missing == stats.slow == ()


def test_a_shard_is_added(shards):
    client = shards.start(2)
    insert_each(client, range(1, 10))
    assert set(client.sample_batch("table", 50).info.table_size) == {9}
    added = add_filled(shards)
    client.add_shard(f"127.0.0.1:{added.port}")
    # Already the next draw is one of all.
    assert set(client.sample_batch("table", 50).info.table_size) == {10}
    assert [shard.id for shard in client.shards()] == [0, 1, 2]
    again = pickle.loads(pickle.dumps(client))
    assert set(again.sample_batch("table", 50).info.table_size) == {10}
    address = client.server_address
    client.add_shard(f"127.0.0.1:{added.port}")
    assert (len(client.shards()), client.server_address) == (3, address)


def test_loaders_get_a_shard_that_is_added(shards):
    client = shards.start(2)
    insert_each(client, range(1, 10))
    with NumpyLoader(client, "table", batch_size=4) as loader:
        assert int(next(loader).info.table_size[0]) == 9
        client.add_shard(f"127.0.0.1:{add_filled(shards).port}")
        eventually(lambda: int(next(loader).info.table_size[0]) == 10)


def add_filled(shards):
    """Adds shard 2 with an item."""
    added = shards.add(2, [prioritized_table()])
    added.localhost_client().insert({"x": np.int64(100)}, {"table": 1000.0})
    return added


def test_a_cluster_and_its_loaders_pickle(shards):
    client = shards.start()
    insert_each(client, range(1, 10))
    program = (
        "import pickle, sys; client = pickle.load(sys.stdin.buffer); batch = client.sample_batch('table', 20); "
        "print(type(client).__module__, client.endpoint.cluster.on_shard_loss, set(batch.info.table_size.tolist()))"
    )
    pickled = pickle.dumps(shards.connect(on_shard_loss="wait", max_pending_bytes=1 << 20))
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickled, capture_output=True, check=True, timeout=2 * PATIENCE_S
    )
    assert done.stdout.decode().split() == ["reverb.cluster.client", "wait", "{9}"]


def test_loaders(shards):
    client = shards.start()
    keys = insert_each(client, range(1, 31))
    seen = set()
    with NumpyLoader(client, "table", batch_size=16) as loader:
        for batch, _ in zip(loader, range(20), strict=False):
            np.testing.assert_allclose(batch.info.probability, batch.data["x"].ravel() / sum(keys))
            loader.update_priorities(batch, batch.data["x"].ravel().astype(float))
            seen |= set(batch.info.key.tolist())
    assert len(seen) > 15


def test_items_that_are_drawn_once_are_drawn_once(shards):
    client = shards.start(tables=lambda: [prioritized_table(max_times_sampled=1)])
    insert_each(client, range(1, 41))
    drawn = [value for _ in range(4) for value in client.sample_batch("table", 10).data["x"].ravel().tolist()]
    assert sorted(drawn) == list(range(1, 41))
    with pytest.raises(reverb.DeadlineExceededError):
        client.sample_batch("table", 1, timeout=0.2)


def test_exchange_saves_and_loads_a_cluster(shards, tmp_path):
    pytest.importorskip("pyarrow")
    from reverb import exchange

    client = shards.start()
    insert_each(client, range(1, 20))
    assert exchange.to_parquet(client, tmp_path / "table.parquet", "table") == 19
    client.reset("table")
    assert exchange.from_parquet(client, tmp_path / "table.parquet", "table") == 19
    assert client.server_info()["table"].current_size == 19


def test_event_loops_have_no_client_of_a_cluster(shards):
    client = shards.start(2)
    insert_each(client, [1, 2])

    async def take():
        with NumpyLoader(client, "table", batch_size=1) as loader:
            async for _ in loader:
                pass

    with pytest.raises(ValueError, match="no client of a cluster"):
        reverb.aio.Client(client.endpoint)
    with pytest.raises(ValueError, match="no client of a cluster"):
        asyncio.run(take())


def write(client):
    with client.trajectory_writer(1, validate_items=False) as writer:
        writer.append({"x": np.int64(1)})
        writer.create_item("table", 1.0, {"x": writer.history["x"][:]})


def test_servers_that_are_no_shards_are_refused_by_name(shards):
    shards.start(1)
    other = shards.add(None, [prioritized_table()])
    client = shards.connect()
    for call in (
        lambda: client.insert({"x": np.int64(1)}, {"table": 1.0}),
        lambda: client.sample_batch("table", 1, timeout=5.0),
        lambda: client.update_priorities("table", [1], [1.0]),
        lambda: client.server_info(),
        lambda: client.reset("table"),
        lambda: client.checkpoint(),
        lambda: client.shards(),
        lambda: write(client),
    ):
        with pytest.raises(ValueError, match=f"expected shards of a cluster.*{other.port} is none"):
            call()


def test_shards_of_two_clusters_are_refused_by_name(shards):
    shards.start(1)
    other = shards.add(1, [prioritized_table()], cluster="other")
    client = shards.connect()
    for call in (
        lambda: client.insert({"x": np.int64(1)}, {"table": 1.0}),
        lambda: client.sample_batch("table", 1, timeout=5.0),
        lambda: client.delete("table", [1]),
        lambda: client.shards(),
    ):
        with pytest.raises(ValueError, match=f"{other.port} is shard 1 of cluster `other`"):
            call()


def test_of_two_servers_with_one_id_only_one_is_used(shards):
    shards.start(2)
    shards.add(1, [prioritized_table()])
    client = shards.connect()
    insert_each(client, range(1, 21))
    assert set(client.sample_batch("table", 20).info.table_size) == {20}
    assert [shard.id for shard in client.shards()] == [0, 1]
    sizes = shards.sizes()
    assert sum(sizes) == 20
    assert 0 in sizes[1:]


def test_adders(shards):
    client = shards.start(tables=lambda: [make_table(sampler="prioritized")])
    for _ in range(12):
        with NStepTransitionAdder(client, "table", n=1, discount=0.9) as adder:
            for step in range(3):
                adder.add(step, 0, 1.0, step + 1, terminated=step == 2)
    assert set(client.sample_batch("table", 8).info.table_size) == {36}
