"""Batches in memory that a server shares with clients of its host."""

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import textwrap

import http_support
import numpy as np
import pytest
from behaviour_support import eventually, make_table

import reverb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has memory without a name")

# A batch of these is large enough to be shared.
ROWS, WIDTH, BATCH = 64, 2048, 32
BATCH_BYTES = BATCH * WIDTH * 4


def fill(client, table="table"):
    """Inserts rows that each have one value throughout: their number."""
    client.insert_batch(np.repeat(np.arange(ROWS, dtype=np.float32)[:, None], WIDTH, axis=1), {table: 1.0})


def start_filled(start, sampler="uniform", **options):
    """Returns a server with rows, and a client of it that uses its Unix socket although it is in the same process."""
    server, own = start(make_table(sampler=sampler), **options)
    fill(own)
    return server, reverb.Client(f"unix:{server.unix_path}")


def check(batch):
    """Checks that each row has one value. Returns the rows."""
    data = batch.data[0][:, 0]
    assert (data == data[:, :1]).all()
    assert set(data[:, 0]) <= set(range(ROWS))
    return data


def shared_of(server):
    """The bytes that a server shares, as its page says."""
    return http_support.get(server, "server")["shared_bytes"]


def mappings():
    """Number of segments that this process has mapped, of its servers or as a client. Those of earlier tests may go."""
    gc.collect()
    with open("/proc/self/maps") as maps:
        return sum("memfd:reverb" in line for line in maps)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_large_batches_are_shared_and_right(start):
    server, client = start_filled(start)
    for size in (BATCH, 3 * BATCH, BATCH, 50 * BATCH):
        for _ in range(20):
            check(client.sample_batch("table", size))
    assert client.road == "unix"
    assert shared_of(server) >= BATCH_BYTES


def test_arrays_are_writable_and_what_is_written_never_comes_back(start):
    _, client = start_filled(start)
    for number in range(100):
        data = check(client.sample_batch("table", BATCH))
        # Whole pages, parts of pages, and nothing.
        data[number % BATCH :: 5, : 1 + 37 * number % WIDTH] = -1.0
        del data


def test_arrays_that_are_kept_never_change(start):
    _, client = start_filled(start)
    kept = [check(client.sample_batch("table", BATCH)) for _ in range(8)]
    copies = [data.copy() for data in kept]
    for _ in range(200):
        check(client.sample_batch("table", BATCH))
    for data, copy in zip(kept, copies, strict=True):
        assert np.array_equal(data, copy)


def test_one_column_keeps_the_segment_of_its_batch(start):
    server, own = start(make_table(sampler="uniform"))
    rows = [np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH), np.arange(ROWS)]
    own.insert_batch(rows, {"table": 1.0})
    client = reverb.Client(f"unix:{server.unix_path}")
    small = [client.sample_batch("table", BATCH).data[1] for _ in range(10)]
    copies = [column.copy() for column in small]
    for _ in range(100):
        client.sample_batch("table", BATCH)
    assert all(np.array_equal(column, copy) for column, copy in zip(small, copies, strict=True))


def test_a_client_that_keeps_everything_gets_the_rest_over_the_socket(start):
    server, own = start(make_table(sampler="uniform"), max_shared_bytes=8 * BATCH_BYTES)
    fill(own)
    client, other = (reverb.Client(f"unix:{server.unix_path}") for _ in range(2))
    kept = [check(client.sample_batch("table", BATCH)) for _ in range(20)]
    # One client may use half.
    assert 3 * BATCH_BYTES <= shared_of(server) <= 4 * BATCH_BYTES
    before = shared_of(server)
    check(other.sample_batch("table", BATCH))
    assert shared_of(server) > before, "another client has room"
    copies = [data.copy() for data in kept]
    for _ in range(20):
        check(client.sample_batch("table", BATCH))
    assert all(np.array_equal(data, copy) for data, copy in zip(kept, copies, strict=True))
    assert shared_of(server) <= 8 * BATCH_BYTES


def test_many_draws_at_once_do_not_exceed_the_descriptors_that_may_wait(start):
    server, _ = start_filled(start)

    async def draw():
        async with reverb.aio.Client(f"unix:{server.unix_path}") as client:
            for _ in range(2):
                for batch in await asyncio.gather(*(client.sample_batch("table", 8) for _ in range(1000))):
                    check(batch)

    asyncio.run(draw())


def test_the_limit_of_a_client_bounds_what_it_shares(start):
    server, own = start(make_table(sampler="uniform"))
    fill(own)
    client = reverb.Client(f"unix:{server.unix_path}", max_shared_bytes=2 * BATCH_BYTES)
    kept = [check(client.sample_batch("table", BATCH)) for _ in range(10)]
    assert BATCH_BYTES <= shared_of(server) <= 2 * BATCH_BYTES
    assert len(kept) == 10


@pytest.mark.parametrize("side", ["client", "server"])
def test_without_shared_memory_the_socket_carries_everything(start, side):
    server, own = start(make_table(sampler="uniform"), max_shared_bytes=0 if side == "server" else None)
    fill(own)
    client = reverb.Client(f"unix:{server.unix_path}", max_shared_bytes=0 if side == "client" else None)
    for _ in range(5):
        check(client.sample_batch("table", BATCH))
    assert client.road == "unix (no shared memory)"
    assert shared_of(server) == 0


