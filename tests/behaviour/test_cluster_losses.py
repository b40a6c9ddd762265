"""What a client of a cluster does while a shard is missing, and once it is back."""

import contextlib
import json

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, eventually, run_program
from cluster_support import ShardProcesses, address_of, insert_each

import reverb
from reverb.cluster import connect


@pytest.fixture(params=("unix", "tcp"))
def road(request):
    return request.param


@pytest.fixture
def shards():
    with contextlib.ExitStack() as stack:
        yield ShardProcesses(stack, 3)


def sizes(client):
    return set(client.sample_batch("table", 20, timeout=PATIENCE_S).info.table_size.tolist())


def is_complete(client, count):
    with contextlib.suppress(reverb.errors.UnavailableError):
        return sizes(client) == {count}
    return False


def owned(keys, number):
    return [key for key in keys if key >> 56 == number]


def fill(client):
    """Inserts until each shard has items. Returns their keys."""
    keys = []
    while {key >> 56 for key in keys} != {0, 1, 2}:
        keys += insert_each(client, [1]).values()
    return keys


def test_calls_go_on_with_the_other_shards(shards, road, caplog):
    client = connect(shards.address(road))
    keys = fill(client)
    lost = owned(keys, 1)
    assert sizes(client) == {len(keys)}
    shards.kill(1)
    left = len(keys) - len(lost)
    eventually(lambda: is_complete(client, left))
    assert client.stats().missing == (shards.peer(1, road),)
    # A thread passes it on.
    eventually(lambda: any(shards.peer(1, road) in record.getMessage() for record in caplog.records))
    assert client.update_priorities("table", keys, np.ones(len(keys))) == left
    assert client.stats().keys_passed_over == len(lost)
    assert client.server_info()["table"].current_size == left
    new = list(insert_each(client, range(1, 10)).values())
    assert owned(new, 1) == []
    shards.start(1)
    eventually(lambda: len(client.shards()) == 3 and all(shard.alive for shard in client.shards()))
    reverb.Client(f"localhost:{shards.ports[1]}").insert({"x": np.int64(5)}, {"table": 1.0})
    eventually(lambda: is_complete(client, left + 10))
    assert client.stats().missing == ()


def test_calls_fail_by_name(shards, road):
    client = connect(shards.address(road), on_shard_loss="raise")
    keys = fill(client)
    assert sizes(client) == {len(keys)}
    shards.kill(1)
    for call in (
        lambda: client.sample_batch("table", 4),
        lambda: client.update_priorities("table", keys, np.ones(len(keys))),
        lambda: client.server_info(),
    ):
        with pytest.raises(reverb.errors.UnavailableError, match=shards.peer(1, road)):
            call()
    shards.start(1)
    eventually(lambda: is_complete(client, len(keys) - len(owned(keys, 1))))


def test_calls_wait_for_the_shard(shards, road):
    client = connect(shards.address(road), on_shard_loss="wait")
    keys = fill(client)
    assert sizes(client) == {len(keys)}
    shards.kill(1)
    with pytest.raises(reverb.DeadlineExceededError, match=shards.peer(1, road)):
        client.sample_batch("table", 4, timeout=0.5)
    waiting = [
        Background(client.sample_batch, "table", 4),
        Background(client.update_priorities, "table", keys, np.ones(len(keys))),
    ]
    shards.start(1)
    left = len(keys) - len(owned(keys, 1))
    assert set(waiting[0].result().info.table_size) == {left}
    assert waiting[1].result() == left


def test_a_cluster_whose_shards_are_all_lost_raises(shards, road):
    client = connect(shards.address(road))
    fill(client)
    for number in range(3):
        shards.kill(number)
    for call in (
        lambda: client.insert({"x": np.int64(1)}, {"table": 1.0}, timeout=1.0),
        lambda: client.sample_batch("table", 1, timeout=1.0),
    ):
        with pytest.raises((reverb.errors.UnavailableError, reverb.DeadlineExceededError), match=str(shards.ports[0])):
            call()


def test_commands_take_a_cluster(shards):
    pytest.importorskip("typer", reason="the extra `cli` is not installed")
    client = connect(shards.address("unix"))
    insert_each(client, range(1, 10))
    address = ",".join(address_of(shards.ports.values(), "unix"))
    run = "import sys; from reverb.cli import main; sys.argv = ['reverb', *sys.argv[1:]]; main()"
    [table] = json.loads(run_program(run, "info", address, "--json")[0])
    assert table["size"] == 9
    run_program(run, "table", "configure", address, "table", "--max-size", "77")
    assert client.server_info()["table"].max_size == 3 * 77
    assert len(run_program(run, "checkpoint", "save", address)[0].split()) == 3


def test_a_client_of_plain_servers_says_once_that_its_draws_are_not_those_of_one_table(caplog, shards):
    client = reverb.Client(shards.address("tcp"))
    fill(connect(shards.address("tcp")))

    def notices():
        return [record for record in caplog.records if "reverb.cluster.connect" in record.getMessage()]

    for _ in range(3):
        client.sample_batch("table", 4)
    eventually(lambda: len(notices()) == 1)
    other = reverb.Client(shards.address("tcp"))
    for _ in range(3):
        other.sample_batch("table", 4)
    other.server_info()
    assert len(notices()) == 1
    assert "`table`" in notices()[0].getMessage()
