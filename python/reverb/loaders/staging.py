"""Batches that are put on their device before the learner asks for them."""

import collections

from reverb.loaders.source import BatchSource, Fetched


class Staging:
    """Takes batches from a source, on demand or in advance. Staged batches count as undelivered.

    Args:
      source: Source that draws the batches and converts them.
    """

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._staged: collections.deque[Fetched] = collections.deque()
        self._error: Exception | None = None

    def take(self) -> Fetched | None:
        """Returns the next batch, undelivered; None at the end of the data."""
        self._source.receive_held()
        if self._staged:
            return self._staged.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._source.next()

    def hand_over(self, fetched: Fetched, stages: bool = True) -> bool:
        """Stages the batch that follows, and marks this one as delivered; False if its samples went back.

        Args:
          fetched: The batch that `take` has returned.
          stages: Whether to stage another.
        """
        if stages:
            self._stage_next()
        return self._source.hand_over(fetched)

    def _stage_next(self) -> None:
        """Converts the next batch if it has arrived. An error is raised when that batch is asked for."""
        try:
            if self._source.is_ready() and (fetched := self._source.next()) is not None:
                self._staged.append(fetched)
        except Exception as error:
            self._error = error

    def clear(self) -> None:
        """Drops the staged batches, which the source must still give back."""
        self._staged.clear()
