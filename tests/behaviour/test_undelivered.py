"""Draws that did not reach their callers: checkpoints hold them as not drawn, and loaders do not give them twice."""

import numpy as np
import pytest
from behaviour_support import Background, Proxy, eventually, info_of, insert_values, make_table, num_samples

import reverb
from reverb import checkpointers, errors, rate_limiters
from reverb.loaders import NumpyLoader


def queue():
    return reverb.Table.queue("table", 100)


@pytest.fixture
def reopen(serve, tmp_path):
    """Starts a server that saves into a folder; again: stops it, and starts one that restores the last checkpoint."""

    def reopen(table, port=None, **options):
        serve.stop()
        return serve(table, port=port, checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path), **options))

    return reopen


def values_of(batch):
    return batch.data[0].ravel().tolist()


def test_checkpoint_holds_what_a_waiting_draw_has_taken(reopen, serve):
    client = reopen(queue())
    insert_values(client, range(40))
    waiting = Background(serve.connect().sample_batch, "table", 64, timeout=60)
    eventually(lambda: info_of(client).current_size == 0)
    assert info_of(client).undelivered_samples == 40
    client.checkpoint()
    client = reopen(queue())
    with pytest.raises(errors.ReverbError):
        waiting.result()
    assert (info_of(client).current_size, num_samples(client)) == (40, 0)
    assert values_of(client.sample_batch("table", 40, timeout=60)) == list(range(40))


def test_checkpoint_holds_what_a_loader_has_drawn_ahead(reopen, serve):
    client = reopen(queue())
    insert_values(client, range(40))
    with NumpyLoader(serve.connect(), "table", batch_size=4, prefetch=3) as loader:
        first = next(loader)
        assert values_of(first) == [0, 1, 2, 3]
        # The receipt of the first batch leaves soon, even if there is no other call.
        eventually(lambda: info_of(client).current_size == 24 and info_of(client).undelivered_samples == 12)
        client.checkpoint()
    client = reopen(queue())
    assert values_of(client.sample_batch("table", 36, timeout=60)) == list(range(4, 40))
    assert num_samples(client) == 4 + 36


def test_counts_of_undelivered_draws_are_not_saved(reopen, serve):
    def table():
        limiter = rate_limiters.SampleToInsertRatio(2.0, 1, error_buffer=200.0)
        return make_table(limiter=limiter, max_times_sampled=2)

    client = reopen(table())
    insert_values(client, range(6))
    assert values_of(client.sample_batch("table", 1, timeout=60)) == [0]
    # It has taken 0, which that removes, all others twice, and waits.
    waiting = Background(serve.connect().sample_batch, "table", 12, timeout=60)
    eventually(lambda: info_of(client).current_size == 0)
    client.checkpoint()
    client = reopen(table())
    with pytest.raises(errors.ReverbError):
        waiting.result()
    info = info_of(client)
    assert (info.current_size, num_samples(client), info.num_unique_samples) == (6, 1, 1)
    batch = client.sample_batch("table", 11, timeout=60)
    assert values_of(batch) == [0, *np.repeat(range(1, 6), 2)]
    assert batch.info.times_sampled.tolist() == [2, *[1, 2] * 5]


def test_loader_that_outlives_its_server_gives_each_item_once(reopen, serve):
    client = reopen(queue(), save_on_stop=True)
    insert_values(client, range(60))
    given = []
    with NumpyLoader(serve.connect(), "table", batch_size=4, prefetch=3, timeout=60) as loader:
        given += values_of(next(loader))
        eventually(lambda: info_of(client).current_size == 44)
        # Batches that have come are not delivered any more, because the last checkpoint holds their samples.
        client = reopen(queue(), port=serve.server.port)
        while len(given) < 60:
            given += values_of(next(loader))
    assert given == list(range(60))
    eventually(lambda: info_of(client).current_size == 0)


def test_loader_drops_batches_that_went_back_when_the_connection_was_cut():
    server = reverb.Server([queue()])
    proxy = Proxy(server.port)
    here = server.localhost_client()
    insert_values(here, range(60))
    there = reverb.Client(f"ipv4:127.0.0.1:{proxy.port}")
    given = []
    with NumpyLoader(there, "table", batch_size=4, prefetch=3, timeout=20) as loader:
        given += values_of(next(loader))
        eventually(lambda: info_of(here).current_size == 44 and info_of(here).undelivered_samples == 12)
        proxy.cut()
        eventually(lambda: info_of(here).current_size == 56)
        # This client has noticed it, too, once a call goes over another connection.
        assert info_of(there).current_size == 56
        while len(given) < 60:
            given += values_of(next(loader))
    assert given == list(range(60))
    assert info_of(here).current_size == 0
    proxy.close()
    server.stop()
