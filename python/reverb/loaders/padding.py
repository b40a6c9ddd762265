"""Padding of items of different lengths, so that they fit one array."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb.data.joining import Column
from reverb.replay_sample import Ragged


def pad_column(column: Column, length: int) -> NDArray[Any]:
    """Pads the items of a column at their ends with zeros or empty strings.

    Args:
      column: Array `[batch, time, ...]` or a Ragged, in which no item has more than `length` rows.
      length: Number of rows per item after padding.

    Returns:
      The padded column, `[batch, length, ...]`.
    """
    if isinstance(column, Ragged):
        if bool((column.row_lengths == length).all()):
            return column.values.reshape(len(column), length, *column.values.shape[1:])
        return column.to_padded(length)[0]
    if column.shape[1] == length:
        return column
    shape = (len(column), length, *column.shape[2:])
    padded = np.full(shape, b"", column.dtype) if column.dtype.kind == "O" else np.zeros(shape, column.dtype)
    padded[:, : column.shape[1]] = column
    return padded


def mask_of(rows: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    """A mask of items with so many rows that is True for rows that are not padding, bool `[batch, length]`."""
    mask: NDArray[np.bool_] = np.arange(length) < rows[:, None]
    return mask
