"""Addresses that name several servers: streams spread over them, other calls and updates reach all."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from address_list_support import Servers, insert
from behaviour_support import PATIENCE_S, Background, run_program

import reverb
from reverb import structured_writer as structured
from reverb.loaders import NumpyLoader


@pytest.fixture
def servers():
    with contextlib.ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture
def two(servers):
    servers.start()
    servers.start()
    return servers


def test_calls_that_insert_take_the_servers_in_turn(servers):
    for _ in range(3):
        servers.start()
    client = reverb.Client(servers.address)
    insert(client, 9)
    assert servers.sizes() == [3, 3, 3]
    for _ in range(3):
        client.insert_batch(np.zeros(5, np.float32), {"table": 1.0})
    assert servers.sizes() == [8, 8, 8]
    assert client.road == "tcp (3 servers)"
    assert repr(client) == f"Client, server_address={servers.address}"


@pytest.mark.parametrize("kind", ["trajectory", "legacy", "structured", "batched"])
def test_each_writer_stays_with_one_server(two, kind):
    client = reverb.Client(two.address)
    for _ in range(4):
        before = two.sizes()
        write(client, kind, 5)
        grown = sorted(after - size for size, after in zip(before, two.sizes(), strict=True))
        assert grown == [0, 5], "a writer used two servers"
    assert two.sizes() == [10, 10]


def write(client, kind, count):
    if kind == "trajectory":
        with client.trajectory_writer(1) as writer:
            for number in range(count):
                writer.append({"x": np.float32(number)})
                writer.create_item("table", 1.0, {"x": writer.history["x"][-1:]})
                writer.flush()
    elif kind == "legacy":
        with client.writer(1) as writer:
            for number in range(count):
                writer.append(np.float32(number))
                writer.create_item("table", 1, 1.0)
                writer.flush()
    elif kind == "batched":
        with client.batched_writer(1, 1) as writer:
            for number in range(count):
                writer.append({"x": np.full(1, number, np.float32)})
                writer.create_items("table", np.ones(1), {"x": writer.history["x"][-1:]})
                writer.flush()
    else:
        pattern = structured.pattern_from_transform({"x": None}, lambda step: {"x": step["x"][-1:]})
        config = structured.create_config(pattern, "table")
        writer = client.structured_writer([config])
        for number in range(count):
            writer.append({"x": np.float32(number)})
            writer.flush()
        writer.end_episode()


def test_draws_take_the_servers_in_turn(two):
    client = reverb.Client(two.address)
    insert(client, 10)
    first, second = two.keys()
    assert len(first) == len(second) == 5
    drawn = [{int(key) for key in client.sample_batch("table", 8).info.key} for _ in range(6)]
    assert [keys <= first for keys in drawn] in ([True, False] * 3, [False, True] * 3)
    assert all(keys <= first or keys <= second for keys in drawn)
    drawn = [next(iter(client.sample("table"))) for _ in range(6)]
    assert sum(sample[0].info.key in first for sample in drawn) == 3


def test_a_loader_reads_all_servers(two):
    client = reverb.Client(two.address)
    insert(client, 10)
    first, second = two.keys()
    with NumpyLoader(two.address, "table", batch_size=4, num_batches=10) as loader:
        batches = [{int(key) for key in batch.info.key} for batch in loader]
        assert sum(keys <= first for keys in batches) == sum(keys <= second for keys in batches) == 5


def test_updates_of_a_loader_reach_the_servers_of_their_items(two):
    client = reverb.Client(two.address)
    insert(client, 10)
    with NumpyLoader(two.address, "table", batch_size=4, num_batches=4) as loader:
        assert [loader.update_priorities(batch, 3.0) for batch in loader] == [4] * 4


def test_updates_reach_the_server_of_each_key(two):
    client = reverb.Client(two.address)
    insert(client, 10)
    first, second = two.keys()
    chosen = np.array([min(first), min(second)], np.uint64)
    assert client.update_priorities("table", chosen, 7.0) == 2
    assert client.mutate_priorities("table", {int(chosen[0]): 9.0, 12345: 1.0}, [max(first), max(second)]) == 3
    assert two.sizes() == [4, 4]
    priorities = {
        int(key): priority
        for each in two.each()
        for batch in [each.sample_batch("table", 200).info]
        for key, priority in zip(batch.key, batch.priority, strict=True)
    }
    assert [priorities[int(key)] for key in chosen] == [9.0, 7.0]


def test_server_info_sums_the_tables_of_all_servers(two):
    client = reverb.Client(two.address)
    insert(client, 10)
    client.sample_batch("table", 4)
    client.sample_batch("table", 4)
    info = client.server_info()["table"]
    assert (info.current_size, info.num_episodes, info.max_size) == (10, 10, 2000)
    assert info.rate_limiter_info.insert_stats.completed == 10
    assert info.rate_limiter_info.sample_stats.completed == 8
    assert info.bytes == sum(each.server_info()["table"].bytes for each in two.each())
    assert set(client.server_info()) == {"table", "queue", "signed"}


def test_a_reset_and_a_checkpoint_concern_all_servers(two):
    client = reverb.Client(two.address)
    insert(client, 10)
    paths = client.checkpoint().split("\n")
    assert len(set(paths)) == 2
    assert all(path.startswith("/") for path in paths)
    client.reset("table")
    assert two.sizes() == [0, 0]


def test_peeked_items_are_those_of_all_servers(two):
    client = reverb.Client(two.address)
    insert(client, 6)
    items = client.engine.peek("table", 4, True, PATIENCE_S)
    assert [float(np.asarray(item.columns[0][0]).item()) for item in items] == [5.0, 4.0, 3.0, 2.0]


@pytest.mark.parametrize(
    ("tables", "text"),
    [(("table:1000", "extra"), "has table `extra`, "), (("table:7",), "max_size of table `table` is ")],
)
def test_servers_with_different_tables_are_named(servers, tables, text):
    servers.start("table:1000")
    servers.start(*tables)
    client = reverb.Client(servers.address)
    for call in (client.server_info, lambda: insert(client, 1)):
        with pytest.raises(reverb.errors.InvalidArgumentError, match=text) as caught:
            call()
        assert all(f"127.0.0.1:{port}" in str(caught.value) for port in servers.ports)


def test_an_unknown_table_is_reported_as_by_one_server(two):
    client = reverb.Client(two.address)
    with pytest.raises(reverb.errors.TableNotFoundError, match="Priority table other was not found; this server has"):
        client.mutate_priorities("other", {1: 1.0})


def test_a_server_that_two_addresses_reach_counts_once(servers, monkeypatch):
    monkeypatch.setenv("REVERB_ALLOW_INSECURE", "1")
    port = servers.start(host="0.0.0.0")
    client = reverb.Client(f"ipv4:127.0.0.1:{port},127.0.0.2:{port},127.0.0.1:{port}")
    insert(client, 4)
    assert client.road == "tcp"
    assert client.server_info()["table"].current_size == 4
    keys = client.sample_batch("table", 1).info.key
    assert client.update_priorities("table", keys, 2.0) == 1


@pytest.mark.parametrize(
    ("address", "entry"),
    [("ipv4:127.0.0.1:8000,127.0.0.1", "`127.0.0.1`"), ("ipv6:[::1]:1,[::1]:99999", "`[::1]:99999`")],
)
def test_an_entry_that_is_not_valid_is_named(address, entry):
    with pytest.raises(reverb.errors.InvalidArgumentError) as caught:
        reverb.Client(address).server_info(timeout=PATIENCE_S)
    assert address in str(caught.value)
    assert entry in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_has_connections_of_its_own(two):
    source = """
    import os, sys, warnings
    import numpy as np
    import reverb

    warnings.simplefilter("ignore")  # Python warns of forks in a program with threads.
    client = reverb.Client(sys.argv[1])
    for number in range(4):
        client.insert(np.float32(number), {"table": 1.0})
    child = os.fork()
    if child == 0:
        for number in range(6):
            client.insert(np.float32(number), {"table": 1.0})
        del client
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.insert(np.float32(0), {"table": 1.0})
    print(client.server_info()["table"].current_size)
    """
    assert run_program(source, two.address)[0] == "11\n"
    assert sum(two.sizes()) == 11


def test_many_threads_share_a_client(two):
    client = reverb.Client(two.address)
    calls = [Background(insert, client, 20) for _ in range(8)]
    for call in calls:
        call.result(2 * PATIENCE_S)
    assert two.sizes() == [80, 80]


@pytest.mark.tensorflow
def test_datasets_and_the_tf_client_take_lists(servers):
    tf = pytest.importorskip("tensorflow")
    for _ in range(2):
        servers.start("signed")
    client = reverb.TFClient(servers.address)
    for number in range(4):
        client.insert([tf.constant(float(number))], tf.constant(["signed"]), tf.constant([1.0], tf.float64))
    assert servers.sizes("signed") == [2, 2]
    dataset = reverb.TimestepDataset.from_table_signature(servers.address, "signed", 4)
    seen = set()
    for sample in dataset:
        seen.add(int(sample.info.key))
        if len(seen) == 4:
            break
    client.update_priorities("signed", list(seen), [5.0] * 4)
    for each in servers.each():
        assert set(each.sample_batch("signed", 10).info.priority) == {5.0}


def test_commands_take_lists(two):
    insert(reverb.Client(two.address), 4)
    done = subprocess.run(
        [sys.executable, "-c", "from reverb.cli import main; main()", "info", two.address, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"size": 4' in done.stdout
