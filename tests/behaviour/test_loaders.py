"""The behaviour that all loaders share, tested with the NumPy loader."""

import os
import threading
import time

import numpy as np
import pytest
from behaviour_support import Background, comes_true, eventually, info_of, make_table

import reverb
from reverb.loaders import Batch, LinearBeta, NumpyLoader, draws, outage


def queue_table(name="table", max_size=1000):
    return reverb.Table.queue(name, max_size)


def uniform_table(name="table", **options):
    return make_table(name, sampler="uniform", **options)


def insert_numbers(client, count, table="table", first=0):
    client.insert_batch({"a": np.arange(first, first + count), "b": np.ones((count, 2), np.float32)}, {table: 1.0})


def numbers(batch):
    return batch.data[0][:, 0].tolist()


def shapes_of(data):
    return {k: shapes_of(part) if isinstance(part, dict) else part.shape for k, part in data.items()}


def undelivered(client, table="table"):
    return info_of(client, table).undelivered_samples


def test_a_queue_is_read_completely_and_in_order(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 50)
    with NumpyLoader(client, "table", batch_size=8, timeout=0.1, on_timeout="stop") as loader:
        batches = list(loader)
    assert [number for batch in batches for number in numbers(batch)] == list(range(50))
    assert [len(batch.info.key) for batch in batches] == [8] * 6 + [2]


def test_prefetched_samples_are_undelivered_and_go_back_on_close(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 50)
    loader = NumpyLoader(client, "table", batch_size=8, prefetch=3)
    assert numbers(next(loader)) == list(range(8))
    eventually(lambda: undelivered(client) == 24)
    assert info_of(client).current_size == 50 - 32
    assert loader.stats().undelivered == 24
    loader.close()
    eventually(lambda: undelivered(client) == 0)
    assert info_of(client).current_size == 42
    assert info_of(client).rate_limiter_info.sample_stats.completed == 8
    assert numbers(client.sample_batch("table", 42)) == list(range(8, 50)), "items are in their old places"
    assert list(loader) == []


def test_without_prefetch_nothing_is_drawn_in_advance(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 50)
    with NumpyLoader(client, "table", batch_size=8, prefetch=0) as loader:
        next(loader)
        assert info_of(client).current_size == 42


def test_by_default_batches_are_prefetched_only_from_another_process(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 50)
    with NumpyLoader(client, "table", batch_size=8) as loader:
        for first in (0, 8):
            assert numbers(next(loader)) == list(range(first, first + 8))
            expected = 0 if client.road == "same_process" else 16
            eventually(lambda: undelivered(client) == expected)  # noqa: B023 - called at once
            assert loader.stats().undelivered == expected


def test_a_loader_without_a_timeout_waits_for_items(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 6)
    with NumpyLoader(client, "table", batch_size=4, num_batches=2) as loader:
        assert numbers(next(loader)) == [0, 1, 2, 3]
        waiting = Background(lambda: [numbers(batch) for batch in loader])
        eventually(lambda: loader.stats().undelivered == 4)
        insert_numbers(client, 4, first=6)
        assert waiting.result() == [[4, 5, 6, 7]]
        assert loader.stats().batches == 2
    eventually(lambda: info_of(client).current_size == 2)


@pytest.mark.parametrize("table", [uniform_table, queue_table], ids=["uniform", "queue"])
def test_a_beta_function_that_raises_loses_no_sample(serve, table):
    client = serve(table())
    insert_numbers(client, 40)

    def beta(batch):
        if batch == 2:
            raise RuntimeError("no such batch")
        return 1.0

    def completed():
        return info_of(client).rate_limiter_info.sample_stats.completed

    with NumpyLoader(client, "table", batch_size=4, beta=beta, prefetch=0) as loader:
        next(loader)
        next(loader)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no such batch"):
                next(loader)
    eventually(lambda: undelivered(client) == 0)
    eventually(lambda: completed() == 8)


