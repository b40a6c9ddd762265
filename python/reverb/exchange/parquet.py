"""A table's content as a Parquet file, and back."""

import os
import tempfile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reverb.checkpoint_reader import CheckpointTable
from reverb.client import Client
from reverb.errors import DataLossError
from reverb.exchange.arrow import insert_batches, to_arrow
from reverb.exchange.items import TARGET_BYTES, open_table
from reverb.exchange.layout import Layout
from reverb.exchange.progress import Progress

__all__ = ["from_parquet", "parquet_signature", "to_parquet"]

Path = str | os.PathLike[str]


def to_parquet(
    source: Client | CheckpointTable,
    path: Path,
    table: str | None = None,
    *,
    compression: str = "zstd",
    progress: bool = True,
) -> int:
    """Writes all items of a table as they are at one moment, one row an item; see `to_arrow`.

    The file gets its name when it is whole and on the disk. Its pages carry checksums.

    Args:
      source: A table of a checkpoint; or a client, whose server then saves a checkpoint, which must be on this machine.
      path: Of the file. One that is there is replaced.
      table: The table's name, with a client.
      compression: Parquet's: `zstd`, `snappy`, `lz4`, `gzip`, `brotli`, `none`.
      progress: Whether to show a bar, on a terminal and with the package `rich`.

    Returns:
      How many items the file has.

    Raises:
      OSError: The file cannot be written.
      ValueError, TypeError, TableNotFoundError, UnavailableError: As `to_arrow`.
    """
    path = os.fspath(path)
    opened = open_table(source, table)
    reader = to_arrow(opened)
    count = 0
    # In the same folder, so that it can be renamed.
    handle, partial = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as file, Progress(progress, "items", len(opened)) as bar:
            # Numbers of replay seldom repeat, and where they do the compression finds them.
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
    """Inserts what `to_parquet` wrote, in order; see `from_arrow`.

    Args:
      client: Of the server.
      path: Of the file.
      table: Where to. Inserts wait for its rate limiter.
      priority: Of all items; None: that which each had.
      progress: Whether to show a bar, on a terminal and with the package `rich`.

    Returns:
      How many items were inserted.

    Raises:
      FileNotFoundError: There is no file.
      DataLossError: It is torn or damaged; says how many items were inserted before.
      ValueError, TableNotFoundError, UnavailableError: As `from_arrow`.
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
    """The signature of the table that a file was made of, for `reverb.Table(signature=)`; None if it had none.

    Raises:
      FileNotFoundError: There is no file.
      DataLossError: It is torn or damaged.
      ValueError: It is no exported table.
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
        raise DataLossError(f"{path} is no whole Parquet file: {error}. Nothing was inserted.") from error
