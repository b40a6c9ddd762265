"""Options of a table that change while it is in use."""

import itertools
import random
import threading

import numpy as np
import pytest
from behaviour_support import (
    Background,
    at_rest,
    contents,
    draw_values,
    eventually,
    info_of,
    insert_values,
    make_table,
    num_samples,
    value_of,
)

import reverb
from reverb import _protos, checkpointers, errors, rate_limiters
from reverb.loaders import NumpyLoader

REASONS = ("max_size", "max_bytes", "max_times_sampled", "deleted", "reset")


def removals(client):
    """The number of removed items by reason, without reasons that did not occur."""
    status = _protos.message_class("reverb.replay.v1.TableStatus").FromString(client.engine.table_statuses(None)[0])
    counts = {reason: getattr(status.removed, reason) for reason in REASONS}
    return {reason: count for reason, count in counts.items() if count}


def waits(client, kind):
    return lambda: getattr(info_of(client), kind) > 0


def test_waiting_insert_goes_when_the_table_becomes_larger(serve):
    client = serve(reverb.Table.queue("table", 2))
    insert_values(client, [1, 2])
    insert = Background(insert_values, serve.connect(), [3, 4])
    eventually(waits(client, "waiting_inserts"))
    client.configure_table("table", max_size=4, rate_limiter=rate_limiters.Queue(4))
    insert.result()
    assert draw_values(client, 4) == [1, 2, 3, 4]


def test_waiting_sample_goes_when_the_rate_limiter_allows_it(serve):
    client = serve(make_table(limiter=rate_limiters.MinSize(3)))
    insert_values(client, [7])
    sample = Background(draw_values, serve.connect())
    eventually(waits(client, "waiting_samples"))
    client.configure_table("table", rate_limiter=rate_limiters.MinSize(1))
    assert sample.result() == [7]
    client.configure_table("table", rate_limiter=rate_limiters.MinSize(2))
    with pytest.raises(errors.DeadlineExceededError, match=r"1 more item until samples may go \(1 of 2 so far\)"):
        client.sample_batch("table", 1, timeout=0.2)


def test_new_limiter_knows_what_was_inserted_and_sampled_before(serve):
    client = serve(make_table())
    insert_values(client, range(3))
    client.sample_batch("table", 2)
    client.configure_table("table", rate_limiter=rate_limiters.RateLimiter(1.0, 1, -2.0, 1000.0))
    # 3 inserts and the bound allow 5 samples.
    client.sample_batch("table", 3)
    with pytest.raises(errors.DeadlineExceededError, match="the learner may be at most 2 items ahead"):
        client.sample_batch("table", 1, timeout=0.2)


@pytest.mark.parametrize(("remover", "left"), [("fifo", {7, 8, 9}), ("lifo", {0, 1, 2}), ("min_heap", {0, 1, 2})])
def test_smaller_table_keeps_the_items_that_its_remover_leaves(serve, remover, left):
    client = serve(make_table(sampler="uniform", remover=remover, max_size=10))
    insert_values(client, range(10), priority=[float(10 - value) for value in range(10)])
    client.configure_table("table", max_size=3)
    assert set(contents(client)) == left
    assert removals(client) == {"max_size": 7}
    insert_values(client, [10])
    assert info_of(client).current_size == info_of(client).max_size == 3


def test_many_items_leave_in_steps_and_calls_go_on(serve):
    client = serve(make_table(sampler="uniform", max_size=60_000))
    client.insert_batch(np.arange(50_000), {"table": 1.0})
    change = Background(client.configure_table, "table", max_size=10)
    insert_values(serve.connect(), range(20))
    change.result()
    assert info_of(client).current_size == 10
    assert removals(client) == {"max_size": 50_010}