def test_all_batches_have_the_same_shapes(serve):
    signature = {"a": reverb.TensorSpec([1, 2], np.float32), "b": reverb.TensorSpec([1], np.int64)}
    client = serve(uniform_table(signature=signature))
    client.insert_batch({"a": np.ones((5, 2), np.float32), "b": np.arange(5)}, {"table": 1.0})
    for options, shapes in (
        ({}, {"a": (3, 1, 2), "b": (3, 1)}),
        ({"squeeze_time": True}, {"a": (3, 2), "b": (3,)}),
        ({"squeeze_time": True, "fields": ["b"]}, {"b": (3,)}),
        ({"fields": ["b"], "prefetch": 2}, {"b": (3, 1)}),
    ):
        with NumpyLoader(client, "table", batch_size=3, num_batches=4, **options) as loader:
            batches = list(loader)
        assert [{name: part.shape for name, part in batch.data.items()} for batch in batches] == [shapes] * 4
        assert [len(batch.info.key) for batch in batches] == [3] * 4


def test_a_dropped_loader_gives_its_samples_back(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 50)
    next(NumpyLoader(client, "table", batch_size=8, prefetch=2))
    eventually(lambda: undelivered(client) == 0 and info_of(client).current_size == 42)


def test_a_timeout_without_items_raises_or_ends(serve):
    client = serve(queue_table(max_size=100))
    loader = NumpyLoader(client, "table", batch_size=4, timeout=0.05)
    with pytest.raises(reverb.DeadlineExceededError, match="`table`.*0.05 s"):
        next(loader)
    insert_numbers(client, 4)
    assert numbers(next(loader)) == [0, 1, 2, 3], "a loader goes on after a timeout"
    assert list(NumpyLoader(client, "table", batch_size=4, timeout=0.05, on_timeout="stop")) == []


def test_drop_remainder_gives_short_batches_back(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 3)
    with NumpyLoader(client, "table", batch_size=4, timeout=0.05, on_timeout="stop", drop_remainder=True) as loader:
        assert list(loader) == []
    eventually(lambda: info_of(client).current_size == 3)


def test_batches_that_were_dropped_do_not_count(serve):
    client = serve(queue_table(max_size=100))
    options = {"batch_size": 4, "num_batches": 2, "timeout": 0.1, "drop_remainder": True}
    with NumpyLoader(client, "table", **options) as loader:
        insert_numbers(client, 1)
        with pytest.raises(reverb.DeadlineExceededError):
            next(loader)
        insert_numbers(client, 8)
        assert [numbers(batch) for batch in loader] == [[0, 0, 1, 2], [3, 4, 5, 6]]


def test_timeout_0_takes_the_items_available_now(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 3)
    with NumpyLoader(client, "table", batch_size=4, timeout=0, on_timeout="stop") as loader:
        assert [numbers(batch) for batch in loader] == [[0, 1, 2]]


def test_num_batches_ends_the_data_and_draws_no_more(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 50)
    loader = NumpyLoader(client, "table", batch_size=5, num_batches=3, prefetch=5)
    assert [numbers(batch)[0] for batch in loader] == [0, 5, 10]
    assert info_of(client).current_size == 35


def test_several_threads_share_the_batches_of_a_loader(serve):
    client = serve(uniform_table())
    insert_numbers(client, 50)
    loader = NumpyLoader(client, "table", batch_size=4, num_batches=400)
    threads = [Background(lambda: sum(len(batch.info.key) for batch in loader)) for _ in range(4)]
    assert sum(thread.result() for thread in threads) == 1600
    assert loader.stats().samples == 1600
    eventually(lambda: info_of(client).rate_limiter_info.sample_stats.completed == 1600)


def test_items_of_a_table_without_a_signature_can_change_their_columns(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 8)
    client.insert_batch([np.arange(8, 16), np.zeros(8), np.ones(8)], {"table": 1.0})
    with NumpyLoader(client, "table", batch_size=4) as loader:
        batches = [next(loader) for _ in range(4)]
    assert [len(batch.data) for batch in batches] == [2, 2, 3, 3]
    assert [number for batch in batches for number in numbers(batch)] == list(range(16))


def test_a_close_from_another_thread_ends_a_waiting_loader(serve):
    client = serve(queue_table(max_size=100))
    loader = NumpyLoader(client, "table", batch_size=4)
    waiting = Background(lambda: list(loader))
    threading.Timer(0.1, loader.close).start()
    assert waiting.result() == []


