"""A table's content as Arrow, and back."""

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from reverb.checkpoint_reader import CheckpointTable
from reverb.client import Client
from reverb.errors import DataLossError, ReverbError
from reverb.exchange.arrow_in import to_items
from reverb.exchange.arrow_out import to_record_batch
from reverb.exchange.inserting import Inserter
from reverb.exchange.items import items_of, open_table
from reverb.exchange.layout import Layout
from reverb.exchange.progress import Progress

__all__ = ["from_arrow", "insert_batches", "to_arrow"]

# Items of a record batch, where one comes as a whole table.
_ITEMS = 1024


def to_arrow(source: Client | CheckpointTable, table: str | None = None) -> pa.RecordBatchReader:
    """All items of a table as they are at one moment, in the order in which they were inserted; one row an item.

    `reverb.exchange.layout` says how they lie. A batch has at most 8192 items and about 16 MiB, and is made when it is
    asked for.

    Args:
      source: A table of a checkpoint; or a client, whose server then saves a checkpoint, which must be on this machine.
        A checkpoint is read into memory.
      table: The table's name, with a client.

    Returns:
      A reader, whose schema says all that `from_arrow` needs to know.

    Raises:
      ValueError: `table` is missing. While reading: items differ in what a file can hold only once: the number of
        columns, their dtypes, or shapes of rows that the table's signature does not leave open.
      TypeError: Another kind of source.
      TableNotFoundError: There is no such table.
      UnavailableError: The server or its checkpoint cannot be reached.
    """
    opened = open_table(source, table)
    portions = items_of(opened)
    first = next(portions, None)
    layout = Layout.of(opened, first)
    schema = layout.schema()
    every = itertools.chain([] if first is None else [first], portions)
    return pa.RecordBatchReader.from_batches(schema, (to_record_batch(items, layout, schema) for items in every))


def from_arrow(client: Client, data: Any, table: str, *, priority: float | None = None, progress: bool = True) -> int:
    """Inserts what `to_arrow` gave, in order.

    Items get new keys, and have not been sampled. Steps that were shared by several items are stored for each.

    Args:
      client: Of the server.
      data: A RecordBatchReader, Table or RecordBatch, or what gives an Arrow stream (`__arrow_c_stream__`).
      table: Where to. Inserts wait for its rate limiter.
      priority: Of all items; None: that which each had.
      progress: Whether to show a bar, on a terminal and with the package `rich`.

    Returns:
      How many items were inserted.

    Raises:
      TypeError: `data` is none of these.
      ValueError: They are not those of an exported table, or do not fit the table; says which column, what was expected
        and what came, and how many items were inserted before.
      TableNotFoundError: There is no such table.
      UnavailableError: The server went away; says how many items were inserted before.
    """
    total = data.num_rows if isinstance(data, (pa.Table, pa.RecordBatch)) else None
    reader = _reader(data)
    layout = Layout.parse(reader.schema, "the Arrow data")
    return insert_batches(client, reader, layout, table, priority, Progress(progress, "items", total), "the Arrow data")


def insert_batches(
    client: Client,
    batches: Any,
    layout: Layout,
    table: str,
    priority: float | None,
    progress: Progress,
    where: str,
) -> int:
    """Inserts record batches; see `from_arrow`. Errors say how far it came.

    Args:
      client: Of the server.
      batches: An iterable.
      layout: That of all batches.
      table: Where to.
      priority: Of all items; None: their own.
      progress: Is entered here.
      where: The batches are from, for messages.
    """
    with Inserter(client, table, layout.structure(), priority) as inserter, progress:
        try:
            for items in _items(batches, layout, where):
                if len(items):
                    inserter.insert(items)
                progress.advance(len(items))
        except (pa.ArrowException, OSError) as error:
            raise DataLossError(f"{where} is damaged: {error}. {_so_far(inserter)}") from error
        except ReverbError as error:
            raise type(error)(f"{error}. {_so_far(inserter)}") from error
    return inserter.inserted


def _items(batches: Any, layout: Layout, where: str) -> Iterator[Any]:
    first = 0
    for batch in batches:
        yield to_items(batch, layout, f"{where}, from row {first} on" if first else where)
        first += batch.num_rows


def _so_far(inserter: Inserter) -> str:
    return f"Before that, {inserter.inserted} items were inserted into {inserter.table!r}."


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data.to_reader(max_chunksize=_ITEMS)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    raise TypeError(
        f"`data` must be a RecordBatchReader, Table or RecordBatch of Arrow, or have __arrow_c_stream__, got "
        f"{type(data).__name__}."
    )
