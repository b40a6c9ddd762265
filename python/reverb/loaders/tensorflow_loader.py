"""Batches as eager TensorFlow tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic

import tensorflow as tf

from reverb import aio
from reverb.client import Client
from reverb.data.leaves import map_leaves
from reverb.frameworks.tensorflow import to_tensor
from reverb.loaders.batch import Batch, DataT
from reverb.loaders.conversion import Conversion
from reverb.loaders.loader import Loader
from reverb.loaders.options import LoaderArguments, Options, shows_loader_options
from reverb.loaders.source import BatchSource

if TYPE_CHECKING:
    from typing_extensions import Unpack


@shows_loader_options
class TensorFlowLoader(Loader[Batch[DataT, tf.Tensor, tf.Tensor]], Generic[DataT]):
    """Batches as eager tensors, in the tables' dtypes.

    Strings become `tf.string`, and columns whose items differ in length become `tf.RaggedTensor`. `batch.info` and
    `batch.table` stay NumPy, as in all loaders. For a `tf.data.Dataset` of single items see `reverb.TrajectoryDataset`.

    Args:
      client: A Client, also of `reverb.aio`, or the address of a server.
      table: Name of the table; or, for a mixture, a mapping from the tables' names to weights, by which
        batches are shared among them; see `Options.shares`.
      **options: Options by name, which are the fields of `reverb.loaders.Options`; `batch_size` is required.
    """

    def __init__(
        self, client: Client | aio.Client | str, table: str | Mapping[str, float], **options: Unpack[LoaderArguments]
    ) -> None:
        parsed = Options.of("TensorFlowLoader", options)
        super().__init__(BatchSource(client, table, parsed, Conversion(batch=_to_tensorflow), by_caller=True))


def _to_tensorflow(batch: Batch) -> Batch:
    """Copies data, weights and mask of a batch to eager tensors.

    Args:
      batch: A batch of NumPy arrays.
    """
    weights = None if batch.weights is None else tf.convert_to_tensor(batch.weights)
    mask = None if batch.mask is None else map_leaves(to_tensor, batch.mask)
    return Batch(batch.info, map_leaves(to_tensor, batch.data), weights, mask, batch.table)
