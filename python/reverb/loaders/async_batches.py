"""The batches of a loader for `async for`."""

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from reverb.loaders.batch import Batch
from reverb.loaders.source import BatchSource

BatchT = TypeVar("BatchT", bound=Batch)


class AsyncBatches(AsyncIterator[BatchT], Generic[BatchT]):
    """Batches whose waits are awaited. Several tasks may share one, and take turns.

    A batch is delivered when the task goes on with it. If it is cancelled before, the samples go back to their tables.

    Args:
      source: Source that draws the batches and converts them.

    Raises:
      ValueError: The source draws from a cluster.
    """

    def __init__(self, source: BatchSource) -> None:
        source.client.endpoint.check_for_event_loops()
        self._source = source

    def __aiter__(self) -> "AsyncBatches[BatchT]":
        return self

    async def __anext__(self) -> BatchT:
        batch: BatchT | None = await self._source.take_in_event_loop()
        if batch is None:
            raise StopAsyncIteration
        return batch
