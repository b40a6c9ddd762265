"""`client.sample_batch`, which returns many items as one stacked array per column."""

import numpy as np
import pytest
import tree
from behaviour_support import (
    Background,
    SlowProxy,
    draw_values,
    eventually,
    info_of,
    insert_values,
    make_table,
    num_samples,
)

import reverb
from reverb import errors
from reverb.loaders import NumpyLoader
from reverb.tensor_spec import TensorSpec


def test_columns_are_stacked_with_and_without_the_time_axis(client):
    client.insert({"x": np.arange(2.0), "y": 3}, {"table": 1.0})
    x, y = client.sample_batch("table", 5).data
    assert (x.shape, y.shape) == ((5, 1, 2), (5, 1))
    assert (x.dtype, y.dtype) == (np.float64, np.int64)
    x, y = client.sample_batch("table", 5, squeeze_time=True).data
    assert (x.shape, y.shape) == ((5, 2), (5,))
    np.testing.assert_array_equal(x, np.tile(np.arange(2.0), (5, 1)))


def test_info_has_one_array_per_field(serve):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, range(3), priority=[1.0, 2.0, 5.0])
    batch = client.sample_batch("table", 100)
    info = batch.info
    assert isinstance(batch, reverb.ReplaySample)
    assert [field.dtype.name for field in info] == ["uint64", "float64", "int64", "float64", "int32"]
    assert {field.shape for field in info} == {(100,)}
    priorities = np.array([1.0, 2.0, 5.0])[batch.data[0].ravel()]
    np.testing.assert_array_equal(info.priority, priorities)
    np.testing.assert_allclose(info.probability, priorities / 8, rtol=1e-12)
    np.testing.assert_array_equal(info.table_size, 3)


def test_a_batch_is_taken_apart_as_a_named_tuple(client):
    insert_values(client, range(3))
    batches = [client.sample_batch("table", 3), next(NumpyLoader(client, "table", batch_size=3, num_batches=1))]
    for batch in batches:
        # All of these ask for the length, so that it cannot be the number of items, nor be refused.
        match batch:
            case (info, data, *_):
                assert (len(info.key), data) == (3, batch.data)
            case _:
                pytest.fail("the pattern does not match")
        assert next(reversed(batch)) is batch[-1]
        up_to = tree.flatten_up_to(type(batch)(*range(len(batch._fields))), batch)
        assert [id(part) for part in up_to] == [id(part) for part in batch]


def test_times_sampled_counts_within_a_batch(serve):
    client = serve(make_table())
    insert_values(client, [0])
    np.testing.assert_array_equal(client.sample_batch("table", 5).info.times_sampled, [1, 2, 3, 4, 5])


def test_batch_equals_single_draws(serve):
    client = serve(make_table("batch", max_times_sampled=2), make_table("single", max_times_sampled=2))
    for table in ("batch", "single"):
        insert_values(client, range(10), table=table)
    batch = client.sample_batch("batch", 13)
    singles = list(client.sample("single", 13, emit_timesteps=False))
    assert batch.data[0].ravel().tolist() == [int(sample.data[0][0]) for sample in singles]
    for field in ("probability", "table_size", "priority", "times_sampled"):
        assert getattr(batch.info, field).tolist() == [getattr(sample.info, field) for sample in singles]
    assert info_of(client, "batch").current_size == info_of(client, "single").current_size


def test_batch_may_be_larger_than_the_table(client):
    insert_values(client, [4])
    np.testing.assert_array_equal(client.sample_batch("table", 1000, squeeze_time=True).data[0], np.full(1000, 4))


def test_items_of_several_inserts_are_gathered_in_order_of_the_draw(serve):
    client = serve(make_table(max_times_sampled=1))
    client.insert_batch(np.arange(3), {"table": 1.0})
    insert_values(client, [3])
    client.insert_batch(np.arange(4, 9), {"table": 1.0})
    np.testing.assert_array_equal(client.sample_batch("table", 9, squeeze_time=True).data[0], np.arange(9))


def test_short_batch_is_returned_when_the_timeout_ends(serve):
    client = serve(reverb.Table.queue("table", max_size=10))
    insert_values(client, range(3))
    batch = client.sample_batch("table", 8, timeout=0.2, squeeze_time=True)
    np.testing.assert_array_equal(batch.data[0], [0, 1, 2])
    assert batch.info.key.shape == (3,)


def test_empty_batch_is_an_error_when_the_timeout_ends(serve):
    client = serve(make_table(signature=TensorSpec([], np.int64)))
    with pytest.raises(errors.DeadlineExceededError, match="table"):
        client.sample_batch("table", 8, timeout=0.1)
    insert_values(client, [1])
    assert client.sample_batch("table", 2, timeout=10).data.shape == (2, 1)


