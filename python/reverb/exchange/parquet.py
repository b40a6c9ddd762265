"""Exports a table's items to a Parquet file, and imports them again."""

import os
import tempfile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reverb.checkpoint_reader import CheckpointTable
from reverb.client import Client
from reverb.errors import DataLossError
from reverb.exchange.arrow import insert_batches, reader_of
from reverb.exchange.items import TARGET_BYTES, open_tables
from reverb.exchange.layout import Layout
from reverb.exchange.progress import Progress

Path = str | os.PathLike[str]


def to_parquet(
    source: Client | CheckpointTable,
    path: Path,
    table: str | None = None,
    *,
    compression: str = "zstd",
    progress: bool = True,
) -> int:
    """Writes a snapshot of all items of a table, one row per item; see `to_arrow`.

    The file appears under its name only when it is complete and on the disk. Its pages carry checksums.

    Args:
      source: A table of a checkpoint, or a client. With a client, its server saves a checkpoint, which must be on this
        machine.
      path: Path of the file to write. An existing file is replaced.
      table: Name of the table to export, required with a client; None uses the checkpoint's table.
      compression: Compression codec of the file: `zstd`, `snappy`, `lz4`, `gzip`, `brotli` or `none`.
      progress: Whether to show a progress bar. This needs a terminal and the package `rich`.

    Returns:
      The number of items in the file.

    Raises:
      OSError: The file cannot be written.
      ValueError, TypeError, TableNotFoundError, UnavailableError: The same failures as in `to_arrow`.
    """
    path = os.fspath(path)
    opened = open_tables(source, table)
    reader = reader_of(opened)
    count = 0
    # The partial file lies in the same folder, so that it can be renamed atomically.
    handle, partial = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as file, Progress(progress, "items", sum(map(len, opened))) as bar:
            # Values in replay data seldom repeat, and compression finds those that do: dictionaries would not help.
            options: dict[str, Any] = {"use_dictionary": False, "write_page_checksum": True, "compression": compression}
            with pq.ParquetWriter(file, reader.schema, **options) as writer:
                for batch in reader:
                    writer.write_batch(batch)
                    count += batch.num_rows
                    bar.advance(batch.num_rows)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
    return count


def from_parquet(
    client: Client, path: Path, table: str, *, priority: float | None = None, progress: bool = True
) -> int:
    """Inserts the items that `to_parquet` wrote, in order; see `from_arrow`.

    Args:
      client: Client of the server to insert into.
      path: Path of the file to read.
      table: Name of the table to insert into. Inserts wait for its rate limiter.
      priority: Priority of every inserted item; None keeps the exported priority of each.
      progress: Whether to show a progress bar. This needs a terminal and the package `rich`.

    Returns:
      The number of items inserted.

    Raises:
      FileNotFoundError: The file does not exist.
      DataLossError: The file is incomplete or damaged. The text gives the number of items inserted before.
      ValueError, TableNotFoundError, UnavailableError: The same failures as in `from_arrow`.
    """
    path = os.fspath(path)
    with _open(path) as file:
        layout = Layout.parse(file.schema_arrow, path)
        rows = file.metadata.num_rows
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        size = max(1, sum(group.total_byte_size for group in groups) // max(1, rows))
        names = [field.name for field in layout.schema()]
        batches = file.iter_batches(max(1, min(8192, TARGET_BYTES // size)), columns=names)
        return insert_batches(client, batches, layout, table, priority, Progress(progress, "items", rows), path)


def parquet_signature(path: Path) -> Any:
    """Reads the signature of an exported table, for `reverb.Table(signature=)`; None if the table had none.

    Raises:
      FileNotFoundError: The file does not exist.
      DataLossError: The file is incomplete or damaged.
      ValueError: The file does not hold an exported table.
    """
    path = os.fspath(path)
    with _open(path) as file:
        layout = Layout.parse(file.schema_arrow, path)
    return None if layout.signature is None else layout.structure()


def _open(path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataLossError(f"{path} is not a complete Parquet file: {error}. Nothing was inserted.") from error
