"""Nested frames, stored in the engine's rings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb import _binding
from reverb.data import dtypes, nests
from reverb.data.arrays import as_array
from reverb.errors import InvalidArgumentError
from reverb.tensor_spec import TensorShape


class FrameNest:
    """Rings of frames that are nests of arrays.

    Args:
      data_spec: A nest of leaves that have a fully known `shape` and a `dtype`; named tuples with both are leaves too.
      segments: Number of rings, one for each environment of a batch.
      length: Capacity of each ring, in frames.
      priority_exponent: Exponent of the priorities by which frames are drawn; None draws uniformly.
      seed: Seed of the draws; None takes one from the operating system.

    Raises:
      ValueError: The spec has no leaf or an unknown dimension, or the rings have no capacity.
      TypeError: A leaf holds strings.
    """

    def __init__(
        self,
        data_spec: Any,
        segments: int,
        length: int,
        priority_exponent: float | None = None,
        seed: int | None = None,
    ) -> None:
        self.spec = data_spec
        self.segments = segments
        self.length = length
        leaves = spec_leaves(data_spec)
        self.shapes = [_known_shape(leaf) for leaf in leaves]
        self.dtypes = [dtypes.as_dtype(leaf.dtype) for leaf in leaves]
        for dtype in self.dtypes:
            if dtype.kind == "O":
                raise TypeError("frames cannot hold strings: encode them as numbers, or use a Table.")
        self.pack = packer_of(data_spec)
        columns = [(dtypes.number_of(dtype), shape) for dtype, shape in zip(self.dtypes, self.shapes, strict=True)]
        self.frames = _binding.Frames(columns, segments, length, priority_exponent, seed)

    @property
    def stored(self) -> int:
        """The number of frames in each segment."""
        return self.frames.added - self.frames.oldest

    def add(self, data: Any, priorities: Sequence[float] = (1.0,)) -> int:
        """Adds a nest of arrays `[n * segments, ...]`, one frame of each segment in turn. Returns the first frame's id.

        Raises:
          ValueError: The structure or a shape differs from the data spec.
        """
        return self.add_leaves(flatten_as(self.spec, data), priorities)

    def add_leaves(self, leaves: Sequence[Any], priorities: Sequence[float] = (1.0,)) -> int:
        """Does the same as `add` for flat leaves."""
        arrays = []
        for leaf, dtype, shape in zip(leaves, self.dtypes, self.shapes, strict=True):
            array = as_array(leaf, dtype)
            if array.shape[1:] != shape or not array.ndim:
                raise InvalidArgumentError(
                    f"expected frames [n, {', '.join(map(str, shape))}], got shape {array.shape}"
                )
            arrays.append(array)
        return self.frames.add(arrays, list(priorities))

    def gather(self, segments: Any, ids: Any, steps: int, prefix: Sequence[int]) -> list[NDArray[Any]]:
        """Reads sequences as flat leaves `[*prefix, ...]`."""
        segments, ids = (np.ascontiguousarray(values, np.int64).ravel() for values in (segments, ids))
        return self.frames.gather(segments, ids, steps, list(prefix))

    def all(self) -> list[NDArray[Any]]:
        """All frames, as leaves `[segments, frames, ...]`, oldest first."""
        starts = np.full(self.segments, self.frames.oldest)
        return self.gather(np.arange(self.segments), starts, self.stored, [self.segments, self.stored])

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all frames and their priorities, if they have any, as arrays by name."""
        state = {"next_id": np.array(self.frames.added)}
        if self.stored:
            state.update({f"leaf_{index}": leaf for index, leaf in enumerate(self.all())})
            priorities = self.frames.priorities()
            if priorities is not None:
                state["priorities"] = priorities.reshape(self.segments, self.stored)
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Replaces all frames by those of `state`. Frames of a state without priorities have the priority 1.

        Raises:
          ValueError: The state has other leaves or segments, or more frames than the capacity.
        """
        next_id = int(state["next_id"])
        leaves = [state[f"leaf_{index}"] for index in range(len(self.dtypes)) if f"leaf_{index}" in state]
        if not leaves:
            self.frames.clear(next_id)
            return
        count = leaves[0].shape[1]
        if len(leaves) != len(self.dtypes) or leaves[0].shape[0] != self.segments or count > self.length:
            raise ValueError("the state is from a buffer with other leaves, segments or length")
        self.frames.clear(next_id - count)
        # One frame of each segment in turn.
        in_turn = [leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[2:]) for leaf in leaves]
        priorities = state["priorities"].T.ravel().tolist() if "priorities" in state else (1.0,)
        self.add_leaves(in_turn, priorities)


def is_spec(node: Any) -> bool:
    """Whether a node has a shape and a dtype, and so describes an array."""
    return hasattr(node, "shape") and hasattr(node, "dtype")


def spec_leaves(spec: Any) -> list[Any]:
    """The leaves of a nest of specs, in dm-tree's order.

    Raises:
      ValueError: The nest has no leaf, or a leaf is not a spec.
    """
    leaves: list[Any] = []
    _collect(spec, spec, leaves)
    if not leaves:
        raise ValueError("the data spec has no leaf")
    return leaves


def flatten_as(spec: Any, data: Any) -> list[Any]:
    """The leaves of data that have the structure of a nest of specs.

    Raises:
      ValueError: The data have another structure.
    """
    leaves: list[Any] = []
    _collect(spec, data, leaves)
    return leaves


def _collect(spec: Any, data: Any, leaves: list[Any]) -> None:
    if is_spec(spec):
        if isinstance(data, (tuple, dict)) and not is_spec(data):
            raise ValueError(f"expected an array where the data spec has {spec}, got a {type(data).__name__}")
        leaves.append(data)
    elif isinstance(spec, Mapping):
        if not isinstance(data, Mapping) or set(data) != set(spec):
            raise ValueError(f"expected a mapping with keys {sorted(spec)}, got {_name(data)}")
        for key in sorted(spec):
            _collect(spec[key], data[key], leaves)
    elif isinstance(spec, (list, tuple)):
        if not isinstance(data, (list, tuple)) or len(data) != len(spec):
            raise ValueError(f"expected a {type(spec).__name__} of {len(spec)} parts, got {_name(data)}")
        for part, value in zip(spec, data, strict=True):
            _collect(part, value, leaves)
    else:
        raise ValueError(f"expected a spec with shape and dtype, got {spec!r}")


def _name(data: Any) -> str:
    if isinstance(data, Mapping):
        return f"keys {sorted(data)}"
    return f"a {type(data).__name__} of {len(data)}" if isinstance(data, (list, tuple)) else f"a {type(data).__name__}"


def packer_of(spec: Any) -> nests.Packer:
    """A function that makes a nest like that of the specs from leaves in the order of `spec_leaves`."""
    return nests.compile_packer(_with_markers(spec))


def _with_markers(spec: Any) -> Any:
    """The structure of a nest of specs, with leaves that cannot be mistaken for nests."""
    if is_spec(spec):
        return 0
    if isinstance(spec, Mapping):
        return {key: _with_markers(value) for key, value in spec.items()}
    if hasattr(spec, "_fields"):
        return type(spec)(*map(_with_markers, spec))
    return type(spec)(map(_with_markers, spec))


def _known_shape(leaf: Any) -> tuple[int, ...]:
    shape = TensorShape(leaf.shape)
    if not shape.is_fully_defined():
        raise ValueError(f"expected a spec with a fully known shape, got {leaf}")
    return tuple(size for size in shape if size is not None)
