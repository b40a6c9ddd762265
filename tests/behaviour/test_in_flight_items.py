"""Writers with `max_in_flight_items` wait for the rate limiters of their tables."""

import numpy as np
import pytest
from behaviour_support import Background, at_rest, draw, eventually, info_of, make_table, program
from writer_support import flat

import reverb
from reverb import rate_limiters, structured

TAKES = 200
LIMIT = 64
STEP = {"x": np.int64(0)}
CONFIG = structured.create_config(structured.pattern_from_transform(STEP, lambda x: x["x"][-1:]), "table")


def blocked_after(items, name="table"):
    """A table whose rate limiter takes this many items before somebody draws."""
    return make_table(name, limiter=rate_limiters.SampleToInsertRatio(1.0, 1, (-1e9, items)))


def trajectory_actor(client):
    writer = client.trajectory_writer(1, max_in_flight_items=LIMIT)

    def step(i):
        writer.append({"x": np.int64(i)})
        writer.create_item("table", 1.0, writer.history["x"][-1:])

    return writer, step


def structured_actor(client):
    writer = client.structured_writer([CONFIG], max_in_flight_items=LIMIT)
    return writer, lambda i: writer.append({"x": np.int64(i)})


def batched_actor(client):
    writer = client.batched_writer(1, max_in_flight_items=LIMIT)

    def step(i):
        writer.append({"x": np.full(1, i)})
        writer.create_items("table", 1.0, writer.history["x"][-1:])

    return writer, step


def batched_patterns_actor(client):
    writer = client.batched_writer(1, configs=[CONFIG], max_in_flight_items=LIMIT)
    return writer, lambda i: writer.append({"x": np.full(1, i)})


ACTORS = [trajectory_actor, structured_actor, batched_actor, batched_patterns_actor]


def num_pending(writer):
    return writer.sender.num_pending_items


def act(step, count):
    """Makes steps in the background. Returns the list of those that were made, and the running call."""
    made = []

    def run():
        for i in range(count):
            step(i)
            made.append(i)

    return made, Background(run)


def end(writer, acting):
    """Closes a writer without waiting for its items, and ends the actor that uses it."""
    writer.sender.close(0.0)
    with pytest.raises(RuntimeError, match="Close has been called"):
        acting.result()


@pytest.mark.parametrize("actor", ACTORS)
def test_a_limiter_holds_back_an_actor(serve, actor):
    client = serve(blocked_after(TAKES))
    writer, step = actor(client)
    made, acting = act(step, 1000)
    eventually(lambda: len(made) >= TAKES + LIMIT)
    eventually(at_rest(lambda: len(made)))
    assert (len(made), info_of(client).current_size) == (TAKES + LIMIT, TAKES)
    assert num_pending(writer) == LIMIT
    draw(client, 10)
    eventually(lambda: len(made) >= TAKES + LIMIT + 10)
    eventually(at_rest(lambda: len(made)))
    assert (len(made), info_of(client).current_size) == (TAKES + LIMIT + 10, TAKES + 10)
    end(writer, acting)


def test_items_of_several_tables_are_counted_together(serve):
    client = serve(make_table("free"), blocked_after(TAKES, "slow"), blocked_after(TAKES, "slower"))
    writer = client.trajectory_writer(1, max_in_flight_items=LIMIT)

    def step(i):
        writer.append(i)
        for table in ("free", "slow", "slower"):
            writer.create_item(table, 1.0, writer.history[-1:])

    made, acting = act(step, 1000)
    # Half of the unconfirmed items are for each of the tables that are blocked.
    eventually(lambda: len(made) >= TAKES + LIMIT // 2)
    eventually(at_rest(lambda: len(made)))
    assert (len(made), info_of(client, "free").current_size) == (TAKES + LIMIT // 2, TAKES + LIMIT // 2)
    draw(client, 1, "slow")
    draw(client, 1, "slower")
    eventually(lambda: len(made) == TAKES + LIMIT // 2 + 1)
    end(writer, acting)


def test_a_batched_writer_waits_before_it_makes_the_items_of_a_call(serve):
    client = serve(blocked_after(TAKES))
    writer = client.batched_writer(50, configs=[CONFIG], max_in_flight_items=LIMIT)
    made, acting = act(lambda i: writer.append({"x": np.full(50, i)}), 100)
    # Of 300 items 100 are unconfirmed.
    eventually(lambda: num_pending(writer) == 100)
    eventually(at_rest(lambda: len(made)))
    assert len(made) == 6
    draw(client, 37)
    eventually(lambda: len(made) == 7)
    end(writer, acting)


def test_without_a_limit_a_writer_does_not_wait_for_the_number_of_its_items(serve):
    client = serve(blocked_after(TAKES))
    writer = client.trajectory_writer(1)
    for i in range(1000):
        writer.append(i)
        writer.create_item("table", 1.0, writer.history[-1:])
    assert num_pending(writer) >= 1000 - TAKES
    writer.sender.close(0.0)


@pytest.mark.parametrize("limit", [{"max_in_flight_items": 1}, {"max_pending_bytes": 1000}])
def test_a_waiting_writer_sends_items_whose_chunk_is_open(client, limit):
    writer = client.trajectory_writer(10, max_chunk_length=10, **limit)
    for i in range(25):
        writer.append(np.full(2000, i, np.uint8))
        writer.create_item("table", 1.0, writer.history[-1:])
    writer.flush()
    assert [flat(client)[0][0][0] for _ in range(25)] == [0] * 25


def test_a_waiting_writer_hears_ctrl_c(serve_far):
    serve_far(blocked_after(1))
    source = """
        import os, signal, sys, threading
        import reverb
        writer = reverb.Client(sys.argv[1]).trajectory_writer(1, max_in_flight_items=1)
        made = []
        def interrupt():
            sys.stdin.readline()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        try:
            while True:
                writer.append(0)
                writer.create_item("table", 1.0, writer.history[-1:])
                made.append(0)
                if len(made) == 2:
                    print("waits", flush=True)
        except KeyboardInterrupt:
            print(len(made), flush=True)
            os._exit(0)
    """
    with program(source, serve_far.address) as running:
        assert running.line() == "waits"
        running.process.stdin.write("\n")
        running.process.stdin.flush()
        assert running.line() == "2"


def test_a_waiting_writer_raises_what_the_server_refuses(serve):
    client = serve(blocked_after(1), make_table("prioritized", sampler="prioritized"))
    writer = client.trajectory_writer(1, max_in_flight_items=2)
    writer.append(0)
    for _ in range(2):
        writer.create_item("table", 1.0, writer.history[-1:])

    def write_refused():
        while True:
            writer.create_item("prioritized", -1.0, writer.history[-1:])

    with pytest.raises(ValueError, match="Priority must not be negative"):
        write_refused()
    eventually(lambda: num_pending(writer) == 1)
    writer.sender.close(0.0)


def test_the_limit_is_checked():
    client = reverb.Client("localhost:1")
    for make in (
        lambda limit: client.trajectory_writer(1, validate_items=False, max_in_flight_items=limit),
        lambda limit: client.structured_writer([CONFIG], max_in_flight_items=limit),
        lambda limit: client.batched_writer(1, max_in_flight_items=limit),
    ):
        make(None).close()
        with pytest.raises(ValueError, match="`max_in_flight_items` must be at least 1, got 0"):
            make(0)
        with pytest.raises(TypeError, match="`max_in_flight_items` must be an int, got 1.5"):
            make(1.5)
