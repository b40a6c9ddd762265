"""The base class of the loaders."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from numpy.typing import ArrayLike

from reverb._binding import BatchIterator
from reverb.loaders.async_batches import AsyncBatches
from reverb.loaders.batch import Batch
from reverb.loaders.options import Options
from reverb.loaders.source import BatchSource
from reverb.loaders.stats import LoaderStats

BatchT = TypeVar("BatchT", bound=Batch)
L = TypeVar("L", bound="Loader[Batch]")


class Loader(BatchIterator, Iterator[BatchT], Generic[BatchT]):
    """An iterator over batches, and a context manager that closes it.

    Args:
      source: Source that draws the batches and converts them.
    """

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._prefer(source.local)

    if TYPE_CHECKING:

        def __next__(self) -> BatchT: ...

    def _next(self) -> BatchT | None:
        batch: BatchT | None = self._source.take()
        return batch

    def __len__(self) -> int:
        """The number of batches that the loader yields in all, `num_batches`; TypeError if that is None."""
        return self.options.length()

    def __bool__(self) -> bool:
        return True

    def __aiter__(self) -> AsyncBatches[BatchT]:
        """An iterator over the batches for `async for`, whose waits are awaited. A loader has one or the other."""
        return AsyncBatches(self._source)

    @property
    def options(self) -> Options:
        """The options by which batches are drawn."""
        return self._source.options

    @property
    def tables(self) -> list[str]:
        """The names of the tables, which the numbers in `Batch.table` index."""
        return self._source.tables

    def stats(self) -> LoaderStats:
        """Counts of the batches delivered so far, how the time was spent, and how much is undelivered now."""
        return self._source.stats()

    def update_priorities(self, batch: Batch, priorities: ArrayLike, *, timeout: float | None = None) -> int | None:
        """Sets new priorities for a batch's items, in the tables from which they were drawn.

        Args:
          batch: A batch that this loader yielded.
          priorities: One priority per item, `[batch]`.
          timeout: Seconds to wait for the server; None waits without limit.

        Returns:
          How many of the items are still in their tables; None if a server of an earlier version does not say.
        """
        return self._source.update_priorities(batch, priorities, timeout=timeout)

    def close(self) -> None:
        """Ends the iteration, and returns samples drawn in advance to their tables."""
        self._source.close()

    async def __aenter__(self: L) -> L:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._source.close_in_event_loop()

    def __enter__(self: L) -> L:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
