"""Durable servers that end in all ways: what was confirmed is there when they start again, and nothing else."""

import numpy as np
import pytest
from behaviour_support import Background, insert_values
from durability_support import MODES, DurableServer, items_of, values_of, wait_for_receipts

import reverb
from reverb import rate_limiters, structured
from reverb.loaders import NumpyLoader

pytestmark = pytest.mark.ports

# How a server ends, and whether it saves then.
ENDS = [("kill", False), ("terminate", False), ("stop", False), ("terminate", True), ("stop", True)]
TABLES = ("replay", "queue", "few", "configured", "reset", "largest")


def change_priorities(client):
    """Leaves 1 to 4 with other priorities; 5 is deleted."""
    keys = [client.insert([np.int64(value)], {"replay": float(value)}) for value in range(6)]
    client.update_priorities("replay", [keys[1], keys[2]], [10.0, 20.0])
    client.mutate_priorities("replay", {keys[3]: 30.0, keys[0]: 0.5}, [keys[5]])


def draw_from_queue(client):
    """Leaves 2, which is read, and 3 to 5, of which some are read ahead. Returns what holds them."""
    insert_values(client, range(6), "queue")
    assert client.sample_batch("queue", 2).data[0].ravel().tolist() == [0, 1]
    wait_for_receipts(client, "queue")
    loader = NumpyLoader(client.server_address, "queue", batch_size=1, prefetch=2)
    assert np.ravel(next(loader).data[0]).tolist() == [2]
    return loader


def draw_a_few_times(client):
    """Leaves 1, which was drawn twice, and 2."""
    insert_values(client, [0, 1], "few")
    assert client.sample_batch("few", 6).data[0].ravel().tolist() == [0, 0, 0, 0, 1, 1]
    wait_for_receipts(client, "few")
    insert_values(client, [2], "few")


def configure(client):
    insert_values(client, range(6), "configured")
    limiter = rate_limiters.SampleToInsertRatio(2.0, 3, 100.0)
    client.configure_table("configured", max_size=4, max_times_sampled=7, max_bytes=12345, rate_limiter=limiter)


def reset(client):
    insert_values(client, [0, 1], "reset")
    client.reset("reset")
    insert_values(client, [2], "reset")


def delete_the_largest(client):
    key = client.insert([np.int64(0)], {"largest": 50.0})
    client.insert([np.int64(1)], {"largest": 5.0})
    client.delete("largest", [key])


@pytest.fixture(scope="module", params=MODES)
def mode(request):
    return request.param


@pytest.fixture(scope="module", params=ENDS, ids=lambda end: f"{end[0]}{'_and_save' if end[1] else ''}")
def restarted(mode, request, tmp_path_factory):
    """The infos of a server's tables before it ended, and a client of the server that started again."""
    folder = tmp_path_factory.mktemp("kept")
    way, save_on_stop = request.param
    with DurableServer(folder, mode, save_on_stop=save_on_stop) as server:
        client = reverb.Client(server.address())
        for work in (change_priorities, draw_a_few_times, configure, reset, delete_the_largest):
            work(client)
        loader = draw_from_queue(client)
        # What was confirmed last, so all receipts before are in the log, too.
        client.insert([np.int64(6)], {"queue": 1.0})
        before = client.server_info()
        server.end_by(way)
        loader.close()
    with DurableServer(folder, mode, server.port, save_on_stop=save_on_stop) as again:
        yield before, reverb.Client(again.address())


def test_priorities_and_deletes_are_there_again(restarted):
    _, client = restarted
    priorities = {value: priority for value, (priority, _) in items_of(client, "replay").items()}
    assert priorities == {0: 0.5, 1: 10.0, 2: 20.0, 3: 30.0, 4: 4.0}


def test_received_items_of_a_queue_do_not_come_back_and_others_do(restarted):
    _, client = restarted
    values = values_of(client, "queue")
    # The receipt of 2 may or may not have come before the end.
    assert values in ([3, 4, 5, 6], [2, 3, 4, 5, 6])


