"""What sampling returns."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ragged", "ReplaySample", "SampleInfo"]


class SampleInfo(NamedTuple):
    """What the table knew of an item, or of a batch of items, at the moment of the draw.

    From `Client.sample` the fields are numbers, from `Client.sample_batch` arrays `[batch]`, from datasets tensors.
    """

    # uint64: names the item.
    key: Any
    # float64: that this item is drawn, with the priorities of that moment.
    probability: Any
    # int64: items in the table, this one included.
    table_size: Any
    # float64: as the user gave it.
    priority: Any
    # int32: this time included. Programs older than this field make infos without it, for samples of their own.
    times_sampled: Any = 1

    @classmethod
    def tf_dtypes(cls) -> "SampleInfo":
        """TensorFlow's dtypes of the fields. Imports TensorFlow."""
        import tensorflow as tf

        return cls(tf.uint64, tf.float64, tf.int64, tf.float64, tf.int32)

    @classmethod
    def tf_shapes(cls) -> "SampleInfo":
        """The fields' shapes, all scalars, as `tf.TensorShape`. Imports TensorFlow."""
        import tensorflow as tf

        return cls(*(tf.TensorShape([]) for _ in cls._fields))

    @classmethod
    def zeros(cls) -> "SampleInfo":
        """Zeros of the fields' Python types."""
        return cls(0, 0.0, 0, 0.0, 0)


class ReplaySample(NamedTuple):
    """An item, a step of one, or a batch of items."""

    info: SampleInfo
    # A nest of arrays if the structure is known, else the flat list of columns.
    data: Any


class Ragged(NamedTuple):
    """A column of a batch whose items have different lengths: their rows one after the other."""

    # `[sum(row_lengths), *step_shape]`.
    values: NDArray[Any]
    # int64 `[batch]`: the rows of each item.
    row_lengths: NDArray[np.int64]
