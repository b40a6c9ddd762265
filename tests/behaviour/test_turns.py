"""Actors whose inserts wait at a full table take turns."""

import contextlib
import os
import threading
import time

import numpy as np
import pytest
from behaviour_support import Background, eventually, info_of

import reverb
from reverb import rate_limiters

ACTORS = 4
BATCH = 16
BATCHES = 60
# Without turns one actor gets five eighths of the room or more, and the others an eighth of it or less. The first
# batches hold what the actors wrote before the table was full.
LEAST_SHARE = 0.6 / ACTORS
WARM_UP = 12


def write(client, actor, stop):
    """Writes items, 64 of them unconfirmed."""
    writer = client.trajectory_writer(1, max_in_flight_items=64)
    while not stop.is_set():
        writer.append(np.int64(actor))
        writer.create_item("table", 1.0, writer.history[-1:])
    writer.close()


def insert(client, actor, stop):
    """Inserts from 64 threads."""

    def one():
        while not stop.is_set():
            client.insert(np.int64(actor), {"table": 1.0})

    calls = [Background(one) for _ in range(64)]
    for call in calls:
        call.result()


def insert_batches(client, actor, stop):
    """Inserts 1,000 items in each call."""
    while not stop.is_set():
        client.insert_batch(np.full(1000, actor), {"table": 1.0})


def shares(learner, clients, works):
    """The share of each actor in what the learner draws from a full table."""
    stop = threading.Event()
    pairs = zip(clients, works, strict=True)
    actors = [Background(work, client, actor, stop) for actor, (client, work) in enumerate(pairs)]
    values = []
    for number in range(BATCHES):
        # The learner is slower than the actors, so that the table is full.
        time.sleep(0.005)
        eventually(lambda: info_of(learner).waiting_inserts >= len(works))
        batch = learner.sample_batch("table", BATCH, timeout=60)
        if number >= WARM_UP:
            values += np.asarray(batch.data).ravel().tolist()
    stop.set()
    while any(actor.is_running for actor in actors):
        with contextlib.suppress(reverb.errors.DeadlineExceededError):
            learner.sample_batch("table", 1, timeout=0.1)
    return [values.count(actor) / len(values) for actor in range(len(works))]


def queue():
    return reverb.Table.queue("table", 64)


@pytest.mark.parametrize("work", [write, insert], ids=lambda work: work.__name__)
def test_equal_actors_get_equal_shares_of_a_full_queue(serve, work):
    learner = serve(queue())
    of_actors = shares(learner, [serve.connect() for _ in range(ACTORS)], [work] * ACTORS)
    assert min(of_actors) >= LEAST_SHARE, of_actors


def test_a_limiter_that_lets_few_in_is_fair(serve):
    learner = serve(
        reverb.Table(
            name="table",
            sampler=reverb.selectors.Fifo(),
            remover=reverb.selectors.Fifo(),
            max_size=1000,
            max_times_sampled=2,
            rate_limiter=rate_limiters.SampleToInsertRatio(2.0, 32, error_buffer=64.0),
        )
    )
    of_actors = shares(learner, [serve.connect() for _ in range(ACTORS)], [write] * ACTORS)
    assert min(of_actors) >= LEAST_SHARE, of_actors


def test_a_large_insert_batch_takes_turns_with_writers(serve):
    learner = serve(queue())
    works = [insert_batches, write, write, write]
    of_actors = shares(learner, [serve.connect() for _ in range(ACTORS)], works)
    assert min(of_actors) >= LEAST_SHARE, of_actors


def test_actors_on_several_roads_get_equal_shares():
    server = reverb.Server(tables=[queue()])
    addresses = [f"localhost:{server.port}", f"unix:{server.unix_path}", *2 * [f"ipv4:127.0.0.1:{server.port}"]]
    learner = reverb.Client(f"localhost:{server.port}")
    of_actors = shares(learner, [reverb.Client(address) for address in addresses], [write] * ACTORS)
    server.stop()
    assert min(of_actors) >= LEAST_SHARE, of_actors


def test_streams_of_one_client_share_its_turn(serve):
    learner = serve(queue())
    one, other = serve.connect(), serve.connect()
    of_writers = shares(learner, [one, one, one, other], [write] * 4)
    assert of_writers[3] == pytest.approx(0.5, abs=0.1), of_writers


def test_a_turn_belongs_to_a_client_whatever_it_does(serve):
    """Its writers have another connection than its calls."""
    learner = serve(queue())
    one, other = serve.connect(), serve.connect()
    of_works = shares(learner, [one, one, other], [write, insert, write])
    assert of_works[2] == pytest.approx(0.5, abs=0.1), of_works


def test_infos_say_who_has_inserted(serve):
    client = serve(queue())
    assert info_of(client).inserts_by_client == {}
    for value in range(3):
        client.insert(np.int64(value), {"table": 1.0})
    client.insert_batch(np.arange(4), {"table": 1.0})
    with client.trajectory_writer(1) as writer:
        writer.append(np.int64(0))
        writer.create_item("table", 1.0, writer.history[-1:])
    info = info_of(client)
    ((name, count),) = info.inserts_by_client.items()
    assert count == 8
    client.reset("table")
    assert info_of(client).inserts_by_client == {name: 8}
    # The name of this program, as it is shown elsewhere.
    assert name.endswith(f":{os.getpid()})"), name
