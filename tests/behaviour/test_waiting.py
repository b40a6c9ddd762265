"""Calls that must wait: in order, with a deadline, with a logged reason, and interruptible by Ctrl-C."""

import logging
import signal
import time

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
)

import reverb
from reverb import errors, rate_limiters


def test_insert_with_a_timeout_raises_and_inserts_nothing(serve):
    client = serve(reverb.Table.queue("table", max_size=1))
    insert_values(client, [0])
    with pytest.raises(errors.DeadlineExceededError, match="table"):
        client.insert(np.int64(1), {"table": 1.0}, timeout=0.1)
    assert draw_values(client) == [0]
    assert info_of(client).current_size == 0
    insert_values(client, [2])
    assert draw_values(client) == [2]


def test_insert_with_a_timeout_succeeds_when_there_is_room(serve):
    client = serve(reverb.Table.queue("table", max_size=1))
    client.insert(np.int64(0), {"table": 1.0}, timeout=PATIENCE_S)
    assert draw_values(client) == [0]


def test_timeout_of_zero_does_not_wait(serve):
    client = serve(reverb.Table.queue("table", max_size=1))
    # Connects first, which has to be done within the timeout as well.
    client.server_info()
    client.insert(np.int64(0), {"table": 1.0}, timeout=0)
    with pytest.raises(errors.DeadlineExceededError):
        client.insert(np.int64(1), {"table": 1.0}, timeout=0)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_impossible_timeouts_are_refused(client, timeout):
    with pytest.raises(ValueError, match="timeout"):
        client.sample_batch("table", 1, timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        client.insert(1, {"table": 1.0}, timeout=timeout)


def test_abandoned_wait_leaves_no_trace(serve):
    client = serve(reverb.Table.queue("table", max_size=10))
    for _ in range(5):
        with pytest.raises(errors.DeadlineExceededError):
            client.sample_batch("table", 3, timeout=0.02)
    insert_values(client, range(3))
    assert draw_values(client, 3) == [0, 1, 2]


def test_timeout_error_reports_what_was_waited_for(serve):
    client = serve(make_table("replay", limiter=rate_limiters.MinSize(1000)))
    insert_values(client, range(3), table="replay")
    with pytest.raises(errors.DeadlineExceededError, match=r"(?s)replay.*3 of 1,000 so far"):
        client.sample_batch("replay", 1, timeout=0.1)


def test_waiting_samples_are_served_first_come_first_served(serve):
    client = serve(reverb.Table.queue("table", max_size=100))
    first = Background(serve.connect().sample_batch, "table", 20)
    insert_values(client, [0])
    eventually(lambda: num_samples(client) == 1)  # The first call is at the head of the queue now.
    second = Background(serve.connect().sample_batch, "table", 1)
    insert_values(client, range(1, 20))
    assert first.result().data[0].ravel().tolist() == list(range(20))
    insert_values(client, [20])
    assert second.result().data[0].ravel().tolist() == [20]


def test_waiting_inserts_of_a_client_are_served_first_come_first_served(serve):
    client = serve(reverb.Table.queue("table", max_size=1))
    actor = serve.connect()
    first = Background(actor.insert_batch, np.arange(10), {"table": 1.0})
    eventually(lambda: info_of(client).current_size == 1)
    second = Background(insert_values, actor, [10])
    assert draw_values(client, 11) == list(range(11))
    first.result()
    second.result()


def test_many_waiting_calls_are_all_served(serve):
    client = serve(reverb.Table.queue("table", max_size=5))
    waiting = [Background(draw_values, serve.connect()) for _ in range(20)]
    insert_values(client, range(20))
    assert sorted(one.result()[0] for one in waiting) == list(range(20))


def test_delete_and_reset_wake_waiting_inserts(serve):
    client = serve(make_table(max_size=10, limiter=rate_limiters.SampleToInsertRatio(1.0, 1, (-10.0, 2.0))))
    insert_values(client, [0, 1])
    waiting = Background(insert_values, serve.connect(), [2])
    assert not comes_true(lambda: not waiting.is_running, patience_s=0.2)
    client.reset("table")
    waiting.result()
    assert draw_values(client) == [2]


def test_delete_wakes_an_insert_that_refills_to_min_size(serve):
    client = serve(make_table(limiter=rate_limiters.RateLimiter(1.0, 2, -10.0, 1.0)))
    insert_values(client, [0, 1])
    [sample] = client.sample("table", emit_timesteps=False)
    waiting = Background(insert_values, serve.connect(), [2])
    assert not comes_true(lambda: not waiting.is_running, patience_s=0.2)
    client.mutate_priorities("table", deletes=[sample.info.key])
    waiting.result()
    assert draw_values(client) == [1]


def test_waiting_on_one_table_does_not_block_another(serve):
    client = serve(reverb.Table.queue("empty", max_size=1), make_table())
    waiting = Background(draw_values, client, 1, "empty")
    insert_values(client, [1])
    assert draw_values(client, 5) == [1] * 5
    assert waiting.is_running
    insert_values(client, [2], table="empty")
    assert waiting.result() == [2]


@pytest.mark.parametrize(
    "call",
    [
        "next(client.sample('empty'))",
        "client.sample_batch('empty', 10)",
        "client.insert(0, {'full': 1.0})",
        "client.insert_batch(numpy.zeros(100), {'full': 1.0})",
    ],
)
def test_ctrl_c_ends_a_wait_in_another_process(serve_far, call):
    client = serve_far(reverb.Table.queue("empty", max_size=1), reverb.Table.queue("full", max_size=1))
    insert_values(client, [0], table="full")
    running = program(
        f"""
        import sys, numpy, reverb
        client = reverb.Client(sys.argv[1])
        client.server_info()
        print("waits", flush=True)
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """,
        serve_far.address,
    )
    interrupt(running)


def test_ctrl_c_ends_a_wait_in_the_servers_process():
    running = program(
        """
        import reverb
        server = reverb.Server(tables=[reverb.Table.queue("empty", max_size=1)])
        client = reverb.Client(f"localhost:{server.port}")
        print("waits", flush=True)
        try:
            next(client.sample("empty"))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    interrupt(running)


def test_ctrl_c_gives_back_the_samples_of_the_interrupted_call():
    running = program(
        """
        import numpy, reverb
        server = reverb.Server(tables=[reverb.Table.queue("table", max_size=10)])
        client = reverb.Client(f"localhost:{server.port}")
        client.insert_batch(numpy.arange(3), {"table": 1.0})
        print("waits", flush=True)
        try:
            client.sample_batch("table", 5)
        except KeyboardInterrupt:
            batch = client.sample_batch("table", 3, timeout=10, squeeze_time=True)
            assert sorted(batch.data[0]) == [0, 1, 2], batch
            print("interrupted", flush=True)
        """
    )
    interrupt(running)


def interrupt(running):
    """Waits until a program waits, interrupts it, and checks that it reacts."""
    with running:
        assert running.line() == "waits"
        time.sleep(0.3)  # Lets the program enter the call. If this is too short, the test only checks less.
        running.process.send_signal(signal.SIGINT)
        assert running.end()[0] == "interrupted\n"


def messages_of(caplog):
    """Returns the messages that were logged."""
    messages = [record.getMessage() for record in caplog.records if record.name.split(".")[0] == "reverb"]
    # What the server says of all its tables is another subject.
    return [message for message in messages if not message.startswith(("Flowing", "Idle", "Stalled", "Waiting"))]


@pytest.mark.slow
def test_long_wait_logs_its_reason_once(serve, caplog):
    client = serve(make_table("replay", limiter=rate_limiters.MinSize(1000)))
    insert_values(client, range(3), table="replay")
    with caplog.at_level(logging.INFO, logger="reverb"), pytest.raises(errors.DeadlineExceededError):
        client.sample_batch("replay", 1, timeout=13)
    messages = messages_of(caplog)
    assert len(messages) == 1, messages
    assert "replay" in messages[0]
    assert "3 of 1,000 so far" in messages[0]


@pytest.mark.slow
def test_long_wait_of_an_insert_logs_its_reason_once(serve, caplog):
    client = serve(reverb.Table.queue("narrow", max_size=1))
    insert_values(client, [0], table="narrow")
    with caplog.at_level(logging.INFO, logger="reverb"), pytest.raises(errors.DeadlineExceededError):
        client.insert(1, {"narrow": 1.0}, timeout=13)
    messages = messages_of(caplog)
    assert len(messages) == 1, messages
    assert "narrow" in messages[0]


@pytest.mark.slow
def test_long_waits_of_many_streams_at_one_table_log_one_reason(serve, caplog):
    serve(make_table("replay", limiter=rate_limiters.MinSize(1000)))
    with caplog.at_level(logging.INFO, logger="reverb"):
        waiting = [Background(serve.connect().sample_batch, "replay", 1, timeout=13) for _ in range(4)]
        for one in waiting:
            with pytest.raises(errors.DeadlineExceededError):
                one.result(patience_s=40)
    messages = [message for message in messages_of(caplog) if "replay" in message]
    assert len(messages) == 1, messages


def test_short_wait_logs_nothing(serve, caplog):
    client = serve(make_table())
    with caplog.at_level(logging.INFO, logger="reverb"), pytest.raises(errors.DeadlineExceededError):
        client.sample_batch("table", 1, timeout=0.3)
    assert not caplog.records
