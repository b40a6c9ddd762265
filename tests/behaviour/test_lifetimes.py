"""Servers that are unreachable, go away, come back, or end with their program."""

import os
import pickle
import socket

import numpy as np
import pytest
from behaviour_support import (
    PATIENCE_S,
    Background,
    comes_true,
    draw_values,
    eventually,
    info_of,
    insert_values,
    make_table,
    num_samples,
    program,
    run_program,
)

import reverb
from reverb import errors

pytestmark = pytest.mark.ports

# A server that stops can still tell the reason; one whose connection is cut can not.
GONE = (errors.CancelledError, errors.UnavailableError)

SERVER_PROGRAM = """
    import sys, numpy, reverb
    tables = [
        reverb.Table.queue("empty", max_size=10),
        reverb.Table.queue("full", max_size=1),
        reverb.Table("table", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 10, reverb.rate_limiters.MinSize(1)),
    ]
    server = reverb.Server(tables=tables, port=int(sys.argv[1]) if len(sys.argv) > 1 else None)
    server.localhost_client().insert(numpy.int64(7), {"table": 1.0})
    print(server.port, server.unix_path, flush=True)
    sys.stdin.read()
"""

CALLS = {
    "insert": lambda client: client.insert(1, {"table": 1.0}),
    "insert_batch": lambda client: client.insert_batch(np.zeros(3), {"table": 1.0}),
    "sample": lambda client: next(client.sample("table", reconnect_timeout=0)),
    "sample_batch": lambda client: client.sample_batch("table", 3),
    "mutate_priorities": lambda client: client.mutate_priorities("table", updates={1: 1.0}),
    "update_priorities": lambda client: client.update_priorities("table", np.ones(1, np.uint64), np.ones(1)),
    "reset": lambda client: client.reset("table"),
    "server_info": lambda client: client.server_info(),
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("address", ["", "not an address", "localhost:1", "unix:/nowhere", "ipv4:127.0.0.1:1"])
def test_making_a_client_contacts_nobody(address):
    assert reverb.Client(address).server_address == address


@pytest.mark.parametrize("address", [None, 5, b"localhost:1"])
def test_address_must_be_text(address):
    with pytest.raises(TypeError):
        reverb.Client(address)


def test_client_reports_its_road(serve, road):
    client = serve(make_table())
    client.server_info()
    assert client.road == road
    assert repr(client) == f"Client, server_address={serve.address}"


def test_localhost_client_is_a_client_of_the_server():
    with reverb.Server(tables=[make_table()]) as server:
        client = server.localhost_client()
        assert client.server_address == f"localhost:{server.port}"
        insert_values(client, [3])
        assert draw_values(client) == [3]


@pytest.mark.parametrize("address", ["localhost:{port}", "ipv4:127.0.0.1:{port}", "unix:/nonexistent/reverb-{port}"])
def test_every_call_to_an_unreachable_server_fails(address):
    # The calls run concurrently, since each tries to reach the server for some seconds before it gives up.
    port = free_port()
    waiting = [Background(call, reverb.Client(address.format(port=port))) for call in CALLS.values()]
    for one in waiting:
        with pytest.raises(errors.UnavailableError) as caught:
            one.result(patience_s=40)
        assert isinstance(caught.value, RuntimeError)


def test_timeout_ends_the_search_for_a_server():
    client = reverb.Client(f"ipv4:127.0.0.1:{free_port()}")
    for call in (
        lambda: client.insert(1, {"table": 1.0}, timeout=0.2),
        lambda: client.sample_batch("table", 1, timeout=0.2),
        lambda: client.reset("table", timeout=0.2),
        lambda: client.server_info(timeout=0.2),
    ):
        with pytest.raises((errors.DeadlineExceededError, errors.UnavailableError)):
            call()


def test_server_info_of_a_server_that_never_answers_ends_at_its_deadline():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = reverb.Client(f"ipv4:127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises((errors.DeadlineExceededError, errors.UnavailableError)):
            client.server_info(timeout=1)


def test_invalid_address_is_an_error():
    with pytest.raises((errors.UnavailableError, ValueError)):
        reverb.Client("not an address").server_info()


def test_every_call_after_the_server_stopped_fails(serve):
    client = serve(make_table())
    insert_values(client, [0])
    serve.server.stop()
    for one in [Background(call, client) for call in CALLS.values()]:
        with pytest.raises(GONE):
            one.result(patience_s=40)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_call_to_a_server_that_this_process_stopped_does_not_look_for_another(call):
    with reverb.Server(tables=[make_table()]) as server:
        client = server.localhost_client()
        client.server_info()
    for _ in range(2):
        # A client tries to reach a server that may still start for ten seconds.
        with pytest.raises(errors.UnavailableError, match="was stopped"):
            Background(call, client).result(patience_s=5)


@pytest.mark.parametrize("where", ["this process", "another process"])
def test_client_finds_the_server_that_replaced_a_stopped_one(where):
    with reverb.Server(tables=[make_table()]) as server:
        client = server.localhost_client()
        client.server_info()
    with pytest.raises(errors.UnavailableError):
        client.server_info()
    if where == "this process":
        with reverb.Server(tables=[make_table()], port=server.port) as again:
            insert_values(again.localhost_client(), [7])
            assert draw_values(client) == [7]
            assert client.road == "same_process"
    else:
        with program(SERVER_PROGRAM, server.port) as again:
            again.line()
            assert draw_values(client) == [7]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: next(client.sample("empty", reconnect_timeout=0)),
        lambda client: client.sample_batch("empty", 3),
        lambda client: client.sample_batch("empty", 3, timeout=600),
        lambda client: client.insert(1, {"full": 1.0}),
        lambda client: client.insert_batch(np.zeros(30), {"full": 1.0}),
    ],
    ids=["sample", "sample_batch", "sample_batch with timeout", "insert", "insert_batch"],
)
@pytest.mark.parametrize("returns", [False, True])
def test_stop_wakes_every_waiter(serve, road, call, returns):
    client = serve(reverb.Table.queue("empty", max_size=1), reverb.Table.queue("full", max_size=1))
    insert_values(client, [0], table="full")
    waiting = [Background(call, serve.connect()) for _ in range(3)]
    assert not comes_true(lambda: not all(one.is_running for one in waiting), patience_s=0.3)
    serve.server.stop(returns=returns)
    elsewhere = errors.UnavailableError if returns else errors.ServerStoppedError
    for one in waiting:
        with pytest.raises(errors.CancelledError if road == "same_process" else elsewhere) as raised:
            one.result(patience_s=5)
        assert isinstance(raised.value, errors.UnavailableError) == (road != "same_process" and returns)


