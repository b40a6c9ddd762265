"""Buffers of single frames for users of NumPy, PyTorch and JAX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb.buffers.frame_nest import FrameNest
from reverb.buffers.outputs import converter
from reverb.data import checks
from reverb.data.arrays import as_array
from reverb.prioritized import importance_weights
from reverb.replay_sample import SampleInfo

Output = Literal["numpy", "torch", "jax"]


class BufferSample(NamedTuple):
    """A sample drawn from a buffer."""

    # A nest of arrays `[batch, ...]`, or `[batch, steps, ...]` for sequences.
    data: Any
    # int64 `[batch]`, NumPy: the segment and the id of each first frame. Ids number the frames in the order of adding.
    segments: NDArray[np.int64]
    ids: NDArray[np.int64]
    # float64 `[batch]`, NumPy: the probability with which each (first) frame was drawn.
    probabilities: NDArray[np.float64]
    # float32 `[batch]`, in the buffer's kind of arrays: the importance weights; None from a UniformBuffer.
    weights: Any = None


class UniformBuffer:
    """A ring of frames, each drawn with the same probability. New frames replace the oldest.

        buffer = UniformBuffer({"obs": TensorSpec([4]), "reward": TensorSpec([])}, capacity=100_000)
        buffer.add({"obs": np.zeros((8, 4), np.float32), "reward": np.zeros(8, np.float32)})
        batch = buffer.sample(256).data

    Args:
      data_spec: A nest of specs of one frame, each with a `shape` and a `dtype`.
      capacity: Maximum number of frames held, a multiple of `segments`.
      segments: Number of environments that write together. `add` takes one frame of each in turn, and sequences stay
        within one segment.
      output: Kind of the arrays in samples: `numpy`, `torch` (tensors that share the arrays' memory) or `jax`.
      device: PyTorch or JAX device that samples are put on; None uses the framework's default.
      seed: Seed of the draws; None takes one from the operating system.

    Raises:
      ValueError, TypeError: An argument is out of range or of the wrong type, or the frames hold strings.
    """

    # The priority of a frame counts with this exponent; None draws uniformly.
    _exponent: float | None = None

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
        capacity, segments = checks.as_count("capacity", capacity), checks.as_count("segments", segments)
        if capacity % segments:
            raise ValueError(f"`capacity` must be a multiple of the {segments} segments, got {capacity}.")
        self._nest = FrameNest(data_spec, segments, capacity // segments, self._exponent, seed)
        self._convert = converter(output, device)

    @property
    def capacity(self) -> int:
        """The maximum number of frames held."""
        return self._nest.segments * self._nest.length

    def __len__(self) -> int:
        return self._nest.segments * self._nest.stored

    def add(self, data: Any) -> None:
        """Adds frames.

        Args:
          data: A nest of arrays `[n, ...]`, which are n frames, one of each segment in turn.

        Raises:
          ValueError: The structure or a shape differs from the data spec, or n is not a multiple of `segments`.
        """
        self._nest.add(data)

    def sample(self, batch_size: int, num_steps: int | None = None) -> BufferSample:
        """Draws frames, or sequences of frames that were added consecutively.

        Args:
          batch_size: Number of frames or sequences to draw, at least 1.
          num_steps: Number of frames in each sequence; None draws single frames without a time axis.

        Raises:
          ValueError: There are fewer consecutive frames than `num_steps`.
        """
        prefix = [batch_size] if num_steps is None else [batch_size, num_steps]
        drawn = self._nest.frames.sample(batch_size, num_steps or 1, prefix)
        data = self._convert(self._nest.pack(drawn.columns))
        return BufferSample(data, drawn.segments, drawn.ids, drawn.probabilities)

    def all(self) -> Any:
        """Returns all frames, oldest first, as a nest of NumPy arrays `[segments, frames, ...]`."""
        return self._nest.pack(self._nest.all())

    def clear(self) -> None:
        """Removes all frames."""
        self._nest.frames.clear(0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all frames, with their priorities if they have any, to a file in NumPy's `.npz` format."""
        with open(path, "wb") as file:
            np.savez(file, **cast(Any, self._state()))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces all frames by those that `save` wrote.

        Raises:
          ValueError: The file has other leaves or segments, or more frames than the capacity.
        """
        with np.load(path, allow_pickle=False) as state:
            self._restore(state)

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._nest.restore(state)

    def _state(self) -> dict[str, NDArray[Any]]:
        return self._nest.state()


class PrioritizedBuffer(UniformBuffer):
    """A ring of frames that are drawn by priority. New frames replace the oldest.

    A frame of priority p has the probability p^exponent over the sum of all p^exponent (Schaul et al. 2016, §3.3).

    Args:
      data_spec: A nest of specs of one frame, each with a `shape` and a `dtype`.
      capacity: Maximum number of frames held, a multiple of `segments`.
      exponent: Exponent of the priorities; 0 draws uniformly.
      segments: Number of environments that write together. `add` takes one frame of each in turn, and sequences stay
        within one segment.
      output: Kind of the arrays in samples: `numpy`, `torch` (tensors that share the arrays' memory) or `jax`.
      device: PyTorch or JAX device that samples are put on; None uses the framework's default.
      seed: Seed of the draws; None takes one from the operating system.
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
        self._exponent = float(exponent)
        super().__init__(data_spec, capacity, segments=segments, output=output, device=device, seed=seed)
        self._greatest = 1.0

    def add(self, data: Any, priorities: ArrayLike | None = None) -> None:
        """Adds frames.

        Args:
          data: A nest of arrays `[n, ...]`, which are n frames, one of each segment in turn.
          priorities: One priority for all frames, or an array `[n]`; None uses the greatest priority so far, at least
            1, so that each frame is soon drawn.

        Raises:
          ValueError: The structure or a shape differs from the data spec, n is not a multiple of `segments`, or a
            priority is negative, infinite or NaN.
        """
        values = np.array([self._greatest]) if priorities is None else np.atleast_1d(as_array(priorities, np.float64))
        self._nest.add(data, values.tolist())
        self._greatest = max(self._greatest, float(values.max(initial=0.0)))

    def sample(self, batch_size: int, num_steps: int | None = None, *, beta: float = 0.4) -> BufferSample:
        """Draws frames by priority, or sequences by the priority of their first frame.

        Args:
          batch_size: Number of frames or sequences to draw, at least 1.
          num_steps: Number of frames in each sequence; None draws single frames without a time axis.
          beta: Exponent of the importance weights (§3.4), which are divided by the greatest weight of the batch.
        """
        sample = super().sample(batch_size, num_steps)
        sizes = np.full(batch_size, len(self), np.int64)
        info = SampleInfo(None, sample.probabilities, sizes, None, None)
        return sample._replace(weights=self._convert(importance_weights(info, beta)))

    def update_priorities(self, sample: BufferSample, priorities: ArrayLike) -> None:
        """Sets the priorities of a sample's (first) frames. Frames that have been overwritten are skipped.

        Args:
          sample: A sample drawn from this buffer.
          priorities: One priority for all frames, or an array `[batch]`.

        Raises:
          ValueError: A priority is negative, infinite or NaN. No priority has been changed.
        """
        values = np.array(np.broadcast_to(as_array(priorities, np.float64), sample.ids.shape))
        self._nest.frames.update_priorities(sample.segments, sample.ids, values)
        self._greatest = max(self._greatest, float(values.max(initial=0.0)))

    def _state(self) -> dict[str, NDArray[Any]]:
        return {**super()._state(), "greatest": np.array(self._greatest)}

    def _restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        super()._restore(state)
        # Files of earlier versions have no priorities.
        self._greatest = float(state["greatest"]) if "greatest" in state else 1.0
