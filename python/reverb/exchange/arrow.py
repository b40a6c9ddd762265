"""Exports a table's items to Arrow, and imports them again."""

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
from reverb.exchange.items import items_of, open_tables
from reverb.exchange.layout import Layout
from reverb.exchange.progress import Progress

# Maximum number of items per record batch when the data are a whole Arrow table.
_ITEMS = 1024


def to_arrow(source: Client | CheckpointTable, table: str | None = None) -> pa.RecordBatchReader:
    """Reads a snapshot of all items of a table, in the order in which they were inserted, one row per item.

    `reverb.exchange.layout` describes the columns. A record batch has at most 8192 items and about 16 MiB, and is made
    when the reader is asked for it.

    Args:
      source: A table of a checkpoint, or a client. With a client, its server saves a checkpoint, which must be on this
        machine. The checkpoint is read into memory. Of several servers, the items of each follow those of the one
        before.
      table: Name of the table to export, required with a client; None uses the checkpoint's table.

    Returns:
      A reader whose schema holds everything that `from_arrow` needs to know.

    Raises:
      ValueError: `table` is missing; or, while reading, items differ in a property that is fixed for a whole file: the
        number of columns, their dtypes, or row shapes that the table's signature does not leave open.
      TypeError: `source` is neither a checkpoint's table nor a client.
      TableNotFoundError: The table does not exist.
      UnavailableError: The server or its checkpoint cannot be reached.
    """
    return reader_of(open_tables(source, table))


def reader_of(opened: list[CheckpointTable]) -> pa.RecordBatchReader:
    """Reads all items of the parts of a table; see `to_arrow`."""
    portions = items_of(opened)
    first = next(portions, None)
    layout = Layout.of(opened[0], first)
    schema = layout.schema()
    every = itertools.chain([] if first is None else [first], portions)
    return pa.RecordBatchReader.from_batches(schema, (to_record_batch(items, layout, schema) for items in every))


def from_arrow(client: Client, data: Any, table: str, *, priority: float | None = None, progress: bool = True) -> int:
    """Inserts the items that `to_arrow` exported, in order.

    Items get new keys, and their sample counts start at zero. Steps that several items shared are stored once per item.

    Args:
      client: Client of the server to insert into.
      data: A RecordBatchReader, Table or RecordBatch, or an object that provides an Arrow stream
        (`__arrow_c_stream__`).
      table: Name of the table to insert into. Inserts wait for its rate limiter.
      priority: Priority of every inserted item; None keeps the exported priority of each.
      progress: Whether to show a progress bar. This needs a terminal and the package `rich`.

    Returns:
      The number of items inserted.

    Raises:
      TypeError: `data` is not one of these types.
      ValueError: The data do not come from an exported table, or do not fit the table. The text names the column, what
        was expected, what was found, and the number of items inserted before.
      TableNotFoundError: The table does not exist.
      UnavailableError: The server went away. The text gives the number of items inserted before.
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
    """Inserts record batches; see `from_arrow`. Errors give the number of items inserted before.

    Args:
      client: Client of the server to insert into.
      batches: Iterable of Arrow record batches.
      layout: Layout that all batches share.
      table: Name of the table to insert into.
      priority: Priority of every inserted item; None keeps the exported priority of each.
      progress: Progress bar, which this function enters and advances.
      where: Origin of the batches, for error messages.
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
