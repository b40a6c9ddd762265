"""Batches as eager tensors of TensorFlow, and as a `tf.data.Dataset`."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from reverb.client import Client
from reverb.loaders.batch import Batch
from reverb.loaders.conversion import Conversion
from reverb.loaders.leaves import map_leaves
from reverb.loaders.loader import Loader
from reverb.loaders.options import Options
from reverb.loaders.source import BatchSource
from reverb.replay_sample import Ragged

__all__ = ["TensorFlowLoader"]


class TensorFlowLoader(Loader):
    """Batches as eager tensors, in the tables' dtypes.

    Strings are `tf.string`, columns of items of different lengths `tf.RaggedTensor`. `batch.info` and `batch.table`
    stay NumPy, as with all loaders. For a `tf.data.Dataset` of single items see `reverb.TrajectoryDataset`.

    Args:
      client: A Client, or the address of a server.
      table: The table's name; or, for a mixture, weights by name: every item of a batch comes from a table by its
        weight.
      **options: Those of reverb.loaders.Options; `batch_size` is needed.
    """

    def __init__(self, client: Client | str, table: str | Mapping[str, float], **options: Any) -> None:
        conversion = Conversion(batch=to_tensorflow)
        super().__init__(BatchSource(client, table, Options(**options), conversion, by_caller=True))


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
