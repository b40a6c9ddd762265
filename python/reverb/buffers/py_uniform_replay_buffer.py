"""Frames drawn uniformly, as NumPy arrays: the interface of TF-Agents' PyUniformReplayBuffer, on our engine."""

import os
import threading
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from reverb.buffers.frame_nest import FrameNest, flatten_as, packer_of, spec_leaves

__all__ = ["PyUniformReplayBuffer"]


class PyUniformReplayBuffer:
    """A ring of `capacity` frames, safe for use by several threads.

    Subclasses may override `_encoded_data_spec`, `_encode`, `_decode` and `_on_delete` to store frames in encoded form.

    Args:
      data_spec: A nest of specs of one frame, such as `ArraySpec`.
      capacity: Maximum number of frames held.
    """

    def __init__(self, data_spec: Any, capacity: int) -> None:
        self._data_spec = data_spec
        self._capacity = int(capacity)
        self._frames = FrameNest(self._encoded_data_spec(), 1, self._capacity)
        self._pack = packer_of(data_spec)
        self._lock = threading.RLock()

    @property
    def data_spec(self) -> Any:
        """The nest of specs of one frame."""
        return self._data_spec

    @property
    def capacity(self) -> int:
        """The maximum number of frames held."""
        return self._capacity

    @property
    def size(self) -> int:
        """The number of frames held."""
        return self._frames.stored

    def num_frames(self) -> int:
        """Raises NotImplementedError, as in TF-Agents: use `size`."""
        raise NotImplementedError("num_frames is not implemented in PyUniformReplayBuffer; see `size`")

    def add_batch(self, items: Any) -> None:
        """Adds one frame.

        Args:
          items: A nest of arrays `[1, ...]`, which are a batch of one frame.

        Raises:
          NotImplementedError: The batch does not have exactly one frame.
          ValueError: The structure or a shape differs from the data spec.
        """
        leaves = [np.asarray(leaf) for leaf in flatten_as(self._data_spec, items)]
        if any(not leaf.ndim or len(leaf) != 1 for leaf in leaves):
            raise NotImplementedError("PyUniformReplayBuffer takes batches of one frame")
        with self._lock:
            if self.size == self._capacity:
                self._on_delete(self._at(self._frames.frames.oldest, 1, []))
            encoded = self._encode(self._pack([leaf[0] for leaf in leaves]))
            self._frames.add_leaves([np.asarray(leaf)[None] for leaf in flatten_as(self._frames.spec, encoded)])

    def get_next(
        self, sample_batch_size: int | None = None, num_steps: int | None = None, time_stacked: bool = True
    ) -> Any:
        """Draws frames at random. Returns them without the info that TensorFlow's buffers add.

        Args:
          sample_batch_size: Number of draws along the batch axis; None returns one draw without a batch axis.
          num_steps: Number of consecutive frames per draw; None draws single frames without a time axis.
          time_stacked: Whether consecutive frames are stacked along a time axis; False returns a list of nests instead.

        Raises:
          ValueError: The buffer is empty, or has fewer frames than `num_steps`.
        """
        count, steps = sample_batch_size or 1, num_steps or 1
        with self._lock:
            columns = self._frames.frames.sample(count, steps, [count, steps]).columns
        leaves = self._decoded(columns) if self._is_encoded() else columns
        return self._shaped(leaves, sample_batch_size, num_steps, time_stacked)

    def as_dataset(
        self,
        sample_batch_size: int | None = None,
        num_steps: int | None = None,
        num_parallel_calls: None = None,
        sequence_preprocess_fn: None = None,
        single_deterministic_pass: bool = False,
    ) -> Any:
        """A `tf.data.Dataset` of what `get_next` draws. Imports TensorFlow.

        Raises:
          NotImplementedError: One of the last three arguments is used.
        """
        if num_parallel_calls is not None or sequence_preprocess_fn is not None or single_deterministic_pass:
            raise NotImplementedError(
                "PyUniformReplayBuffer.as_dataset has no num_parallel_calls, sequence_preprocess_fn or "
                "single_deterministic_pass"
            )
        import tensorflow as tf

        from reverb.frameworks import tensorflow_exit

        tensorflow_exit.at_exit()
        prefix = [size for size in (sample_batch_size, num_steps) if size is not None]
        leaves = [tf.TensorSpec([*prefix, *leaf.shape], leaf.dtype) for leaf in spec_leaves(self._data_spec)]

        def draws() -> Iterator[Any]:
            while True:
                yield self.get_next(sample_batch_size, num_steps)

        return tf.data.Dataset.from_generator(draws, output_signature=self._pack(leaves))

    def gather_all(self) -> Any:
        """Returns all slots, `[1, capacity, ...]`, in the order of storage. Slots never written are zeros."""
        with self._lock:
            columns = self._frames.gather([0], [0], self._capacity, [1, self._capacity])
            if not self._is_encoded():
                return self._pack(columns)
        return self._pack(self._decoded(columns))

    def clear(self) -> None:
        """Removes all frames. Their values stay in the slots that `gather_all` returns."""
        with self._lock:
            self._frames.frames.clear(0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all frames to a file in NumPy's `.npz` format."""
        with self._lock, open(path, "wb") as file:
            np.savez(file, **cast(Any, self._frames.state()))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces all frames by those that `save` wrote.

        Raises:
          ValueError: The file has other leaves, or more frames than the capacity.
        """
        with self._lock, np.load(path, allow_pickle=False) as state:
            self._frames.restore(state)

    def _encoded_data_spec(self) -> Any:
        """The specs of encoded frames."""
        return self._data_spec

    def _encode(self, item: Any) -> Any:
        """Encodes a frame for storage."""
        return item

    def _decode(self, item: Any) -> Any:
        """Decodes a stored frame."""
        return item

    def _on_delete(self, encoded_item: Any) -> None:
        """Is called with an encoded frame that is about to be overwritten."""

    def _decoded(self, columns: list[Any]) -> list[Any]:
        """Decodes columns of encoded frames to leaves `[batch, time, ...]`."""
        batch, time = columns[0].shape[:2]
        frames = [
            flatten_as(self._data_spec, self._decode(self._frames.pack([column[row, step] for column in columns])))
            for row in range(batch)
            for step in range(time)
        ]
        stacked = [np.stack(leaf) for leaf in zip(*frames, strict=True)]
        return [leaf.reshape(batch, time, *leaf.shape[1:]) for leaf in stacked]

    def _is_encoded(self) -> bool:
        return type(self)._decode is not PyUniformReplayBuffer._decode

    def _at(self, id_: int, steps: int, prefix: list[int]) -> Any:
        return self._frames.pack(self._frames.gather([0], [id_], steps, prefix))

    def _shaped(self, leaves: list[Any], batch_size: int | None, num_steps: int | None, time_stacked: bool) -> Any:
        """Packs leaves `[batch, time, ...]`, without the axes that were not requested."""
        if num_steps is None:
            leaves = [leaf[:, 0] for leaf in leaves]
        if batch_size is None:
            leaves = [leaf[0] for leaf in leaves]
        if num_steps is None or time_stacked:
            return self._pack(leaves)
        axis = 0 if batch_size is None else 1
        return [self._pack([leaf.take(step, axis) for leaf in leaves]) for step in range(num_steps)]
