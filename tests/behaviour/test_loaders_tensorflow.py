"""Batches as eager TensorFlow tensors."""

import ml_dtypes
import numpy as np
import pytest
from behaviour_support import make_table

import reverb

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from reverb.loaders import TensorFlowLoader  # noqa: E402


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint64", "float16", "float64", "complex128", "bfloat16"])
def test_every_dtype_arrives_unchanged(serve, dtype):
    client = serve(make_table())
    client.insert_batch([np.ones(2, getattr(ml_dtypes, dtype, dtype))], {"table": 1.0})
    with TensorFlowLoader(client, "table", batch_size=2, beta=1.0) as loader:
        batch = next(loader)
    assert batch.data[0].dtype == getattr(tf, dtype)
    assert tf.cast(batch.data[0], tf.int32).numpy().tolist() == [[1], [1]]
    assert batch.weights.dtype == tf.float32


def test_strings_are_tf_strings(serve):
    client = serve(reverb.Table.queue("table", 9))
    client.insert_batch([np.array(["a", "bc"])], {"table": 1.0})
    with TensorFlowLoader(client, "table", batch_size=2) as loader:
        assert next(loader).data[0].numpy().tolist() == [[b"a"], [b"bc"]]
