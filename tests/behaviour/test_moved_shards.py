"""A shard that has another address than before."""

import pytest
from behaviour_support import insert_values, make_table

import reverb
from reverb.cluster import Shard

pytestmark = pytest.mark.ports


@pytest.fixture
def serve_shard():
    servers = []

    def serve(number, port=None):
        servers.append(reverb.Server([make_table(sampler="uniform")], port, shard=Shard(number, "replay")))
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


def address(server):
    return f"ipv4:127.0.0.1:{server.port}"


@pytest.mark.parametrize("on_shard_loss", ["continue", "wait", "raise"])
def test_nobody_waits_for_a_shard_where_it_was_before(serve_shard, on_shard_loss):
    stays, leaves = serve_shard(0), serve_shard(1)
    replay = reverb.cluster.connect([address(stays), address(leaves)], on_shard_loss=on_shard_loss)
    insert_values(replay, range(20))
    leaves.stop(returns=True)
    moved = serve_shard(1)
    replay.add_shard(address(moved))
    # Those that the shard had are gone with it, since it has no checkpoint.
    key = next(key for key in insert_keys(replay, 20) if key >> 56 == 1)
    assert replay.update_priorities("table", [key], [2.0]) == 1
    assert len(replay.sample_batch("table", 10).info.key) == 10
    assert replay.stats().missing == ()
    assert [(shard.id, shard.address, shard.alive) for shard in replay.shards()] == [
        (0, address(stays), True),
        (1, address(moved), True),
    ]
    stays.stop()
    moved.stop()
    with pytest.raises(reverb.errors.ServerStoppedError):
        replay.sample_batch("table", 1, timeout=20)


def test_a_shard_may_go_back_to_where_it_was_and_others_may_be_there_meanwhile(serve_shard):
    stays, leaves = serve_shard(0), serve_shard(1)
    replay = reverb.cluster.connect([address(stays), address(leaves)], on_shard_loss="wait")
    insert_values(replay, range(20))
    leaves.stop(returns=True)
    moved = serve_shard(1)
    replay.add_shard(address(moved))
    insert_values(replay, range(20))
    with reverb.Server([make_table()], leaves.port):
        # One that is no shard, where the shard was, concerns nobody.
        assert len(replay.sample_batch("table", 10).info.key) == 10
    moved.stop(returns=True)
    back = serve_shard(1, leaves.port)
    replay.add_shard(address(back))
    assert {key >> 56 for key in insert_keys(replay, 20)} == {0, 1}
    assert {shard.address for shard in replay.shards()} == {address(stays), address(back)}


def insert_keys(replay, count):
    return [replay.insert(0, {"table": 1.0}) for _ in range(count)]