def test_limit_on_bytes_comes_and_goes(serve):
    client = serve(make_table(sampler="uniform"))
    insert_values(client, range(10))
    size = info_of(client).bytes
    client.configure_table("table", max_bytes=size // 2)
    assert info_of(client).max_bytes == size // 2
    assert info_of(client).bytes <= size // 2
    assert removals(client) == {"max_bytes": 10 - info_of(client).current_size}
    assert set(contents(client)) == {5, 6, 7, 8, 9}
    client.configure_table("table", max_bytes=float("inf"))
    assert info_of(client).max_bytes is None
    insert_values(client, range(10, 30))
    assert info_of(client).current_size == 25


def test_items_with_enough_samples_leave_when_the_limit_is_lowered(serve):
    client = serve(make_table())
    insert_values(client, range(4))
    client.sample_batch("table", 3)
    client.configure_table("table", max_times_sampled=4)
    assert info_of(client).current_size == 4
    client.configure_table("table", max_times_sampled=3)
    assert set(draw_values(client, 1)) == {1}
    assert removals(client) == {"max_times_sampled": 1}


def test_items_stay_after_their_samples_when_the_limit_is_lifted(serve):
    client = serve(make_table(max_times_sampled=1))
    insert_values(client, range(3))
    assert draw_values(client, 1) == [0]
    client.configure_table("table", max_times_sampled=0)
    assert draw_values(client, 2) == [1, 1]
    assert info_of(client).current_size == 2


@pytest.mark.parametrize(("before", "after", "values"), [(0, 1, [1, 1, 2]), (1, 0, [0, 1, 2])])
def test_batch_that_waits_for_its_last_item_is_delivered_under_the_new_limit(serve, before, after, values):
    one_for_one = rate_limiters.RateLimiter(1.0, 1, 0.0, 1000.0)
    client = serve(make_table(sampler="lifo", limiter=one_for_one, max_times_sampled=before))
    insert_values(client, range(2))
    batch = Background(serve.connect().sample_batch, "table", 3)
    eventually(lambda: num_samples(client) == 2 and waits(client, "waiting_samples")())
    client.configure_table("table", max_times_sampled=after)
    insert_values(client, [2])
    assert sorted(batch.result().data[0].reshape(-1).tolist()) == values
    eventually(lambda: info_of(client).undelivered_samples == 0)
    assert (num_samples(client), info_of(client).current_size) == (3, 1)
    # A checkpoint holds items whose samples are on their way as not drawn. None is.
    eventually(lambda: len(checkpointers.open(client.checkpoint()).table("table")) == 1)


def test_samples_drawn_ahead_of_a_change_do_not_bring_their_item_back(serve):
    client = serve(make_table(max_size=100))
    insert_values(client, range(50))
    samples = client.sample("table", num_samples=100, emit_timesteps=False)
    assert value_of(next(iter(samples))) == 0
    client.configure_table("table", max_times_sampled=1)
    del samples
    eventually(lambda: info_of(client).undelivered_samples == 0)
    assert draw_values(client, 49) == list(range(1, 50))
    assert info_of(client).current_size == 0
    assert removals(client) == {"max_times_sampled": 50}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({}, ValueError, "Nothing of table `table` is to change"),
        ({"max_size": 0}, ValueError, "`max_size` must be at least 1, got 0"),
        ({"max_size": -3}, ValueError, "`max_size` must be at least 1, got -3"),
        ({"max_size": 2.5}, TypeError, "`max_size` must be an int, got 2.5"),
        ({"max_size": 2**31}, TypeError, "`max_size` must fit into 32 bits"),
        ({"max_bytes": 0}, ValueError, "`max_bytes` must be at least 1, got 0"),
        ({"max_bytes": -1}, ValueError, "`max_bytes` must be at least 1, got -1"),
        ({"max_bytes": "1"}, TypeError, "`max_bytes` must be an int, got '1'"),
        ({"max_bytes": 2**64}, ValueError, "`max_bytes` must be below"),
        ({"max_times_sampled": "1"}, TypeError, "`max_times_sampled` must be an int"),
        ({"max_times_sampled": 2**31}, TypeError, "`max_times_sampled` must fit into 32 bits"),
        ({"rate_limiter": 3}, TypeError, "`rate_limiter` must be one of reverb.rate_limiters, got 3"),
        ({"max_size": 4, "max_bytes": 99}, ValueError, r"min_size_to_sample \(5\) is above its max_size \(4\)"),
        ({"rate_limiter": rate_limiters.MinSize(11), "max_bytes": 99}, ValueError, "could never be sampled"),
    ],
)
def test_wrong_options_are_named_and_change_nothing(serve, changes, error, text):
    client = serve(make_table(max_size=10, limiter=rate_limiters.MinSize(5)))
    with pytest.raises(error, match=text):
        client.configure_table("table", **changes)
    info = info_of(client)
    options = (info.max_size, info.max_bytes, info.max_times_sampled, info.rate_limiter_info.min_size_to_sample)
    assert options == (10, None, 0, 5)


