"""Reads the items of checkpoints without a server."""

import os
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from reverb import _binding
from reverb.data import checks
from reverb.data.items import sample_maker
from reverb.errors import TableNotFoundError
from reverb.replay_sample import ReplaySample
from reverb.reverb_types import TableInfo

__all__ = ["Checkpoint", "CheckpointTable", "open"]


class CheckpointTable:
    """The items of one table, in the order in which they were inserted.

    Iterating yields one ReplaySample per item. Its arrays are `[time, ...]`, or `[...]` for columns without a time
    axis. `info.probability` is 1 because items are read, not drawn.
    """

    def __init__(self, reader: _binding.CheckpointReader, info: TableInfo) -> None:
        self._reader = reader
        self._info = info
        self._maker = sample_maker(info.signature)

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._info.name

    @property
    def info(self) -> TableInfo:
        """The definition and the counters of the table."""
        return self._info

    def __len__(self) -> int:
        return self._info.current_size

    def batches(self, batch_size: int, *, squeeze_time: bool = False) -> Iterator[ReplaySample]:
        """Yields all items in stacked batches.

        Args:
          batch_size: Maximum number of items in a batch, at least 1. The last batch may be smaller, and so may a batch
            that is followed by an item whose columns have another dtype or shape.
          squeeze_time: Whether to drop the time axis of columns whose items all have one step.

        Yields:
          Samples as returned by `Client.sample_batch`: `info`, whose fields are arrays `[batch]`, and `data`, whose
          arrays are `[batch, time, ...]`. `data` has the structure of the table's signature; without a signature it is
          a flat list of columns.

        Raises:
          ValueError: `batch_size` is below 1.
        """
        size = checks.as_count("batch_size", batch_size)
        for read in self._portions(size, squeeze_time):
            yield self._maker.sample(read)

    def inserted_at(self) -> NDArray[np.uint64]:
        """The insertion time of each item, in nanoseconds since 1970, `[items]`."""
        times = []
        for read in self._portions(1024):
            assert read.inserted_at is not None
            times.append(read.inserted_at)
        return np.concatenate(times) if times else np.zeros(0, np.uint64)

    def __iter__(self) -> Iterator[ReplaySample]:
        for read in self._portions(64):
            yield from _binding.ItemIterator(read, self._maker, of_steps=False)

    def _portions(self, count: int, squeeze_time: bool = False) -> Iterator[_binding.SampledBatch]:
        """Yields all items, at most `count` at a time."""
        first = 0
        while (read := self._reader.batch(self.name, first, count, squeeze_time)) is not None:
            first += len(read)
            yield read

    def __repr__(self) -> str:
        return f"CheckpointTable(name={self.name!r}, items={len(self)})"


class Checkpoint:
    """A checkpoint in memory. Created by `reverb.checkpointers.open`."""

    def __init__(self, reader: _binding.CheckpointReader) -> None:
        infos = map(TableInfo.from_serialized_proto, reader.infos())
        self._path = os.fspath(reader.path)
        self._tables = {info.name: CheckpointTable(reader, info) for info in infos}

    @property
    def path(self) -> str:
        """The path that the checkpoint was read from."""
        return self._path

    @property
    def tables(self) -> dict[str, CheckpointTable]:
        """The tables that were read, by name."""
        return dict(self._tables)

    def table(self, name: str) -> CheckpointTable:
        """Returns one table.

        Raises:
          TableNotFoundError: The checkpoint does not have the table, or the table was not read.
        """
        if name not in self._tables:
            raise TableNotFoundError(f"No table {name!r} in {self._path}; it has: {', '.join(self._tables)}")
        return self._tables[name]

    def __repr__(self) -> str:
        return f"Checkpoint(path={self._path!r}, tables={list(self._tables)})"


def open(
    path: str | os.PathLike[str], *, tables: Iterable[str] | None = None, limit_bytes: int | None = None
) -> Checkpoint:
    """Reads a checkpoint of this package or of dm-reverb into memory, and checks all of it.

    Args:
      path: Path of a checkpoint, or of a folder of checkpoints, whose newest undamaged one is read.
      tables: Names of the tables to read; None reads all tables.
      limit_bytes: Maximum size of one chunk, in bytes. None means 256 MiB for checkpoints of dm-reverb, and no limit
        for those of this package: whatever a server could save can be read.

    Raises:
      ValueError: There is no checkpoint at `path`.
      MessageTooLargeError: A chunk is larger than the limit.
      DataLossError: The checkpoint is damaged, or all checkpoints in the folder are.
      TableNotFoundError: The checkpoint does not have one of `tables`.
      StorageError: The checkpoint cannot be read.
    """
    names = None if tables is None else list(tables)
    limit = None if limit_bytes is None else checks.as_count("limit_bytes", limit_bytes)
    return Checkpoint(_binding.CheckpointReader(os.fspath(path), names, limit))