def test_a_table_of_few_samples_knows_how_often_its_items_were_drawn(restarted):
    _, client = restarted
    assert items_of(client, "few") == {1: (1.0, 2), 2: (1.0, 0)}


def test_changed_options_are_there_again(restarted):
    before, client = restarted
    info = client.server_info()["configured"]
    assert (info.max_size, info.max_times_sampled, info.max_bytes) == (4, 7, 12345)
    assert (info.rate_limiter_info.samples_per_insert, info.rate_limiter_info.min_size_to_sample) == (2.0, 3)
    for bound in ("min_diff", "max_diff"):
        assert getattr(info.rate_limiter_info, bound) == getattr(before["configured"].rate_limiter_info, bound)
    assert values_of(client, "configured") == [2, 3, 4, 5]


def test_what_a_reset_has_removed_does_not_come_back(restarted):
    _, client = restarted
    assert values_of(client, "reset") == [2]


def test_limiters_go_on_with_their_counts(restarted):
    before, client = restarted
    after = client.server_info()
    for table in TABLES:
        counts = [info[table].rate_limiter_info for info in (before, after)]
        inserts = [count.insert_stats.completed for count in counts]
        assert inserts[0] == inserts[1], table
        if table == "queue":
            assert inserts[1] - counts[1].sample_stats.completed == after[table].current_size
        else:
            assert counts[0].sample_stats.completed == counts[1].sample_stats.completed, table


def test_the_largest_priority_is_known_after_its_item_is_gone(restarted):
    _, client = restarted
    # Another value a test, since the server is shared.
    client.insert([np.int64(2)], {"largest": "max"})
    assert items_of(client, "largest") == {1: (5.0, 0), 2: (50.0, 0)}


# What writes values into the table `replay`, one item a call: each takes a client, and returns a writer and a function.


def trajectory_writer(client):
    writer = client.trajectory_writer(1)

    def write(value):
        writer.append([np.int64(value)])
        writer.create_item("replay", 1.0, [writer.history[0][-1:]])

    return writer, write


def legacy_writer(client):
    writer = client.writer(1)

    def write(value):
        writer.append([np.int64(value)])
        writer.create_item("replay", 1, 1.0)

    return writer, write


def structured_writer(client):
    pattern = structured.pattern_from_transform([None], lambda step: [step[0][-1:]])
    writer = client.structured_writer([structured.create_config(pattern, "replay")])
    return writer, lambda value: writer.append([np.int64(value)])


def batched_writer(client):
    writer = client.batched_writer(1, 1)

    def write(value):
        writer.append([np.full(1, value)])
        writer.create_items("replay", 1.0, [writer.history[0][-1:]])

    return writer, write


@pytest.mark.parametrize("road", ["unix", "tcp"])
@pytest.mark.parametrize("make", [trajectory_writer, legacy_writer, structured_writer, batched_writer])
def test_a_writer_that_outlives_its_server_inserts_each_item_once(tmp_path, make, road):
    with DurableServer(tmp_path) as server:
        writer, write = make(reverb.Client(server.address(road)))
        for value in range(10):
            write(value)
        writer.flush()
        # On their way, or not, when the server is killed.
        for value in range(10, 15):
            write(value)
        server.end_by("kill")
    rest = Background(lambda: [write(value) for value in range(15, 20)] and writer.flush())
    with DurableServer(tmp_path, port=server.port) as again:
        rest.result()
        again.end_by("kill")
    with DurableServer(tmp_path, port=server.port) as once_more:
        writer.flush()
        assert values_of(reverb.Client(once_more.address()), "replay") == list(range(20))
        writer.close()


def test_a_new_server_after_many_kills_has_the_items_of_all(tmp_path):
    port = 0
    for value in range(4):
        with DurableServer(tmp_path, port=port) as server:
            port = server.port
            client = reverb.Client(server.address())
            client.insert([np.int64(value)], {"replay": 1.0})
            assert values_of(client, "replay") == list(range(value + 1))
            server.end_by("kill")
