"""Episodes as TensorFlow's lists of tensors, the format in which TF-Agents passes them between buffers."""

import collections
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# Some episodes. `length`: int64 `[episodes]`. `completed`: uint8 `[episodes]`. `tensor_lists`: a nest of variants
# `[episodes]`, each a list of the frames' tensors.
Episodes = collections.namedtuple("Episodes", ["length", "completed", "tensor_lists"])


def from_lists(lists: Any, shape: Sequence[int], dtype: Any) -> tuple[Any, Any]:
    """Reads the frames of some episodes from lists of tensors.

    Args:
      lists: Lists of the episodes, variants `[episodes]`.
      shape: Shape of one frame in this leaf.
      dtype: Dtype of one frame in this leaf.

    Returns:
      The concatenated frames of all episodes, `[frames, *shape]`, and the number of frames in each, int64 `[episodes]`.

    Raises:
      ValueError: The lists are not variants `[episodes]`.
      tf.errors.InvalidArgumentError: The lists hold tensors of another shape or dtype. Raised when they are read.
    """
    lists = tf.convert_to_tensor(lists)
    if lists.dtype != tf.variant or lists.shape.rank != 1:
        raise ValueError(f"expected lists of tensors, variants [episodes], got {lists.dtype.name}{lists.shape}")
    element_shape = tf.constant(list(shape), tf.int32)

    def add(index: Any, frames: Any, lengths: Any) -> Any:
        stacked = tf.raw_ops.TensorListStack(
            input_handle=lists[index], element_shape=element_shape, element_dtype=dtype
        )
        count = tf.shape(stacked, tf.int64)[:1]
        return index + 1, tf.concat([frames, stacked], 0), tf.concat([lengths, count], 0)

    _, frames, lengths = tf.while_loop(
        lambda index, *_: index < tf.shape(lists)[0],
        add,
        [tf.constant(0), tf.zeros([0, *shape], dtype), tf.zeros([0], tf.int64)],
        [tf.TensorShape([]), tf.TensorShape([None, *shape]), tf.TensorShape([None])],
    )
    return frames, lengths


def to_lists(frames: Any, lengths: Any, shape: Sequence[int]) -> Any:
    """Makes lists of tensors, which `from_lists` reads.

    Args:
      frames: Concatenated frames of all episodes, `[frames, *shape]`.
      lengths: Number of frames in each episode, int64 `[episodes]`.
      shape: Shape of one frame in this leaf.

    Returns:
      The lists of the episodes, variants `[episodes]`.
    """
    ends = tf.cumsum(lengths)
    element_shape = tf.constant(list(shape), tf.int32)

    def one(index: Any) -> Any:
        part = frames[ends[index] - lengths[index] : ends[index]]
        return tf.raw_ops.TensorListFromTensor(tensor=part, element_shape=element_shape)

    return tf.map_fn(one, tf.range(tf.shape(lengths)[0]), fn_output_signature=tf.TensorSpec([], tf.variant))
