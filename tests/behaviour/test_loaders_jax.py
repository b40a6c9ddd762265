"""Batches as JAX arrays."""

import gc

import ml_dtypes
import numpy as np
import pytest
from behaviour_support import eventually, info_of, make_table, run_program

import reverb

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax

from reverb.loaders import JaxLoader  # noqa: E402


def test_batches_are_jax_arrays_and_infos_numpy_arrays(serve):
    client = serve(make_table(sampler="uniform"))
    client.insert_batch({"a": np.ones((3, 2), np.float32), "b": np.arange(3, dtype=np.int32)}, {"table": 1.0})
    with JaxLoader(client, "table", batch_size=4, beta=0.5) as loader:
        batch = next(loader)
    assert all(isinstance(leaf, jax.Array) for leaf in batch.data)
    assert isinstance(batch.weights, jax.Array)
    assert batch.info.key.dtype == np.uint64
    assert batch.info.key.max() > 2**32, "a key of 64 bits is not cut"


def test_a_queue_is_read_completely_and_staged_batches_go_back(serve):
    client = serve(reverb.Table.queue("table", 100))
    client.insert_batch([np.arange(50, dtype=np.int32)], {"table": 1.0})
    with JaxLoader(client, "table", batch_size=5) as loader:
        assert next(loader).data[0][:, 0].tolist() == [0, 1, 2, 3, 4]
    eventually(lambda: info_of(client).current_size == 45)
    with JaxLoader(client, "table", batch_size=5, timeout=0.1, on_timeout="stop") as loader:
        held = list(loader)
        gc.collect()
    assert [value for batch in held for value in batch.data[0][:, 0].tolist()] == list(range(5, 50))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("bool", "bool"),
        ("uint8", "uint8"),
        ("int64", "int32"),
        ("uint64", "uint32"),
        ("float16", "float16"),
        ("float64", "float32"),
        ("complex128", "complex64"),
        ("bfloat16", "bfloat16"),
        ("float8_e5m2", "float8_e5m2"),
    ],
)
def test_dtypes_follow_the_table_of_rules(serve, stored, expected):
    client = serve(make_table())
    client.insert_batch([np.ones(2, getattr(ml_dtypes, stored, stored))], {"table": 1.0})
    with JaxLoader(client, "table", batch_size=1) as loader:
        (leaf,) = next(loader).data
    assert leaf.dtype == getattr(ml_dtypes, expected, expected)
    assert np.asarray(leaf).astype(np.complex64)[0, 0] == 1


def test_integers_that_would_be_truncated_and_strings_are_refused(serve):
    client = serve(make_table("large"), make_table("text"))
    client.insert(2**40, {"large": 1.0})
    client.insert("text", {"text": 1.0})
    with pytest.raises(OverflowError, match="column 0 has int64 values outside of int32"):
        next(JaxLoader(client, "large", batch_size=1))
    with pytest.raises(TypeError, match="column 0 has strings"):
        next(JaxLoader(client, "text", batch_size=1))


@pytest.mark.parametrize("table", ["queue", "uniform"])
@pytest.mark.parametrize("size", [20_000, 50_000], ids=["copied as it is drawn", "gathered"])
@pytest.mark.parametrize("double_buffer", [False, True])
def test_arrays_do_not_change_when_later_batches_reuse_buffers(serve, table, size, double_buffer):
    client = serve(reverb.Table.queue("table", 100) if table == "queue" else make_table(sampler="uniform"))
    client.insert_batch([np.repeat(np.arange(40, dtype=np.float32)[:, None], size, axis=1)], {"table": 1.0})
    options = {"num_batches": 40, "double_buffer": double_buffer}
    with JaxLoader(client, "table", batch_size=1, **options) as loader:
        kept, values = [], []
        for batch in loader:
            kept.append(batch.data[0])
            values.append(batch.data[0][0, 0, 0].item())
            gc.collect()
    assert [(array.min().item(), array.max().item()) for array in kept] == [(value, value) for value in values]
    assert len(set(values)) > 10


