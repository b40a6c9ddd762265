"""Clusters of shards on Ray, over three nodes of it on this machine."""

import functools
import os
import pathlib
import pickle
import signal
import tempfile
import urllib.request

import behaviour_support
import pytest
from behaviour_support import Background, run_program

pytest.importorskip("ray")

import ray
from ray_support import (
    PATIENCE_S,
    Nodes,
    draw_from,
    drawn,
    fail,
    insert,
    insert_by_name,
    insert_surely,
    is_alive,
    items,
    kill,
    leftovers,
    make_tables,
    start,
    taken_port,
)

import reverb
from reverb.ray import actors

# Ray leaves sockets and files open, and warns of its own future.
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def nodes():
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture(autouse=True)
def stopped(nodes):
    """Stops what a test has started. None leaves anything behind."""
    yield
    for name in {name.partition("/")[0] for name in leftovers()[0]}:
        reverb.ray.stop(name, save=False)
    assert leftovers() == ([], [])


eventually = functools.partial(behaviour_support.eventually, patience_s=PATIENCE_S)


def test_tasks_connect_by_name_and_by_a_pickled_client(nodes):
    replay = start(shards=3)
    keys = ray.get([insert_by_name.remote("replay", range(20 * i, 20 * i + 20)) for i in range(3)])
    assert len({key for part in keys for key in part}) == 60
    assert replay.server_info()["table"].current_size == 60
    assert sorted(items(replay)) == [0, 1, 2]
    assert sum(items(replay).values()) == 60
    assert ray.get(draw_from.remote(replay)) <= set(range(60))


def test_a_pickled_client_has_the_name_and_the_options_and_no_address(nodes):
    start()
    replay = reverb.ray.connect(placement="writer", on_shard_loss="wait", shard_timeout=2.0)
    pickled = pickle.dumps(replay)
    assert all(shard.address.rpartition(":")[2].encode() not in pickled for shard in replay.shards())
    copy = pickle.loads(pickled)
    assert (copy.name, copy.endpoint) == ("replay", replay.endpoint)


def test_shards_are_spread_over_nodes_and_the_summary_says_so(nodes, caplog):
    with caplog.at_level("INFO", logger="reverb"):
        start(shards=3)
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("cluster replay")]
    assert line.startswith("cluster replay: 3 shards on 3 nodes: 1 on ")


def test_shards_on_several_nodes_have_tls_and_a_token_and_connect_fetches_what_they_ask_for(nodes, tmp_path):
    keys = set(private_keys())
    replay = start(allow_insecure=False, checkpoint=tmp_path)
    assert len(set(private_keys()) - keys) == 2
    assert len(ray.get(insert_by_name.remote("replay", range(20)))) == 20
    assert ray.get(draw_from.remote(replay)) <= set(range(20))
    address = replay.shards()[0].address
    assert address.startswith("grpcs://")
    tls = replay.endpoint.tls
    for stranger in (reverb.Client(address, tls=tls), reverb.Client(address), reverb.Client(address[8:])):
        with pytest.raises((reverb.errors.UnauthenticatedError, reverb.errors.InvalidArgumentError)):
            stranger.server_info(timeout=10)
    assert not [secret for secret in ("rvb_", "BEGIN") if secret.encode() in pickle.dumps(replay)]
    # Shards and map that start again have the secrets of before, so that clients go on.
    ray.kill(ray.get_actor("replay", namespace="reverb"), no_restart=False)
    eventually(lambda: len(places()) == 2)
    killed = set(private_keys())
    kill(replay.shards()[0].pid)
    eventually(lambda: len(items(replay)) == 2)
    [new] = set(private_keys()) - killed
    assert reverb.ray.connect().endpoint.token_file == replay.endpoint.token_file
    assert len(reverb.ray.stop()) == 2
    # Only the shard that was killed could not take its key along.
    left = set(private_keys()) - keys
    assert len(left) == 1
    assert new not in left