def test_unknown_table_is_named_with_those_that_exist(serve):
    client = serve(make_table())
    with pytest.raises(errors.TableNotFoundError, match="tabel"):
        client.configure_table("tabel", max_size=5)


def test_limiter_may_be_used_again(serve):
    client = serve(make_table("table"), make_table("other"))
    limiter = rate_limiters.MinSize(2)
    client.configure_table("table", rate_limiter=limiter)
    client.configure_table("other", rate_limiter=limiter)
    assert info_of(client, "other").rate_limiter_info.min_size_to_sample == 2
    make_table("third", limiter=limiter)


def test_copy_of_a_configured_table_has_its_options(serve):
    table = make_table(max_bytes=5000)
    client = serve(table)
    client.configure_table("table", max_size=7, max_bytes=6000)
    copy = table.replace(name="copy").info
    assert (copy.max_size, copy.max_bytes) == (7, 6000)


def test_all_servers_of_a_list_change():
    servers = [reverb.Server([make_table(max_size=10)]) for _ in range(2)]
    try:
        client = reverb.Client("ipv4:" + ",".join(f"127.0.0.1:{server.port}" for server in servers))
        client.configure_table("table", max_size=5)
        assert [info_of(server.localhost_client()).max_size for server in servers] == [5, 5]
    finally:
        for server in servers:
            server.stop()


def test_changes_under_load_lose_no_call(serve):
    client = serve(make_table(sampler="uniform", max_size=100))
    insert_values(client, range(10))
    end = threading.Event()

    def insert():
        writer = serve.connect()
        for value in itertools.takewhile(lambda _: not end.is_set(), itertools.count()):
            insert_values(writer, [value])

    def sample():
        reader = serve.connect()
        while not end.is_set():
            reader.sample_batch("table", 8)

    # Each item may be drawn often enough, so that samples always come.
    load = [Background(insert), Background(insert), Background(sample)]
    numbers = random.Random(1)
    for _ in range(60):
        size = numbers.randint(5, 100)
        limiter = rate_limiters.MinSize(numbers.randint(1, 5))
        limit = numbers.choice([float("inf"), 5000])
        client.configure_table("table", max_size=size, max_bytes=limit, rate_limiter=limiter)
        assert info_of(client).current_size <= size
        client.configure_table("table", max_times_sampled=numbers.choice([0, 1000]))
    end.set()
    for call in load:
        call.result()
    counts = removals(client)
    inserts = info_of(client).rate_limiter_info.insert_stats.completed
    assert sum(counts.values()) == inserts - info_of(client).current_size


@pytest.mark.parametrize("before", [0, 9])
def test_a_lower_limit_of_draws_keeps_items_whose_draws_come_back(serve, before):
    client = serve(make_table(max_times_sampled=before))
    insert_values(client, range(3))
    with NumpyLoader(serve.connect(), "table", batch_size=1, prefetch=3) as loader:
        assert next(loader).data[0].ravel().tolist() == [0]
        eventually(at_rest(lambda: num_samples(client)))
        client.configure_table("table", max_times_sampled=2)
    # The draws ahead have come back: all but one of the first item.
    eventually(lambda: (info_of(client).current_size, num_samples(client)) == (3, 1))
    assert draw_values(client, 5) == [0, 1, 1, 2, 2]
    assert info_of(client).current_size == 0