def test_timeout_of_zero_takes_the_items_available_now(serve):
    client = serve(reverb.Table.queue("table", max_size=10))
    with pytest.raises(errors.DeadlineExceededError):
        client.sample_batch("table", 2, timeout=0)
    insert_values(client, range(3))
    assert client.sample_batch("table", 8, timeout=0).data[0].ravel().tolist() == [0, 1, 2]


@pytest.mark.parametrize("num_servers", [1, 2])
def test_a_new_client_reaches_a_distant_server_with_a_timeout_of_zero(num_servers):
    servers = [reverb.Server([make_table("empty")]) for _ in range(num_servers)]
    proxies = [SlowProxy(server.port) for server in servers]
    client = reverb.Client("ipv4:" + ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies))
    with pytest.raises(errors.DeadlineExceededError, match="empty"):
        client.sample_batch("empty", 1, timeout=0)
    for server in servers:
        server.localhost_client().insert(np.int64(1), {"empty": 1.0})
    other = reverb.Client(client.server_address)
    assert other.sample_batch("empty", 1, timeout=0).data[0].ravel().tolist() == [1]
    client.close()
    other.close()
    for end in proxies:
        end.close()
    for server in servers:
        server.stop()


def test_batch_waits_for_its_full_size_without_a_timeout(serve):
    client = serve(reverb.Table.queue("table", max_size=10))
    waiting = Background(serve.connect().sample_batch, "table", 5)
    insert_values(client, range(3))
    eventually(lambda: num_samples(client) == 3)
    assert waiting.is_running
    insert_values(client, [3, 4])
    assert waiting.result().data[0].ravel().tolist() == [0, 1, 2, 3, 4]


def test_batch_larger_than_a_queue_fills_as_items_are_inserted(serve):
    client = serve(reverb.Table.queue("table", max_size=2))
    waiting = Background(serve.connect().sample_batch, "table", 20)
    insert_values(client, range(20))
    assert waiting.result().data[0].ravel().tolist() == list(range(20))


def test_batch_takes_only_the_requested_number_of_items(serve):
    client = serve(reverb.Table.queue("table", max_size=10))
    insert_values(client, range(10))
    client.sample_batch("table", 4)
    assert info_of(client).current_size == 6
    assert draw_values(client, 6) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one_are_refused(client, size):
    with pytest.raises(ValueError, match="batch_size"):
        client.sample_batch("table", size)


@pytest.mark.parametrize("size", [1.5, "two", None])
def test_sizes_that_are_not_ints_are_type_errors(client, size):
    with pytest.raises(TypeError):
        client.sample_batch("table", size)


def test_items_of_different_shapes_cannot_be_stacked_and_are_named(serve):
    client = serve(make_table(max_times_sampled=0))
    client.insert(np.zeros(2), {"table": 1.0})
    batch = client.sample_batch("table", 2)
    assert batch.data[0].shape == (2, 1, 2)
    client = serve(reverb.Table.queue("table", max_size=4))
    client.insert(np.zeros((2, 2)), {"table": 1.0})
    client.insert(np.zeros((2, 3)), {"table": 1.0})
    with pytest.raises(ValueError, match="(?i)shape"):
        client.sample_batch("table", 2)
    # Nothing is lost: they can still be drawn one by one.
    samples = client.sample("table", 2, emit_timesteps=False)
    assert [sample.data[0].shape for sample in samples] == [(1, 2, 2), (1, 2, 3)]


def test_large_batches_are_complete(serve):
    client = serve(make_table(max_times_sampled=1))
    rows = np.random.default_rng(0).standard_normal((64, 50_000))
    for part in np.split(rows, 8):
        client.insert_batch(part, {"table": 1.0})
    np.testing.assert_array_equal(client.sample_batch("table", 64, squeeze_time=True).data[0], rows)


@pytest.mark.parametrize("error", [KeyboardInterrupt, errors.UnavailableError])
@pytest.mark.parametrize("call", ["sample_batch", "sample"])
def test_error_of_the_look_up_of_a_signature_loses_no_sample(serve, monkeypatch, call, error):
    client = serve(reverb.Table.queue("table", 10, signature=TensorSpec((), np.int64)))
    client.insert_batch(np.arange(4), {"table": 1.0})

    def draw():
        if call == "sample_batch":
            return client.sample_batch("table", 1, timeout=5).data.item()
        [sample] = client.sample("table", emit_timesteps=False, unpack_as_table_signature=True, timeout=5)
        return sample.data.item()

    def fails(*_args):
        raise error("no answer")

    with monkeypatch.context() as patch:
        patch.setattr("reverb.client.table_infos", fails)
        for _ in range(2):
            with pytest.raises(error):
                draw()
    assert [draw() for _ in range(4)] == [0, 1, 2, 3]