def test_fields_selects_parts_of_the_data(serve):
    signature = {
        "obs": {"image": reverb.TensorSpec([1, 2], np.uint8), "pose": reverb.TensorSpec([1], np.float32)},
        "reward": reverb.TensorSpec([1], np.float64),
    }
    client = serve(uniform_table(signature=signature))
    client.insert({"obs": {"image": np.zeros(2, np.uint8), "pose": np.float32(1)}, "reward": 2.0}, {"table": 1.0})
    for fields, expected in (
        (None, {"obs": {"image": (2, 1, 2), "pose": (2, 1)}, "reward": (2, 1)}),
        (["reward"], {"reward": (2, 1)}),
        (["obs"], {"obs": {"image": (2, 1, 2), "pose": (2, 1)}}),
        (["reward", ("obs", "pose")], {"reward": (2, 1), "obs": {"pose": (2, 1)}}),
    ):
        with NumpyLoader(client, "table", batch_size=2, fields=fields) as loader:
            batches = [next(loader).data for _ in range(3)]
        for data in batches:
            assert shapes_of(data) == expected
            assert data.get("reward", np.float64(2)).ravel()[0] == 2
            assert data.get("obs", {}).get("pose", np.float32(1)).ravel()[0] == 1
    with pytest.raises(ValueError, match="'speed' in obs, which has: 'image', 'pose'"):
        next(NumpyLoader(client, "table", batch_size=2, fields=[("obs", "speed")]))


def test_data_have_the_order_of_their_fields(serve):
    client = serve(uniform_table(signature={name: reverb.TensorSpec([1], np.int64) for name in "cab"}))
    client.insert({"a": 1, "b": 2, "c": 3}, {"table": 1.0})
    for fields, expected in ((None, {"a": 1, "b": 2, "c": 3}), (["b", "a"], {"b": 2, "a": 1}), (["c"], {"c": 3})):
        with NumpyLoader(client, "table", batch_size=2, fields=fields) as loader:
            for data in (next(loader).data for _ in range(3)):
                assert [(name, column.tolist()) for name, column in data.items()] == [
                    (name, [[value]] * 2) for name, value in expected.items()
                ]


def test_weights_follow_a_changing_beta(serve):
    client = serve(make_table(sampler="prioritized"))
    client.insert_batch({"a": np.arange(2.0)}, {"table": [1.0, 3.0]})
    with NumpyLoader(client, "table", batch_size=64, beta=LinearBeta(0.0, 1.0, num_batches=2)) as loader:
        for beta in (0.0, 0.5, 1.0, 1.0):
            batch = next(loader)
            raw = (2 * np.where(batch.info.priority == 1.0, 0.25, 0.75)) ** -beta
            np.testing.assert_allclose(batch.weights, raw / raw.max(), rtol=1e-6)
            assert batch.weights.dtype == np.float32


def test_a_mixture_of_tables_with_different_rows_is_refused(serve):
    client = serve(uniform_table("one"), uniform_table("two"))
    client.insert(np.float32(1), {"one": 1.0})
    client.insert(np.float64(1), {"two": 1.0})
    with pytest.raises(ValueError, match="must have the same dtype and row shape.*float32.*float64"):
        next(NumpyLoader(client, {"one": 1, "two": 1}, batch_size=50))


def test_batches_are_padded_with_a_mask(serve):
    client = serve(uniform_table())
    insert_numbers(client, 3)
    for pad_to, length in ((4, 4), ((2, 3), 2), ("longest", 1)):
        with NumpyLoader(client, "table", batch_size=5, pad_to=pad_to) as loader:
            batch = next(loader)
        assert batch.data[1].shape == (5, length, 2)
        assert batch.mask.tolist() == [[True] + [False] * (length - 1)] * 5
        assert not batch.data[1][:, 1:].any()


def test_padded_batches_have_one_mask_or_one_for_each_column_whatever_the_items_are(serve):
    client = serve(make_table(sampler="uniform"))
    with client.trajectory_writer(3) as writer:
        for step in range(3):
            writer.append({"long": step, "short": step, "first": step})
        history = writer.history
        columns = {"long": history["long"][:], "short": history["short"][:2], "first": history["first"][0]}
        writer.create_item("table", 1.0, columns)
    options = {"batch_size": 2, "pad_to": 4}
    with NumpyLoader(client, "table", **options, mask_per_column=True) as loader:
        first, long, short = next(loader).mask
    assert first is None
    assert long.tolist() == [[True, True, True, False]] * 2
    assert short.tolist() == [[True, True, False, False]] * 2
    with NumpyLoader(client, "table", **options, fields=[0, 1]) as loader:
        assert next(loader).mask.tolist() == [[True, True, True, False]] * 2
    with NumpyLoader(client, "table", **options, fields=[0, 1], mask_per_column=True) as loader:
        first, long = next(loader).mask
        assert first is None
        assert long.tolist() == [[True, True, True, False]] * 2
    with NumpyLoader(client, "table", **options, fields=[0]) as loader:
        assert next(loader).mask is None
    with NumpyLoader(client, "table", **options) as loader:
        text = "an item differ in their rows: 1 has 3, 2 2. `mask_per_column=True`"
        for _ in range(2):
            with pytest.raises(ValueError, match=text):
                next(loader)
    eventually(lambda: info_of(client).undelivered_samples == 0)


