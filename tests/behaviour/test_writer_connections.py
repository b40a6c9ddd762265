"""Writers whose server, or connection to it, goes away."""

import collections
import signal
import threading
import time

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, Proxy, draw, eventually, info_of, make_table, program, run_program

import reverb
from reverb import errors

pytestmark = pytest.mark.ports

SERVER = """
    import sys, reverb

    table = reverb.Table(
        "table", reverb.selectors.Fifo(), reverb.selectors.Fifo(), max_size=1_000_000,
        max_times_sampled=1, rate_limiter=reverb.rate_limiters.MinSize(1),
    )
    server = reverb.Server([table], port=int(sys.argv[1]))
    print(server.port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def proxied():
    """Yields a client that reaches its server through a proxy, the proxy, and a client of the same process."""
    server = reverb.Server([make_table(max_times_sampled=1), reverb.Table.queue("queue", 1)])
    proxy = Proxy(server.port)
    yield reverb.Client(f"ipv4:127.0.0.1:{proxy.port}"), proxy, reverb.Client(f"localhost:{server.port}")
    proxy.close()
    server.stop()


def write(writer, value, table="table"):
    writer.append(np.int64(value))
    writer.create_item(table, 1.0, writer.history[-1])


def test_resent_items_are_not_inserted_again_even_if_they_have_left_their_table(proxied):
    client, proxy, near = proxied
    writer = client.trajectory_writer(1)
    write(writer, 0)
    writer.flush()
    proxy.answers = False
    for value in range(1, 6):
        write(writer, value)
    eventually(lambda: info_of(near).current_size == 6)
    assert [int(sample.data[0]) for sample in draw(near, 6)] == list(range(6))
    assert info_of(near).current_size == 0
    proxy.answers = True
    proxy.cut()
    write(writer, 6)
    writer.flush(timeout_ms=int(PATIENCE_S * 1000))
    assert [int(sample.data[0]) for sample in draw(near, info_of(near).current_size)] == [6]


def test_items_waiting_in_the_server_are_neither_lost_nor_duplicated(proxied):
    client, proxy, near = proxied
    writer = client.trajectory_writer(1)
    for value in range(5):
        write(writer, value, "queue")
    eventually(lambda: info_of(near, "queue").current_size == 1)
    for _ in range(3):
        proxy.cut()
        time.sleep(0.05)
    got = [int(draw(near, 1, "queue")[0].data[0]) for _ in range(5)]
    assert got == list(range(5))
    writer.flush(timeout_ms=int(PATIENCE_S * 1000))
    assert info_of(near, "queue").current_size == 0


def test_waiting_items_keep_their_numbers_when_others_between_them_were_confirmed(proxied):
    client, proxy, near = proxied
    writer = client.trajectory_writer(1)
    for value in range(6):
        write(writer, value, "table" if value % 2 else "queue")
    # One item is in the queue and three are in the table. Two wait for room in the queue, with a confirmed one between.
    writer.flush(block_until_num_items=2, timeout_ms=int(PATIENCE_S * 1000))
    proxy.cut()
    got = [int(draw(near, 1, "queue")[0].data[0]) for _ in range(3)]
    assert got == [0, 2, 4]
    writer.flush(timeout_ms=int(PATIENCE_S * 1000))
    assert [int(sample.data[0]) for sample in draw(near, 3)] == [1, 3, 5]
    assert info_of(near).current_size == 0


def test_connection_losses_at_any_moment_neither_lose_nor_duplicate_items(proxied):
    client, proxy, near = proxied
    writer = client.trajectory_writer(3)
    random = np.random.default_rng(3)
    for value in range(400):
        writer.append(np.int64(value))
        if value >= 2:
            writer.create_item("table", 1.0, writer.history[-3:])
        if random.random() < 0.05:
            proxy.cut()
        if random.random() < 0.05:
            writer.flush(timeout_ms=int(PATIENCE_S * 1000))
    writer.flush(timeout_ms=int(PATIENCE_S * 1000))
    assert info_of(near).current_size == 398
    got = [sample.data[0].tolist() for sample in draw(near, 398)]
    assert sorted(got) == [[i, i + 1, i + 2] for i in range(398)]


def test_writers_resume_at_a_server_that_was_killed_and_restarted():
    values = collections.defaultdict(list)
    with program(SERVER, 0) as first:
        port = int(first.line())
        client = reverb.Client(f"ipv4:127.0.0.1:{port}")
        stop = threading.Event()

        def run(number):
            writer = client.trajectory_writer(1)
            value = 0
            while not stop.is_set():
                write(writer, number * 1_000_000 + value)
                values[number].append(number * 1_000_000 + value)
                value += 1
                writer.flush(100)
            writer.flush(timeout_ms=int(PATIENCE_S * 1000))
            writer.close()

        writers = [Background(run, number) for number in range(8)]
        eventually(lambda: sum(map(len, values.values())) > 4000)
        first.kill()
    with program(SERVER, port):
        before = sum(map(len, values.values()))
        eventually(lambda: sum(map(len, values.values())) > before + 4000)
        stop.set()
        for writer in writers:
            writer.result()
        again = reverb.Client(f"ipv4:127.0.0.1:{port}")
        size = info_of(again).current_size
        # The new server has the last items of each writer, without a gap or a duplicate.
        found = collections.defaultdict(list)
        for sample in again.sample("table", size, emit_timesteps=False):
            found[int(sample.data[0]) // 1_000_000].append(int(sample.data[0]))
        for number, written in values.items():
            assert found[number] == written[-len(found[number]) :]
            assert len(found[number]) > 100


def test_a_server_that_stays_away_is_named_with_the_unconfirmed_items():
    server = reverb.Server([make_table()])
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    writer = client.trajectory_writer(1, reconnect_timeout=0.5)
    write(writer, 0)
    writer.flush()
    server.stop(returns=True)
    for value in range(3):
        write(writer, value)
    with pytest.raises(errors.UnavailableError, match=r"3 items were not confirmed \(3 for table `table`\)"):
        writer.flush()
    with pytest.raises(errors.UnavailableError):
        write(writer, 3)
    writer.close()


def test_a_flush_that_waits_for_a_lost_server_raises_at_its_timeout():
    server = reverb.Server([make_table()])
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    writer = client.trajectory_writer(1)
    write(writer, 0)
    writer.flush()
    server.stop(returns=True)
    write(writer, 1)
    eventually(lambda: not _is_sent(writer))
    with pytest.raises(errors.DeadlineExceededError, match="1 item is not in its table yet"):
        writer.flush(timeout_ms=200)
    start = time.monotonic()
    writer.close()
    assert time.monotonic() - start < 10


def _is_sent(writer):
    try:
        writer.flush(timeout_ms=0)
    except errors.DeadlineExceededError:
        return False
    return True


def test_ctrl_c_ends_a_waiting_flush(road):
    with program(
        """
        import sys, reverb

        server = reverb.Server([reverb.Table.queue("table", 1)])
        address = {"same_process": f"localhost:{server.port}", "unix": f"unix:{server.unix_path}",
                   "tcp": f"ipv4:127.0.0.1:{server.port}"}[sys.argv[1]]
        writer = reverb.Client(address).trajectory_writer(1)
        for value in range(3):
            writer.append(value)
            writer.create_item("table", 1.0, writer.history[-1:])
        print("waiting", flush=True)
        try:
            writer.flush()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        writer.close()
        """,
        road,
    ) as running:
        assert running.line() == "waiting"
        time.sleep(0.3)
        running.process.send_signal(signal.SIGINT)
        assert running.line() == "interrupted"
        _, err = running.end()
        assert "2 items were not confirmed" in err


@pytest.mark.parametrize("kept", ["writer = make()", "make_and_drop()"])
def test_a_program_that_exits_without_closing_delivers_what_it_can(serve_far, kept):
    client = serve_far(make_table())
    run_program(
        f"""
        import sys, reverb

        def make():
            writer = reverb.Client(sys.argv[1]).trajectory_writer(10, max_chunk_length=10)
            writer.append(1)
            writer.create_item("table", 1.0, writer.history[-1:])
            return writer

        def make_and_drop():
            make()

        {kept}
        """,
        serve_far.address,
    )
    assert info_of(client).current_size == 1


def test_a_writer_made_before_a_fork_is_refused_in_the_child(road):
    run_program(
        """
        import multiprocessing, sys, warnings, reverb

        warnings.simplefilter("ignore")
        server = reverb.Server([reverb.Table.queue("table", 100)])
        address = {"same_process": f"localhost:{server.port}", "unix": f"unix:{server.unix_path}",
                   "tcp": f"ipv4:127.0.0.1:{server.port}"}[sys.argv[1]]
        client = reverb.Client(address)
        writer = client.trajectory_writer(1)
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[-1:])
        writer.flush()

        def child():
            try:
                writer.append(2)
            except RuntimeError as error:
                assert "child" in str(error)
            else:
                raise AssertionError
            own = client.trajectory_writer(1)
            own.append(3)
            own.create_item("table", 1.0, own.history[-1:])
            own.flush()

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(50)
        assert process.exitcode == 0, process.exitcode
        assert client.server_info()["table"].current_size == 2
        """,
        road,
    )


def test_a_thousand_writers_share_a_client(serve):
    client = serve(make_table(max_size=100_000))
    writers = [client.trajectory_writer(1) for _ in range(1000)]
    for value in range(3):
        for number, writer in enumerate(writers):
            write(writer, 1000 * number + value)
    for writer in writers:
        writer.flush()
    assert info_of(client).current_size == 3000
    for writer in writers:
        writer.close()
