"""Batches that mix items of several tables."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb.loaders.padding import rows_of
from reverb.replay_sample import Ragged, SampleInfo

Column = NDArray[Any] | Ragged

__all__ = ["Shares", "join_columns", "join_infos"]


class Shares:
    """Decides how many items of each batch come from each table.

    Args:
      tables: Name of a table, or a mapping from names to positive weights.
      seed: Seed of the draws of shares; None takes one from the operating system.

    Raises:
      TypeError: `tables` is neither a name nor a mapping.
      ValueError: The mapping is empty, or a weight is not positive.
    """

    def __init__(self, tables: str | Mapping[str, float], seed: int | None = None) -> None:
        if isinstance(tables, str):
            tables = {tables: 1.0}
        if not isinstance(tables, Mapping):
            raise TypeError(f"`table` must be a name, or weights by name, got {tables!r} ({type(tables).__name__}).")
        weights = np.array([float(weight) for weight in tables.values()])
        if not len(weights) or not np.isfinite(weights).all() or not (weights > 0).all():
            raise ValueError(f"`table` must name at least one table, with positive weights, got {dict(tables)!r}.")
        self.tables = [str(name) for name in tables]
        self._shares = weights / weights.sum()
        self._random = np.random.default_rng(seed)

    def draw(self, batch_size: int) -> list[tuple[int, int]]:
        """Draws pairs of a table's number and its count of items. Each item comes from a table by its weight."""
        if len(self.tables) == 1:
            return [(0, batch_size)]
        counts = self._random.multinomial(batch_size, self._shares)
        return [(table, int(count)) for table, count in enumerate(counts) if count]


def join_infos(infos: list[SampleInfo]) -> SampleInfo:
    """Concatenates the infos of several draws."""
    return SampleInfo(*(np.concatenate(fields) for fields in zip(*infos, strict=True)))


def join_columns(columns: list[Column], squeezed: bool, name: str) -> Column:
    """Concatenates one column of several draws. The result is a Ragged if items differ in length.

    Args:
      columns: The column in each draw, an array or a Ragged.
      squeezed: Whether the column has no time axis.
      name: Path of the column, for error messages.

    Raises:
      ValueError: The draws differ in the column's dtype or in the shape of its rows.
    """
    if len(columns) == 1:
        return columns[0]
    rows = [_rows(column, squeezed) for column in columns]
    kinds = {f"{row.dtype}{list(row.shape[1:])}" for row in rows}
    if len(kinds) > 1:
        raise ValueError(
            f"column {name}: the tables of a mixture must have the same dtype and row shape, got {sorted(kinds)}."
        )
    plain = [column for column in columns if not isinstance(column, Ragged)]
    if len(plain) == len(columns) and len({column.shape[1:] for column in plain}) == 1:
        return np.concatenate(plain)
    return Ragged(np.concatenate(rows), np.concatenate([rows_of(column) for column in columns]))


def _rows(column: Column, squeezed: bool) -> NDArray[Any]:
    """The concatenated rows of all items."""
    if isinstance(column, Ragged):
        return column.values
    return column if squeezed else column.reshape(-1, *column.shape[2:])
