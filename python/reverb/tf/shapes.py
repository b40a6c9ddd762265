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
    has_time = [is_open and not flag for is_open, flag in zip(sampled.has_open_rows, sampled.squeezed, strict=True)]
    return _runs(sampled, sampled.columns, has_time)


def _runs(sampled: "SampledBatch", columns: list[NDArray[Any] | Ragged], has_time: list[bool]) -> list[Arrays]:
    """Infos and columns of runs of items with equal lengths. Flagged columns get a time axis of one step."""
    infos = sampled.info
    ragged = [column.row_lengths for column in columns if isinstance(column, Ragged)]
    if not ragged:
        return [[*infos, *(column for column in columns if not isinstance(column, Ragged))]]
    changes = np.zeros(len(sampled), bool)
    changes[0] = True
    for lengths in ragged:
        changes[1:] |= lengths[1:] != lengths[:-1]
    starts = np.flatnonzero(changes).tolist()
    ends = [*starts[1:], len(changes)]
    cut = [_cutter(column, flag) for column, flag in zip(columns, has_time, strict=True)]
    return [
        [*(field[start:end] for field in infos), *(of(start, end) for of in cut)]
        for start, end in zip(starts, ends, strict=True)
    ]


def _cutter(column: NDArray[Any] | Ragged, has_time: bool) -> Any:
    """Makes a function that returns the array of a run of items, which all have the same length."""
    if not isinstance(column, Ragged):
        return lambda start, end: column[start:end]
    values, lengths = column
    offsets = _offsets(lengths)

    def cut(start: int, end: int) -> NDArray[Any]:
        outer = (end - start, 1) if has_time else (end - start,)
        return values[offsets[start] : offsets[end]].reshape(*outer, int(lengths[start]), *values.shape[1:])

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
    if any(sampled.has_open_rows):
        runs = items(sampled)
        return [[*run, *_nothing(run[: len(sampled.info)], run[len(sampled.info) :], sliced)] for run in runs]
    infos, columns = sampled.info, sampled.columns
    dense = [column for column in columns if not isinstance(column, Ragged)]
    if len(dense) == len(columns):
        return [[*infos, *dense, *_nothing(list(infos), dense, sliced)]]
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


def _nothing(infos: Arrays, columns: Arrays, sliced: list[bool]) -> Arrays:
    """The second half of a batch whose items are all in the first."""
    nothing: Arrays = [field[:0] for field in infos]
    for column, flag in zip(columns, sliced, strict=True):
        values = column[:0]
        nothing += [values.reshape(0, *values.shape[2:]), np.zeros(1, np.int64)] if flag else [values]
    return nothing


def steps(sampled: "SampledBatch") -> list[Arrays]:
    """Returns the infos and columns of all steps of all items, `[steps, ...]`.

    Raises:
      InvalidArgumentError: An item's columns differ in length.
    """
    if any(sampled.has_open_rows):
        return _open_steps(sampled)
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


def _open_steps(sampled: "SampledBatch") -> list[Arrays]:
    """The infos and columns of items of one step each, in runs of equal lengths."""
    columns: list[NDArray[Any] | Ragged] = []
    for column, flag, is_open in zip(sampled.columns, sampled.squeezed, sampled.has_open_rows, strict=True):
        if is_open or flag:
            columns.append(column)
        elif isinstance(column, Ragged) or column.shape[1] != 1:
            raise InvalidArgumentError("Sampled trajectory cannot be decomposed into timesteps.")
        else:
            columns.append(column[:, 0])
    return _runs(sampled, columns, [False] * len(columns))


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])