def test_tcp_shares_nothing(start):
    server, own = start(make_table(sampler="uniform"))
    fill(own)
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    check(client.sample_batch("table", BATCH))
    assert (client.road, shared_of(server)) == ("tcp", 0)


def test_small_batches_travel_over_the_socket(start):
    server, client = start_filled(start)
    check(client.sample_batch("table", 1))
    assert shared_of(server) == 0


@pytest.mark.parametrize("wrong", [-1, 2**63, 1.5, "1"])
def test_wrong_limits_are_refused(start, wrong):
    with pytest.raises((TypeError, ValueError), match="max_shared_bytes"):
        reverb.Client("localhost:1", max_shared_bytes=wrong)
    with pytest.raises((TypeError, ValueError), match="max_shared_bytes"):
        start(make_table(), max_shared_bytes=wrong)


def test_segments_that_are_not_used_any_more_are_dropped(start):
    server, client = start_filled(start)
    check(client.sample_batch("table", 64 * BATCH))
    large = shared_of(server)
    for _ in range(100):
        check(client.sample_batch("table", BATCH))
    assert BATCH_BYTES <= shared_of(server) < large / 8


def test_nothing_is_left_when_the_client_closes(start):
    before = mappings()
    server, client = start_filled(start)
    client.server_info()
    opened = descriptors()
    kept = [check(client.sample_batch("table", BATCH)) for _ in range(5)]
    assert mappings() >= before + 10, "each segment is mapped twice, since both ends are in this process"
    assert descriptors() <= opened + 2, "descriptors are closed once their segments are mapped"
    client.close()
    del client
    eventually(lambda: shared_of(server) == 0)
    for data in kept:
        assert (data == data[:, :1]).all()
    del kept, data
    server.stop()
    eventually(lambda: mappings() <= before)


@contextlib.contextmanager
def process(program, *arguments):
    """Runs a program, and kills it in the end."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


CHILD = """
    import sys
    import reverb
    client = reverb.Client(sys.argv[1])
    kept = [client.sample_batch("table", 32) for _ in range(4)]
    print("drawn", flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_of_a_client_that_is_killed(start):
    server, own = start(make_table(sampler="uniform"))
    fill(own)
    before = mappings()
    with process(CHILD, f"unix:{server.unix_path}") as child:
        assert child.stdout.readline() == "drawn\n"
        assert shared_of(server) >= 4 * BATCH_BYTES
    eventually(lambda: shared_of(server) == 0 and mappings() <= before)
    check(own.sample_batch("table", BATCH))


SERVER = """
    import sys
    import numpy as np
    import reverb
    selectors = reverb.selectors
    table = reverb.Table("table", selectors.Uniform(), selectors.Fifo(), 1000, reverb.rate_limiters.MinSize(1))
    server = reverb.Server([table])
    client = reverb.Client(f"localhost:{server.port}")
    client.insert_batch(np.repeat(np.arange(64, dtype=np.float32)[:, None], 2048, axis=1), {"table": 1.0})
    print(server.unix_path, flush=True)
    sys.stdin.read()
"""


def test_arrays_outlive_a_server_that_is_killed():
    before = mappings()
    with process(SERVER) as child:
        client = reverb.Client(f"unix:{child.stdout.readline().strip()}")
        kept = [check(client.sample_batch("table", BATCH)) for _ in range(3)]
        assert mappings() == before + 3
        copies = [data.copy() for data in kept]
    assert all(np.array_equal(data, copy) for data, copy in zip(kept, copies, strict=True))
    client.close()
    del kept, client
    eventually(lambda: mappings() <= before)


def test_arrays_of_a_forked_child_never_change():
    program = """
        import os, sys
        import numpy as np
        import reverb
        client = reverb.Client(sys.argv[1])
        kept = [client.sample_batch("table", 32).data[0] for _ in range(3)]
        free = client.sample_batch("table", 32)
        del free
        copies = [data.copy() for data in kept]
        to_child, go_on = os.pipe()
        if os.fork() == 0:
            os.close(go_on)
            os.read(to_child, 1)
            # The parent has drawn many batches.
            is_same = all(np.array_equal(data, copy) for data, copy in zip(kept, copies))
            os._exit(0 if is_same else 3)
        del kept
        for _ in range(1000):
            data = client.sample_batch("table", 32).data[0]
            assert (data == data[:, :, :1]).all()
        os.close(go_on)
        _, status = os.wait()
        print(os.waitstatus_to_exitcode(status), sum("memfd:reverb" in line for line in open("/proc/self/maps")))
    """
    with process(SERVER) as server:
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                textwrap.dedent(program),
                f"unix:{server.stdout.readline().strip()}",
            ],
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
    status, mapped = done.stdout.split()
    assert status == "0", "arrays of the child have changed"
    assert int(mapped) <= 2, "segments that a child may see are given up"


def test_descriptors_that_nobody_asked_for_are_closed(start):
    server, _ = start_filled(start)
    before = descriptors()
    with socket.socket(socket.AF_UNIX) as hostile, open("/dev/null") as null:
        hostile.connect(server.unix_path)
        for _ in range(50):
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(hostile, [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], [null.fileno()] * 10)
        eventually(lambda: descriptors() <= before + 10)
    eventually(lambda: descriptors() <= before)
