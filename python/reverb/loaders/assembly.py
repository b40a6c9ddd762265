"""From the columns of one or more draws to a batch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reverb.client import Client
from reverb.loaders.batch import Batch
from reverb.loaders.conversion import ToLeaves
from reverb.loaders.fields import Selection, select
from reverb.loaders.mixture import Column, join_columns, join_infos
from reverb.loaders.options import Options
from reverb.loaders.padding import pad_column, rows_of
from reverb.prioritized import importance_weights
from reverb.replay_sample import Ragged, SampleInfo

if TYPE_CHECKING:
    from reverb.pybind import Draw, Sampled

# Makes a named tuple without its constructor written in Python.
_new = tuple.__new__

__all__ = ["Assembly", "Part"]


class Part(NamedTuple):
    """What one table gave for a batch.

    Attributes:
      table: Its number.
      sampled: What the extension's `Draw.result` returned.
      draw: Where it is from.
    """

    table: int
    sampled: "Sampled"
    draw: "Draw"

    @property
    def infos(self) -> tuple[NDArray[Any], ...]:
        """The fields of the infos, each `[items]`."""
        return self.sampled[0]


class Assembly:
    """Puts batches together as the options say.

    Args:
      client: Knows the tables' signatures.
      tables: Names, to which the numbers of parts belong.
      options: What is wanted.
      to_leaves: As `Conversion.columns`.
    """

    def __init__(
        self,
        client: Client,
        tables: list[str],
        options: Options,
        to_leaves: ToLeaves | None = None,
    ) -> None:
        self._client = client
        self._tables = tables
        self._options = options
        self._to_leaves = to_leaves
        self._lengths = options.lengths()
        self._is_single = len(tables) == 1
        # Of a single table the draws have no time axis already, where none is wanted.
        self._is_plain = options.pad_to is None and (self._is_single or not options.squeeze_time)
        self._beta_is_given = options.beta is not None
        # For each table the signature token and number of columns that the selection belongs to.
        self._selections: dict[int, tuple[tuple[int, int], Selection]] = {}

    def batch(self, parts: list[Part], number: int) -> Batch:
        """A batch.

        Args:
          parts: At least one.
          number: Of the batch, for `beta`.

        Raises:
          ValueError: The tables of a mixture do not agree, a field is not there, or an item is longer than `pad_to`.
        """
        if self._is_plain and len(parts) == 1:
            return self._plain_batch(parts[0], number)
        selections = [self._selection(part) for part in parts]
        first = selections[0]
        if any(selection.names != first.names for selection in selections):
            raise ValueError(
                f"the tables of a mixture must have the same columns, got {[list(s.names) for s in selections]}"
            )
        squeezed = [parts[0].sampled[3][column] for column in first.columns]
        columns = [self._column(parts, selections, place, squeezed[place]) for place in range(len(first.columns))]
        mask = None
        if self._options.pad_to is not None:
            columns, masks = self._pad(columns, squeezed, first.names)
            mask = first.pack(self._leaves(masks, first))
        if self._options.squeeze_time:
            columns = [column if flag else _squeeze(column) for column, flag in zip(columns, squeezed, strict=True)]
        info = SampleInfo(*parts[0].infos) if len(parts) == 1 else join_infos([part.infos for part in parts])
        data = first.pack(self._leaves(columns, first))
        return Batch(info, data, self._weights(info, number), mask, self._table_numbers(parts))

    def plain_selection(self, parts: list[Part]) -> Selection | None:
        """What is kept of a batch of the one table, if its columns come as they are; else None."""
        return self._selection(parts[0]) if self._is_plain and self._is_single else None

    def _plain_batch(self, part: Part, number: int) -> Batch:
        """What nearly every batch is: columns as they came."""
        selection = self._selection(part)
        infos, columns, _, _ = part.sampled
        info = _new(SampleInfo, infos)
        chosen = columns if selection.is_all else [columns[column] for column in selection.columns]
        data = selection.pack(self._leaves(chosen, selection))
        weights = self._weights(info, number) if self._beta_is_given else None
        return _new(Batch, (info, data, weights, None, None if self._is_single else self._table_numbers([part])))

    def _leaves(self, columns: Sequence[Any], selection: Selection) -> Sequence[Any]:
        return columns if self._to_leaves is None else self._to_leaves(columns, selection.names)

    def _weights(self, info: SampleInfo, number: int) -> NDArray[np.float32] | None:
        beta = self._options.beta_of(number)
        return None if beta is None else importance_weights(info, beta)

    def _column(self, parts: list[Part], selections: list[Selection], place: int, squeezed: bool) -> Column:
        columns = [part.sampled[1][selection.columns[place]] for part, selection in zip(parts, selections, strict=True)]
        return join_columns(columns, squeezed, selections[0].names[place])

    def _pad(
        self, columns: list[Column], squeezed: list[bool], names: list[str]
    ) -> tuple[list[Column], list[NDArray[np.bool_] | None]]:
        timed = [place for place, flag in enumerate(squeezed) if not flag]
        longest = max((int(rows_of(columns[place]).max(initial=0)) for place in timed), default=0)
        length = next((length for length in self._lengths if length >= longest), longest)
        if self._lengths and length > self._lengths[-1]:
            name = next(names[place] for place in timed if int(rows_of(columns[place]).max()) == longest)
            raise ValueError(f"column {name}: an item has {longest} rows, `pad_to` allows {self._lengths[-1]}.")
        padded = list(columns)
        masks: list[NDArray[np.bool_] | None] = [None] * len(columns)
        for place in timed:
            padded[place], masks[place] = pad_column(columns[place], length)
        return padded, masks

    def _table_numbers(self, parts: list[Part]) -> NDArray[np.int32] | None:
        if self._is_single:
            return None
        return np.concatenate([np.full(len(part.infos[0]), part.table, np.int32) for part in parts])

    def _selection(self, part: Part) -> Selection:
        _, columns, token, _ = part.sampled
        form = (token, len(columns))
        known = self._selections.get(part.table)
        if known is None or known[0] != form:
            pack = self._client._packer(self._tables[part.table], token)
            known = (form, select(pack(list(range(len(columns)))), self._options.fields))
            self._selections[part.table] = known
        return known[1]


def _squeeze(column: Column) -> Column:
    """Without the time axis, if it is 1 in all items."""
    if isinstance(column, Ragged) or column.shape[1] != 1:
        return column
    return column.reshape(len(column), *column.shape[2:])
