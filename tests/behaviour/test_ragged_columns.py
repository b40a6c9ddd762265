"""Columns whose signature leaves the number of rows open: their form does not depend on the items of a batch."""

import numpy as np
import pytest
from behaviour_support import make_table

from reverb import Ragged, TensorSpec
from reverb.loaders import NumpyLoader

OPEN = TensorSpec([None, 2], np.float32)
CLOSED = TensorSpec([3], np.int64)


def write_items(client, lengths, table="table"):
    """Writes one item per length: `x` has as many rows, `y` always three."""
    with client.trajectory_writer(4) as writer:
        for length in lengths:
            for step in range(4):
                writer.append({"x": np.full(2, step, np.float32), "y": step})
            history = writer.history
            writer.create_item(table, 1.0, {"x": history["x"][-length:], "y": history["y"][-3:]})


@pytest.mark.parametrize("squeeze_time", [False, True])
@pytest.mark.parametrize("lengths", [[2, 2], [1, 1], [1, 3]], ids=["equal", "one_row", "different"])
def test_a_column_of_unknown_length_is_ragged_in_every_batch(serve, lengths, squeeze_time):
    client = serve(make_table(signature={"x": OPEN, "y": CLOSED}, max_times_sampled=1))
    write_items(client, lengths)
    data = client.sample_batch("table", 2, squeeze_time=squeeze_time).data
    assert isinstance(data["x"], Ragged)
    assert data["x"].row_lengths.tolist() == lengths
    assert data["x"].row_lengths.dtype == np.int64
    rows = [step for length in lengths for step in range(4 - length, 4)]
    np.testing.assert_array_equal(data["x"].values, np.repeat(rows, 2).reshape(-1, 2))
    assert data["y"].shape == (2, 3)


def test_strings_of_unknown_length_are_ragged(serve):
    client = serve(make_table(signature=[TensorSpec([None], np.object_)]))
    with client.trajectory_writer(2) as writer:
        writer.append([b"a"])
        writer.append([b"b"])
        writer.create_item("table", 1.0, [writer.history[0][:]])
    [column] = client.sample_batch("table", 2).data
    assert column.values.tolist() == [b"a", b"b"] * 2
    assert column.row_lengths.tolist() == [2, 2]


def test_equal_rows_are_ragged_by_their_signature_only(serve):
    client = serve(make_table("signed", signature=[TensorSpec([None], np.int64)]), make_table("unsigned"))
    with client.trajectory_writer(2) as writer:
        writer.append([np.arange(4)])
        writer.create_item("signed", 1.0, [writer.history[0][-1]])
        writer.create_item("unsigned", 1.0, [writer.history[0][:]])
    [column] = client.sample_batch("signed", 3).data
    assert (column.values.tolist(), column.row_lengths.tolist()) == ([0, 1, 2, 3] * 3, [4] * 3)
    assert client.sample_batch("unsigned", 3).data[0].shape == (3, 1, 4)


def test_single_items_keep_their_shape(serve):
    client = serve(make_table(signature={"x": OPEN, "y": CLOSED}))
    write_items(client, [2])
    [sample] = client.sample("table", emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data["x"].shape == (2, 2)


@pytest.mark.parametrize("fields", [None, ["x"]], ids=["all_fields", "one_field"])
def test_loaders_give_ragged_columns(serve, fields):
    client = serve(make_table(signature={"w": CLOSED, "x": OPEN}))
    with client.trajectory_writer(3) as writer:
        for step in range(3):
            writer.append({"w": step, "x": np.full(2, step, np.float32)})
        writer.create_item("table", 1.0, {"w": writer.history["w"][:], "x": writer.history["x"][-2:]})
    with NumpyLoader(client, "table", batch_size=4, fields=fields) as loader:
        for _ in range(3):
            column = next(loader).data["x"]
            assert isinstance(column, Ragged)
            assert (column.values.shape, column.row_lengths.tolist()) == ((8, 2), [2] * 4)


def test_mixtures_give_ragged_columns_and_padding_gives_arrays(serve):
    signature = {"x": OPEN, "y": CLOSED}
    client = serve(*(make_table(name, signature=signature) for name in ("a", "b")))
    for table in ("a", "b"):
        write_items(client, [2], table)
    weights = {"a": 1.0, "b": 1.0}
    for squeeze_time in (False, True):
        with NumpyLoader(client, weights, batch_size=16, seed=1, squeeze_time=squeeze_time) as loader:
            batch = next(loader)
        assert set(batch.table) == {0, 1}
        assert isinstance(batch.data["x"], Ragged)
        assert batch.data["x"].row_lengths.tolist() == [2] * 16
    with NumpyLoader(client, weights, batch_size=4, pad_to=3, mask_per_column=True) as loader:
        assert next(loader).data["x"].shape == (4, 3, 2)
