"""Rows of open length in the loaders and datasets of the frameworks."""

import numpy as np
import pytest
from behaviour_support import make_table

from reverb import Ragged, TensorSpec

SIGNATURE = {"id": TensorSpec([], np.int64), "tokens": TensorSpec([None], np.int32)}
LENGTHS = [3, 0, 5, 5]
ROWS = [list(range(10 * number, 10 * number + length)) for number, length in enumerate(LENGTHS)]


@pytest.fixture
def client(serve):
    client = serve(make_table(signature=SIGNATURE, max_times_sampled=1), make_table("bare", max_times_sampled=1))
    values = np.concatenate([np.array(rows, np.int32) for rows in ROWS])
    client.insert_batch({"id": np.arange(4), "tokens": Ragged(values, np.array(LENGTHS))}, {"table": 1.0, "bare": 1.0})
    return client


@pytest.mark.torch
def test_torch_loaders_give_ragged_tensors(client):
    torch = pytest.importorskip("torch")
    from reverb.loaders import TorchLoader

    with TorchLoader(client, "table", batch_size=4) as loader:
        column = next(loader).data["tokens"]
    assert isinstance(column.values, torch.Tensor)
    assert [rows.tolist() for rows in column.split()] == ROWS


@pytest.mark.jax
def test_jax_loaders_give_ragged_arrays(client):
    pytest.importorskip("jax")
    from reverb.loaders import JaxLoader

    with JaxLoader(client, "table", batch_size=4) as loader:
        column = next(loader).data["tokens"]
    assert [rows.tolist() for rows in column.split()] == ROWS


@pytest.mark.tensorflow
def test_tensorflow_loaders_give_ragged_tensors(client):
    pytest.importorskip("tensorflow")
    from reverb.loaders import TensorFlowLoader

    with TensorFlowLoader(client, "table", batch_size=4) as loader:
        assert next(loader).data["tokens"].to_list() == ROWS


@pytest.mark.tensorflow
def test_timestep_datasets_give_each_row_in_its_shape(client):
    tf = pytest.importorskip("tensorflow")
    import reverb

    dataset = reverb.TimestepDataset.from_table_signature(
        client.server_address, "table", max_in_flight_samples_per_worker=4
    )
    got = [(int(step.data["id"]), step.data["tokens"].numpy().tolist()) for step in dataset.take(4)]
    assert tf is not None
    assert got == list(enumerate(ROWS))


@pytest.mark.tensorflow
@pytest.mark.parametrize("shape", [(1, None), (None, None)])
def test_trajectory_datasets_give_each_item_with_its_time_axis(client, shape):
    tf = pytest.importorskip("tensorflow")
    import reverb

    dataset = reverb.TrajectoryDataset(
        client.server_address,
        "bare",
        dtypes={"id": tf.int64, "tokens": tf.int32},
        shapes={"id": tf.TensorShape([1]), "tokens": tf.TensorShape(shape)},
        max_in_flight_samples_per_worker=4,
    )
    assert [item.data["tokens"].numpy().tolist() for item in dataset.take(4)] == [[rows] for rows in ROWS]