@pytest.mark.parametrize("double_buffer", [False, True])
def test_a_batch_that_jax_cannot_represent_goes_back(serve, double_buffer):
    client = serve(reverb.Table.queue("table", 100))
    client.insert_batch([np.array([1, 2, 3, 2**40])], {"table": 1.0})
    with JaxLoader(client, "table", batch_size=1, double_buffer=double_buffer) as loader:
        assert [next(loader).data[0].item() for _ in range(3)] == [1, 2, 3]
        with pytest.raises(OverflowError, match="column 0 has int64"):
            next(loader)
    eventually(lambda: info_of(client).current_size == 1)
    assert client.sample_batch("table", 1).data[0].item() == 2**40


def test_weights_and_masks_are_jax_arrays_in_all_batches(serve):
    client = serve(make_table(sampler="uniform"))
    client.insert_batch([np.ones((3, 2), np.float32)], {"table": 1.0})
    for options in ({"beta": 0.5}, {"pad_to": 2}, {"beta": 0.5, "pad_to": 2}):
        with JaxLoader(client, "table", batch_size=4, num_batches=3, **options) as loader:
            for batch in loader:
                assert isinstance(batch.data[0], jax.Array)
                assert isinstance(batch.weights, jax.Array) == ("beta" in options)
                assert (batch.mask is not None) == ("pad_to" in options)


def test_a_sharding_splits_the_batch_over_devices():
    run_program(
        """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        import jax, numpy as np, reverb
        from reverb.loaders import JaxLoader
        server = reverb.Server([reverb.Table.queue("table", 100)])
        client = server.localhost_client()
        client.insert_batch([np.arange(9, dtype=np.int32)], {"table": 1.0})
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
        with JaxLoader(client, "table", batch_size=4, device=sharding, timeout=0.1, on_timeout="stop") as loader:
            batches = list(loader)
        assert [b.data[0].shape for b in batches] == [(4, 1)] * 2, "a short batch cannot be split"
        assert {len(b.data[0].addressable_shards) for b in batches} == {2}
        assert client.server_info()["table"].current_size == 1
        """,
        patience_s=60,
    )


def test_ragged_columns_are_padded_and_split_as_jax_arrays():
    ragged = reverb.Ragged(jax.numpy.arange(12.0).reshape(6, 2), jax.numpy.array([1, 0, 3, 2]))
    for column in (ragged, jax.jit(lambda column: column)(ragged)):
        padded, mask = column.to_padded()
        assert isinstance(padded, jax.Array)
        assert isinstance(mask, jax.Array)
        assert padded[2].tolist() == [[2, 3], [4, 5], [6, 7]]
        assert mask.tolist() == [[True, False, False], [False] * 3, [True] * 3, [True, True, False]]
        assert not padded[~mask].any()
        assert [len(rows) for rows in column.split()] == [1, 0, 3, 2]
        assert column[-1].tolist() == [[8, 9], [10, 11]]
        assert column[::-1].row_lengths.tolist() == [2, 3, 0, 1]
        assert column[::-1].values[0].tolist() == [8, 9]
        empty, mask = column[1:2].to_padded(2)
        assert (empty.tolist(), mask.tolist()) == ([[[0, 0]] * 2], [[False] * 2])


def test_the_mask_of_equally_long_columns_is_one_jax_array(serve):
    client = serve(make_table(sampler="uniform"))
    client.insert_batch({"a": np.ones((3, 2), np.float32), "b": np.zeros(3, np.float32)}, {"table": 1.0})
    with JaxLoader(client, "table", batch_size=4, pad_to=2) as loader:
        mask = next(loader).mask
    assert isinstance(mask, jax.Array)
    assert mask.tolist() == [[True, False]] * 4


def test_devices_have_names(serve):
    client = serve(make_table(sampler="uniform"))
    client.insert(np.float32(1), {"table": 1.0})
    for device in ("cpu", "cpu:0"):
        with JaxLoader(client, "table", batch_size=2, device=device) as loader:
            assert next(loader).data[0].devices() == {jax.devices("cpu")[0]}


@pytest.mark.parametrize("device", ["gpu", "cuda:0", "cpu:77"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(device):
    if device != "cpu:77" and jax.default_backend() == "gpu":
        pytest.skip("has a GPU")
    with pytest.raises(ValueError, match=f'device "{device}": JAX sees [a-z]+:0'):
        JaxLoader("localhost:1", "table", batch_size=1, device=device)
    with pytest.raises(ValueError, match="expected a platform and a number"):
        JaxLoader("localhost:1", "table", batch_size=1, device="cpu:first")
