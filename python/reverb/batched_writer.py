"""The batched writer appends a step of every environment of a vector in one call.

    with client.batched_writer(num_envs=64, num_keep_alive_refs=2) as writer:
      while True:
        writer.append({"observation": observations, "action": actions, ...}, episode_end=terminated | truncated)
        writer.create_items("replay", 1.0, {"observation": writer.history["observation"][-2:], ...})

Every environment has its own rows, chunks and episodes, as if it had its own trajectory writer. Python code does not
loop over the environments.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import _binding
from reverb.writing.flushing import FlushingWriter
from reverb.writing.structure import FixedStructure, Structure

__all__ = ["BatchedColumn", "BatchedHistory", "BatchedWriter"]


class BatchedColumn(NamedTuple):
    """The same rows of one column for every environment. Created by indexing `BatchedWriter.history`."""

    column: int
    start: int | None
    stop: int | None
    step: int
    squeeze: bool


class BatchedHistory:
    """One column of all environments. Indexing with an int gives no time axis, indexing with a slice gives one.

    Args:
      column: Number of the column, counted from 0.
    """

    __slots__ = ("_column",)

    def __init__(self, column: int) -> None:
        self._column = column

    def __getitem__(self, key: int | slice) -> BatchedColumn:
        if isinstance(key, slice):
            start, stop, step = (
                None if bound is None else operator.index(bound) for bound in (key.start, key.stop, key.step)
            )
            if step == 0:
                raise ValueError("slice step cannot be zero")
            return BatchedColumn(self._column, start, stop, 1 if step is None else step, squeeze=False)
        try:
            row = operator.index(key)
        except TypeError:
            raise TypeError(f"indices must be integers or slices, not {type(key)}") from None
        return BatchedColumn(self._column, row, row + 1 if row != -1 else None, 1, squeeze=True)


class BatchedWriter(FlushingWriter):
    """Writes the steps of `num_envs` environments. Created by `Client.batched_writer`.

    Only one thread at a time may use a writer.
    """

    def __init__(
        self,
        client: _binding.Client,
        num_envs: int,
        num_keep_alive_refs: int,
        *,
        configs: Sequence[Any],
        max_chunk_length: int | None,
        compression: tuple[str, bool],
        max_pending_bytes: int,
        reconnect_timeout: float,
    ) -> None:
        self._num_envs = num_envs
        # Patterns refer to columns by their position in the step, so with patterns the structure must not grow.
        self._structure = Structure()
        self._writer = _binding.BatchedWriter(
            client,
            FixedStructure() if configs else self._structure,
            num_envs,
            (num_keep_alive_refs, max_chunk_length),
            [config.SerializeToString() for config in configs],
            compression,
            (max_pending_bytes, reconnect_timeout),
        )
        self._has_patterns = bool(configs)
        super().__init__(self._writer)

    @property
    def num_envs(self) -> int:
        """Number of environments in the vector."""
        return self._num_envs

    def append(self, data: Any, *, episode_end: ArrayLike | None = None, mask: ArrayLike | None = None) -> None:
        """Appends a step of every environment, and creates the items that the patterns describe.

        Args:
          data: Nest of arrays `[num_envs, ...]`, one row per environment.
          episode_end: Bools `[num_envs]` that mark the environments whose episode ends with this step. Later items
            cannot refer to the rows of these episodes. None marks no environment.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.

        Raises:
          ValueError: An array has another first axis, or rows have another dtype or shape than earlier ones, and
            nothing was appended. Also raised if the server rejected an earlier item.
          TypeError: A leaf cannot be stored.
          UnavailableError: The server could not be reached within `reconnect_timeout`.
        """
        self._writer.append(data, self._as_mask("mask", mask), self._as_mask("episode_end", episode_end))

    @property
    def history(self) -> Any:
        """The columns in the structure of the steps. Index them to get the columns for `create_items`.

        Raises:
          RuntimeError: Nothing has been appended yet, or the writer creates its items from patterns.
        """
        if self._has_patterns:
            raise RuntimeError("A writer with configs creates its items from patterns and has no history.")
        if not self._structure.num_columns:
            raise RuntimeError("history cannot be accessed before `append` is called at least once.")
        return self._structure.build(BatchedHistory)

    @property
    def episode_steps(self) -> NDArray[np.int64]:
        """Number of steps in the current episode of each environment, int64 `[num_envs]`."""
        return self._writer.episode_steps()

    def create_items(
        self, table: str, priorities: ArrayLike, trajectory: Any, *, mask: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        """Creates an item for every environment that has all the selected rows.

        `[-3:]` selects three rows, so an environment whose episode has only two steps gets no item. `[:]` selects all
        rows of the episode that are kept.

        Args:
          table: Name of the table for the items.
          priorities: Priorities of the items, one number for all or an array `[num_envs]`.
          trajectory: Nest of BatchedColumns, which becomes the data of the items.
          mask: Bools `[num_envs]` that mark the environments to create items for; None marks all.

        Returns:
          Bools `[num_envs]` that mark the environments that got an item.

        Raises:
          TypeError: A leaf is not a BatchedColumn.
          ValueError: There is no column, `priorities` has another shape, or a priority is NaN. Also raised if the
            server rejected an earlier item.
          UnavailableError: The server could not be reached within `reconnect_timeout`.
        """
        columns = [*_columns(trajectory)]
        if not columns:
            raise ValueError("trajectory must not be empty.")
        if any(not isinstance(column, BatchedColumn) for column in columns):
            raise TypeError(f"All leaves of `trajectory` must be `BatchedColumn` but got {trajectory!r}")
        values = np.atleast_1d(np.asarray(priorities, np.float64))
        if values.shape not in ((1,), (self._num_envs,)):
            raise ValueError(
                f"priorities must be one number or have shape [{self._num_envs}], got {list(values.shape)}."
            )
        return self._writer.create_items(table, np.ascontiguousarray(values), columns, self._as_mask("mask", mask))

    def _as_mask(self, name: str, mask: ArrayLike | None) -> NDArray[np.bool_] | None:
        if mask is None:
            return None
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self._num_envs,):
            raise ValueError(
                f"`{name}` must be bools of shape [{self._num_envs}], got {array.dtype} of shape {list(array.shape)}."
            )
        return np.ascontiguousarray(array)


def _columns(trajectory: Any) -> Sequence[Any]:
    """The leaves of a nest. A BatchedColumn is a leaf, although it is a tuple."""
    if isinstance(trajectory, BatchedColumn):
        return [trajectory]
    if isinstance(trajectory, dict):
        return [leaf for key in sorted(trajectory) for leaf in _columns(trajectory[key])]
    if isinstance(trajectory, (list, tuple)):
        return [leaf for child in trajectory for leaf in _columns(child)]
    return [trajectory]