@pytest.mark.ports
def test_a_stopped_and_restarted_server_is_found_again(serve_far):
    serve_far(uniform_table())
    port = serve_far.server.port
    client = serve_far.connect()
    insert_numbers(client, 3)
    loader = NumpyLoader(f"ipv4:127.0.0.1:{port}", "table", batch_size=2)
    next(loader)
    serve_far.server.stop(returns=True)
    server = reverb.Server([uniform_table()], port=port)
    try:
        other = reverb.Client(f"ipv4:127.0.0.1:{port}")
        insert_numbers(other, 1, first=100)
        eventually(lambda: numbers(next(loader)) == [100, 100])
    finally:
        loader.close()
        server.stop()


@pytest.mark.ports
def test_a_lost_server_is_waited_for_until_the_reconnect_timeout(serve_far, monkeypatch):
    monkeypatch.setattr(draws, "_PATIENCE_S", 0.1)
    insert_numbers(serve_far(uniform_table()), 1)
    port = serve_far.server.port
    loaders = [NumpyLoader(f"ipv4:127.0.0.1:{port}", "table", batch_size=2, reconnect_timeout=t) for t in (0.2, 300)]
    for loader in loaders:
        next(loader)
    serve_far.server.stop(returns=True)
    with pytest.raises(reverb.errors.UnavailableError):
        [next(loaders[0]) for _ in range(10)]

    def until_new_batch():
        while numbers(next(loaders[1])) != [100, 100]:
            pass

    waiting = Background(until_new_batch)
    assert not comes_true(lambda: not waiting.is_running, patience_s=1.0)
    server = reverb.Server([uniform_table()], port=port)
    try:
        insert_numbers(reverb.Client(f"ipv4:127.0.0.1:{port}"), 1, first=100)
        waiting.result()
    finally:
        for loader in loaders:
            loader.close()
        server.stop()


@pytest.mark.ports
def test_an_outage_is_logged_when_it_begins_while_it_lasts_and_when_it_is_over(serve_far, monkeypatch, caplog):
    monkeypatch.setattr(outage, "_PERIOD_S", 0.5)
    client = serve_far(queue_table())
    port = serve_far.server.port

    def told():
        return [record for record in caplog.records if "a loader of table table" in record.getMessage()]

    with NumpyLoader(client, "table", batch_size=1) as loader:
        waiting = Background(next, loader)
        time.sleep(0.3)
        assert waiting.is_running
        assert not told(), "the server is there"
        serve_far.server.stop(returns=True)
        eventually(lambda: len(told()) >= 2, patience_s=40)
        assert all("has waited" in record.getMessage() for record in told())
        serve_far(queue_table(), port=port)
        eventually(lambda: "has reached" in told()[-1].getMessage())
        assert waiting.is_running, "the table is empty"
        insert_numbers(serve_far.connect(), 1, first=7)
        assert numbers(waiting.result()) == [7]
        begin, *during, end = told()
        assert "has waited 0.0 s for the server at " in begin.getMessage()
        assert all("has waited" in record.getMessage() for record in during)
        assert end.fields["table"] == "table"
        assert end.fields["waited_s"] >= during[-1].fields["waited_s"] >= 0.5


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_the_reconnect_timeout_is_not_negative(serve, seconds):
    with pytest.raises(ValueError, match="timeout"):
        NumpyLoader(serve(uniform_table()), "table", batch_size=2, reconnect_timeout=seconds)


def test_stats_report_how_time_was_spent(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 8)
    with NumpyLoader(client, "table", batch_size=4, timeout=0.3, on_timeout="stop") as loader:
        assert len(list(loader)) == 2
        stats = loader.stats()
    assert (stats.batches, stats.samples) == (2, 8)
    assert stats.limiter_s > 0.25, "the queue was empty for the whole timeout"
    assert stats.network_s < stats.limiter_s


