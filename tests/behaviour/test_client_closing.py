"""`Client.close` and `with Client(...)`: what is over then, and what goes on."""

import pickle

import numpy as np
import pytest
from behaviour_support import Background, draw_values, eventually, info_of, insert_values, make_table

import reverb
from reverb import errors, rate_limiters
from reverb.loaders import NumpyLoader

CALLS = {
    "insert": lambda client: client.insert(np.int64(7), {"table": 1.0}),
    "insert_batch": lambda client: client.insert_batch(np.arange(3), {"table": 1.0}),
    "sample_batch": lambda client: client.sample_batch("table", 1),
    "sample": lambda client: next(client.sample("table", 1)),
    "update_priorities": lambda client: client.update_priorities("table", [1], 2.0),
    "server_info": lambda client: client.server_info(),
    "trajectory_writer": lambda client: client.trajectory_writer(1),
    "structured_writer": lambda client: client.structured_writer([config()]),
    "loader": lambda client: next(NumpyLoader(client, "table", batch_size=1)),
}


def config():
    pattern = reverb.structured.pattern_from_transform(0, lambda step: step[-1])
    return reverb.structured.create_config(pattern, "table")


@pytest.mark.parametrize("call", CALLS)
def test_closed_client_refuses_calls(serve, call):
    insert_values(serve(make_table()), range(5))
    with serve.connect() as client:
        assert len(draw_values(client)) == 1
    with pytest.raises(errors.CancelledError, match="the client was closed") as raised:
        CALLS[call](client)
    assert not raised.value.is_transient
    client.close()
    assert draw_values(serve.connect()) == [0]


def test_client_that_was_not_used_can_be_closed():
    client = reverb.Client("localhost:1")
    client.close()
    with pytest.raises(errors.CancelledError, match="the client was closed"):
        client.server_info()


def test_copy_of_a_closed_client_is_open(client):
    client.close()
    assert "table" in pickle.loads(pickle.dumps(client)).server_info()


def test_close_ends_waiting_calls_of_other_threads(serve):
    client = serve(reverb.Table.queue("full", 1), reverb.Table.queue("empty", 9))
    insert_values(client, [0], "full")
    other = serve.connect()
    insert_values(other, [1], "empty")
    assert draw_values(other, 1, "empty") == [1]
    calls = [
        Background(other.insert, np.int64(2), {"full": 1.0}),
        Background(other.sample_batch, "empty", 1),
    ]
    eventually(lambda: info_of(client, "full").waiting_inserts == 1)
    eventually(lambda: info_of(client, "empty").waiting_samples == 1)
    other.close()
    for call in calls:
        with pytest.raises(errors.ReverbError, match="the client was closed"):
            call.result()
    eventually(lambda: info_of(client, "empty").waiting_samples == 0)
    insert_values(client, [3], "empty")
    assert draw_values(client, 1, "empty") == [3]


def test_close_tells_the_server_which_batches_the_program_has(serve):
    client = serve(reverb.Table.queue("table", 9))
    insert_values(client, range(4))
    with serve.connect() as reader:
        reader.sample_batch("table", 2)
    info = info_of(client)
    assert (info.current_size, info.undelivered_samples) == (2, 0)


def test_writers_of_a_closed_client_go_on(serve):
    serve(make_table())
    with serve.connect() as client:
        writer = client.trajectory_writer(1)
        writer.append([np.int64(1)])
        writer.create_item("table", 1.0, [writer.history[0][-1:]])
    writer.append([np.int64(2)])
    writer.create_item("table", 1.0, [writer.history[0][-1:]])
    writer.flush()
    assert info_of(serve.connect()).current_size == 2


def test_limiter_that_lets_nobody_draw_does_not_keep_a_closed_client(serve):
    client = serve(make_table(limiter=rate_limiters.MinSize(5)))
    with serve.connect() as reader:
        waiting = Background(reader.sample_batch, "table", 1, 60.0)
        eventually(lambda: info_of(client).waiting_samples == 1)
    with pytest.raises(errors.CancelledError):
        waiting.result()