def private_keys():
    """The files of keys that shards on this machine have."""
    return pathlib.Path(tempfile.gettempdir()).glob("reverb-ray-*/key.pem")


def test_a_killed_shard_returns_at_its_address_with_the_items_of_its_checkpoint(nodes, tmp_path):
    start(checkpoint=tmp_path)
    replay = reverb.ray.connect(on_shard_loss="wait")
    insert(replay, range(40))
    assert len(replay.checkpoint().splitlines()) == 2
    before = items(replay)
    insert(replay, range(100, 140))
    lost, other = replay.shards()
    kill(lost.pid)
    # A call waits for the shard, since nobody has said that it was stopped for good.
    assert len(insert_surely(replay, 0)) == 1
    eventually(lambda: len(items(replay)) == 2)
    returned = replay.shards()[0]
    assert (returned.id, returned.address) == (lost.id, lost.address)
    assert returned.pid != lost.pid
    assert before[lost.id] <= returned.items <= before[lost.id] + 1
    assert replay.shards()[1].items >= other.items


def test_a_shard_that_refuses_its_files_says_so_and_is_not_restarted_for_ever(nodes, tmp_path):
    # What it accepts when the cluster starts holds for no restart.
    replay = start(checkpoint=tmp_path, durability="process", accept_loss=True)
    insert(replay, range(40))
    checkpoint, _ = replay.checkpoint().splitlines()
    assert [shard.refused for shard in replay.shards()] == [None, None]
    lost = replay.shards()[0]
    pathlib.Path(checkpoint, "tables.tfrecord").write_bytes(b"torn")
    kill(lost.pid)
    eventually(lambda: replay.shards()[0].refused is not None)
    refused, other = replay.shards()
    assert (refused.id, refused.address, refused.alive) == (lost.id, lost.address, False)
    assert checkpoint in refused.refused
    assert (other.alive, other.refused) == (True, None)
    # Clients that have never reached it are told as well.
    assert any(checkpoint in (shard.refused or "") for shard in reverb.ray.connect().shards())
    eventually(lambda: actors.find("replay/0") is None)
    assert len(insert(replay, range(4))) == 4


def test_a_shard_that_ray_ends_in_order_does_not_say_that_it_was_for_good(nodes):
    replay = start(shards=1)
    insert(replay, [1])
    pid = replay.shards()[0].pid
    ray.get_actor("replay/0", namespace="reverb").__ray_terminate__.remote()
    eventually(lambda: not is_alive(pid))
    with pytest.raises((reverb.errors.DeadlineExceededError, reverb.errors.UnavailableError)):
        replay.server_info(timeout=2)


def test_clients_find_a_shard_that_has_another_address(nodes, tmp_path):
    replay = start(checkpoint=tmp_path)
    writer = reverb.ray.connect()
    insert(writer, range(40))
    replay.checkpoint()
    lost = replay.shards()[0]
    kill(lost.pid)
    with taken_port(lost.address):
        # Nobody waits at the old address any more, neither for a shard nor for a word of its end.
        eventually(lambda: drawn(replay) and len(items(replay)) == 2 and replay.stats().missing == ())
        # One that never draws finds it as well.
        eventually(lambda: insert_surely(writer, 0) and writer.road == "unix (2 servers)")
    moved = replay.shards()[0]
    assert moved.address != lost.address
    assert moved.items >= lost.items
    reverb.ray.stop(save=False)
    with pytest.raises(reverb.errors.ServerStoppedError):
        replay.sample_batch("table", 1, timeout=PATIENCE_S)


def test_the_loss_of_a_node_moves_its_shard_to_another(nodes, tmp_path):
    replay = start(shards=3, checkpoint=tmp_path)
    insert(replay, range(60))
    replay.checkpoint()
    before = items(replay)
    place = next(place for place in places() if place.node != ray.get_runtime_context().get_node_id())
    with nodes.without(place.node):
        eventually(lambda: any(other.id == place.id and other.node != place.node for other in places()))
        eventually(lambda: drawn(replay) and items(replay) == before)


