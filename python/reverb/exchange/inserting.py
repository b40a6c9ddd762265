"""Inserts items that are held as arrays into a table."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import tree
from numpy.typing import NDArray

from reverb.client import Client
from reverb.data import nests, signatures
from reverb.errors import InvalidArgumentError, TableNotFoundError
from reverb.exchange.items import Column, Items, item_values
from reverb.replay_sample import Ragged
from reverb.writer import Writer

if TYPE_CHECKING:
    from reverb.trajectory_writer import TrajectoryWriter

_Values: TypeAlias = Sequence[NDArray[Any]]
_Add: TypeAlias = Callable[[_Values, list[int], float], None]


class Inserter:
    """Inserts items into a table, in order. Must be used as a context manager.

    A signature may describe single steps, which `insert` and `Writer` write, or whole columns with their time axis,
    which the other writers write. The inserter picks the writer that fits the signature.

    Args:
      client: Client of the server to insert into.
      table: Name of the table to insert into.
      structure: Nest with the structure of the data; its leaves may be specs or any other values.
      priority: Priority of every inserted item; None keeps the priority that each item has.

    Raises:
      TableNotFoundError: The table does not exist.
      InvalidArgumentError: The paths of the table's signature differ from those of the structure.
    """

    def __init__(self, client: Client, table: str, structure: Any, priority: float | None) -> None:
        self._client = client
        self.table = table
        self._priority = priority
        self._pack = nests.compile_packer(structure)
        self._writer: Writer | TrajectoryWriter | None = None
        # Steps of the longest item that the writer can make, and the row shapes of its columns.
        self._longest = 0
        self._shapes: list[tuple[int, ...]] = []
        self.inserted = 0
        infos = client.server_info()
        if table not in infos:
            raise TableNotFoundError(
                f"no table {table!r} at {client.server_address}, which has the tables: {', '.join(infos)}"
            )
        self._specs = signatures.flat_specs(infos[table].signature)
        _check_paths(structure, infos[table].signature, table)

    def insert(self, items: Items) -> None:
        """Inserts items, and waits until all are in the table.

        Raises:
          SignatureMismatchError, InvalidPriorityError, UnavailableError: A writer failed. Some of the items may have
            been inserted.
        """
        priorities = items.priorities if self._priority is None else np.full(len(items), float(self._priority))
        single = _single_steps(items)
        by_steps = self._specs is not None and _are_steps(items, self._specs)
        if single is not None and (self._specs is None or by_steps):
            # One call inserts all items. A writer takes some microseconds per step, and again per item.
            self._client.insert_batch(self._pack(single), {self.table: priorities})
        elif by_steps:
            self._write(items, priorities, self._add_steps)
        else:
            self._write(items, priorities, self._add_columns)
        self.inserted += len(items)

    def _write(self, items: Items, priorities: NDArray[np.float64], add: _Add) -> None:
        self._longest = max(self._longest, *map(_longest_of, items.columns, items.squeezed))
        columns = zip(*map(item_values, items.columns), strict=True)
        for priority, values in zip(priorities.tolist(), columns, strict=True):
            lengths = [0 if flag else len(value) for value, flag in zip(values, items.squeezed, strict=True)]
            shapes = [value.shape[1 if length else 0 :] for value, length in zip(values, lengths, strict=True)]
            if shapes != self._shapes:
                # A writer requires each column to keep its shape.
                self._close()
                self._shapes = shapes
            add(values, lengths, priority)
        if self._writer is not None:
            self._writer.flush()
            # The next items may be longer.
            self._close()

    def _add_steps(self, values: _Values, lengths: list[int], priority: float) -> None:
        """Writes an item whose columns have equal lengths."""
        if not isinstance(self._writer, Writer):
            self._writer = self._client.writer(self._longest, max_in_flight_items=None)
        for row in range(lengths[0]):
            self._writer.append(self._pack([value[row, ...] for value in values]))
        self._writer.create_item(self.table, lengths[0], priority)

    def _add_columns(self, values: _Values, lengths: list[int], priority: float) -> None:
        """Writes an item whose columns may differ in length."""
        from reverb.trajectory_writer import TrajectoryWriter

        if not isinstance(self._writer, TrajectoryWriter):
            self._writer = self._client.trajectory_writer(self._longest)
        # A column without a time axis has a value in the first step only, and shorter columns have none in the last.
        steps = max(1, *lengths)
        for row in range(steps):
            self._writer.append(self._pack([_value_at(*pair, row) for pair in zip(values, lengths, strict=True)]))
        views = zip(tree.flatten(self._writer.history), lengths, strict=True)
        trajectory = [view[-steps : length - steps or None] if length else view[-steps] for view, length in views]
        self._writer.create_item(self.table, priority, self._pack(trajectory))

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.flush()
            writer.close()

    def __enter__(self) -> "Inserter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._close()
        elif self._writer is not None:
            # There is an error already, so inserts that are still in flight are not waited for.
            self._writer.close()


def _are_steps(items: Items, specs: list[signatures.FlatSpec]) -> bool:
    """Whether a signature describes the steps of these items, rather than their columns with the time axis."""
    if len(specs) != len(items.columns) or any(items.squeezed):
        return False
    lengths = [
        column.row_lengths if isinstance(column, Ragged) else np.array([len(item) for item in column])
        for column in items.columns
    ]
    if any((one != lengths[0]).any() for one in lengths):
        return False
    return all(
        dims is None or len(dims) == _row_dimensions(column)
        for (_, _, dims), column in zip(specs, items.columns, strict=True)
    )


def _row_dimensions(column: Column) -> int:
    values = column.values if isinstance(column, Ragged) else column[0]
    return values.ndim - 1


def _check_paths(structure: Any, signature: Any, table: str) -> None:
    """Compares the columns' names. The server compares only dtypes and shapes, in order."""
    known, given = _paths(signature), _paths(structure)
    if signature is None or not given or (isinstance(structure, list) and not any(structure)):
        return
    if known != given:
        raise InvalidArgumentError(
            f"the data have the columns {given}, but the signature of table {table!r} has {known}"
        )


def _paths(signature: Any) -> list[str]:
    return ["/".join(map(str, path)) for path, _ in tree.flatten_with_path(signature)]


def _single_steps(items: Items) -> list[NDArray[Any]] | None:
    """Each column as `[items, ...]` if every item is one step with a time axis; else None."""
    steps = []
    for column, squeezed in zip(items.columns, items.squeezed, strict=True):
        if squeezed or not isinstance(column, Ragged) or len(column.values) != len(column.row_lengths):
            return None
        steps.append(column.values)
    # No item is empty, so equal numbers of rows and items mean one row per item.
    return steps


def _longest_of(column: Column, squeezed: bool) -> int:
    if squeezed:
        return 1
    if isinstance(column, Ragged):
        return int(column.row_lengths.max())
    return max(map(len, column))


def _value_at(values: NDArray[Any], length: int, row: int) -> NDArray[Any] | None:
    if length:
        return values[row, ...] if row < length else None
    return values if row == 0 else None
