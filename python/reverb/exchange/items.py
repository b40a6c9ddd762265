"""Items on their way between tables and files, in portions."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reverb.checkpoint_reader import CheckpointTable
from reverb.checkpoint_reader import open as open_checkpoint
from reverb.client import Client
from reverb.errors import UnavailableError
from reverb.replay_sample import Ragged

# An array `[items, time, ...]`, or `[items, ...]` without a time axis; a Ragged if items differ in length; a list with
# one array per item if they differ in more than that.
Column: TypeAlias = "NDArray[Any] | Ragged | list[NDArray[Any]]"

# Bytes of data that are held at once. A single item may be larger.
TARGET_BYTES = 16 << 20
_MAX_ITEMS = 8192


class Items(NamedTuple):
    """Some items of a table, in the order in which they were inserted.

    Attributes:
      keys: Keys of the items, uint64 `[items]`.
      priorities: Priorities of the items, float64 `[items]`.
      times_sampled: Number of times each item was sampled, int32 `[items]`.
      inserted_at: Time at which each item was inserted, uint64 `[items]`, in nanoseconds since 1970.
      columns: Data of the items, one entry per column.
      squeezed: Flag per column that is True if the column has no time axis.
    """

    keys: NDArray[np.uint64]
    priorities: NDArray[np.float64]
    times_sampled: NDArray[np.int32]
    inserted_at: NDArray[np.uint64]
    columns: list[Column]
    squeezed: list[bool]

    def __len__(self) -> int:
        return len(self.keys)


def item_values(column: Column) -> Iterator[NDArray[Any]]:
    """Yields each item's values in a column."""
    if isinstance(column, Ragged):
        end = 0
        for rows in column.row_lengths.tolist():
            yield column.values[end : end + rows]
            end += rows
    elif isinstance(column, np.ndarray) and column.ndim == 1:
        # Plain iteration would yield NumPy scalars instead of arrays of rank 0.
        yield from (column[place, ...] for place in range(len(column)))
    else:
        yield from column


def open_tables(source: CheckpointTable | Client, table: str | None) -> list[CheckpointTable]:
    """Opens a snapshot of all items of a table: a part from each server.

    Args:
      source: A checkpoint's table, or a client, whose servers then save checkpoints, each at its own moment.
      table: Name of the table, required with a client; None uses the checkpoint's table.

    Raises:
      TypeError: `source` is neither a checkpoint's table nor a client.
      ValueError: `table` is missing with a client, or differs from the name of the checkpoint's table.
      UnavailableError: The server saved its checkpoint on another machine.
      StorageError: The checkpoint could not be saved or read.
      TableNotFoundError: The table does not exist.
    """
    if isinstance(source, CheckpointTable):
        if table not in (None, source.name):
            raise ValueError(f"`table` is {table!r}, but the source is table {source.name!r} of a checkpoint.")
        return [source]
    if not isinstance(source, Client):
        raise TypeError(f"`source` must be a Client or a table of a checkpoint, got {type(source).__name__}.")
    if table is None:
        raise ValueError("with a Client, `table` must name the table.")
    paths = source.checkpoint().split("\n")
    for path in paths:
        if not os.path.isdir(path):
            raise UnavailableError(
                f"the server at {source.server_address} saved its checkpoint to {path}, which is not on this machine: "
                "export on the server's machine, or copy the checkpoint here and open it with reverb.checkpointers.open"
            )
    return [open_checkpoint(path, tables=[table], limit_bytes=2**32).table(table) for path in paths]


def items_of(tables: Iterable[CheckpointTable]) -> Iterator[Items]:
    """Yields all items of tables, some megabytes at a time. Items of one portion share dtypes and row shapes."""
    for table in tables:
        yield from _items_of(table)


def _items_of(table: CheckpointTable) -> Iterator[Items]:
    first, count, is_measured = 0, 1, False
    while (read := table._reader.batch(table.name, first, count, False)) is not None:
        fit = max(1, min(_MAX_ITEMS, TARGET_BYTES * len(read) // max(1, sum(map(_bytes_of, read.columns)))))
        if not is_measured:
            # The first read only measures the size of an item.
            count, is_measured = min(fit, 64), True
            continue
        if any(read.has_open_rows):
            # One item at a time has rows of one shape.
            count = 1
            continue
        first += len(read)
        count = min(fit, 2 * count)
        assert read.inserted_at is not None
        info = read.info
        columns: list[Column] = [*read.columns]
        yield Items(info.key, info.priority, info.times_sampled, read.inserted_at, columns, read.squeezed)


def _bytes_of(column: NDArray[Any] | Ragged) -> int:
    values = column.values if isinstance(column, Ragged) else column
    if values.dtype.kind == "O":
        return sum(map(len, values.ravel()))
    return values.nbytes