def places():
    """What the map of the cluster knows."""
    return ray.get(ray.get_actor("replay", namespace="reverb").places.remote())


def test_a_map_that_is_lost_is_made_again_from_the_shards(nodes):
    start()
    before = places()
    shard_map = ray.get_actor("replay", namespace="reverb")
    ray.kill(shard_map, no_restart=False)
    eventually(lambda: places() == before)
    assert len(insert(reverb.ray.connect(), range(10))) == 10


def test_a_client_that_was_made_while_a_shard_was_unknown_finds_it_later(nodes):
    replay = start()
    insert(replay, range(20))
    silent = replay.shards()[0].pid
    os.kill(silent, signal.SIGSTOP)
    try:
        ray.kill(ray.get_actor("replay", namespace="reverb"), no_restart=False)
        eventually(lambda: [place.id for place in places()] == [1])
        late = reverb.ray.connect()
        assert [shard.id for shard in late.shards()] == [1]
    finally:
        os.kill(silent, signal.SIGCONT)
    eventually(lambda: sum(items(late).values()) == 20)


def test_too_few_cpus_fail_within_the_timeout_and_leave_nothing(nodes):
    with pytest.raises(reverb.errors.DeadlineExceededError) as failed:
        start(shards=3, cpus_per_shard=2, timeout=2)
    text = str(failed.value)
    assert "needs 2 CPU for each of 3 shards, 6 CPU in all" in text
    assert "of the 3 nodes" in text
    assert "4 CPU are free" in text
    assert leftovers() == ([], [])


def test_a_shard_that_cannot_start_fails_with_its_error_and_leaves_nothing(nodes):
    with pytest.raises(reverb.errors.UnavailableError, match=r"(?s)shard \d .*KeyError: 'no such setting'"):
        reverb.ray.start(fail, shards=2, cpus_per_shard=0.5, allow_insecure=True)
    assert leftovers() == ([], [])


def test_a_name_is_taken_once(nodes):
    start(shards=1)
    with pytest.raises(ValueError, match="a cluster `replay` is running on Ray already"):
        start(shards=1)
    assert len(insert(reverb.ray.connect(), [1])) == 1


def test_one_of_two_programs_that_take_a_name_gets_it_and_the_other_does_no_harm(nodes):
    starts = [Background(start, shards=1) for _ in range(2)]
    errors = []
    for begun in starts:
        try:
            begun.result(PATIENCE_S)
        except ValueError as error:
            errors.append(error)
    assert len(errors) == 1
    assert len(insert(reverb.ray.connect(), range(10))) == 10


def test_a_name_that_is_taken_at_the_last_moment_stays_with_its_cluster(nodes, monkeypatch):
    replay = start(shards=1)
    # The program has looked before the other one began.
    monkeypatch.setattr(actors, "of_cluster", lambda name: {})
    with pytest.raises(ValueError, match="replay"):
        start(shards=1)
    monkeypatch.undo()
    assert len(insert(replay, range(10))) == 10


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"checkpoint_interval": 1.0}, "`checkpoint_interval` needs `checkpoint`"),
        ({"durability": "process"}, "`durability` needs `checkpoint`"),
        ({"durability": "disk"}, 'durability must be "process".*"power"'),
        ({"name": "a/b"}, "no slash"),
        ({"name": ""}, "printable name"),
        ({"shards": 257}, "0 to 255"),
        ({"cpus_per_shard": 0}, "above 0"),
        ({"placement": "near"}, "one of spread, pack"),
        ({"timeout": 0}, "positive number of seconds"),
    ],
)
def test_wrong_options_are_refused(nodes, options, text):
    with pytest.raises(ValueError, match=text):
        start(**options)


