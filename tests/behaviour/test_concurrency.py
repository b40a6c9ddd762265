"""Many clients at the same time."""

import threading

import numpy as np
import pytest
from behaviour_support import Background, draw_values, info_of, insert_values, make_table, num_inserts, num_samples

import reverb


@pytest.mark.timeout(180)
def test_two_hundred_clients_at_once(serve):
    client = serve(make_table("ring", sampler="uniform", max_size=50), reverb.Table.queue("queue", max_size=10_000))
    insert_values(client, [-1], table="ring")
    start = threading.Barrier(200)

    def work(number):
        own = serve.connect()
        start.wait()
        own.insert(np.int64(number), {"ring": 1.0, "queue": 1.0})
        own.insert_batch(np.full(4, number), {"queue": 1.0})
        drawn = own.sample_batch("ring", 8, squeeze_time=True).data[0]
        assert set(drawn.tolist()) <= set(range(-1, 200))
        return own.sample_batch("queue", 5, squeeze_time=True).data[0].tolist()

    workers = [Background(work, number) for number in range(200)]
    drawn = [value for worker in workers for value in worker.result(patience_s=150)]
    assert sorted(drawn) == sorted(number for number in range(200) for _ in range(5))
    assert info_of(client, "ring").current_size == 50
    assert (num_inserts(client, "queue"), num_samples(client, "queue")) == (1000, 1000)


def test_threads_can_share_a_client(serve):
    client = serve(reverb.Table.queue("table", max_size=20))
    count = 200

    def insert(number):
        for step in range(count):
            client.insert(np.int64(number * count + step), {"table": 1.0})

    def read():
        return [
            value for _ in range(count // 10) for value in client.sample_batch("table", 10).data[0].ravel().tolist()
        ]

    writers = [Background(insert, number) for number in range(4)]
    readers = [Background(read) for _ in range(4)]
    drawn = [value for reader in readers for value in reader.result()]
    for writer in writers:
        writer.result()
    assert sorted(drawn) == list(range(4 * count))


def test_waiting_threads_continue_when_other_threads_of_the_client_end(serve):
    other = serve(reverb.Table.queue("queue", max_size=100))
    client = serve.connect()
    given_up = [Background(client.sample_batch, "queue", 1, timeout=0.05 * (1 + number)) for number in range(4)]
    waiting = [Background(client.sample_batch, "queue", 1) for _ in range(4)]
    for one in given_up:
        with pytest.raises(reverb.errors.DeadlineExceededError):
            one.result()
    assert all(one.is_running for one in waiting)
    for value in range(4):
        insert_values(other, [value], table="queue")
    values = [int(one.result().data[0][0, 0]) for one in waiting]
    assert sorted(values) == [0, 1, 2, 3]


def test_queue_keeps_the_order_of_each_writer(serve):
    client = serve(reverb.Table.queue("table", max_size=7))

    def insert(number):
        own = serve.connect()
        for step in range(100):
            own.insert(np.int64(1000 * number + step), {"table": 1.0})

    writers = [Background(insert, number) for number in range(4)]
    drawn = draw_values(client, 400)
    for writer in writers:
        writer.result()
    for number in range(4):
        own = [value for value in drawn if value // 1000 == number]
        assert own == [1000 * number + step for step in range(100)]


def test_limiter_is_respected_with_many_writers_and_readers(serve):
    table = make_table(sampler="uniform", limiter=reverb.rate_limiters.SampleToInsertRatio(2.0, 5, (0.0, 20.0)))
    client = serve(table)
    stop = threading.Event()
    broken = []

    def watch():
        own = serve.connect()
        while not stop.is_set():
            limiter = info_of(own).rate_limiter_info
            difference = 2 * limiter.insert_stats.completed - limiter.sample_stats.completed
            if not 0 <= difference <= 20:
                broken.append(difference)

    watcher = Background(watch)
    writers = [Background(insert_values, serve.connect(), range(50)) for _ in range(4)]
    readers = [Background(lambda: serve.connect().sample_batch("table", 95)) for _ in range(4)]
    for one in [*writers, *readers]:
        one.result()
    stop.set()
    watcher.result()
    assert not broken
    assert (num_inserts(client), num_samples(client)) == (200, 380)


def test_clients_come_and_go(serve):
    client = serve(make_table(max_size=10))
    for number in range(300):
        insert_values(serve.connect(), [number])
    assert num_inserts(client) == 300
