"""Padding of items of different lengths, so that they fit one array."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb.replay_sample import Ragged

__all__ = ["pad_column", "rows_of"]

Column = NDArray[Any] | Ragged


def rows_of(column: Column) -> NDArray[np.int64]:
    """The number of rows of each item in a column with a time axis, int64 `[batch]`."""
    if isinstance(column, Ragged):
        return column.row_lengths
    return np.full(len(column), column.shape[1], np.int64)


def pad_column(column: Column, length: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Pads the items of a column at their ends with zeros or empty strings.

    Args:
      column: Array `[batch, time, ...]` or a Ragged, in which no item has more than `length` rows.
      length: Number of rows per item after padding.

    Returns:
      The padded column, `[batch, length, ...]`, and a mask that is True for rows that are not padding, bool
      `[batch, length]`.
    """
    rows = rows_of(column)
    mask = np.arange(length) < rows[:, None]
    if not isinstance(column, Ragged):
        if column.shape[1] == length:
            return column, mask
        padded = _empty((len(column), length, *column.shape[2:]), column.dtype)
        padded[:, : column.shape[1]] = column
        return padded, mask
    padded = _empty((len(rows), length, *column.values.shape[1:]), column.values.dtype)
    # Rows are stored item by item, which is the order in which assignment through a mask fills them.
    padded[mask] = column.values
    return padded, mask


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.full(shape, b"", dtype) if dtype.kind == "O" else np.zeros(shape, dtype)
