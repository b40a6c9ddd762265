"""What the loaders of all frameworks have in common."""

from collections.abc import Iterator
from types import TracebackType
from typing import TypeVar

from numpy.typing import ArrayLike

from reverb.loaders.batch import Batch
from reverb.loaders.options import Options
from reverb.loaders.source import BatchSource
from reverb.loaders.stats import LoaderStats
from reverb.pybind import BatchIterator

__all__ = ["Loader"]

L = TypeVar("L", bound="Loader")


class Loader(BatchIterator, Iterator[Batch]):
    """An iterator of batches, and a context manager that closes itself.

    Args:
      source: Gives the batches, and converts them.
    """

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._prefer(source.here)

    def _next(self) -> Batch | None:
        batch: Batch | None = self._source.take()
        return batch

    @property
    def options(self) -> Options:
        """How batches are drawn."""
        return self._source.options

    @property
    def tables(self) -> list[str]:
        """The names to which the numbers in `Batch.table` belong."""
        return self._source.tables

    def stats(self) -> LoaderStats:
        """What was given so far, where the time went, and how much is undelivered now."""
        return self._source.stats()

    def update_priorities(self, batch: Batch, priorities: ArrayLike, *, timeout: float | None = None) -> None:
        """Sets new priorities of a batch's items, in the tables from which they came; see BatchSource."""
        self._source.update_priorities(batch, priorities, timeout=timeout)

    def close(self) -> None:
        """Gives back what was drawn ahead. The iterator then is at its end."""
        self._source.close()

    def __enter__(self: L) -> L:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
