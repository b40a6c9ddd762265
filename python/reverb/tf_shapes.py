"""How batches look on their way to TensorFlow, which cuts them up into items or steps."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reverb.errors import InvalidArgumentError
from reverb.replay_sample import Ragged

if TYPE_CHECKING:
    from reverb.pybind import Sampled

__all__ = ["Arrays", "items", "slices", "steps"]

Arrays = list[NDArray[Any]]


def items(sampled: "Sampled") -> list[Arrays]:
    """Infos and columns, `[items, ...]`. Items of different lengths come in runs of the same length."""
    infos, columns, _, _ = sampled
    ragged = [column.row_lengths for column in columns if isinstance(column, Ragged)]
    if not ragged:
        return [[*infos, *columns]]  # type: ignore[list-item]
    changes = np.zeros(len(infos[0]), bool)
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
    """From a run of items, all of one length, to their array."""
    if not isinstance(column, Ragged):
        return lambda start, end: column[start:end]
    values, lengths = column
    offsets = _offsets(lengths)

    def cut(start: int, end: int) -> NDArray[Any]:
        return values[offsets[start] : offsets[end]].reshape(end - start, int(lengths[start]), *values.shape[1:])

    return cut


def slices(sampled: "Sampled", sliced: list[bool]) -> list[Arrays]:
    """Two halves, of which one is empty.

    The first is as of `items`, where all have the same lengths. The second is the infos, and for each column its values
    and, if it is `sliced`, where each item's begin and end in them.

    Args:
      sampled: A batch.
      sliced: Which columns are of unknown length.

    Raises:
      InvalidArgumentError: A column that is not sliced has items of different lengths.
    """
    infos, columns, _, _ = sampled
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


def steps(sampled: "Sampled") -> list[Arrays]:
    """Infos and columns of all steps of all items, `[steps, ...]`.

    Raises:
      InvalidArgumentError: An item's columns differ in length.
    """
    infos, columns, _, squeezed = sampled
    count = len(infos[0])
    flat, lengths = [], None
    for column, flag in zip(columns, squeezed, strict=True):
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
        infos = tuple(np.repeat(field, lengths) for field in infos)  # type: ignore[assignment]
    return [[*infos, *flat]]


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])
