"""Frames drawn uniformly, for TensorFlow: the interface of TF-Agents' TFUniformReplayBuffer, on our engine."""

import collections
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from reverb.buffers.frame_nest import FrameNest, flatten_as
from reverb.buffers.replay_buffer import ReplayBuffer, SavedState, dtypes_of, run
from reverb.buffers.tf_agents.passes import windows

__all__ = ["BufferInfo", "TFUniformReplayBuffer"]

BufferInfo = collections.namedtuple("BufferInfo", ["ids", "probabilities"])


class TFUniformReplayBuffer(ReplayBuffer):
    """A ring of `max_length` frames for each member of a batch.

    Frames are stored in the engine's memory, not in TensorFlow variables. `tf.train.Checkpoint(buffer=buffer)` saves
    them, and so does `save`. Sequences may cross the ends of episodes, but never run from the newest frame to the
    oldest.

    Args:
      data_spec: A nest of `tf.TensorSpec`s of one frame.
      batch_size: Number B of frames per `add_batch`, and of rings.
      max_length: Capacity L of each ring, in frames.
      scope: Name of a variable scope, accepted for compatibility and without effect.
      device: TensorFlow device, accepted for compatibility and without effect.
      table_fn: Constructor of a table, accepted for compatibility and without effect.
      dataset_drop_remainder: Whether a single pass omits windows and batches that are not full.
      dataset_window_shift: Number of frames from one window of a single pass to the next; None uses the window's
        length.
      stateful_dataset: Value of the property of this name, without other effect.
    """

    def __init__(
        self,
        data_spec: Any,
        batch_size: int,
        max_length: int = 1000,
        scope: str = "TFUniformReplayBuffer",
        device: str = "cpu:*",
        table_fn: Any = None,
        dataset_drop_remainder: bool = False,
        dataset_window_shift: int | None = None,
        stateful_dataset: bool = False,
    ) -> None:
        self._batch_size = int(batch_size)
        self._max_length = int(max_length)
        capacity = tf.constant(self._batch_size * self._max_length, tf.int64)
        super().__init__(data_spec, capacity, stateful_dataset)
        self._frames = FrameNest(data_spec, self._batch_size, self._max_length)
        self._dtypes = dtypes_of(data_spec)
        self._drop_remainder = dataset_drop_remainder
        self._window_shift = dataset_window_shift
        self._state = SavedState(self._frames.state, self._frames.restore)

    def variables(self) -> list[Any]:
        """Returns an empty list: frames are not stored in variables. To save them, save the buffer."""
        return []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all frames to a file."""
        self._state.save(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces all frames by those that `save` wrote.

        Raises:
          ValueError: The file has other leaves or another batch size, or more frames than the capacity.
        """
        self._state.load(path)

    def _num_frames(self) -> Any:
        (count,) = run(lambda: [np.int64(self._frames.stored * self._batch_size)], [], [tf.int64])
        return count

    def _add_batch(self, items: Any) -> Any:
        leaves = []
        for leaf, dtype, shape in zip(
            flatten_as(self.data_spec, items), self._dtypes, self._frames.shapes, strict=True
        ):
            leaf = tf.convert_to_tensor(leaf)
            if leaf.dtype != dtype:
                raise ValueError(f"expected frames of {dtype.name}, got {leaf.dtype.name}")
            if leaf.shape.rank == len(shape):
                # A frame without a batch axis is added to every ring.
                leaf = tf.broadcast_to(leaf, [self._batch_size, *shape])
            leaves.append(leaf)

        def add(*arrays: NDArray[Any]) -> list[Any]:
            for array in arrays:
                if len(array) != self._batch_size:
                    raise ValueError(f"expected a batch of {self._batch_size} frames, got {len(array)}")
            return [np.int64(self._frames.add_leaves(arrays))]

        return run(add, leaves, [tf.int64])[0]

    def _get_next(self, sample_batch_size: int | None, num_steps: int | None, time_stacked: bool) -> Any:
        prefix = [size for size in (sample_batch_size, num_steps) if size is not None]
        count, steps = sample_batch_size or 1, num_steps or 1

        def draw() -> list[Any]:
            drawn = self._frames.frames.sample(count, steps, prefix)
            ids = (drawn.ids[:, None] + np.arange(steps)).reshape(prefix)
            shape = [] if sample_batch_size is None else [sample_batch_size]
            return [*drawn.columns, ids, drawn.probabilities.astype(np.float32).reshape(shape)]

        *columns, ids, probabilities = run(draw, [], [*self._dtypes, tf.int64, tf.float32])
        for column, shape in zip(columns, self._frames.shapes, strict=True):
            column.set_shape([*prefix, *shape])
        ids.set_shape(prefix)
        probabilities.set_shape(prefix[:1] if sample_batch_size is not None else [])
        if num_steps is not None and not time_stacked:
            axis = 0 if sample_batch_size is None else 1
            parts = zip(*(tf.unstack(column, axis=axis) for column in columns), strict=True)
            return tuple(map(self._frames.pack, parts)), BufferInfo(tuple(tf.unstack(ids, axis=axis)), probabilities)
        return self._frames.pack(columns), BufferInfo(ids, probabilities)

    def as_dataset(  # type: ignore[override]
        self,
        sample_batch_size: int | None = None,
        num_steps: int | None = None,
        num_parallel_calls: int | None = None,
        single_deterministic_pass: bool = False,
    ) -> Any:
        """Makes a dataset as `ReplayBuffer.as_dataset` does, without `sequence_preprocess_fn`.

        Raises:
          ValueError: The data spec contains lists; or a single pass drops remainders, and the batch or the window is
            larger than the buffer.
        """
        return super().as_dataset(
            sample_batch_size, num_steps, num_parallel_calls, single_deterministic_pass=single_deterministic_pass
        )

    def _as_dataset(
        self, sample_batch_size: Any, num_steps: Any, sequence_preprocess_fn: Any, num_parallel_calls: Any
    ) -> Any:
        draws = tf.data.Dataset.range(tf.int64.max)

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def draw(_: Any) -> Any:
            return self._get_next(sample_batch_size, num_steps, True)

        return draws.map(draw, num_parallel_calls)

    def _single_deterministic_pass_dataset(
        self, sample_batch_size: Any, num_steps: Any, sequence_preprocess_fn: Any, num_parallel_calls: Any
    ) -> Any:
        if self._drop_remainder:
            if sample_batch_size is not None and sample_batch_size > self._batch_size:
                raise ValueError(
                    f"sample_batch_size ({sample_batch_size}) is above the batch size ({self._batch_size})"
                )
            if num_steps is not None and num_steps > self._max_length:
                raise ValueError(f"num_steps ({num_steps}) is above max_length ({self._max_length})")
        prefix = [None] * ((sample_batch_size is not None) + (num_steps is not None))
        leaves = [
            tf.TensorSpec([*prefix, *shape], dtype)
            for shape, dtype in zip(self._frames.shapes, self._dtypes, strict=True)
        ]
        signature = (self._frames.pack(leaves), BufferInfo(tf.TensorSpec(prefix, tf.int64), ()))

        def frames() -> Iterator[Any]:
            for segments, ids in windows(
                self._batch_size,
                range(self._frames.frames.oldest, self._frames.frames.added),
                sample_batch_size,
                num_steps,
                self._window_shift,
                self._drop_remainder,
            ):
                columns = self._frames.gather(segments, ids, 1, ids.shape)
                yield self._frames.pack(columns), BufferInfo(segments * self._max_length + ids, ())

        return tf.data.Dataset.from_generator(frames, output_signature=signature)

    def _gather_all(self) -> Any:
        columns = run(self._frames.all, [], self._dtypes)
        for column, shape in zip(columns, self._frames.shapes, strict=True):
            column.set_shape([self._batch_size, None, *shape])
        return self._frames.pack(columns)

    def _clear(self) -> Any:
        def clear() -> list[Any]:
            self._frames.frames.clear(0)
            return [np.int64(0)]

        return run(clear, [], [tf.int64])[0]
