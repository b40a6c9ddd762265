"""Rows of open length. dm-tree takes a `Ragged` for a nest of two arrays; here it becomes one leaf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tree
from numpy.typing import NDArray

from reverb.data.arrays import as_array
from reverb.data.structures import field_names, lists_as_specified
from reverb.replay_sample import Ragged
from reverb.tensor_spec import TensorSpec

# Types that are leaves for certain.
_LEAVES = frozenset({np.ndarray, type(None), *np.ScalarType})


class Rows:
    """A `Ragged` of a step, which dm-tree takes for a leaf: an array whose first axis is that of the items.

    Args:
      ragged: Rows of each environment, in arrays of NumPy.

    Attributes:
      ragged: Rows of each environment.
    """

    def __init__(self, ragged: Ragged) -> None:
        self.ragged = ragged

    @property
    def shape(self) -> tuple[int]:
        """The number of items."""
        return (len(self.ragged),)

    def __getitem__(self, env: int) -> Rows:
        return Rows(self.ragged[env : env + 1])

    def __setitem__(self, env: int, value: Any) -> None:
        """Replaces the row of an environment by a plain array, or by the row of a single environment."""
        each = self.ragged.split()
        each[env] = value.ragged.values if isinstance(value, Rows) else as_array(value)
        self.ragged = Ragged(np.concatenate(each), np.array([len(row) for row in each], np.int64))

    def copy(self) -> Rows:
        """The same rows in arrays of their own."""
        return Rows(Ragged(self.ragged.values.copy(), self.ragged.row_lengths.copy()))


def may_have_rows(nest: Any) -> bool:
    """Whether a nest has a `Ragged`, or a list, which may be one. Steps of arrays are known without a walk."""
    if type(nest) in _LEAVES:
        return False
    if isinstance(nest, dict):
        return not _LEAVES.issuperset(map(type, nest.values())) and True in map(may_have_rows, nest.values())
    if isinstance(nest, list):
        return True
    if isinstance(nest, tuple):
        return isinstance(nest, Ragged) or True in map(may_have_rows, nest)
    if isinstance(nest, Mapping):
        return True in map(may_have_rows, nest.values())
    return True in [may_have_rows(getattr(nest, name)) for name in field_names(nest) or ()]


def as_leaves(nest: Any, num_items: int, name: str = "", spec: Callable[[str], Any] | None = None) -> Any:
    """Makes a leaf of each `Ragged` in a nest, and of each list where the table has an array of open length.

    Args:
      nest: Nest of a step, or of a part of one.
      num_items: Number of items that each `Ragged` must have.
      name: Path of the nest within the step, for errors.
      spec: Function from that path to the table's specs for the nest; None leaves lists as they are.

    Returns:
      A new nest with `Rows`, or the same nest if it has neither a `Ragged` nor a list.

    Raises:
      ValueError: A `Ragged` has another number of items, or its fields contradict each other.
      TypeError: The row lengths are not integers.
    """
    if not may_have_rows(nest):
        return nest
    if spec is not None:
        nest = lists_as_specified(nest, spec(name))

    def as_leaf(path: tuple[Any, ...], node: Any) -> Rows | None:
        if not isinstance(node, Ragged):
            return None
        return Rows(_checked(node, num_items, "/".join(map(str, (name, *path) if name else path)) or "the step"))

    return tree.traverse_with_path(as_leaf, nest)


def as_ragged(nest: Any) -> Any:
    """The nest that `as_leaves` was given."""
    return tree.map_structure(lambda leaf: leaf.ragged if isinstance(leaf, Rows) else leaf, nest)


def specs(nest: Any, num_envs: int | None) -> Any:
    """The specs of the row that an environment has of each leaf of a step, as `as_leaves` gives it.

    Args:
      nest: Nest of a step.
      num_envs: Number of environments, whose axis is dropped; None for a single one, whose leaves have no such axis.
    """

    def spec(leaf: Any) -> TensorSpec:
        if isinstance(leaf, Rows):
            values = leaf.ragged.values
            return TensorSpec((None, *values.shape[1:]), values.dtype)
        array = as_array(leaf)
        return TensorSpec(array.shape if num_envs is None else array.shape[1:], array.dtype)

    return tree.map_structure(spec, nest)


def padding(before: Any, leaf: Any, present: NDArray[np.bool_], num_envs: int | None) -> Any:
    """Zeros, or empty strings, as long as the newest row of each environment.

    Args:
      before: What this returned for the step before; None if the column is not padded.
      leaf: Column of the step, plain or `Rows`.
      present: Bools `[num_envs]` that mark the environments with a step; others have had `before`.
      num_envs: Number of environments; None for a single one, whose plain column has no axis for it.

    Returns:
      `Rows`, or `before` if all rows are plain.
    """
    if before is None or leaf is None or not (isinstance(before, Rows) or isinstance(leaf, Rows)):
        return before
    old, new = _as_rows(before, num_envs), _as_rows(leaf, num_envs)
    lengths = np.where(present, new.row_lengths, old.row_lengths)
    dtype = new.values.dtype
    blank = b"" if dtype.kind == "O" else np.zeros((), dtype)
    return Rows(Ragged(np.full((sum(lengths.tolist()), *new.values.shape[1:]), blank, dtype), lengths))


def _as_rows(leaf: Any, num_envs: int | None) -> Ragged:
    """A column as a Ragged of the environments' rows."""
    if isinstance(leaf, Rows):
        return leaf.ragged
    array = as_array(leaf) if num_envs is not None else as_array(leaf)[None]
    count, length = array.shape[:2]
    return Ragged(array.reshape(count * length, *array.shape[2:]), np.full(count, length, np.int64))


def _checked(ragged: Ragged, num_items: int, name: str) -> Ragged:
    """A Ragged with arrays of NumPy, of which each environment has one item."""
    values, lengths = as_array(ragged.values), as_array(ragged.row_lengths)
    sizes = lengths.ravel().tolist()
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or any(size < 0 for size in sizes):
        raise TypeError(
            f"column {name}: expected non-negative integers as the `row_lengths` of a Ragged, got {lengths!r}"
        )
    if len(sizes) != num_items:
        items = "1 item, the row of the step" if num_items == 1 else f"{num_items} items, a row for each environment"
        raise ValueError(f"column {name}: expected a Ragged of {items}, got a Ragged of {len(sizes)} items")
    if values.shape[:1] != (sum(sizes),):
        raise ValueError(
            f"column {name}: expected a Ragged of {sum(sizes)} values, the sum of its `row_lengths`, got values of "
            f"shape {list(values.shape)}"
        )
    return Ragged(values, lengths.astype(np.int64))
