"""Which columns of a table a client reads by keys, and what it makes samples of them with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reverb._binding import BatchMaker
from reverb.data.items import sample_maker
from reverb.data.joining import Part

# Columns as keys or paths of a signature, or as numbers; None: all of them.
Columns = tuple[Any, ...] | None

# Number of sets of columns whose makers a client keeps. Programs ask for few; one that asks for ever new ones must not
# fill the memory.
_MAX_CHOSEN = 256

# Makes samples whose data are flat lists of columns.
flat_maker = sample_maker(None)


class Chosen(NamedTuple):
    """Columns of a table with one signature.

    Attributes:
      token: Token of the signature; 0 if the table has none.
      numbers: Numbers of the columns; none for all.
      maker: Maker of samples of these columns.
    """

    token: int
    numbers: list[int]
    maker: BatchMaker

    def fits(self, parts: Sequence[Part]) -> bool:
        """Whether items that were read have this signature."""
        return all(batch.signature_token == self.token for _, batch in parts)


_FLAT = Chosen(0, [], flat_maker)


def as_columns(columns: Sequence[Any] | None) -> Columns:
    """Columns as a client looks them up; a str is one column."""
    return (columns,) if isinstance(columns, str) else None if columns is None else tuple(columns)


class ChosenColumns:
    """What a client has chosen, by table and columns."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Columns], Chosen] = {}

    def known(self, table: str, columns: Columns) -> Chosen | None:
        """What was chosen last. Before that, None for single columns, and for all those of a table without a signature.

        Args:
          table: Name of the table.
          columns: Keys, paths or numbers of the columns; None for all of them.
        """
        return self._known.get((table, columns), _FLAT if columns is None else None)

    def keep(self, table: str, columns: Columns, chosen: Chosen) -> None:
        """Keeps what was chosen of a table, whose items have its signature.

        Args:
          table: Name of the table.
          columns: Keys, paths or numbers of the columns; None for all of them.
          chosen: Their numbers and maker.
        """
        if len(self._known) >= _MAX_CHOSEN:
            self._known.clear()
        self._known[table, columns] = chosen