def test_an_unknown_table_is_an_error_each_time(serve):
    client = serve(make_table())
    loader = NumpyLoader(client, "nowhere", batch_size=4)
    for _ in range(2):
        with pytest.raises(reverb.errors.TableNotFoundError, match="nowhere"):
            next(loader)


def test_the_times_in_the_stats_add_up_to_the_elapsed_time(serve):
    client = serve(uniform_table())
    insert_numbers(client, 8)
    with NumpyLoader(client, "table", batch_size=4) as loader:
        before = time.perf_counter()
        for _ in range(100):
            next(loader)
        total = time.perf_counter() - before
        stats = loader.stats()
    assert (stats.batches, stats.samples) == (100, 400)
    times = (stats.limiter_s, stats.network_s, stats.convert_s, stats.learner_s)
    assert min(times[1:]) > 0
    assert sum(times) <= total


def test_stats_can_be_read_while_another_thread_waits(serve):
    client = serve(queue_table())
    loader = NumpyLoader(client, "table", batch_size=4, prefetch=2)
    waiting = Background(lambda: numbers(next(loader)))
    eventually(lambda: loader.stats().undelivered == 8)
    insert_numbers(client, 4)
    assert waiting.result() == [0, 1, 2, 3]
    loader.close()


def test_a_server_that_stays_away_is_an_error(serve_far):
    serve_far(make_table())
    loader = NumpyLoader(serve_far.address, "table", batch_size=4, timeout=0.3)
    serve_far.server.stop(returns=True)
    with pytest.raises((reverb.errors.UnavailableError, reverb.DeadlineExceededError)):
        next(loader)


@pytest.mark.parametrize("options", [{"timeout": 0.2}, {"timeout": 0}, {"timeout": 0.2, "on_timeout": "stop"}])
def test_the_timeout_of_a_loader_also_limits_its_first_connection(options):
    # An UnavailableError would mean that the connection had the ten seconds that it has without a timeout.
    with pytest.raises(reverb.DeadlineExceededError, match="no server"):
        next(NumpyLoader("localhost:1", "table", batch_size=2, **options))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_leaves_the_parents_samples_alone(serve):
    client = serve(queue_table(max_size=100))
    insert_numbers(client, 50)
    loader = NumpyLoader(client, "table", batch_size=8, prefetch=2)
    next(loader)
    child = os.fork()
    if child == 0:
        del loader
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert undelivered(client) == 16
    assert numbers(next(loader)) == list(range(8, 16))
    loader.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("leave", [NumpyLoader.close, next])
def test_a_forked_child_leaves_the_batch_that_the_parent_works_on_alone(serve_far, leave, prefetch):
    client = serve_far(queue_table(max_size=100))
    insert_numbers(client, 50)
    loader = NumpyLoader(client, "table", batch_size=8, prefetch=prefetch, receipt="next", timeout=20)
    next(loader)
    child = os.fork()
    if child == 0:
        leave(loader)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    # The parent has not asked for the next batch, so that its samples go back if it is killed now.
    assert undelivered(client) >= 8
    loader.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1, "prefetch": -1}, "prefetch"),
        ({"batch_size": 1, "timeout": -1}, "timeout"),
        ({"batch_size": 1, "on_timeout": "die"}, "on_timeout"),
        ({"batch_size": 1, "fields": "obs"}, "fields"),
        ({"batch_size": 1, "pad_to": 0}, "pad_to"),
        ({"batch_size": 1, "pad_to": "most"}, "pad_to"),
        ({"batch_size": 1, "pad_to": 3, "squeeze_time": True}, "squeeze_time"),
        ({"batch_size": 1, "mask_per_column": True}, "mask_per_column"),
        ({"batch_size": 1, "beta": -0.5}, "beta"),
    ],
)
def test_invalid_options_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        NumpyLoader("localhost:1", "table", **options)


def test_a_mixture_needs_positive_weights():
    for table in ({}, {"a": 0.0}, {"a": 1.0, "b": float("nan")}):
        with pytest.raises(ValueError, match="positive weights"):
            NumpyLoader("localhost:1", table, batch_size=1)


def test_a_batch_is_a_named_tuple_of_five_fields():
    assert Batch._fields == ("info", "data", "weights", "mask", "table")
