"""Batches as eager tensors of TensorFlow, and as a `tf.data.Dataset`."""

from typing import Any

import tensorflow as tf

from reverb.loaders.batch import Batch
from reverb.loaders.leaves import map_leaves
from reverb.loaders.loader import Loader
from reverb.replay_sample import Ragged

__all__ = ["TensorFlowLoader"]


class TensorFlowLoader(Loader):
    """Batches as eager tensors, in the tables' dtypes.

    Strings are `tf.string`, columns of items of different lengths `tf.RaggedTensor`. `batch.info` and `batch.table`
    stay NumPy, as with all loaders. For a `tf.data.Dataset` of single items see `reverb.TrajectoryDataset`.
    """

    def __next__(self) -> Batch:
        fetched = self._source.next()
        if fetched is None:
            raise StopIteration
        try:
            batch = to_tensorflow(fetched.batch)
        except Exception:
            self._source.refuse(fetched)
            raise
        self._source.clock.converted()
        self._source.deliver(fetched)
        return batch


def to_tensorflow(batch: Batch) -> Batch:
    """A batch whose data, weights and mask are eager tensors, copied.

    Args:
      batch: Of NumPy arrays.
    """
    weights = None if batch.weights is None else tf.convert_to_tensor(batch.weights)
    mask = None if batch.mask is None else map_leaves(_tensor, batch.mask)
    return Batch(batch.info, map_leaves(_tensor, batch.data), weights, mask, batch.table)


def _tensor(array: Any, name: str) -> Any:
    if array is None:
        return None
    if isinstance(array, Ragged):
        return tf.RaggedTensor.from_row_lengths(_tensor(array.values, name), array.row_lengths, validate=False)
    if array.dtype.kind == "O":
        return tf.convert_to_tensor(array, tf.string)
    return tf.convert_to_tensor(array)
