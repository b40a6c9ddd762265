"""Converts NumPy arrays to TensorFlow tensors."""

from typing import Any

import tensorflow as tf

from reverb.replay_sample import Ragged


def to_tensor(array: Any, name: str) -> Any:
    """Copies a column to an eager tensor, and a `Ragged` to a RaggedTensor. None stays None.

    Args:
      array: Column to convert, an array or a Ragged.
      name: Path of the column; unused, since TensorFlow has all dtypes.
    """
    if array is None:
        return None
    if isinstance(array, Ragged):
        return tf.RaggedTensor.from_row_lengths(to_tensor(array.values, name), array.row_lengths, validate=False)
    if array.dtype.kind == "O":
        return tf.convert_to_tensor(array, tf.string)
    return tf.convert_to_tensor(array)
