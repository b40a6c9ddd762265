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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import _binding
from reverb.data import checks, nests, structures
from reverb.data.arrays import as_array
from reverb.data.keys import is_max
from reverb.replay_sample import Ragged
from reverb.reverb_types import TableInfo, table_infos
from reverb.writing.flushing import FlushingWriter
from reverb.writing.history import History, whole_column_line
from reverb.writing.key_check import KeyChecker, order_in_table, pattern_orders
from reverb.writing.options import WriterOptions
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

    # Without this, iteration would never end: Python would try the keys 0, 1, 2, ..., and each of them gives a column.
    __iter__ = None


class BatchedWriter(FlushingWriter):
    """Writes the steps of `num_envs` environments. Created by `Client.batched_writer`.

    Only one thread at a time may use a writer.
    """

    def __init__(
        self,
        client: _binding.Client,
        num_envs: int,
        num_keep_alive_refs: int,
        options: WriterOptions,
        *,
        configs: Sequence[Any],
    ) -> None:
        self._num_envs = num_envs
        # Patterns refer to columns by their position in the step, so with patterns the structure must not grow.
        self._structure = Structure()
        self._writer = _binding.BatchedWriter(
            client,
            FixedStructure() if configs else self._structure,
            num_envs,
            num_keep_alive_refs,
            [config.SerializeToString() for config in configs],
            options,
        )
        # What is asked for the signatures of tables. `reverb.aio` replaces both.
        self.signatures: KeyChecker = client
        self.table_infos: Callable[[], dict[str, TableInfo]] = lambda: table_infos(client, None)
        self._configs = configs
        self._has_patterns = bool(configs)
        # The order of the columns of items in their tables, for each table with a structure that was found to fit it.
        self._orders: dict[Any, list[int]] = {}
        self._is_new = True
        # Replaced by the append of the extension once the patterns are known to fit their tables.
        self._append = self._check_and_append if configs else self._writer.append
        super().__init__(self._writer)

    @property
    def num_envs(self) -> int:
        """Number of environments in the vector."""
        return self._num_envs

    def append(
        self,
        data: Any,
        *,
        episode_end: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        priorities: ArrayLike | Literal["max"] | None = None,
    ) -> None:
        """Appends a step of every environment, and creates the items that the patterns describe.

        Args:
          data: Nest of arrays `[num_envs, ...]`, one row per environment. Rows that differ in the length of their first
            axis are given as a `Ragged` of `num_envs` items, or as a list of `num_envs` arrays. If the arrays of a list
            in the first step could be columns `[num_envs, ...]`, the list is a nest of columns, unless a table's
            signature has one array of open length at its place: the writer asks the server for the signatures.
          episode_end: Bools `[num_envs]` that mark the environments whose episode ends with this step. Later items
            cannot refer to the rows of these episodes. None marks no environment.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.
          priorities: Priorities of the items that the patterns create in this call: one number for all, an array
            `[num_envs]`, or "max" for the largest that each table has seen; None, the default, means those of the
            configs.

        Raises:
          ValueError: An array has another first axis, or rows have another dtype or shape than earlier ones, and
            nothing was appended. Also raised if the server rejected an earlier item, after the step was appended and
            its items were queued (`step_taken` of the error).
          SignatureMismatchError: A pattern has other keys than the signature of its table. The first append asks the
            server for the signatures; nothing was appended.
          TypeError: A leaf cannot be stored.
          UnavailableError: The server could not be reached within `reconnect_timeout`.
        """
        given = None if priorities is None else self._as_priorities(priorities, (self._num_envs,))
        more = self._as_mask("mask", mask), self._as_mask("episode_end", episode_end), given
        try:
            self._append(self._as_specified(data) if self._is_new else data, *more)
        except ValueError as refused:
            rows = None if getattr(refused, "step_taken", False) else self._with_rows(data)
            if rows is None:
                raise
            try:
                self._append(rows, *more)
            except ValueError as error:
                if getattr(error, "step_taken", False):
                    raise
                raise refused from None
        self._is_new = False

    def _with_rows(self, data: Any) -> Any:
        """A step that was refused, with a `Ragged` for each list of one array for each environment.

        A list is a nest of columns where that fits: it is read as rows only after the step was refused.

        Returns:
          The step with `Ragged` leaves; None if it has no such list.
        """
        import tree

        found = False

        def as_ragged(node: Any) -> Any:
            nonlocal found
            if not isinstance(node, list) or len(node) != self._num_envs or node is data:
                return None
            rows = structures.ragged_of(node)
            found |= rows is not None
            return rows

        step = tree.traverse(as_ragged, data)
        return step if found else None

    def _as_specified(self, data: Any) -> Any:
        """A first step with a `Ragged` for each list that could be columns, too, but is rows by a table's signature.

        Raises:
          UnavailableError: There is a list that could be both, and the server cannot be reached.
        """
        if not self._has_two_readings(data):
            return data
        tables = {config.table for config in self._configs}
        for name, info in self.table_infos().items():
            if not tables or name in tables:
                data = structures.lists_as_specified(data, info.signature)
        return data

    def _has_two_readings(self, node: Any) -> bool:
        """Whether a list of an array for each environment could also be columns, arrays `[num_envs, ...]`."""
        if isinstance(node, Mapping):
            return any(map(self._has_two_readings, node.values()))
        if not isinstance(node, (list, tuple)) or isinstance(node, Ragged):
            return False
        if isinstance(node, list) and len(node) == self._num_envs and not any(map(nests.is_container, node)):
            return all(np.shape(row)[:1] == (self._num_envs,) for row in node)
        return any(map(self._has_two_readings, node))

    def _check_and_append(
        self,
        data: Any,
        mask: NDArray[np.bool_] | None,
        episode_end: NDArray[np.bool_] | None,
        priorities: NDArray[np.float64] | Literal["max"] | None,
    ) -> None:
        orders = pattern_orders(self.signatures, self._configs)
        if orders is not None:
            self._writer.reorder(orders)
            self._append = self._writer.append
        self._writer.append(data, mask, episode_end, priorities)

    @property
    def history(self) -> History[BatchedColumn]:
        """The columns in the structure of the steps. Index them to get the columns for `create_items`.

        Raises:
          RuntimeError: Nothing has been appended yet, or the writer creates its items from patterns.
        """
        if self._has_patterns:
            raise RuntimeError("A writer with configs creates its items from patterns and has no history.")
        if not self._structure.num_columns:
            raise RuntimeError("history cannot be accessed before `append` is called at least once.")
        history: History[BatchedColumn] = self._structure.build(BatchedHistory)
        return history

    @property
    def episode_steps(self) -> NDArray[np.int64]:
        """Number of steps in the current episode of each environment, int64 `[num_envs]`."""
        return self._writer.episode_steps()

    @overload
    def create_items(
        self,
        table: str,
        priorities: ArrayLike | Literal["max"],
        trajectory: Any,
        *,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
        return_keys: Literal[False] = False,
    ) -> NDArray[np.bool_]: ...
    @overload
    def create_items(
        self,
        table: str,
        priorities: ArrayLike | Literal["max"],
        trajectory: Any,
        *,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
        return_keys: Literal[True],
    ) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]: ...
    def create_items(
        self,
        table: str,
        priorities: ArrayLike | Literal["max"],
        trajectory: Any,
        *,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
        return_keys: bool = False,
    ) -> NDArray[np.bool_] | tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """Creates an item for every environment that has all the selected rows.

        Waits first, until `max_in_flight_items` and `max_pending_bytes` leave room for all of them; for more than
        `max_in_flight_items` until no item is unconfirmed.

        `[-3:]` selects three rows, so an environment whose episode has only two steps gets no item. `[:]` selects all
        rows of the episode that are kept.

        Args:
          table: Name of the table for the items.
          priorities: Priorities of the items: one number for all, an array `[num_envs]`, or "max" for the largest that
            the table has seen since it was reset.
          trajectory: Nest of BatchedColumns, which becomes the data of the items.
          mask: Bools `[num_envs]` that mark the environments to create items for; None marks all.
          timeout: Time limit of that wait in seconds; None, the default, waits as long as the tables' rate limiters
            block.
          return_keys: Whether to return the keys of the items, too.

        Returns:
          Bools `[num_envs]` that mark the environments that got an item. With `return_keys` also the keys of the items,
          uint64 `[num_envs]`, which are 0 for the other environments.

        Raises:
          DeadlineExceededError: There was no room within the timeout. Nothing was created, and the same call may be
            repeated.
          TypeError: A leaf is not a BatchedColumn, or the timeout is not a number.
          ValueError: There is no column, `priorities` has another shape, a priority is NaN, or the keys of `trajectory`
            are not those of the table's signature. Also raised if the server rejected an earlier item, after these
            were queued (`step_taken` of the error).
          UnavailableError: The server could not be reached within `reconnect_timeout`.
        """
        columns, structure = _flatten(trajectory)
        if not columns:
            raise ValueError("trajectory must not be empty.")
        if any(not isinstance(column, BatchedColumn) for column in columns):
            line = whole_column_line(trajectory, BatchedHistory)
            text = f"All leaves of `trajectory` must be `BatchedColumn` but got {trajectory!r}"
            raise TypeError(text if line is None else f"{line}\n{text}")
        order = self._orders.get((table, structure))
        if order is None:
            order = order_in_table(self.signatures, table, structures.skeleton(trajectory, BatchedColumn))
            if order is not None:
                self._orders[table, structure] = order
        if order:
            columns = [columns[leaf] for leaf in order]
        values = self._as_priorities(priorities)
        seconds = checks.as_timeout(timeout)
        made, keys = self._writer.create_items(table, values, columns, self._as_mask("mask", mask), seconds)
        return (made, keys) if return_keys else made

    def _as_priorities(
        self, priorities: ArrayLike | Literal["max"], shape: tuple[int, ...] | None = None
    ) -> NDArray[np.float64] | Literal["max"]:
        if is_max(priorities):
            return priorities
        values = np.atleast_1d(as_array(priorities, np.float64))
        if values.shape not in ((1,), (self._num_envs,)):
            raise ValueError(
                f"priorities must be one number or have shape [{self._num_envs}], got {list(values.shape)}."
            )
        return np.ascontiguousarray(values if shape is None else np.broadcast_to(values, shape))

    def _as_mask(self, name: str, mask: ArrayLike | None) -> NDArray[np.bool_] | None:
        if mask is None:
            return None
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self._num_envs,):
            raise ValueError(
                f"`{name}` must be bools of shape [{self._num_envs}], got {array.dtype} of shape {list(array.shape)}."
            )
        return np.ascontiguousarray(array)


def _flatten(node: Any) -> tuple[list[Any], Any]:
    """The leaves of a nest, and its structure as a hashable value. A BatchedColumn is a leaf, although a tuple."""
    if isinstance(node, BatchedColumn):
        return [node], None
    if isinstance(node, dict):
        names = sorted(node)
        children = [node[name] for name in names]
        if all(type(child) is BatchedColumn for child in children):
            return children, tuple(names)
    elif isinstance(node, (list, tuple)):
        names, children = [type(node)], [*node]
    elif (fields := structures.field_names(node)) is not None:
        names, children = [type(node)], [getattr(node, field) for field in fields]
    else:
        return [node], None
    flat = [_flatten(child) for child in children]
    return [leaf for leaves, _ in flat for leaf in leaves], (*names, *(structure for _, structure in flat))