def test_stop_can_be_called_twice(serve):
    serve(make_table())
    assert serve.server.stop() is None
    assert serve.server.stop() is None


def test_context_manager_stops_the_server():
    with reverb.Server(tables=[make_table()]) as server:
        client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
        client.server_info()
    assert is_gone(client)


def test_wait_returns_when_the_server_stops(serve):
    serve(make_table())
    waiting = Background(serve.server.wait)
    assert not comes_true(lambda: not waiting.is_running, patience_s=0.1)
    serve.server.stop()
    waiting.result()


def test_server_that_is_dropped_stops(serve):
    client = serve(make_table())
    client.server_info()
    serve.servers.clear()
    eventually(lambda: is_gone(client))


def is_gone(client):
    try:
        client.server_info(timeout=1)
    except (*GONE, errors.DeadlineExceededError):
        return True
    return False


def far_client(road, port, unix_path):
    return reverb.Client(f"unix:{unix_path}" if road == "unix" else f"ipv4:127.0.0.1:{port}")


@pytest.mark.parametrize("road", ["unix", "tcp"])
def test_waiting_calls_fail_when_the_server_is_killed(road):
    with program(SERVER_PROGRAM) as server:
        client = far_client(road, *server.line().split())
        calls = (
            lambda: next(client.sample("empty", reconnect_timeout=0)),
            lambda: client.sample_batch("empty", 2),
            lambda: client.insert_batch(np.zeros(100), {"full": 1.0}),
        )
        waiting = [Background(call) for call in calls]
        assert not comes_true(lambda: not all(one.is_running for one in waiting), patience_s=0.3)
        server.kill()
        for one in waiting:
            with pytest.raises(errors.UnavailableError):
                one.result(patience_s=40)


