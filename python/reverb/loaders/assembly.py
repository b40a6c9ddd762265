"""Puts batches together from the columns of one or more draws."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reverb._binding import BatchMaker, Draw, SampledBatch
from reverb.aio.tables import info_of
from reverb.aio.waits import result
from reverb.client import LOOK_UP_SECONDS, Client
from reverb.data.fields import Selection, select
from reverb.data.joining import Column, join_columns, join_infos, rows_of
from reverb.loaders.batch import Batch
from reverb.loaders.conversion import Conversion
from reverb.loaders.options import Options
from reverb.loaders.padding import mask_of, pad_column
from reverb.prioritized import importance_weights
from reverb.replay_sample import Ragged


class Part(NamedTuple):
    """The items of a batch that come from one table.

    Attributes:
      table: The number of the table.
      sampled: The items, stacked column by column.
      draw: The draw that gave them, which has not been received yet.
    """

    table: int
    sampled: SampledBatch
    draw: Draw


class _Kept(NamedTuple):
    """What is kept of a table's batches of one structure.

    Attributes:
      selection: The columns that are kept.
      maker: The maker of batches of these columns.
      num_columns: The number of all columns.
    """

    selection: Selection
    maker: BatchMaker
    num_columns: int


class Assembly:
    """Puts batches together as the options say.

    Args:
      client: A client, which knows the signatures of the tables.
      tables: The names of the tables, indexed by the numbers in parts.
      options: The options of the loader.
      conversion: The conversion of NumPy's arrays to those of a framework.
    """

    def __init__(
        self,
        client: Client,
        tables: list[str],
        options: Options,
        conversion: Conversion,
    ) -> None:
        self._client = client
        self._tables = tables
        self._options = options
        self._conversion = conversion
        self._lengths = options.lengths()
        self._is_single = len(tables) == 1
        # If `squeeze_time` is set, draws from a single table have no time axis.
        self._is_plain = options.pad_to is None and (self._is_single or not options.squeeze_time)
        # By the number of the table.
        self._kept: dict[int, _Kept] = {}

    def batch(self, parts: list[Part], number: int) -> Any:
        """A batch as the conversion makes it.

        Args:
          parts: The parts of the batch, at least one.
          number: The number of the batch, from which `beta` is computed.

        Raises:
          ValueError: The tables of a mixture do not agree, a field is not there, or an item is longer than `pad_to`.
        """
        beta = self._options.beta_of(number)
        if self._is_plain and len(parts) == 1:
            # Nearly every batch takes this way: its columns stay as they are.
            maker = self._keep(parts[0]).maker
            return maker.batch(parts[0].sampled, beta=beta, table=self._table_numbers(parts))
        batch = self._joined(parts, beta)
        return batch if self._conversion.batch is None else self._conversion.batch(batch)

    async def look_up(self, parts: list[Part]) -> None:
        """Asks the server for the signatures that `batch` needs for these parts, and does not know."""
        for part in parts:
            token, table = part.sampled.signature_token, self._tables[part.table]
            if self._client.known_maker(table, token) is None:
                tables = await result(self._client.calls.tables(LOOK_UP_SECONDS)) if token else None
                self._client.keep_maker(table, token, info_of(tables, table) if tables else None)

    def plain_maker(self, parts: list[Part]) -> BatchMaker | None:
        """The maker of all batches of the one table; None if batches need more than a maker."""
        if not (self._is_plain and self._is_single):
            return None
        kept = self._keep(parts[0])
        # Without a signature the next items may have other columns, and selected ones may be missing.
        return kept.maker if kept.maker.signature_token or kept.selection.is_all else None

    def _joined(self, parts: list[Part], beta: float | None) -> Batch:
        """A batch of one or more draws, padded if `pad_to` is set."""
        kept = [self._keep(part) for part in parts]
        selections = [part.selection for part in kept]
        first, maker = selections[0], kept[0].maker
        if any(selection.names != first.names for selection in selections):
            raise ValueError(
                f"the tables of a mixture must have the same columns, got {[list(s.names) for s in selections]}"
            )
        all_squeezed = parts[0].sampled.squeezed
        squeezed = [all_squeezed[column] for column in first.columns]
        columns_of = [of.maker.columns(part.sampled) for part, of in zip(parts, kept, strict=True)]
        places = zip(zip(*columns_of, strict=True), squeezed, first.names, strict=True)
        columns = [join_columns(list(column), flag, name, "the tables of a mixture") for column, flag, name in places]
        mask = None
        if self._options.pad_to is not None:
            is_row = any(_has_open_rows(part, of) for part, of in zip(parts, kept, strict=True))
            columns, rows, length = self._pad(columns, [is_row or flag for flag in squeezed], first.names)
            if self._options.mask_per_column:
                masks = [mask_of(rows[place], length) if place in rows else None for place in range(len(columns))]
                mask = maker.data(masks)
            elif rows:
                mask = self._converted_mask(mask_of(_shared_rows(rows, first.names), length))
        if self._options.squeeze_time:
            columns = [column if flag else _squeeze(column) for column, flag in zip(columns, squeezed, strict=True)]
        infos = [part.sampled.info for part in parts]
        info = infos[0] if len(infos) == 1 else join_infos(infos)
        weights = None if beta is None else importance_weights(info, beta)
        return Batch(info, maker.data(columns), weights, mask, self._table_numbers(parts))

    def _pad(
        self, columns: list[Column], squeezed: list[bool], names: list[str]
    ) -> tuple[list[Column], dict[int, NDArray[np.int64]], int]:
        """Pads the columns with a length. Returns all, the rows of each item by padded column, and the length."""
        # A row may have an open length, also where the items have no time axis, or one that does not matter.
        has_length = [isinstance(column, Ragged) or not flag for column, flag in zip(columns, squeezed, strict=True)]
        rows = {place: rows_of(columns[place]) for place, flag in enumerate(has_length) if flag}
        longest = max((int(of_column.max(initial=0)) for of_column in rows.values()), default=0)
        length = next((length for length in self._lengths if length >= longest), longest)
        if self._lengths and length > self._lengths[-1]:
            name = next(names[place] for place, of_column in rows.items() if int(of_column.max()) == longest)
            raise ValueError(f"column {name}: an item has {longest} rows, `pad_to` allows {self._lengths[-1]}.")
        padded = [pad_column(column, length) if place in rows else column for place, column in enumerate(columns)]
        return padded, rows, length

    def _converted_mask(self, mask: NDArray[np.bool_]) -> Any:
        convert = self._conversion.columns
        return mask if convert is None else convert([mask], ["mask"])[0]

    def _table_numbers(self, parts: list[Part]) -> NDArray[np.int32] | None:
        if self._is_single:
            return None
        return np.concatenate([np.full(len(part.sampled), part.table, np.int32) for part in parts])

    def _keep(self, part: Part) -> _Kept:
        token, num_columns = part.sampled.signature_token, part.sampled.num_columns
        known = self._kept.get(part.table)
        if known is None or known.maker.signature_token != token or known.num_columns != num_columns:
            whole = self._client.maker(self._tables[part.table], token)
            selection = select(whole.data(list(range(num_columns))), self._options.fields)
            known = self._kept[part.table] = _Kept(selection, self._maker(selection, whole), num_columns)
        return known

    def _maker(self, selection: Selection, whole: BatchMaker) -> BatchMaker:
        token = whole.signature_token
        is_list = selection.is_all and not token
        num_axes = dict(whole.unknown_lengths)
        places = [(place, num_axes[column]) for place, column in enumerate(selection.columns) if column in num_axes]
        return BatchMaker(
            signature_token=token,
            columns=None if selection.is_all else selection.columns,
            names=selection.names,
            keys=selection.keys,
            pack=None if is_list else selection.pack,
            to_leaves=self._conversion.columns,
            tensor_maker=self._conversion.maker,
            convert=self._conversion.batch,
            unknown_lengths=places,
        )


def _shared_rows(rows: dict[int, NDArray[np.int64]], names: list[str]) -> NDArray[np.int64]:
    """The number of rows of each item, int64 `[batch]`, which is the same in all columns.

    Raises:
      ValueError: The columns of an item differ.
    """
    (first, shared), *others = rows.items()
    for place, of_column in others:
        if not np.array_equal(shared, of_column):
            item = int((shared != of_column).argmax())
            raise ValueError(
                f"the columns of an item differ in their rows: {names[first]} has {shared[item]}, {names[place]} "
                f"{of_column[item]}. `mask_per_column=True` gives each column a mask; `fields` can leave columns out."
            )
    return shared


def _has_open_rows(part: Part, kept: _Kept) -> bool:
    """Whether the items are one step each, in which an array has an open length."""
    sampled = part.sampled
    for place, num_axes in kept.maker.unknown_lengths:
        number = kept.selection.columns[place]
        column = sampled.columns[number]
        # Beside those of the signature an array has the axes of the batch and, unless it is dropped, of time.
        if isinstance(column, Ragged):
            if sampled.has_open_rows[number]:
                return True
        elif column.ndim + sampled.squeezed[number] == num_axes + 2:
            return True
    return False


def _squeeze(column: Column) -> Column:
    """Drops the time axis if its length is 1 in all items."""
    if isinstance(column, Ragged) or column.shape[1] != 1:
        return column
    return column.reshape(len(column), *column.shape[2:])
