"""Calls that sample from a server in another process, which goes away and comes back at its address."""

import pathlib
import re
import signal

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, comes_true, program

import reverb
from reverb import errors
from reverb.loaders import NumpyLoader

pytestmark = pytest.mark.ports

SERVER_PROGRAM = """
    import sys, reverb
    server = reverb.Server([reverb.Table.queue("queue", max_size=10)], port=int(sys.argv[1]) if sys.argv[1:] else None)
    print(server.port, server.unix_path, flush=True)
    if sys.stdin.readline() == "stop\\n":
        server.stop(returns=True)
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


# A server that saves when it stops, as one under a supervisor does.
SAVING_PROGRAM = """
    import signal, sys, reverb
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = reverb.Server(
        [reverb.Table.queue("queue", max_size=10), reverb.Table.queue("full", max_size=1)],
        port=int(sys.argv[2]) if sys.argv[2:] else None,
        checkpointer=reverb.checkpointers.DefaultCheckpointer(sys.argv[1], save_on_stop=True),
    )
    print(server.port, server.unix_path, flush=True)
    server.wait()
"""
ENDS = {signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}


def end(server, number):
    server.process.send_signal(number)
    assert server.process.wait(PATIENCE_S) == ENDS[number]


def documented_helper():
    """Returns the function that docs/restarts.md shows."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "restarts.md").read_text()
    [code] = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def sample_batch(" in code]
    names = {}
    exec(code, names)
    return names["sample_batch"]


@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
def test_the_documented_helper_survives_a_restart(far_client, tmp_path, number):
    with program(SAVING_PROGRAM, tmp_path) as server:
        client, port = far_client(server)
        waiting = Background(documented_helper(), client, "queue", 1)
        assert waits(waiting)
        end(server, number)
    with program(SAVING_PROGRAM, tmp_path, port) as again:
        again.line()
        put(port, 7)
        assert np.ravel(waiting.result().data[0]).tolist() == [7]


def write(client):
    writer = client.trajectory_writer(num_keep_alive_refs=1, reconnect_timeout=0)
    try:
        writer.append([1])
        writer.create_item("full", 1.0, [writer.history[0][:]])
        writer.flush()
    finally:
        writer.close()


WAITING_CALLS = [
    lambda client: next(client.sample("queue", reconnect_timeout=0)),
    lambda client: client.sample_batch("queue", 1),
    lambda client: client.insert(1, {"full": 1.0}),
    lambda client: client.insert_batch(np.ones(1), {"full": 1.0}),
    lambda client: next(NumpyLoader(client, "queue", batch_size=1, reconnect_timeout=0)),
    write,
]


@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
def test_a_server_that_goes_away_is_one_class_of_error(far_client, tmp_path, number):
    with program(SAVING_PROGRAM, tmp_path) as server:
        client, port = far_client(server)
        client.insert(0, {"full": 1.0})
        waiting = [Background(call, client) for call in WAITING_CALLS]
        assert not comes_true(lambda: not all(one.is_running for one in waiting), patience_s=0.5)
        end(server, number)
        for one in waiting:
            with pytest.raises(errors.UnavailableError):
                one.result()
    with program(SAVING_PROGRAM, tmp_path, port) as again:
        again.line()
        client.insert(7, {"queue": 1.0})
        assert call(client) == 7


def test_a_wait_that_a_stop_ends_is_a_cancelled_call_too(serve_far):
    client = serve_far(reverb.Table.queue("queue", max_size=10))
    waiting = Background(client.sample_batch, "queue", 1)
    assert waits(waiting)
    serve_far.server.stop(returns=True)
    with pytest.raises(errors.CallCancelledError, match="the server was stopped"):
        waiting.result()