@pytest.mark.timeout(120)
def test_client_finds_a_restarted_server():
    port = free_port()
    client = reverb.Client(f"ipv4:127.0.0.1:{port}")
    for _ in range(2):
        with program(SERVER_PROGRAM, port) as server:
            server.line()
            eventually(lambda: not is_gone(client))
            assert draw_values(client) == [7]
        assert is_gone(client)


def test_call_after_a_restart_between_calls_does_not_fail():
    port = free_port()
    client = reverb.Client(f"ipv4:127.0.0.1:{port}")
    for _ in range(3):
        with program(SERVER_PROGRAM, port) as server:
            server.line()
            assert draw_values(client) == [7]


def test_samples_of_a_dropped_client_stay_counted(serve_far):
    client = serve_far(make_table(sampler="uniform"))
    insert_values(client, range(10))
    reader = serve_far.connect()
    for _ in range(3):
        reader.sample_batch("table", 5)
    del reader
    assert not comes_true(lambda: num_samples(client) != 15, patience_s=0.5)


def test_samples_of_an_idle_client_stay_counted_when_it_is_killed(serve_far):
    client = serve_far(make_table(sampler="uniform"))
    insert_values(client, range(10))
    with program(
        """
        import sys, time, reverb
        client = reverb.Client(sys.argv[1])
        client.sample_batch("table", 5)
        time.sleep(1)
        print("idle", flush=True)
        sys.stdin.read()
        """,
        serve_far.address,
    ) as reader:
        assert reader.line() == "idle"
    assert not comes_true(lambda: num_samples(client) != 5, patience_s=0.5)


def test_client_prefers_the_unix_socket_of_a_server_on_its_host():
    with program(SERVER_PROGRAM) as server:
        port, unix_path = server.line().split()
        client = reverb.Client(f"localhost:{port}")
        assert draw_values(client) == [7]
        assert client.road == ("unix" if unix_path != "None" else "tcp")


def test_pickled_client_is_a_client_of_the_same_server(serve):
    client = serve(make_table())
    insert_values(client, [5])
    copy = pickle.loads(pickle.dumps(client))
    assert copy.server_address == client.server_address
    assert draw_values(copy) == [5]


@pytest.mark.parametrize(
    "ending",
    ["", "sys.exit(0)", "del server", "server.stop()", "server.stop(); server.stop()"],
    ids=["falls off", "exits", "drops the server", "stops it", "stops it twice"],
)
def test_program_with_a_running_server_exits_silently(ending):
    out, err = run_program(
        f"""
        import sys, numpy, reverb
        server = reverb.Server(tables=[reverb.Table.queue("table", max_size=10)])
        clients = [reverb.Client(a) for a in (f"localhost:{{server.port}}", f"ipv4:127.0.0.1:{{server.port}}")]
        for client in clients:
            client.insert(numpy.zeros(3), {{"table": 1.0}})
            client.sample_batch("table", 1)
        {ending}
        """
    )
    assert (out, err) == ("", "")


def test_program_with_waiting_threads_exits_silently():
    out, err = run_program(
        """
        import threading, time, reverb
        server = reverb.Server(tables=[reverb.Table.queue("table", max_size=10)])
        def wait(address):
            try:
                reverb.Client(address).sample_batch("table", 1)
            except reverb.ReverbError:
                pass
        for address in (f"localhost:{server.port}", f"ipv4:127.0.0.1:{server.port}"):
            threading.Thread(target=wait, args=(address,), daemon=True).start()
        time.sleep(0.3)
        """
    )
    assert (out, err) == ("", "")


