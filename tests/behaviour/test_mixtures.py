"""Batches of loaders that mix several tables."""

import collections

import numpy as np
import pytest
from behaviour_support import Proxy, eventually, info_of, make_table

import reverb
from reverb.loaders import NumpyLoader


def serve_tables(serve, *names, count=4, **options):
    """A client of a server with tables of these names. The items of the n-th one are n."""
    client = serve(*(make_table(name, **{"sampler": "uniform", **options}) for name in names))
    for number, name in enumerate(names):
        client.insert_batch(np.full(count, float(number)), {name: 1.0})
    return client


def shares_of(loader, num_batches, num_tables):
    """How many items of each batch came from each table."""
    return [np.bincount(next(loader).table, minlength=num_tables).tolist() for _ in range(num_batches)]


def test_every_batch_has_exactly_the_shares_of_its_tables(serve):
    client = serve_tables(serve, "a", "b", "c")
    for weights, batch_size, expected in (
        ({"a": 1, "b": 1}, 256, [128, 128]),
        ({"a": 1, "b": 3}, 8, [2, 6]),
        ({"a": 0.1, "b": 0.2, "c": 0.7}, 10, [1, 2, 7]),
    ):
        for options in ({}, {"prefetch": 3}, {"shares": "exact", "seed": 3}):
            with NumpyLoader(client, weights, batch_size=batch_size, **options) as loader:
                assert shares_of(loader, 5, len(weights)) == [expected] * 5


@pytest.mark.parametrize(
    ("weights", "batch_size"),
    [({"a": 1, "b": 1}, 5), ({"a": 1, "b": 1, "c": 1}, 4), ({"a": 0.15, "b": 0.35, "c": 0.5}, 1)],
)
def test_shares_that_do_not_divide_the_batch_are_rounded_and_made_up_for(serve, weights, batch_size):
    client = serve_tables(serve, "a", "b", "c")
    exact = batch_size * np.array(list(weights.values())) / sum(weights.values())
    with NumpyLoader(client, weights, batch_size=batch_size) as loader:
        shares = np.array(shares_of(loader, 60, len(weights)))
    assert (np.abs(shares - exact) < 1).all()
    totals = exact * np.arange(1, 61)[:, None]
    assert (np.abs(shares.cumsum(0) - totals) < 1).all()
    assert shares.sum(0).tolist() == pytest.approx(60 * exact)


def test_batches_that_nobody_got_do_not_change_the_shares(serve):
    client = serve_tables(serve, "a", "b", count=1, max_times_sampled=1)
    loaded = []
    with NumpyLoader(client, {"a": 1, "b": 1}, batch_size=3, timeout=0.05, drop_remainder=True, prefetch=1) as loader:

        def load():
            try:
                loaded.extend(shares_of(loader, 1, 2))
            except reverb.DeadlineExceededError:
                return False
            return True

        assert [load() for _ in range(3)] == [False] * 3
        for name in ("a", "b"):
            client.insert_batch(np.zeros(8), {name: 1.0})
        for _ in range(6):
            eventually(load)
    assert loaded == [[2, 1], [1, 2]] * 3


def test_batches_that_went_back_when_the_connection_was_cut_do_not_change_the_shares():
    with reverb.Server([reverb.Table.queue(name, 100) for name in "ab"]) as server:
        here, proxy = server.localhost_client(), Proxy(server.port)
        here.insert_batch(np.zeros(30), {"a": 1.0, "b": 1.0})
        there = reverb.Client(f"ipv4:127.0.0.1:{proxy.port}")

        def left():
            return [info_of(here, name).current_size for name in "ab"]

        with NumpyLoader(there, {"a": 1, "b": 1}, batch_size=3, prefetch=1, num_batches=4, timeout=20) as loader:
            assert shares_of(loader, 1, 2) == [[2, 1]]
            # The next batch is here, and goes back; the receipt of the first one has arrived.
            eventually(lambda: [info_of(here, name).undelivered_samples for name in "ab"] == [1, 2])
            assert left() == [27, 27]
            proxy.cut()
            eventually(lambda: left() == [28, 29])
            assert info_of(there, "a").current_size == 28
            loaded = [[2, 1], *shares_of(loader, 3, 2)]
            # One draw may have begun before the loss is seen. The batch after it then has the shares of the one before.
            assert all(shares in ([2, 1], [1, 2]) for shares in loaded), loaded
            assert all(abs(a - b) <= 2 for a, b in np.cumsum(loaded, axis=0)), loaded
            assert np.sum(loaded, axis=0).tolist() == [6, 6]
            assert next(loader, None) is None
        proxy.close()


def test_random_shares_are_right_on_average_and_repeat_with_their_seed(serve):
    client = serve_tables(serve, "a", "b")

    def load(seed):
        with NumpyLoader(client, {"a": 1, "b": 3}, batch_size=100, shares="random", seed=seed) as loader:
            return shares_of(loader, 30, 2)

    first = load(1)
    assert len({tuple(shares) for shares in first}) > 1
    assert abs(np.sum(first, axis=0)[1] / 3000 - 0.75) < 0.06
    assert load(1) == first
    assert load(2) != first


def test_a_mixture_updates_the_priorities_of_each_table(serve):
    client = serve_tables(serve, "one", "two", count=1)
    with NumpyLoader(client, {"one": 1, "two": 3}, batch_size=100) as loader:
        assert loader.tables == ["one", "two"]
        batch = next(loader)
        assert collections.Counter(batch.table.tolist()) == {0: 25, 1: 75}
        np.testing.assert_array_equal(batch.data[0][:, 0], np.where(batch.table == 0, 0.0, 1.0))
        assert loader.update_priorities(batch, np.where(batch.table == 0, 2.0, 5.0)) == 100
        assert client.sample_batch("one", 1).info.priority == 2.0
        assert client.sample_batch("two", 1).info.priority == 5.0
        client.reset("two")
        assert loader.update_priorities(batch, 1.0) == 25


def test_weights_of_a_mixture_use_the_size_and_the_probabilities_of_each_items_own_table(serve):
    client = serve(make_table("flat", sampler="uniform"), make_table("steep", sampler="prioritized"))
    client.insert_batch(np.zeros(8), {"flat": 1.0})
    client.insert_batch(np.zeros(2), {"steep": [1.0, 3.0]})
    with NumpyLoader(client, {"flat": 1, "steep": 1}, batch_size=64, beta=1.0) as loader:
        batch = next(loader)
    # N * P is 1 in the flat table, and 1/2 or 3/2 in the steep one. One maximum divides all.
    n_times_p = np.where(batch.table == 0, 1.0, np.where(batch.info.priority == 1.0, 0.5, 1.5))
    np.testing.assert_allclose(batch.weights, n_times_p.min() / n_times_p, rtol=1e-6)


def test_shares_are_checked():
    with pytest.raises(ValueError, match="`shares` must be 'exact' or 'random', got 'equal'"):
        NumpyLoader("localhost:1", {"a": 1, "b": 1}, batch_size=2, shares="equal")


def test_a_queue_in_a_mixture_loses_nothing_when_the_loader_is_closed(serve):
    client = serve_tables(serve, "a", "b", count=20, max_times_sampled=1)
    with NumpyLoader(client, {"a": 1, "b": 3}, batch_size=4, prefetch=2) as loader:
        assert shares_of(loader, 2, 2) == [[1, 3], [1, 3]]
    eventually(lambda: [info_of(client, name).current_size for name in ("a", "b")] == [18, 14])
