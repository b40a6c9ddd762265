"""The shares of several tables in batches that mix their items."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

# Numbers of items that differ by less than 1e-9 are equal: weights are floats.
_DIGITS = 9


class Shares:
    """Decides how many items of each batch come from each table.

    Args:
      tables: Name of a table, or a mapping from names to positive weights.
      kind: `exact`: each table has its share of every batch, rounded up or down, and of all batches together. `random`:
        the table of each item is drawn by weight.
      seed: Seed of random shares; None takes one from the operating system.

    Raises:
      TypeError: `tables` is neither a name nor a mapping.
      ValueError: The mapping is empty, or a weight is not positive.
    """

    def __init__(self, tables: str | Mapping[str, float], kind: str = "exact", seed: int | None = None) -> None:
        if isinstance(tables, str):
            tables = {tables: 1.0}
        if not isinstance(tables, Mapping):
            raise TypeError(f"`table` must be a name, or weights by name, got {tables!r} ({type(tables).__name__}).")
        weights = np.array([float(weight) for weight in tables.values()])
        if not len(weights) or not np.isfinite(weights).all() or not (weights > 0).all():
            raise ValueError(f"`table` must name at least one table, with positive weights, got {dict(tables)!r}.")
        self.tables = [str(name) for name in tables]
        self._shares = weights / weights.sum()
        self._is_exact = kind == "exact"
        self._random = np.random.default_rng(seed)
        # How many items each table has had too few so far; negative where it has had too many. The sum is 0.
        self._owed = np.zeros(len(weights))

    def draw(self, batch_size: int) -> list[tuple[int, int]]:
        """The shares of the next batch: pairs of a table's number and its count of items, which is not 0."""
        if len(self.tables) == 1:
            return [(0, batch_size)]
        counts = self._exact(batch_size) if self._is_exact else self._random.multinomial(batch_size, self._shares)
        return [(table, int(count)) for table, count in enumerate(counts) if count]

    def take_back(self, shares: list[tuple[int, int]]) -> None:
        """Forgets the shares of a batch that nobody gets, which later batches then make up for."""
        if len(self.tables) > 1 and self._is_exact:
            self._owed -= self._shares * sum(count for _, count in shares)
            for table, count in shares:
                self._owed[table] += count

    def _exact(self, batch_size: int) -> NDArray[np.int64]:
        wanted = self._shares * batch_size
        counts: NDArray[np.int64] = np.floor(wanted.round(_DIGITS)).astype(np.int64)
        owed = self._owed + wanted - counts
        # What is left goes to the tables that have had too few, one item each. The first of equal ones takes it.
        most_owed = np.argsort(-owed.round(_DIGITS), kind="stable")[: batch_size - int(counts.sum())]
        counts[most_owed] += 1
        self._owed += wanted - counts
        return counts
