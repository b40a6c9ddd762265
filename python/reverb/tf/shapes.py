"""Arranges batches for TensorFlow, which splits them into items or steps."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reverb.errors import InvalidArgumentError
from reverb.replay_sample import Ragged

if TYPE_CHECKING:
    from reverb._binding import SampledBatch

Arrays = list[NDArray[Any]]


def items(sampled: "SampledBatch") -> list[Arrays]:
    """Returns infos and columns, `[items, ...]`. Items of different lengths are grouped in runs of equal length."""
    infos, columns = sampled.info, sampled.columns
    ragged = [column.row_lengths for column in columns if isinstance(column, Ragged)]
    if not ragged:
        return [[*infos, *columns]]
    changes = np.zeros(len(sampled), bool)
    changes[0] = True
    for lengths in ragged:
        changes[1:] |= lengths[1:] != lengths[:-1]
    starts = np.flatnonzero(changes).tolist()
    ends = [*starts[1:], len(changes)]
    cut = [_cutter(column) for column in columns]
    return [
        [*(field[start:end] for field in infos), *(of(start, end) for of in cut)]
        for start, end in zip(starts, ends, strict=True)
    ]


def _cutter(column: NDArray[Any] | Ragged) -> Any:
    """Makes a function that returns the array of a run of items, which all have the same length."""
    if not isinstance(column, Ragged):
        return lambda start, end: column[start:end]
    values, lengths = column
    offsets = _offsets(lengths)

    def cut(start: int, end: int) -> NDArray[Any]:
        return values[offsets[start] : offsets[end]].reshape(end - start, int(lengths[start]), *values.shape[1:])

    return cut


def slices(sampled: "SampledBatch", sliced: list[bool]) -> list[Arrays]:
    """Returns a batch in two halves, one of which is empty.

    The first half holds batches whose items all have the same lengths, as infos and columns `[items, ...]`. The second
    half holds other batches, as infos and, for each column, its values. For a sliced column the offsets follow at which
    each item begins and ends in the values.

    Args:
      sampled: Batch that was sampled.
      sliced: Flag per column that is True if the column's items have an unknown length.

    Raises:
      InvalidArgumentError: A column that is not sliced has items of different lengths.
    """
    infos, columns = sampled.info, sampled.columns
    dense = [column for column in columns if not isinstance(column, Ragged)]
    if len(dense) == len(columns):
        nothing: Arrays = [field[:0] for field in infos]
        for even_column, flag in zip(dense, sliced, strict=True):
            values = even_column[:0]
            nothing += [values.reshape(0, *values.shape[2:]), np.zeros(1, np.int64)] if flag else [values]
        return [[*infos, *dense, *nothing]]
    even: Arrays = [field[:0] for field in infos]
    uneven: Arrays = list(infos)
    for index, (column, flag) in enumerate(zip(columns, sliced, strict=True)):
        if not isinstance(column, Ragged):
            even.append(column[:0])
            rows = column.reshape(-1, *column.shape[2:]) if flag else column
            uneven += [rows, np.arange(len(column) + 1) * column.shape[1]] if flag else [rows]
            continue
        if not flag:
            raise InvalidArgumentError(
                f"column {index}: its items have different lengths, {sorted(set(column.row_lengths.tolist()))}"
            )
        even.append(np.empty((0, 0, *column.values.shape[1:]), column.values.dtype))
        uneven += [column.values, _offsets(column.row_lengths)]
    return [even + uneven]


def steps(sampled: "SampledBatch") -> list[Arrays]:
    """Returns the infos and columns of all steps of all items, `[steps, ...]`.

    Raises:
      InvalidArgumentError: An item's columns differ in length.
    """
    count = len(sampled)
    infos: Arrays = list(sampled.info)
    flat, lengths = [], None
    for column, flag in zip(sampled.columns, sampled.squeezed, strict=True):
        if isinstance(column, Ragged):
            values, rows = column
        elif flag:
            values, rows = column, np.ones(count, np.int64)
        else:
            values = column.reshape(count * column.shape[1], *column.shape[2:])
            rows = np.full(count, column.shape[1])
        flat.append(values)
        if lengths is not None and not np.array_equal(rows, lengths):
            raise InvalidArgumentError("Sampled trajectory cannot be decomposed into timesteps.")
        lengths = rows
    if lengths is not None and (lengths != 1).any():
        infos = [np.repeat(field, lengths) for field in infos]
    return [[*infos, *flat]]


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])
