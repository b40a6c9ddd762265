"""TensorFlow datasets of every dtype, which end because the table has fewer items than were asked for."""

import numpy as np
import pytest
from behaviour_support import make_table

import reverb

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "string"]
ITEM_LENGTHS = {"known": [2, 2, 2], "unknown, all equal": [2, 2, 2], "unknown": [1, 3, 2]}


def steps_of(dtype):
    """Returns four steps."""
    if dtype == "string":
        return [b"a", b"", b"ccc", b"dd"]
    return list(tf.cast(tf.constant([0, 1, 1, 0]), dtype).numpy())


@pytest.mark.parametrize("lengths", ITEM_LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_items_of_every_dtype_and_length_come_and_then_the_data_end(dtype, lengths):
    server = reverb.Server(tables=[make_table(max_times_sampled=1)])
    client, steps = reverb.Client(f"localhost:{server.port}"), steps_of(dtype)
    expected = [steps[-length:] for length in ITEM_LENGTHS[lengths]]
    with client.trajectory_writer(4) as writer:
        for step in steps:
            writer.append([step])
        for length in ITEM_LENGTHS[lengths]:
            writer.create_item("table", 1.0, [writer.history[0][-length:]])
    dataset = reverb.TrajectoryDataset(
        client.server_address,
        "table",
        dtypes=[tf.as_dtype(dtype)],
        shapes=[tf.TensorShape([2 if lengths == "known" else None])],
        max_in_flight_samples_per_worker=10,
        rate_limiter_timeout_ms=50,
    )
    assert [np.array(sample.data[0].numpy()).tolist() for sample in dataset] == [
        np.array(item).tolist() for item in expected
    ]
    server.stop()


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_of_every_dtype_come_and_then_the_data_end(dtype):
    server = reverb.Server(tables=[make_table(max_times_sampled=1)])
    client, steps = reverb.Client(f"localhost:{server.port}"), steps_of(dtype)
    for step in steps:
        client.insert([step], {"table": 1.0})
    dataset = reverb.TimestepDataset(
        client.server_address,
        "table",
        dtypes=[tf.as_dtype(dtype)],
        shapes=[tf.TensorShape([])],
        max_in_flight_samples_per_worker=10,
        rate_limiter_timeout_ms=50,
    )
    assert [np.array(sample.data[0].numpy()).tolist() for sample in dataset] == [
        np.array(step).tolist() for step in steps
    ]
    server.stop()


@pytest.mark.parametrize("shape", [[2, 0, 3], [2, None, 3], None])
def test_columns_without_elements_come(shape):
    server = reverb.Server(tables=[make_table(max_times_sampled=1)])
    client, address = reverb.Client(f"localhost:{server.port}"), f"localhost:{server.port}"
    options = {"dtypes": [tf.float32, tf.int64], "max_in_flight_samples_per_worker": 2, "max_samples": 2}
    with client.trajectory_writer(2) as writer:
        for step in range(3):
            writer.append([np.zeros((0, 3), np.float32), np.int64(step)])
            if step:
                writer.create_item("table", 1.0, [column[-2:] for column in writer.history])
        writer.flush()
    client.insert([np.zeros((0, 3), np.float32), np.int64(3)], {"table": 1.0})
    dataset = reverb.TrajectoryDataset(address, "table", shapes=[tf.TensorShape(shape), tf.TensorShape([2])], **options)
    assert [(sample.data[0].shape, sample.data[1].numpy().tolist()) for sample in dataset] == [
        ((2, 0, 3), [0, 1]),
        ((2, 0, 3), [1, 2]),
    ]
    options["max_samples"] = 1
    step_shape = tf.TensorShape(shape and shape[1:])
    steps = reverb.TimestepDataset(address, "table", shapes=[step_shape, tf.TensorShape([])], **options)
    assert [(step.data[0].shape, step.data[1].numpy()) for step in steps] == [((0, 3), 3)]
    server.stop()


def test_an_error_of_a_dataset_of_strings_is_raised_as_itself(serve):
    client = serve(make_table())
    client.insert([b"text"], {"table": 1.0})
    dataset = reverb.TrajectoryDataset(
        serve.address,
        "table",
        dtypes=[tf.string],
        shapes=[tf.TensorShape([2])],
        max_in_flight_samples_per_worker=10,
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="incompatible tensor"):
        next(iter(dataset))