def test_a_large_make_tables_is_refused(nodes):
    data = bytes(100_000)
    with pytest.raises(ValueError, match=r"pickles to 1\d{5} bytes"):
        reverb.ray.start(lambda: [data, *make_tables()], shards=1, allow_insecure=True)


DRIVER = """
import sys

import ray

sys.path.insert(0, {folder!r})
from ray_support import insert, start

import reverb

ray.init(address=sys.argv[1], log_to_driver=False)
replay = start(detached={detached})
insert(replay, range(20))
# Nothing but the program keeps actors alive that are not detached.
for _ in range(200):
    ray.get(ray.get_actor("replay/0", namespace="reverb").place.remote())
assert len(replay.shards()) == sum(shard.alive for shard in replay.shards()) == 2
"""


def run_driver(nodes, detached):
    import ray_support

    folder = ray_support.__file__.rpartition("/")[0]
    run_program(DRIVER.format(folder=folder, detached=detached), nodes.cluster.address, patience_s=PATIENCE_S)


def test_detached_shards_outlive_the_driver_and_restart_without_it(nodes):
    run_driver(nodes, detached=True)
    replay = reverb.ray.connect()
    assert replay.server_info()["table"].current_size == 20
    lost = replay.shards()[0]
    kill(lost.pid)
    eventually(lambda: replay.shards()[0].alive)
    assert replay.shards()[0].pid != lost.pid


def test_other_shards_end_with_the_driver(nodes):
    run_driver(nodes, detached=False)
    eventually(lambda: leftovers() == ([], []))


def test_stop_saves_and_a_new_cluster_has_the_items(nodes, tmp_path):
    replay = start(checkpoint=tmp_path)
    insert(replay, range(40))
    before, pids = items(replay), [shard.pid for shard in replay.shards()]
    assert len(reverb.ray.stop()) == 2
    eventually(lambda: not any(map(is_alive, pids)))
    with pytest.raises(reverb.errors.ServerStoppedError):
        replay.server_info()
    assert items(start(checkpoint=tmp_path)) == before


def test_stop_without_save_keeps_the_checkpoints_as_they_are(nodes, tmp_path):
    replay = start(checkpoint=tmp_path)
    insert(replay, range(10))
    replay.checkpoint()
    insert(replay, range(10))
    assert reverb.ray.stop(save=False) == []
    assert sum(items(start(checkpoint=tmp_path)).values()) == 10


def test_stop_removes_a_cluster_with_a_dead_shard(nodes, tmp_path):
    replay = start(checkpoint=tmp_path, max_restarts=0)
    insert(replay, range(40))
    kill(replay.shards()[0].pid)
    assert len(reverb.ray.stop()) == 1
    assert leftovers() == ([], [])


def test_a_cluster_that_cannot_save_goes_on(nodes, tmp_path):
    replay = start(checkpoint=tmp_path)
    insert(replay, range(10))
    for folder in tmp_path.iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        folder.write_text("not a folder")
    with pytest.raises(reverb.errors.StorageError, match="the cluster `replay` still runs"):
        reverb.ray.stop()
    assert replay.server_info()["table"].current_size == 10


def test_stop_may_be_repeated_and_an_unknown_name_is_an_error(nodes):
    start(shards=1, name="one")
    reverb.ray.stop("one")
    assert reverb.ray.stop("one") == []
    start(shards=1, name="two")
    for call in (reverb.ray.stop, reverb.ray.connect):
        with pytest.raises(ValueError, match="no cluster `three` is running on Ray; there are: two"):
            call("three")


def test_ray_has_gauges_of_each_shard(nodes):
    replay = start()
    insert(replay, range(30))

    def exported():
        found = {}
        for node in ray.nodes():
            if node["Alive"]:
                address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
                for line in urllib.request.urlopen(address, timeout=10).read().decode().splitlines():
                    if line.startswith("ray_reverb_shard_items{"):
                        found[int(line.partition('shard="')[2].partition('"')[0])] = float(line.rpartition(" ")[2])
        return found

    eventually(lambda: exported() == items(replay))
