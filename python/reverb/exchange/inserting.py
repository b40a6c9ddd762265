"""Puts items that are held as arrays into a table."""

from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reverb import nests
from reverb.client import Client
from reverb.errors import InvalidArgumentError, TableNotFoundError
from reverb.exchange.items import Column, Items, item_values
from reverb.replay_sample import Ragged

if TYPE_CHECKING:
    from reverb.trajectory_writer import TrajectoryWriter

__all__ = ["Inserter"]


class Inserter:
    """Inserts items into a table, in order. A context manager.

    Args:
      client: Of the server.
      table: Where to.
      structure: A nest of the data; its leaves are specs, or whatever.
      priority: Of all items; None: that which each had.

    Raises:
      TableNotFoundError: There is no such table.
      InvalidArgumentError: The table's signature has other paths than the structure.
    """

    def __init__(self, client: Client, table: str, structure: Any, priority: float | None) -> None:
        self._client = client
        self.table = table
        self._priority = priority
        self._pack = nests.compile_packer(structure)
        self._writer: TrajectoryWriter | None = None
        # The longest item that the writer can make, and the shapes of its columns' rows.
        self._longest = 0
        self._shapes: list[tuple[int, ...]] = []
        self.inserted = 0
        infos = client.server_info()
        if table not in infos:
            raise TableNotFoundError(f"no table {table!r} at {client.server_address}; it has: {', '.join(infos)}")
        _check_paths(structure, infos[table].signature, table)

    def insert(self, items: Items) -> None:
        """Inserts items, and waits until they are there.

        Raises:
          SignatureMismatchError, InvalidPriorityError, UnavailableError: As writers do. Of these items, some may be
            there.
        """
        priorities = items.priorities if self._priority is None else np.full(len(items), float(self._priority))
        steps = _single_steps(items)
        if steps is not None:
            # All in one call. Otherwise a step costs some microseconds, and an item, too.
            self._client.insert_batch(self._pack(steps), {self.table: priorities})
        else:
            self._write(items, priorities)
        self.inserted += len(items)

    def _write(self, items: Items, priorities: NDArray[np.float64]) -> None:
        longest = max(map(_longest_of, items.columns, items.squeezed))
        columns = zip(*map(item_values, items.columns), strict=True)
        for priority, values in zip(priorities.tolist(), columns, strict=True):
            lengths = [0 if flag else len(value) for value, flag in zip(values, items.squeezed, strict=True)]
            shapes = [value.shape[1 if length else 0 :] for value, length in zip(values, lengths, strict=True)]
            writer = self._writer_for(longest, shapes)
            # Rows of an item: a column without a time axis has one, and none but the longest have values in the last.
            rows = max(1, *lengths)
            for row in range(rows):
                writer.append(self._pack([_value_at(*pair, row) for pair in zip(values, lengths, strict=True)]))
            writer.create_item(self.table, priority, self._trajectory(writer, lengths, rows))
        if self._writer is not None:
            self._writer.flush()

    def _trajectory(self, writer: "TrajectoryWriter", lengths: list[int], rows: int) -> Any:
        views = _leaves(writer.history)
        return self._pack(
            [
                view[-rows : length - rows or None] if length else view[-rows]
                for view, length in zip(views, lengths, strict=True)
            ]
        )

    def _writer_for(self, longest: int, shapes: list[tuple[int, ...]]) -> "TrajectoryWriter":
        """A writer keeps so many rows, and a column keeps its shape."""
        if self._writer is None or longest > self._longest or shapes != self._shapes:
            self._close()
            self._longest, self._shapes = max(longest, self._longest), shapes
            self._writer = self._client.trajectory_writer(self._longest)
        return self._writer

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
            self._writer.__exit__(kind, error, trace)


def _check_paths(structure: Any, signature: Any, table: str) -> None:
    """The server compares dtypes and shapes, in order; that the names are the same, too, is looked at here."""
    known, given = _paths(signature), _paths(structure)
    if signature is None or not given or (isinstance(structure, list) and not any(structure)):
        return
    if known != given:
        raise InvalidArgumentError(
            f"the data have the columns {given}, the signature of the table {table!r} has {known}"
        )


def _paths(signature: Any) -> list[str]:
    import tree

    return ["/".join(map(str, path)) for path, _ in tree.flatten_with_path(signature)]


def _single_steps(items: Items) -> list[NDArray[Any]] | None:
    """`[items, ...]` for each column, if every item is one step with a time axis; else None."""
    steps = []
    for column, squeezed in zip(items.columns, items.squeezed, strict=True):
        if squeezed or not isinstance(column, Ragged) or len(column.values) != len(column.row_lengths):
            return None
        steps.append(column.values)
    # No item is empty, so that as many rows as items are one each.
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


def _leaves(history: Any) -> list[Any]:
    import tree

    leaves: list[Any] = tree.flatten(history)
    return leaves
