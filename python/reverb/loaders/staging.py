"""Batches that are on their device before the learner asks for them."""

import collections

from reverb.loaders.source import BatchSource, Fetched

__all__ = ["Staging"]


class Staging:
    """Takes batches from a source, on demand or ahead. What is ahead is undelivered.

    Args:
      source: Gives the batches, and converts them.
    """

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._staged: collections.deque[Fetched] = collections.deque()
        self._error: Exception | None = None

    def next(self) -> Fetched | None:
        """The next batch; None at the end of the data."""
        if self._staged:
            return self._staged.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._source.next()

    def ahead(self) -> None:
        """Converts the next batch if it is here. What goes wrong concerns whoever asks for that one."""
        try:
            if self._source.is_ready() and (fetched := self._source.next()) is not None:
                self._staged.append(fetched)
        except Exception as error:
            self._error = error

    def clear(self) -> None:
        """Drops what was converted ahead; the source still has to give it back."""
        self._staged.clear()
