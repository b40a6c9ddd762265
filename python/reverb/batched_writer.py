"""The batched writer: one call appends a step of every environment of a vector.

    with client.batched_writer(num_envs=64, num_keep_alive_refs=2) as writer:
      while True:
        writer.append({"observation": observations, "action": actions, ...}, episode_end=terminated | truncated)
        writer.create_items("replay", 1.0, {"observation": writer.history["observation"][-2:], ...})

Every environment has rows, chunks and episodes of its own, as if it had a trajectory writer of its own; nothing is done
per environment in Python.
"""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import _structure, pybind
from reverb._flushing import FlushingWriter

__all__ = ["BatchedColumn", "BatchedHistory", "BatchedWriter"]


class BatchedColumn(NamedTuple):
    """Rows of one column, the same of every environment. Made by indexing `BatchedWriter.history`."""

    column: int
    start: int | None
    stop: int | None
    step: int
    squeeze: bool


class BatchedHistory:
    """One column of all environments. An int gives the column without time axis, a slice with it.

    Args:
      column: Its number.
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
    """Writes the steps of `num_envs` environments. Made by `Client.batched_writer`.

    One thread at a time may use a writer.
    """

    def __init__(
        self,
        client: pybind.Client,
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
        # Patterns name columns by their place in the step, so there the structure must not grow.
        self._structure = _structure.Structure()
        self._writer = pybind.BatchedWriter(
            client,
            _structure.FixedStructure() if configs else self._structure,
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
        """How many environments it writes for."""
        return self._num_envs

    def append(self, data: Any, *, episode_end: ArrayLike | None = None, mask: ArrayLike | None = None) -> None:
        """Appends a step of every environment, and makes the items that patterns describe.

        Args:
          data: A nest of arrays `[num_envs, ...]`.
          episode_end: Bools `[num_envs]`: whose episode ends with this step. Their rows cannot be referred to any more.
          mask: Bools `[num_envs]`: who has a step; the rows of the others are passed over. None: all.

        Raises:
          ValueError: An array has another first axis, or rows another dtype or shape than those before; nothing was
            appended. Also an item that the server refused.
          TypeError: A leaf cannot be stored.
          UnavailableError: The server could not be reached for `reconnect_timeout`.
        """
        self._writer.append(data, self._as_mask("mask", mask), self._as_mask("episode_end", episode_end))

    @property
    def history(self) -> Any:
        """The columns in the structure of the steps, to be indexed for `create_items`.

        Raises:
          RuntimeError: Nothing was appended yet, or the writer makes its items by patterns.
        """
        if self._has_patterns:
            raise RuntimeError("a writer with configs makes its items by itself and has no history")
        if not self._structure.num_columns:
            raise RuntimeError("history cannot be accessed before `append` is called at least once.")
        return self._structure.build(BatchedHistory)

    @property
    def episode_steps(self) -> NDArray[np.int64]:
        """Steps of each environment's episode so far, `[num_envs]`."""
        return self._writer.episode_steps()

    def create_items(
        self, table: str, priorities: ArrayLike, trajectory: Any, *, mask: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        """Makes an item of every environment that has all the rows that are named.

        `[-3:]` names three rows: an environment whose episode has two so far gets no item. `[:]` names what there is.

        Args:
          table: Where to.
          priorities: One number, or `[num_envs]`.
          trajectory: A nest of BatchedColumn.
          mask: Bools `[num_envs]`: for whom. None: all.

        Returns:
          Bools `[num_envs]`: who got an item.

        Raises:
          TypeError: A leaf is no BatchedColumn.
          ValueError: There is no column, `priorities` has another shape, or one is NaN. Also an item that the server
            refused.
          UnavailableError: The server could not be reached for `reconnect_timeout`.
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
    """The leaves; a BatchedColumn is one, though it is a tuple."""
    if isinstance(trajectory, BatchedColumn):
        return [trajectory]
    if isinstance(trajectory, dict):
        return [leaf for key in sorted(trajectory) for leaf in _columns(trajectory[key])]
    if isinstance(trajectory, (list, tuple)):
        return [leaf for child in trajectory for leaf in _columns(child)]
    return [trajectory]
