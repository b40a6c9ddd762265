"""What the loaders of all frameworks have in common."""

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

from numpy.typing import ArrayLike

from reverb.client import Client
from reverb.loaders.batch import Batch
from reverb.loaders.options import Options
from reverb.loaders.source import BatchSource
from reverb.loaders.stats import LoaderStats

__all__ = ["Loader"]

L = TypeVar("L", bound="Loader")


class Loader(Iterator[Batch]):
    """An iterator of batches, and a context manager that closes itself.

    Args:
      client: A Client, or the address of a server.
      table: The table's name; or, for a mixture, weights by name: every item of a batch comes from a table by its
        weight.
      **options: Those of reverb.loaders.Options; `batch_size` is needed.
    """

    def __init__(self, client: Client | str, table: str | Mapping[str, float], **options: Any) -> None:
        self._source = BatchSource(client, table, Options(**options), self._leaf, self._by_caller)

    # As of BatchSource; a static method, where there is one.
    _leaf: Callable[[Any, str], Any] | None = None

    # As of BatchSource.
    _by_caller = True

    def __iter__(self: L) -> L:
        return self

    def __next__(self) -> Batch:
        batch = self._source.take()
        if batch is None:
            raise StopIteration
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
