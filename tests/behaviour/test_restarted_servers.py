"""Calls that sample from a server in another process, which goes away and comes back at its address."""

import pytest
from behaviour_support import Background, comes_true, program

import reverb
from reverb import errors

pytestmark = pytest.mark.ports

SERVER_PROGRAM = """
    import sys, reverb
    server = reverb.Server([reverb.Table.queue("queue", max_size=10)], port=int(sys.argv[1]) if sys.argv[1:] else None)
    print(server.port, server.unix_path, flush=True)
    if sys.stdin.readline() == "stop\\n":
        server.stop()
        print("stopped", flush=True)
        sys.stdin.read()
"""


def call(client, **options):
    return next(client.sample("queue", emit_timesteps=False, **options)).data[0][0]


@pytest.fixture(params=["unix", "tcp"])
def far_client(request):
    """Makes a client of a running server program."""

    def connect(server):
        port, path = server.line().split()
        client = reverb.Client(f"unix:{path}" if request.param == "unix" else f"ipv4:127.0.0.1:{port}")
        client.server_info()
        return client, port

    return connect


def waits(call):
    return not comes_true(lambda: not call.is_running, patience_s=0.3)


def put(port, value):
    reverb.Client(f"ipv4:127.0.0.1:{port}").insert(value, {"queue": 1.0})


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_a_waiting_call_goes_on_with_the_restarted_server(far_client, ending):
    with program(SERVER_PROGRAM) as server:
        client, port = far_client(server)
        waiting = Background(call, client)
        assert waits(waiting)
        if ending == "stopped":
            server.process.stdin.write("stop\n")
            server.process.stdin.flush()
            assert server.line() == "stopped"
        server.kill()
    with program(SERVER_PROGRAM, port) as again:
        again.line()
        put(port, 7)
        assert waiting.result() == 7


def test_a_call_that_begins_while_the_server_is_away_waits_for_it(far_client):
    with program(SERVER_PROGRAM) as server:
        client, port = far_client(server)
        put(port, 1)
        assert call(client) == 1
        server.kill()
    waiting = Background(call, client)
    assert waits(waiting)
    with program(SERVER_PROGRAM, port) as again:
        again.line()
        put(port, 2)
        assert waiting.result() == 2


def test_an_iterator_goes_on_after_the_server_came_back(far_client):
    with program(SERVER_PROGRAM) as server:
        client, port = far_client(server)
        put(port, 1)
        samples = client.sample("queue", 2, emit_timesteps=False)
        assert next(samples).data[0][0] == 1
        server.kill()
    with program(SERVER_PROGRAM, port) as again:
        again.line()
        put(port, 2)
        assert next(samples).data[0][0] == 2


def test_a_server_that_stays_away_is_an_error_after_the_timeout(far_client):
    with program(SERVER_PROGRAM) as server:
        client, _ = far_client(server)
        waiting = [Background(call, client, reconnect_timeout=seconds) for seconds in (0, 0.5)]
        limited = Background(call, client, timeout=2)
        assert all(waits(one) for one in waiting)
        server.kill()
    for one in waiting:
        with pytest.raises(errors.UnavailableError):
            one.result()
    with pytest.raises(errors.DeadlineExceededError):
        limited.result()


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_the_reconnect_timeout_is_not_negative(client, seconds):
    with pytest.raises(ValueError, match="must not be negative"):
        next(client.sample("table", reconnect_timeout=seconds))
