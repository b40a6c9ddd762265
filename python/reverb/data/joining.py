"""Joins several batches into one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb import _binding
from reverb.replay_sample import INFO_DTYPES, BatchInfo, Ragged, ReplaySample

Column = NDArray[Any] | Ragged

# Places of keys among those that were asked for, and the items of these keys.
Part = tuple[NDArray[np.uint32], _binding.SampledBatch]


def rows_of(column: Column) -> NDArray[np.int64]:
    """The number of rows of each item in a column with a time axis, int64 `[batch]`."""
    if isinstance(column, Ragged):
        return column.row_lengths
    return np.full(len(column), column.shape[1], np.int64)


def join_infos(infos: list[BatchInfo]) -> BatchInfo:
    """Concatenates the infos of several batches."""
    return BatchInfo(*(np.concatenate(fields) for fields in zip(*infos, strict=True)))


def join_columns(columns: list[Column], squeezed: bool, name: str, of: str) -> Column:
    """Concatenates one column of several batches. The result is a Ragged if items differ in length.

    Args:
      columns: The column in each batch, an array or a Ragged.
      squeezed: Whether the column has no time axis.
      name: Path of the column, for error messages.
      of: Where the batches are from, for error messages.

    Raises:
      ValueError: The batches differ in the column's dtype or in the shape of its rows.
    """
    if len(columns) == 1:
        return columns[0]
    rows = [_rows(column, squeezed) for column in columns]
    kinds = {f"{row.dtype}{list(row.shape[1:])}" for row in rows}
    if len(kinds) > 1:
        raise ValueError(f"column {name}: {of} must have the same dtype and row shape, got {sorted(kinds)}.")
    plain = [column for column in columns if not isinstance(column, Ragged)]
    if len(plain) == len(columns) and len({column.shape[1:] for column in plain}) == 1:
        return np.concatenate(plain)
    return Ragged(np.concatenate(rows), np.concatenate([rows_of(column) for column in columns]))


def _rows(column: Column, squeezed: bool) -> NDArray[Any]:
    """The concatenated rows of all items."""
    if isinstance(column, Ragged):
        return column.values
    return column if squeezed else column.reshape(-1, *column.shape[2:])


def join_parts(
    parts: list[Part], maker: _binding.BatchMaker, num_keys: int
) -> tuple[ReplaySample[BatchInfo], NDArray[np.bool_]]:
    """The items that were found by their keys, in the order of the keys.

    Args:
      parts: Items of several servers, or of more data than one answer has; of several items of a key, the first counts.
      maker: Maker of samples of the table.
      num_keys: Number of keys that were asked for.

    Returns:
      The items, whose data are None if there are none, and bools `[num_keys]` that mark the keys that were found.

    Raises:
      ValueError: The parts cannot be stacked.
    """
    found = np.zeros(num_keys, np.bool_)
    for places, _ in parts:
        found[places] = True
    if not parts:
        return ReplaySample(BatchInfo(*(np.zeros(0, dtype) for dtype in INFO_DTYPES)), None), found
    if len(parts) == 1:
        return maker.sample(parts[0][1]), found
    batches = [batch for _, batch in parts]
    _, order = np.unique(np.concatenate([places for places, _ in parts]), return_index=True)
    info = BatchInfo(*(field[order] for field in join_infos([batch.info for batch in batches])))
    columns = []
    for number, column in enumerate(zip(*(maker.columns(batch) for batch in batches), strict=True)):
        squeezed = batches[0].squeezed[number]
        alike = _alike(list(column), squeezed, any(batch.has_open_rows[number] for batch in batches))
        joined = join_columns(alike, squeezed, str(number), "items that are read together")
        columns.append(_in_order(joined, order))
    return ReplaySample(info, maker.data(columns)), found


def _alike(columns: list[Column], squeezed: bool, has_open_rows: bool) -> list[Column]:
    """The columns, each as a Ragged if the items of one step in all of them have rows that differ in length."""
    outer = 1 if squeezed else 2
    lengths = {column.shape[outer:] for column in columns if not isinstance(column, Ragged)}
    if not has_open_rows and len(lengths) < 2:
        return columns
    return [_opened(column, outer) for column in columns]


def _opened(column: Column, outer: int) -> Column:
    if isinstance(column, Ragged) or column.ndim <= outer or (outer == 2 and column.shape[1] != 1):
        return column
    count, length = len(column), column.shape[outer]
    values = column.reshape(count * length, *column.shape[outer + 1 :])
    return Ragged(values, np.full(count, length, np.int64))


def _in_order(column: Column, order: NDArray[np.intp]) -> Column:
    if not isinstance(column, Ragged):
        return column[order]
    rows = column.split()
    return Ragged(np.concatenate([rows[place] for place in order.tolist()]), column.row_lengths[order])
