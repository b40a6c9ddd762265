"""The interface of TF-Agents' replay buffers, and what the buffers that use TensorFlow share.

Public methods call private methods of the same name, which subclasses define.
"""

import io
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from reverb.buffers.frame_nest import is_spec, spec_leaves
from reverb.frameworks import tensorflow_calls, tensorflow_exit

__all__ = ["ReplayBuffer", "dtypes_of", "has_lists", "run"]


class ReplayBuffer(tf.Module):  # type: ignore[misc]
    """The methods that all replay buffers have.

    Args:
      data_spec: A nest of specs of one frame.
      capacity: Maximum number of frames (or episodes) held.
      stateful_dataset: Value of the property of this name, without other effect: all datasets of buffers are stateful.
    """

    def __init__(self, data_spec: Any, capacity: Any, stateful_dataset: bool = False) -> None:
        super().__init__()
        # Named tuples and lists must not be wrapped by TensorFlow's tracking.
        self._data_spec = _Untracked(data_spec)
        self._capacity = capacity
        self._stateful_dataset = stateful_dataset

    @property
    def data_spec(self) -> Any:
        """The nest of specs of one frame."""
        return self._data_spec.value

    @property
    def capacity(self) -> Any:
        """The maximum number of frames (or episodes) held."""
        return self._capacity

    @property
    def stateful_dataset(self) -> bool:
        """The constructor's argument of this name."""
        return self._stateful_dataset

    def num_frames(self) -> Any:
        """The number of frames held."""
        return self._num_frames()

    def add_batch(self, items: Any) -> Any:
        """Adds frames `[batch, ...]`."""
        return self._add_batch(items)

    def get_next(
        self, sample_batch_size: int | None = None, num_steps: int | None = None, time_stacked: bool = True
    ) -> Any:
        """Draws frames at random.

        Args:
          sample_batch_size: Number S of draws along the batch axis; None returns one draw without a batch axis.
          num_steps: Number T of consecutive frames per draw; None draws single frames without a time axis.
          time_stacked: Whether consecutive frames are stacked, `[S, T, ...]`; False returns a tuple of T nests
            `[S, ...]` instead.
        """
        return self._get_next(sample_batch_size, num_steps, time_stacked)

    def as_dataset(
        self,
        sample_batch_size: int | None = None,
        num_steps: int | None = None,
        num_parallel_calls: int | None = None,
        sequence_preprocess_fn: Callable[[Any], Any] | None = None,
        single_deterministic_pass: bool = False,
    ) -> Any:
        """Makes a `tf.data.Dataset` of what `get_next` draws; or, in a single pass, of all frames held.

        Args:
          sample_batch_size: Number of draws along the batch axis of an element; None makes elements without one.
          num_steps: Number of consecutive frames per draw; None draws single frames without a time axis.
          num_parallel_calls: Number of draws made in parallel; None draws one at a time.
          sequence_preprocess_fn: Function applied to sequences before they are batched, where the buffer supports it;
            None leaves them unchanged.
          single_deterministic_pass: Whether the dataset yields everything once and in order, instead of random draws
            without end.

        Raises:
          ValueError: The data spec contains lists.
        """
        if has_lists(self.data_spec):
            raise ValueError("The data spec has Python lists in it; datasets need tuples in their place.")
        if single_deterministic_pass:
            return self._single_deterministic_pass_dataset(
                sample_batch_size, num_steps, sequence_preprocess_fn, num_parallel_calls
            )
        return self._as_dataset(sample_batch_size, num_steps, sequence_preprocess_fn, num_parallel_calls)

    def gather_all(self) -> Any:
        """Returns all frames, `[batch, time, ...]`."""
        return self._gather_all()

    def clear(self) -> Any:
        """Removes all frames."""
        return self._clear()

    def _num_frames(self) -> Any:
        raise NotImplementedError

    def _add_batch(self, items: Any) -> Any:
        raise NotImplementedError

    def _get_next(self, sample_batch_size: int | None, num_steps: int | None, time_stacked: bool) -> Any:
        raise NotImplementedError

    def _as_dataset(
        self, sample_batch_size: Any, num_steps: Any, sequence_preprocess_fn: Any, num_parallel_calls: Any
    ) -> Any:
        raise NotImplementedError

    def _single_deterministic_pass_dataset(
        self, sample_batch_size: Any, num_steps: Any, sequence_preprocess_fn: Any, num_parallel_calls: Any
    ) -> Any:
        raise NotImplementedError

    def _gather_all(self) -> Any:
        raise NotImplementedError

    def _clear(self) -> Any:
        raise NotImplementedError


class SavedState(tf.train.experimental.PythonState):  # type: ignore[misc]
    """State held in Python that `tf.train.Checkpoint` can write and read.

    Args:
      get: Function that returns the state as arrays by name.
      set_: Function that replaces the state by such arrays.
    """

    def __init__(self, get: Callable[[], dict[str, Any]], set_: Callable[[Any], None]) -> None:
        super().__init__()
        self._get, self._set = get, set_

    def serialize(self) -> bytes:
        """The arrays in NumPy's `.npz` format."""
        file = io.BytesIO()
        np.savez(file, **self._get())
        return file.getvalue()

    def deserialize(self, string_value: bytes) -> None:
        """Replaces the state by what `serialize` returned."""
        with np.load(io.BytesIO(string_value), allow_pickle=False) as state:
            self._set(state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to a file."""
        with open(path, "wb") as file:
            file.write(self.serialize())

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replaces the state by what `save` wrote."""
        with open(path, "rb") as file:
            self.deserialize(file.read())


class _Untracked:
    """Hides a value from TensorFlow's attribute tracking, which would replace containers by its own."""

    def __init__(self, value: Any) -> None:
        self.value = value


tensorflow_exit.at_exit()


def run(function: Callable[..., list[Any]], inputs: list[Any], dtypes: list[Any]) -> list[Any]:
    """Calls a function of NumPy arrays: directly in eager mode, as an operation in graphs.

    Raises:
      tf.errors.InvalidArgumentError: The function raised ValueError.
    """
    if not tf.executing_eagerly():
        return tensorflow_calls.call(function, inputs, dtypes)
    try:
        results = function(*(np.asarray(value) for value in inputs))
    except ValueError as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from None
    return [tf.convert_to_tensor(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]


def dtypes_of(spec: Any) -> list[Any]:
    """The TensorFlow dtypes of a spec's leaves."""
    return [tf.as_dtype(leaf.dtype) for leaf in spec_leaves(spec)]


def has_lists(spec: Any) -> bool:
    """Whether a nest contains Python lists."""
    if is_spec(spec):
        return False
    if isinstance(spec, list):
        return True
    parts = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, tuple) else ()
    return any(map(has_lists, parts))
