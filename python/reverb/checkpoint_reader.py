"""Checkpoints without a server: their items as batches."""

import os
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from reverb import _checks, nests, pybind
from reverb.errors import TableNotFoundError
from reverb.replay_sample import ReplaySample, SampleInfo
from reverb.reverb_types import TableInfo

__all__ = ["Checkpoint", "CheckpointTable", "open"]

# Bytes of one chunk that are read at most, unless the caller says otherwise.
_LIMIT_BYTES = 256 * 1024 * 1024


class CheckpointTable:
    """The items of one table, in the order in which they were inserted.

    Iterating yields items one by one, each a ReplaySample whose arrays are `[time, ...]`, or `[...]` for columns
    without a time axis. `info.probability` is 1: nothing is drawn.
    """

    def __init__(self, reader: pybind.CheckpointReader, info: TableInfo) -> None:
        self._reader = reader
        self._info = info
        self._pack = list if info.signature is None else nests.compile_packer(info.signature)

    @property
    def name(self) -> str:
        """The table's name."""
        return self._info.name

    @property
    def info(self) -> TableInfo:
        """Its definition and counts."""
        return self._info

    def __len__(self) -> int:
        return self._info.current_size

    def batches(self, batch_size: int, *, squeeze_time: bool = False) -> Iterator[ReplaySample]:
        """All items, stacked.

        Args:
          batch_size: Items in a batch at most. There are fewer in the last one, and in one before an item whose columns
            have another dtype or shape.
          squeeze_time: Whether columns of items of one step lose their time axis.

        Yields:
          What `Client.sample_batch` returns: `info`, whose fields are arrays `[batch]`, and `data` in the structure of
          the table's signature, or a flat list of columns if it has none, `[batch, time, ...]`.

        Raises:
          ValueError: `batch_size` is below 1.
        """
        size = _checks.as_count("batch_size", batch_size)
        first = 0
        while True:
            read = self._reader.batch(self.name, first, size, squeeze_time)
            if read is None:
                return
            (infos, columns, _, _), _ = read
            first += len(infos[0])
            yield ReplaySample(SampleInfo(*infos), self._pack(columns))

    def inserted_at(self) -> NDArray[np.uint64]:
        """When each item was inserted: nanoseconds since 1970, `[items]`."""
        times = []
        first = 0
        while (read := self._reader.batch(self.name, first, 1024, False)) is not None:
            times.append(read[1])
            first += len(read[1])
        return np.concatenate(times) if times else np.zeros(0, np.uint64)

    def __iter__(self) -> Iterator[ReplaySample]:
        from reverb import _items

        first = 0
        while (read := self._reader.batch(self.name, first, 64, False)) is not None:
            (infos, columns, _, squeezed), _ = read
            first += len(infos[0])
            yield from _items.whole(infos, columns, squeezed, self._pack)

    def __repr__(self) -> str:
        return f"CheckpointTable(name={self.name!r}, items={len(self)})"


class Checkpoint:
    """A checkpoint in memory. Made by `reverb.checkpointers.open`."""

    def __init__(self, reader: pybind.CheckpointReader) -> None:
        infos = map(TableInfo.from_serialized_proto, reader.infos())
        self._path = os.fspath(reader.path)
        self._tables = {info.name: CheckpointTable(reader, info) for info in infos}

    @property
    def path(self) -> str:
        """Where it was read from."""
        return self._path

    @property
    def tables(self) -> dict[str, CheckpointTable]:
        """Its tables that were read, by name."""
        return dict(self._tables)

    def table(self, name: str) -> CheckpointTable:
        """A table.

        Raises:
          TableNotFoundError: It is not there, or was not read.
        """
        if name not in self._tables:
            raise TableNotFoundError(f"No table {name!r} in {self._path}; it has: {', '.join(self._tables)}")
        return self._tables[name]

    def __repr__(self) -> str:
        return f"Checkpoint(path={self._path!r}, tables={list(self._tables)})"


def open(
    path: str | os.PathLike[str], *, tables: Iterable[str] | None = None, limit_bytes: int = _LIMIT_BYTES
) -> Checkpoint:
    """Reads a checkpoint, of this package or of dm-reverb, into memory. It is checked whole.

    Args:
      path: A checkpoint; or a folder of them, of which the newest good one is read.
      tables: Names of those to be read; None: all.
      limit_bytes: Bytes that one chunk may have.

    Raises:
      ValueError: There is no checkpoint.
      DataLossError: It is damaged; of a folder, all are.
      TableNotFoundError: A table is not there.
      StorageError: It cannot be read.
    """
    names = None if tables is None else list(tables)
    return Checkpoint(pybind.CheckpointReader(os.fspath(path), names, _checks.as_count("limit_bytes", limit_bytes)))
