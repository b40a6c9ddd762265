"""Inserts whose server goes away while they wait: the outcome is unknown, and the text of the error is dm-reverb's."""

import numpy as np
import pytest
from behaviour_support import Background, comes_true, insert_values, program

import reverb
from reverb import errors

pytestmark = pytest.mark.ports

# Programs written for dm-reverb compare this text.
SENTENCE = "Error when confirming that all items written to table."

SERVER_PROGRAM = """
    import sys, reverb
    server = reverb.Server([reverb.Table.queue("full", max_size=1)])
    server.localhost_client().insert(7, {"full": 1.0})
    print(server.port, server.unix_path, flush=True)
    sys.stdin.read()
"""

CALLS = {
    "insert": lambda client: client.insert(1, {"full": 1.0}),
    "insert_batch": lambda client: client.insert_batch(np.zeros(3), {"full": 1.0}),
}


@pytest.fixture(params=CALLS.values(), ids=CALLS.keys())
def call(request):
    return request.param


def assert_waits(call):
    assert not comes_true(lambda: not call.is_running, patience_s=0.3)


def test_a_waiting_insert_says_that_its_outcome_is_unknown_when_the_server_stops(serve, call):
    client = serve(reverb.Table.queue("full", max_size=1))
    insert_values(client, [0], table="full")
    waiting = Background(call, client)
    assert_waits(waiting)
    serve.server.stop()
    with pytest.raises(RuntimeError) as caught:
        waiting.result()
    assert str(caught.value) == SENTENCE
    cause = caught.value.__cause__
    assert type(cause) is type(caught.value)
    assert isinstance(cause, (errors.CancelledError, errors.UnavailableError))
    assert str(cause) != SENTENCE


@pytest.mark.parametrize("road", ["unix", "tcp"])
def test_a_waiting_insert_says_that_its_outcome_is_unknown_when_the_server_is_killed(road, call):
    with program(SERVER_PROGRAM) as server:
        port, path = server.line().split()
        client = reverb.Client(f"unix:{path}" if road == "unix" else f"ipv4:127.0.0.1:{port}")
        client.server_info()
        waiting = Background(call, client)
        assert_waits(waiting)
        server.kill()
        with pytest.raises(errors.UnavailableError) as caught:
            waiting.result()
    assert str(caught.value) == SENTENCE
    assert isinstance(caught.value.__cause__, errors.UnavailableError)


def test_an_insert_that_reached_no_server_or_was_refused_has_another_text(serve, call):
    client = serve(reverb.Table.queue("other", max_size=1))
    with pytest.raises(errors.TableNotFoundError) as refused:
        call(client)
    serve.server.stop()
    # A client of its own: it has had no connection.
    with pytest.raises((errors.UnavailableError, errors.DeadlineExceededError)) as unreachable:
        serve.connect().insert(1, {"full": 1.0}, timeout=0.5)
    for caught in (refused, unreachable):
        assert SENTENCE not in str(caught.value)
        assert caught.value.__cause__ is None
