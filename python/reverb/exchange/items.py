"""Items between tables and files, some at a time."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reverb.checkpoint_reader import CheckpointTable
from reverb.checkpoint_reader import open as open_checkpoint
from reverb.client import Client
from reverb.errors import UnavailableError
from reverb.replay_sample import Ragged

__all__ = ["Column", "Items", "item_values", "items_of", "open_table"]

# `[items, time, ...]`, or `[items, ...]` without a time axis; ragged where items differ in length; or an array for each
# item where they differ in more than that.
Column: TypeAlias = "NDArray[Any] | Ragged | list[NDArray[Any]]"

# Bytes of data that are held at once; a single larger item is, too.
TARGET_BYTES = 16 << 20
_MOST_ITEMS = 8192


class Items(NamedTuple):
    """Some items of a table, in the order in which they were inserted.

    Attributes:
      keys: uint64 `[items]`.
      priorities: float64 `[items]`.
      times_sampled: int32 `[items]`.
      inserted_at: uint64 `[items]`, nanoseconds since 1970.
      columns: The data.
      squeezed: Which columns have no time axis.
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
    """The values of each item of a column."""
    if isinstance(column, Ragged):
        end = 0
        for rows in column.row_lengths.tolist():
            yield column.values[end : end + rows]
            end += rows
    elif isinstance(column, np.ndarray) and column.ndim == 1:
        # Arrays even where they are scalars, for which iteration would give numpy scalars.
        yield from (column[place, ...] for place in range(len(column)))
    else:
        yield from column


def open_table(source: CheckpointTable | Client, table: str | None) -> CheckpointTable:
    """All items of a table as they are at one moment.

    Args:
      source: A checkpoint's table; or a client, whose server then saves a checkpoint.
      table: Its name, with a client.

    Raises:
      TypeError: Another kind of source.
      ValueError: A name with a checkpoint's table, or none with a client.
      UnavailableError: The server is on another machine, where its checkpoint is, too.
      StorageError, TableNotFoundError: As `Client.checkpoint` and `reverb.checkpointers.open`.
    """
    if isinstance(source, CheckpointTable):
        if table not in (None, source.name):
            raise ValueError(f"`table` is {table!r}, but the source is the table {source.name!r} of a checkpoint.")
        return source
    if not isinstance(source, Client):
        raise TypeError(f"the source must be a Client or a table of a checkpoint, got {type(source).__name__}.")
    if table is None:
        raise ValueError("with a Client, `table` must name the table.")
    path = source.checkpoint()
    if not os.path.isdir(path):
        raise UnavailableError(
            f"the server at {source.server_address} saved its tables to {path}, which is not on this machine: export "
            "there, or bring the checkpoint here and open it with reverb.checkpointers.open"
        )
    return open_checkpoint(path, tables=[table], limit_bytes=2**32).table(table)


def items_of(table: CheckpointTable) -> Iterator[Items]:
    """All items of a table, some megabytes at a time. All items of one portion have the same dtypes and row shapes."""
    first, count = 0, 1
    while (read := table._reader.batch(table.name, first, count, False)) is not None:
        (infos, columns, _, squeezed), inserted_at = read
        fit = max(1, min(_MOST_ITEMS, TARGET_BYTES * len(infos[0]) // max(1, sum(map(_bytes_of, columns)))))
        if first == 0 and count == 1 and fit > 1 and len(table) > 1:
            # That was only to see how large an item is.
            count = min(fit, 64)
            continue
        first += len(infos[0])
        count = min(fit, 2 * count)
        keys, _, _, priorities, times_sampled = infos
        yield Items(keys, priorities, times_sampled, inserted_at, list(columns), list(squeezed))


def _bytes_of(column: NDArray[Any] | Ragged) -> int:
    values = column.values if isinstance(column, Ragged) else column
    if values.dtype.kind == "O":
        return sum(map(len, values.ravel()))
    return values.nbytes
