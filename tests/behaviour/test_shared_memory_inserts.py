"""Data of inserts and writers in memory that clients share with a server of their host."""

import os
import signal
import subprocess
import sys
import textwrap

import http_support
import numpy as np
import pytest
from behaviour_support import eventually, make_table

import reverb
from reverb import rate_limiters

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has memory without a name")

WIDTH = 1 << 15
ROW_BYTES = 4 * WIDTH


def row(number):
    """A row that has one value throughout, and is large enough to be shared."""
    return np.full(WIDTH, number, np.float32)


def values(client, count, table="table"):
    """The values of `count` rows, oldest first; each row has one value throughout."""
    data = client.sample_batch(table, count).data[0]
    data = data.reshape(len(data), -1)
    assert (data == data[:, :1]).all()
    return [int(value) for value in data[:, 0]]


def traffic(server):
    """Bytes that a server says it has received, in shared memory or not."""
    return http_support.get(server, "server")["receive_bytes"]


@pytest.fixture
def unix(start):
    """Starts a server with a queue-like table, and gives it with a client over its socket."""

    def serve(**options):
        server, _ = start(make_table(sampler="fifo", max_times_sampled=1), **options)
        return server, reverb.Client(f"unix:{server.unix_path}")

    return serve


def test_inserts_of_large_rows_are_right(unix):
    server, client = unix()
    for number in range(50):
        client.insert(row(number), {"table": 1.0})
    client.insert_batch(np.stack([row(number) for number in range(50, 90)]), {"table": 1.0})
    assert sorted(values(client, 90)) == list(range(90))
    assert traffic(server) >= 90 * ROW_BYTES


def test_items_of_writers_are_right(unix):
    _, client = unix()
    with client.trajectory_writer(4) as writer:
        for number in range(100):
            writer.append(row(number))
            writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
    assert sorted(values(client, 100)) == list(range(100))


def test_many_writers_share_the_memory_of_their_client(unix):
    _, client = unix()
    writers = [client.trajectory_writer(1) for _ in range(20)]
    for number in range(200):
        writer = writers[number % len(writers)]
        writer.append(row(number))
        writer.create_item("table", 1.0, writer.history[-1:])
    for writer in writers:
        writer.flush()
        writer.close()
    assert sorted(values(client, 200)) == list(range(200))


def test_writers_of_a_full_table_go_on_when_it_has_room(start):
    # More items wait than descriptors may.
    server, _ = start(make_table(sampler="fifo", max_times_sampled=1, limiter=rate_limiters.Queue(5)))
    client = reverb.Client(f"unix:{server.unix_path}")
    writers = [client.trajectory_writer(1) for _ in range(50)]
    for number in range(150):
        writer = writers[number % len(writers)]
        writer.append(row(number))
        writer.create_item("table", 1.0, writer.history[-1:])
    assert sorted(value for _ in range(30) for value in values(client, 5)) == list(range(150))
    for writer in writers:
        writer.flush()
        writer.close()


@pytest.mark.parametrize("limit", [0, ROW_BYTES, 2 * ROW_BYTES])
def test_what_exceeds_the_limit_travels_over_the_socket(unix, limit):
    server, _ = unix()
    client = reverb.Client(f"unix:{server.unix_path}", max_shared_bytes=limit)
    client.insert_batch(np.stack([row(number) for number in range(10)]), {"table": 1.0})
    for number in range(10, 30):
        client.insert(row(number), {"table": 1.0})
    assert sorted(values(client, 30)) == list(range(30))


def test_a_writer_that_is_far_ahead_has_a_bounded_number_of_segments(unix):
    _, client = unix()
    with client.trajectory_writer(1) as writer:
        for number in range(600):
            writer.append(row(number))
            writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
    assert sorted(values(client, 600)) == list(range(600))


def test_data_of_a_client_that_goes_on_is_that_of_its_insert(unix):
    _, client = unix()
    data = row(7)
    client.insert(data, {"table": 1.0})
    data[:] = 8
    client.insert(data, {"table": 1.0})
    assert values(client, 2) == [7, 8]


WRITER = """
    import sys
    import numpy as np
    import reverb
    client = reverb.Client(sys.argv[1])
    with client.trajectory_writer(1) as writer:
        for number in range(10**9):
            writer.append(np.full(1 << 15, number % 1000, np.float32))
            writer.create_item("table", 1.0, writer.history[-1:])
            if number == 20:
                writer.flush()
                print("writes", flush=True)
"""


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_of_writers_that_are_killed(start):
    server, _ = start(make_table(sampler="uniform", max_size=100))
    before = descriptors()
    command = [sys.executable, "-c", textwrap.dedent(WRITER), f"unix:{server.unix_path}"]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            try:
                assert writer.stdout.readline() == "writes\n"
            finally:
                os.kill(writer.pid, signal.SIGKILL)
    eventually(lambda: descriptors() <= before + 2)
    client = reverb.Client(f"unix:{server.unix_path}")
    assert len(values(client, 50)) == 50, "each row is whole"


def test_a_writer_goes_on_with_the_next_server(start):
    server, _ = start(make_table(sampler="fifo", max_times_sampled=1))
    client = reverb.Client(f"localhost:{server.port}")
    far = reverb.Client(f"unix:{server.unix_path}")
    with far.trajectory_writer(1) as writer:
        for number in range(10):
            writer.append(row(number))
            writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
        assert sorted(values(client, 10)) == list(range(10))
        port = server.port
        server.stop(returns=True)
        server, _ = start(make_table(sampler="fifo", max_times_sampled=1), port=port)
        for number in range(10, 20):
            writer.append(row(number))
            writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
    assert sorted(values(far, 10)) == list(range(10, 20))


def test_a_child_that_was_forked_changes_nothing_of_its_parents_writer(start):
    server, _ = start(make_table(sampler="fifo", max_times_sampled=1, max_size=1000))
    program = """
        import gc, os, sys
        import numpy as np
        import reverb

        client = reverb.Client(sys.argv[1])
        writer = client.trajectory_writer(8, options=reverb.WriterOptions(max_chunk_length=8))

        def append(number):
            writer.append(np.full(1 << 15, number, np.float32))

        append(0)
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()
        # A chunk of eight rows is open.
        for number in range(1, 6):
            append(number)
        to_child, go_on = os.pipe()
        if (child := os.fork()) == 0:
            os.close(go_on)
            os.read(to_child, 1)
            # The parent has written a row to that chunk, where the next one of the child would be.
            try:
                append(-1)
            except reverb.errors.CancelledError:
                pass
            assert (writer.history[5].numpy() == 5).all()
            del writer
            gc.collect()
            os._exit(0)
        append(6)
        os.close(go_on)
        _, status = os.waitpid(child, 0)
        writer.create_item("table", 1.0, writer.history[-6:])
        for number in range(7, 60):
            append(number)
            writer.create_item("table", 1.0, writer.history[-6:])
        writer.flush()
        writer.close()
        print(os.waitstatus_to_exitcode(status))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), f"unix:{server.unix_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
    client = reverb.Client(f"unix:{server.unix_path}")
    (first,) = client.sample_batch("table", 1).data
    assert (first[0] == 0).all()
    for last in range(6, 60):
        (data,) = client.sample_batch("table", 1).data
        assert (data[0] == np.arange(last - 5, last + 1)[:, None]).all()
