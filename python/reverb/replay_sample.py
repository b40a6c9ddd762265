"""The types that sampling returns."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ragged", "ReplaySample", "SampleInfo"]


class SampleInfo(NamedTuple):
    """State of an item, or of a batch of items, in its table at the time of the draw.

    The fields are numbers in samples from `Client.sample`, arrays `[batch]` in samples from `Client.sample_batch`, and
    tensors in elements of datasets.
    """

    # uint64: identifies the item.
    key: Any
    # float64: the probability of drawing this item, given the priorities at that time.
    probability: Any
    # int64: the number of items in the table, including this one.
    table_size: Any
    # float64: the priority of the item, as given by the user.
    priority: Any
    # int32: includes this draw. The default is for programs that predate this field and create infos themselves.
    times_sampled: Any = 1

    @classmethod
    def tf_dtypes(cls) -> "SampleInfo":
        """The TensorFlow dtypes of the fields. Imports TensorFlow."""
        import tensorflow as tf

        return cls(tf.uint64, tf.float64, tf.int64, tf.float64, tf.int32)

    @classmethod
    def tf_shapes(cls) -> "SampleInfo":
        """The shapes of the fields, which are all scalars, as `tf.TensorShape`. Imports TensorFlow."""
        import tensorflow as tf

        return cls(*(tf.TensorShape([]) for _ in cls._fields))

    @classmethod
    def zeros(cls) -> "SampleInfo":
        """An info whose fields are all zero, with the Python types of the fields."""
        return cls(0, 0.0, 0, 0.0, 0)


class ReplaySample(NamedTuple):
    """An item, a step of an item, or a batch of items."""

    info: SampleInfo
    # A nest of arrays if the structure is known, otherwise a flat list of columns.
    data: Any


class Ragged(NamedTuple):
    """A column of a batch whose items may differ in length. The rows of the items are concatenated."""

    # The rows, `[sum(row_lengths), *step_shape]`.
    values: NDArray[Any]
    # The number of rows of each item, int64 `[batch]`.
    row_lengths: NDArray[np.int64]
