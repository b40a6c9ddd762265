"""Cuts a batch into its items, or these into their steps. Hot: what can be done once a batch is done once a batch."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any

from numpy.typing import NDArray

from reverb.replay_sample import Ragged, ReplaySample, SampleInfo

__all__ = ["steps", "whole"]

Column = NDArray[Any] | Ragged
Infos = tuple[NDArray[Any], ...]
Pack = Callable[[Any], Any]

_new = tuple.__new__


def whole(infos: Infos, columns: Sequence[Column], squeezed: Sequence[bool], pack: Pack) -> Iterator[ReplaySample]:
    """The items of a batch.

    Args:
      infos: The fields of the infos, each `[batch]`.
      columns: Stacked, `[batch, time, ...]` or ragged.
      squeezed: Unused: a column without time axis is `[batch, ...]`.
      pack: From the sequence of an item's arrays to its data.

    Yields:
      One sample an item.
    """
    rows = zip(*map(_per_item, columns), strict=True)
    for info, row in zip(_infos(infos), rows, strict=True):
        yield _new(ReplaySample, (info, pack(row)))


def steps(
    infos: Infos, columns: Sequence[Column], squeezed: Sequence[bool], pack: Pack
) -> Iterator[list[ReplaySample]]:
    """The items of a batch, each cut into its steps.

    Args:
      infos: As above.
      columns: As above.
      squeezed: Which columns have no time axis.
      pack: From the sequence of a step's arrays to its data.

    Yields:
      For each item the list of its steps.

    Raises:
      ValueError: The columns of the item that is to come differ in length, or one has no time axis.
    """
    if any(squeezed):
        _refuse()
    lengths, num_even = _lengths(infos, columns)
    rows = zip(*map(_per_step, columns), strict=False)
    for info, length in zip(_infos(infos), lengths[:num_even], strict=False):
        if length == 1:
            yield [_new(ReplaySample, (info, pack(next(rows))))]
        else:
            yield [_new(ReplaySample, (info, pack(row))) for _, row in zip(range(length), rows, strict=False)]
    if num_even < len(lengths):
        _refuse()


def _refuse() -> None:
    raise ValueError("Can't split non timestep trajectory into timesteps.")


def _infos(infos: Infos) -> Iterator[SampleInfo]:
    return map(_new, repeat(SampleInfo), zip(*(field.tolist() for field in infos), strict=True))


def _lengths(infos: Infos, columns: Sequence[Column]) -> tuple[list[int], int]:
    """The number of steps of each item, and how many items come before the first whose columns differ in it."""
    batch = len(infos[0])
    first, *others = [_row_lengths(column, batch) for column in columns]
    num_even = batch
    for other in others:
        if other != first:
            num_even = min(num_even, next(i for i in range(batch) if first[i] != other[i]))
    return first, num_even


def _row_lengths(column: Column, batch: int) -> list[int]:
    if isinstance(column, Ragged):
        lengths: list[int] = column.row_lengths.tolist()
        return lengths
    return [column.shape[1]] * batch


def _per_item(column: Column) -> list[Any]:
    if isinstance(column, Ragged):
        ends = list(accumulate(column.row_lengths.tolist()))
        values = column.values
        return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return _rows(column)


def _per_step(column: Column) -> list[Any]:
    if isinstance(column, Ragged):
        return _rows(column.values)
    return _rows(column.reshape(column.shape[0] * column.shape[1], *column.shape[2:]))


def _rows(array: NDArray[Any]) -> list[Any]:
    """Views of the rows: arrays even where they are scalars, which plain iteration would turn into numpy scalars."""
    if array.ndim > 1:
        return list(array)
    return [array[position, ...] for position in range(len(array))]
