"""What a program sees while a writer waits for a rate limiter, and how it ends the wait."""

import math

import numpy as np
import pytest
from behaviour_support import Background, draw, eventually, info_of, program

import reverb
from reverb import adders, errors, structured

STEP = {"x": np.int64(0)}
CONFIG = structured.create_config(structured.pattern_from_transform(STEP, lambda x: x["x"][-1:]), "full")


def trajectory(client, count=3):
    writer = client.trajectory_writer(1)
    for i in range(count):
        writer.append({"x": np.int64(i)})
        writer.create_item("full", 1.0, writer.history["x"][-1:])
    return writer


def patterns(client, count=3):
    writer = client.structured_writer([CONFIG])
    for i in range(count):
        writer.append({"x": np.int64(i)})
    return writer


def batched(client, count=3):
    writer = client.batched_writer(count, configs=[CONFIG])
    writer.append({"x": np.arange(count)})
    return writer


def rows(client, count=3):
    writer = client.writer(1)
    for i in range(count):
        writer.append(np.int64(i))
        writer.create_item("full", 1, 1.0)
    return writer


WRITERS = [trajectory, patterns, batched, rows]


@pytest.mark.slow
def test_leaving_a_writer_logs_every_ten_seconds_what_is_not_in_yet(serve_far):
    serve_far(reverb.Table.queue("full", 1), reverb.Table.queue("other", 1), reverb.Table.queue("rows", 1))
    source = """
        import os, sys, threading
        import numpy as np
        import reverb

        client = reverb.Client(sys.argv[1])

        def leave_rows():
            with client.writer(1) as writer:
                for i in range(3):
                    writer.append(i)
                    writer.create_item("rows", 1, 1.0)

        threading.Thread(target=leave_rows, daemon=True).start()
        try:
            with client.trajectory_writer(1) as writer:
                for table, count in (("full", 3), ("other", 2)):
                    for i in range(count):
                        writer.append(i)
                        writer.create_item(table, 1.0, writer.history[-1:])
                print("leaves", flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            os._exit(0)
    """
    with program(source, serve_far.address) as leaving:
        assert leaving.line() == "leaves"
        lines = [leaving.process.stderr.readline() for _ in range(4)]
        of_trajectories = [line for line in lines if "for table `full`" in line]
        assert len(of_trajectories) == 2
        for line in of_trajectories:
            assert "3 items are not in their tables yet (2 for table `full`, 1 for table `other`). " in line
            assert line.endswith(". To give up: Ctrl-C, `flush(timeout=...)`, or `close()`.\n"), line
        of_rows = [line for line in lines if "for table `rows`" in line]
        assert len(of_rows) == 2
        for line in of_rows:
            assert "2 items are not in their tables yet (2 for table `rows`). " in line
            assert line.endswith(". To give up: Ctrl-C, or `flush(timeout=...)`.\n"), line
        leaving.process.send_signal(2)
        assert leaving.line() == "interrupted"


def test_leave_waits_as_long_as_close_does(serve, caplog):
    client = serve(reverb.Table.queue("full", 1))
    writers = [make(client) for make in (trajectory, patterns, batched)]
    for leaving in [Background(writer.leave, None) for writer in writers]:
        leaving.result()
    late = [message for message in caplog.messages if "still has items that are not in their tables" in message]
    assert len(late) == 3
    assert all("are not in their tables yet (" in line for line in late)
    # Nothing was given up.
    assert len(draw(client, 9, "full")) == 9
    for writer in writers:
        writer.flush()


def test_leave_does_not_wait_after_an_error_of_the_server(serve, caplog):
    client = serve(reverb.Table.queue("full", 1))
    with pytest.raises(errors.ReverbError) as error:
        client.sample_batch("none", 1, timeout=1)
    writer = trajectory(client)
    writer.leave(error.value)
    assert "still has items" not in caplog.text
    assert len(draw(client, 3, "full")) == 3
    writer.close()


@pytest.mark.parametrize("make", WRITERS)
def test_a_writer_may_be_closed_inside_its_with_statement(serve, make):
    client = serve(reverb.Table.queue("full", 100))
    with make(client) as writer:
        writer.close()
    assert info_of(client, "full").current_size == 3


def test_an_adder_may_be_closed_inside_its_with_statement(serve):
    client = serve(reverb.Table.queue("full", 100))
    with adders.EpisodeAdder(client, "full", max_length=1) as adder:
        adder.add({"x": np.int64(0)}, last=True)
        adder.close()
    assert info_of(client, "full").current_size == 1


@pytest.mark.parametrize("make", WRITERS)
def test_flush_takes_its_timeout_in_seconds_or_in_milliseconds(serve, make):
    client = serve(reverb.Table.queue("full", 1))
    writer = make(client)
    eventually(lambda: info_of(client, "full").current_size == 1)
    for late in ({"timeout": 0.05}, {"timeout_ms": 50}, {"timeout": 0}, {"timeout_ms": 0}):
        with pytest.raises(errors.DeadlineExceededError, match="items"):
            writer.flush(**late)
    with pytest.raises(ValueError, match=r"give `timeout` \(seconds\) or `timeout_ms`, not both: got 1 and 1000\."):
        writer.flush(timeout=1, timeout_ms=1000)
    with pytest.raises(ValueError, match="timeout"):
        writer.flush(timeout=-1)
    with pytest.raises(TypeError, match="timeout"):
        writer.flush(timeout="1")
    assert len(draw(client, 3, "full")) == 3
    writer.flush(timeout=20)
    writer.flush(timeout_ms=20_000)


@pytest.mark.slow
def test_a_writer_may_look_for_its_server_without_end():
    writer = reverb.Client("localhost:1").trajectory_writer(1, validate_items=False, reconnect_timeout=math.inf)
    writer.append({"x": 0})
    writer.create_item("table", 1.0, writer.history["x"][-1:])
    with pytest.raises(errors.DeadlineExceededError):
        writer.flush(timeout=8)
    writer.sender.close(0.0)


@pytest.mark.parametrize("make", [trajectory, patterns])
def test_end_episode_takes_its_timeout_in_seconds_or_in_milliseconds(serve, make):
    client = serve(reverb.Table.queue("full", 1))
    writer = make(client)
    with pytest.raises(ValueError, match=r"give `timeout` \(seconds\) or `timeout_ms`, not both"):
        writer.end_episode(timeout=1, timeout_ms=1000)
    with pytest.raises(
        errors.DeadlineExceededError, match=r"End episode call .* within provided timeout of 0:00:00\.05"
    ):
        writer.end_episode(timeout=0.05)
    assert len(draw(client, 3, "full")) == 3
    writer.end_episode(timeout=20)
    writer.end_episode(True, 20_000)