def test_unix_socket_is_private_and_is_removed_with_the_server(serve):
    serve(make_table())
    path = serve.server.unix_path
    if path is None:
        pytest.skip("no Unix socket on this platform")
    assert os.stat(path).st_mode & 0o777 == 0o600
    serve.server.stop()
    assert not os.path.exists(path)


def test_killed_waiter_leaves_nothing_behind(serve_far):
    client = serve_far(reverb.Table.queue("table", max_size=100))
    insert_values(client, range(3))
    with program(
        """
        import sys, reverb
        client = reverb.Client(sys.argv[1])
        client.server_info()
        print("waits", flush=True)
        client.sample_batch("table", 10)
        """,
        serve_far.address,
    ) as waiter:
        assert waiter.line() == "waits"
        comes_true(lambda: num_samples(client) == 3, patience_s=1)
    insert_values(client, range(3, 6))
    batch = client.sample_batch("table", 6, timeout=PATIENCE_S, squeeze_time=True)
    assert sorted(batch.data[0].tolist()) == list(range(6))
    assert info_of(client).current_size == 0


def test_killed_inserter_leaves_nothing_behind(serve_far):
    client = serve_far(reverb.Table.queue("table", max_size=2))
    with program(
        """
        import sys, numpy, reverb
        client = reverb.Client(sys.argv[1])
        client.server_info()
        print("waits", flush=True)
        client.insert_batch(numpy.arange(10), {"table": 1.0})
        """,
        serve_far.address,
    ) as inserter:
        assert inserter.line() == "waits"
        eventually(lambda: info_of(client).current_size == 2)
    assert draw_values(client, 2) == [0, 1]
    # Whatever else of the batch was already in flight, the table keeps working.
    comes_true(lambda: info_of(client).current_size > 0, patience_s=0.5)
    client.reset("table")
    insert_values(client, [100])
    assert 100 in {draw_values(client)[0] for _ in range(info_of(client).current_size)}


READER_PROGRAM = """
    import sys, reverb
    client = reverb.Client(sys.argv[1])
    for _ in range(int(sys.argv[2])):
        print(*client.sample_batch("table", 5).data[0].ravel(), flush=True)
"""


def rest_of(client):
    """Returns all items left in a queue."""
    values = []
    while size := info_of(client).current_size:
        values += client.sample_batch("table", size, timeout=PATIENCE_S).data[0].ravel().tolist()
    return values


@pytest.mark.alone
def test_reader_that_is_killed_loses_nothing(serve_far):
    client = serve_far(reverb.Table.queue("table", max_size=5000))
    client.insert_batch(np.arange(5000), {"table": 1.0})
    with program(READER_PROGRAM, serve_far.address, 10_000) as reader:
        lines = [reader.line() for _ in range(20)]
        lines += reader.kill().splitlines()
    read = [int(value) for line in lines for value in line.split()]
    # Until the server notices that the reader is gone, a batch may still be leased to it.
    left = []

    def nothing_is_missing():
        left.extend(rest_of(client))
        return set(left) | set(read) >= set(range(5000))

    # The server may read a request of the reader after its end: a batch can be leased, and go back, after one look.
    eventually(nothing_is_missing)
    # The batch that it had, but could not confirm yet, is drawn again; a truncated line belongs to that batch.
    assert len(left) + len(read) <= 5005


def test_samples_that_a_program_received_do_not_go_back_when_it_ends(serve_far):
    client = serve_far(reverb.Table.queue("table", max_size=100))
    client.insert_batch(np.arange(50), {"table": 1.0})
    read = []
    for _ in range(5):
        out, _ = run_program(READER_PROGRAM, serve_far.address, 1)
        read += [int(value) for value in out.split()]
    assert read == list(range(25))
    assert rest_of(client) == list(range(25, 50))


def test_an_end_of_a_server_that_the_extension_does_not_know_is_refused():
    with reverb.Server([make_table()]) as server:
        with pytest.raises(ValueError, match='expected "for good".*"collected", got "for ever"'):
            server._end("for ever")
        client = server.localhost_client()
        client.insert([np.float32(1)], {"table": 1.0})
        assert client.server_info()["table"].current_size == 1
