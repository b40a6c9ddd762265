"""Buffers of frames for users of NumPy, PyTorch and JAX."""

import os
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import _checks
from reverb.buffers.frame_nest import FrameNest
from reverb.buffers.outputs import converter
from reverb.prioritized import importance_weights
from reverb.replay_sample import SampleInfo

__all__ = ["BufferSample", "PrioritizedBuffer", "UniformBuffer"]

Output = Literal["numpy", "torch", "jax"]


class BufferSample(NamedTuple):
    """What a buffer gives."""

    # A nest of arrays `[batch, ...]`, or `[batch, steps, ...]` for sequences.
    data: Any
    # int64 `[batch]`, NumPy: the segment and the id of each first frame. Ids count what was added.
    segments: NDArray[np.int64]
    ids: NDArray[np.int64]
    # float64 `[batch]`, NumPy: that this frame was drawn.
    probabilities: NDArray[np.float64]
    # float32 `[batch]`, in the buffer's kind of arrays: importance weights; None from a UniformBuffer.
    weights: Any = None


class UniformBuffer:
    """A ring of frames, of which each is drawn with the same probability; the oldest make room.

        buffer = UniformBuffer({"obs": TensorSpec([4]), "reward": TensorSpec([])}, capacity=100_000)
        buffer.add({"obs": np.zeros((8, 4), np.float32), "reward": np.zeros(8, np.float32)})
        batch = buffer.sample(256).data

    Args:
      data_spec: A nest of specs of a frame: whatever has a `shape` and a `dtype`.
      capacity: Frames, a multiple of `segments`.
      segments: Environments that write together: `add` takes their frames in turn, and sequences stay within one.
      output: What samples are made of: arrays of NumPy, tensors of PyTorch that share their memory, or arrays of JAX.
      device: Where PyTorch's or JAX's go; None: the default.
      seed: Of the draws; None: from the operating system.

    Raises:
      ValueError, TypeError: An argument has no meaning, or the frames hold strings.
    """

    def __init__(
        self,
        data_spec: Any,
        capacity: int,
        *,
        segments: int = 1,
        output: Output = "numpy",
        device: Any = None,
        seed: int | None = None,
    ) -> None:
        self._make(data_spec, capacity, segments, output, device, seed, None)

    def _make(
        self,
        data_spec: Any,
        capacity: int,
        segments: int,
        output: Output,
        device: Any,
        seed: int | None,
        exponent: float | None,
    ) -> None:
        capacity, segments = _checks.as_count("capacity", capacity), _checks.as_count("segments", segments)
        if capacity % segments:
            raise ValueError(f"`capacity` must be a multiple of the {segments} segments, got {capacity}.")
        self._nest = FrameNest(data_spec, segments, capacity // segments, exponent, seed)
        self._convert = converter(output, device)

    @property
    def capacity(self) -> int:
        """Frames that there is room for."""
        return self._nest.segments * self._nest.length

    def __len__(self) -> int:
        return self._nest.segments * self._nest.stored

    def add(self, data: Any) -> None:
        """Adds frames.

        Args:
          data: A nest of arrays `[n, ...]`: n frames, those of all segments in turn.

        Raises:
          ValueError: Another structure or shape, or n is no multiple of the segments.
        """
        self._nest.add(data)

    def sample(self, batch_size: int, num_steps: int | None = None) -> BufferSample:
        """Draws frames, or sequences of frames that were added one after another.

        Args:
          batch_size: How many, at least 1.
          num_steps: Frames of a sequence; None: single frames without a time axis.

        Raises:
          ValueError: There are fewer frames in a row than `num_steps`.
        """
        prefix = [batch_size] if num_steps is None else [batch_size, num_steps]
        columns, segments, ids, probabilities = self._nest.frames.sample(batch_size, num_steps or 1, prefix)
        return BufferSample(self._convert(self._nest.pack(columns)), segments, ids, probabilities)

    def all(self) -> Any:
        """All frames, oldest first: a nest of NumPy arrays `[segments, frames, ...]`."""
        nest, count = self._nest, self._nest.stored
        first = np.full(nest.segments, nest.frames.oldest)
        return nest.pack(nest.gather(np.arange(nest.segments), first, count, [nest.segments, count]))

    def clear(self) -> None:
        """Forgets all frames."""
        self._nest.frames.clear(0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all frames to a file in NumPy's `.npz` format. Priorities are not written."""
        with open(path, "wb") as file:
            np.savez(file, **cast(Any, self._nest.state()))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads what `save` wrote; what was there is gone.

        Raises:
          ValueError: It is that of another buffer.
        """
        with np.load(path, allow_pickle=False) as state:
            self._nest.restore(state)


class PrioritizedBuffer(UniformBuffer):
    """A ring of frames that are drawn with probability p^exponent over the sum of all (Schaul et al. 2016, §3.3).

    Args:
      data_spec: As of UniformBuffer.
      capacity: As of UniformBuffer.
      exponent: How much priorities count: 0 is uniform.
      segments: As of UniformBuffer.
      output: As of UniformBuffer.
      device: As of UniformBuffer.
      seed: As of UniformBuffer.
    """

    def __init__(
        self,
        data_spec: Any,
        capacity: int,
        *,
        exponent: float = 0.6,
        segments: int = 1,
        output: Output = "numpy",
        device: Any = None,
        seed: int | None = None,
    ) -> None:
        self._make(data_spec, capacity, segments, output, device, seed, float(exponent))
        self._greatest = 1.0

    def add(self, data: Any, priorities: ArrayLike | None = None) -> None:
        """Adds frames.

        Args:
          data: As of UniformBuffer.
          priorities: One for all, or `[n]`; None: the greatest that there was, at least 1, so that each is seen soon.

        Raises:
          ValueError: As UniformBuffer, and for a priority that is negative, infinite or NaN.
        """
        values = np.array([self._greatest]) if priorities is None else np.atleast_1d(np.asarray(priorities, np.float64))
        self._nest.add(data, values.tolist())
        self._greatest = max(self._greatest, float(values.max(initial=0.0)))

    def sample(self, batch_size: int, num_steps: int | None = None, *, beta: float = 0.4) -> BufferSample:
        """Draws frames by priority, or sequences by that of their first frame.

        Args:
          batch_size: As of UniformBuffer.
          num_steps: As of UniformBuffer.
          beta: Exponent of the importance weights (§3.4), which are divided by the greatest of the batch.
        """
        sample = super().sample(batch_size, num_steps)
        sizes = np.full(batch_size, len(self), np.int64)
        info = SampleInfo(None, sample.probabilities, sizes, None, None)
        return sample._replace(weights=self._convert(importance_weights(info, beta)))

    def update_priorities(self, sample: BufferSample, priorities: ArrayLike) -> None:
        """Sets the priorities of the (first) frames of a sample; those that were overwritten are passed over.

        Raises:
          ValueError: A priority is negative, infinite or NaN. Nothing has changed then.
        """
        values = np.array(np.broadcast_to(np.asarray(priorities, np.float64), sample.ids.shape))
        self._nest.frames.update_priorities(sample.segments, sample.ids, values)
        self._greatest = max(self._greatest, float(values.max(initial=0.0)))
