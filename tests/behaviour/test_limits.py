"""Limits on the bytes of a call, of a table, and of the process."""

import numpy as np
import pytest
from behaviour_support import draw, draw_values, info_of, insert_values, make_table, run_program

import reverb
from reverb import errors

LIMIT = 1 << 20


def test_insert_of_exactly_the_message_limit_is_accepted(serve):
    client = serve(make_table(), max_message_size=LIMIT)
    client.insert(np.ones(LIMIT, np.uint8), {"table": 1.0})
    assert int(draw(client)[0].data[0].sum()) == LIMIT


def test_insert_of_one_byte_above_the_limit_is_refused_and_changes_nothing(serve):
    client = serve(make_table(), max_message_size=LIMIT)
    with pytest.raises(errors.MessageTooLargeError, match=str(LIMIT)) as caught:
        client.insert(np.ones(LIMIT + 1, np.uint8), {"table": 1.0})
    assert isinstance(caught.value, ValueError)
    assert "max_message_size" in str(caught.value)
    assert info_of(client).current_size == 0
    insert_values(client, [1])
    assert draw_values(client) == [1]


def test_all_columns_and_rows_of_a_call_count(serve):
    client = serve(make_table(), max_message_size=LIMIT)
    half = np.ones((4, LIMIT // 8), np.uint8)
    client.insert_batch({"x": half, "y": half}, {"table": 1.0})
    assert info_of(client).current_size == 4
    with pytest.raises(errors.MessageTooLargeError):
        client.insert_batch({"x": half, "y": half, "z": np.ones(4, np.uint8)}, {"table": 1.0})
    assert info_of(client).current_size == 4


def write_last_step(writer):
    writer.create_item("table", 1.0, writer.history[-1:])
    writer.flush()


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_writers_row_above_the_limit_is_refused_however_well_it_compresses(serve, compression):
    client = serve(make_table(), max_message_size=LIMIT)
    with client.trajectory_writer(1, compression=compression) as writer:
        writer.append(np.zeros(LIMIT + 1, np.uint8))
        with pytest.raises(errors.MessageTooLargeError, match=str(LIMIT)):
            write_last_step(writer)
    assert info_of(client).current_size == 0
    with client.trajectory_writer(1, compression=compression) as writer:
        writer.append(np.zeros(LIMIT, np.uint8))
        writer.create_item("table", 1.0, writer.history[-1:])
    assert info_of(client).current_size == 1


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_limit_holds_for_each_chunk_of_a_writer_alone(serve, compression):
    """Chunks that compress well travel in one message, and may exceed the limit together."""
    client = serve(make_table(), max_message_size=LIMIT)
    with client.trajectory_writer(1, compression=compression) as writer:
        for _ in range(10):
            writer.append(np.zeros(LIMIT * 3 // 4, np.uint8))
            writer.create_item("table", 1.0, writer.history[-1:])
    assert info_of(client).current_size == 10


def test_drawn_batch_may_be_larger_than_a_message(serve):
    client = serve(make_table(max_times_sampled=1), max_message_size=LIMIT)
    rows = np.random.default_rng(0).integers(0, 255, (16, LIMIT // 4), np.uint8)
    for part in np.split(rows, 4):
        client.insert_batch(part, {"table": 1.0})
    np.testing.assert_array_equal(client.sample_batch("table", 16, squeeze_time=True).data[0], rows)


def test_table_removes_items_before_it_exceeds_max_bytes(serve):
    client = serve(make_table(max_bytes=10_000, max_times_sampled=1))
    for value in range(30):
        client.insert(np.full(125, value, np.int64), {"table": 1.0})
        assert info_of(client).current_size <= 10
    size = info_of(client).current_size
    assert 8 <= size <= 10
    assert draw_values_of_rows(client, size) == list(range(30 - size, 30))


def draw_values_of_rows(client, count):
    return [int(sample.data[0][0, 0]) for sample in draw(client, count)]


def test_max_bytes_holds_for_batches_too(serve):
    client = serve(make_table(max_bytes=10_000, max_times_sampled=1))
    rows = np.arange(50)[:, None] * np.ones((1, 125), np.int64)
    for part in np.split(rows, 10):
        client.insert_batch(part, {"table": 1.0})
    size = info_of(client).current_size
    assert 8 <= size <= 10
    assert draw_values_of_rows(client, size) == list(range(50 - size, 50))


def test_batch_above_max_bytes_leaves_the_same_items_as_single_inserts(serve):
    tables = [make_table(name, max_bytes=10_000, max_times_sampled=1) for name in ("single", "batch")]
    client = serve(*tables)
    rows = {"number": np.arange(50), "data": np.random.default_rng(0).random((50, 125)), "text": np.array(["a"] * 50)}
    for index in range(50):
        client.insert_batch({name: column[index : index + 1] for name, column in rows.items()}, {"single": 1.0})
    client.insert_batch(rows, {"batch": np.arange(50.0)})
    size = info_of(client, "single").current_size
    assert size == info_of(client, "batch").current_size
    single, batch = (client.sample_batch(name, size, squeeze_time=True) for name in ("single", "batch"))
    for left, right in zip(single.data, batch.data, strict=True):
        np.testing.assert_array_equal(left, right)
    assert batch.info.priority.tolist() == list(range(50 - size, 50))


@pytest.mark.parametrize("sampler", ["uniform", "prioritized", "min_heap"])
def test_batch_above_max_bytes_is_accepted_with_every_remover(serve, sampler):
    client = serve(make_table(remover=sampler, max_bytes=10_000))
    client.insert_batch(np.ones((100, 125)), {"table": 1.0})
    assert info_of(client).current_size == 10


def test_large_item_evicts_many_small_ones(serve):
    client = serve(make_table(max_bytes=10_000))
    for value in range(8):
        client.insert(np.full(125, value, np.int64), {"table": 1.0})
    client.insert(np.zeros(1000, np.int64), {"table": 1.0})
    assert 1 <= info_of(client).current_size <= 3


def test_remover_chooses_which_items_max_bytes_removes(serve):
    client = serve(make_table(sampler="min_heap", remover="min_heap", max_bytes=5_000, max_times_sampled=1))
    for priority in (5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 7.0):
        client.insert(np.zeros(125), {"table": priority})
    kept = [sample.info.priority for sample in draw(client, info_of(client).current_size)]
    assert kept == sorted((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))[-len(kept) :]


def test_item_larger_than_max_bytes_is_refused_and_changes_nothing(serve):
    client = serve(make_table(max_bytes=10_000))
    client.insert(np.zeros(125), {"table": 1.0})
    with pytest.raises(errors.ItemTooLargeError, match="table") as caught:
        client.insert(np.zeros(2000), {"table": 1.0})
    assert isinstance(caught.value, ValueError)
    with pytest.raises(errors.ItemTooLargeError):
        client.insert_batch(np.zeros((3, 2000)), {"table": 1.0})
    assert info_of(client).current_size == 1


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_max_bytes_must_be_positive(max_bytes):
    with pytest.raises(ValueError, match="max_bytes"):
        make_table(max_bytes=max_bytes)


MEMORY = """
    import os, sys, time, numpy, reverb

    def rss():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def serve(remover, max_size=4000):
        table = reverb.Table("table", reverb.selectors.Uniform(), remover, max_size, reverb.rate_limiters.MinSize(1))
        server = reverb.Server(tables=[table])
        address = {
            "same_process": f"localhost:{server.port}",
            "unix": f"unix:{server.unix_path}",
            "tcp": f"ipv4:127.0.0.1:{server.port}",
        }[sys.argv[1]]
        return server, reverb.Client(address)

    rows = numpy.random.default_rng(0).standard_normal((100, 1250))  # 1 MB, 10 kB a row.
"""


@pytest.mark.skipif(not __import__("os").path.exists("/proc/self/statm"), reason="reads /proc")
def test_memory_stays_near_the_size_of_the_items_under_random_removal(road):
    # Without compaction, a batch's memory would live until its last row is removed: five times the size of the items.
    run_program(
        MEMORY
        + """
    server, client = serve(reverb.selectors.Uniform())
    client.insert_batch(rows, {"table": 1.0})
    before = rss()
    for _ in range(400):
        client.insert_batch(rows, {"table": 1.0})
    # Survivors are moved in the background; after a burst as fast as the machine can, that needs a moment.
    end = time.monotonic() + 30
    while (grown := rss() - before) >= 2.5 * 40 + 30 and time.monotonic() < end:
        client.insert_batch(rows, {"table": 1.0})
        time.sleep(0.03)
    assert client.server_info()["table"].current_size == 4000
    assert grown < 2.5 * 40 + 30, f"{grown:.0f} MB for 40 MB of items"
    """,
        road,
    )


@pytest.mark.skipif(not __import__("os").path.exists("/proc/self/statm"), reason="reads /proc")
def test_memory_is_freed_when_items_are_removed(road):
    run_program(
        MEMORY
        + """
    server, client = serve(reverb.selectors.Fifo(), max_size=100_000)
    client.insert_batch(rows, {"table": 1.0})
    client.reset("table")
    before = rss()
    peaks = []
    for _ in range(4):
        for _ in range(300):
            client.insert_batch(rows, {"table": 1.0})
        peaks.append(rss() - before)
        client.reset("table")
    # Four rounds that kept what they freed would hold 1200 MB.
    assert peaks[-1] < 2 * 300 + 30, peaks
    end = time.monotonic() + 30
    while rss() - before > 150 and time.monotonic() < end:
        time.sleep(0.1)
    assert rss() - before < 150, (peaks, rss() - before)
    """,
        road,
    )


@pytest.mark.skipif(not __import__("os").path.exists("/proc/self/statm"), reason="reads /proc")
def test_memory_does_not_grow_with_traffic(road):
    run_program(
        MEMORY
        + """
    server, client = serve(reverb.selectors.Fifo(), max_size=100)
    small = rows[:, :10]
    def work(rounds):
        for _ in range(rounds):
            client.insert_batch(small, {"table": 1.0})
            client.insert(small[0], {"table": 1.0})
            batch = client.sample_batch("table", 32)
            client.update_priorities("table", batch.info.key, numpy.ones(32))
    work(500)
    before = rss()
    work(2000)
    assert rss() - before < 15, rss() - before
    """,
        road,
    )


def test_message_limit_must_be_positive():
    with pytest.raises(ValueError, match="max_message_size"):
        reverb.Server(tables=[make_table()], max_message_size=0)
