"""Batches that are converted before the learner asks for them."""

import collections
from collections.abc import Callable
from typing import Generic, TypeVar

from reverb.loaders.batch import Batch
from reverb.loaders.source import BatchSource, Fetched

__all__ = ["Staging"]

_Converted = TypeVar("_Converted")


class Staging(Generic[_Converted]):
    """Takes batches from a source and converts them, on demand or ahead.

    Args:
      source: Gives the batches.
      convert: From a batch of NumPy arrays to what the learner gets. A batch that it refuses goes back.
    """

    def __init__(self, source: BatchSource, convert: Callable[[Batch], _Converted]) -> None:
        self._source = source
        self._convert = convert
        self._staged: collections.deque[tuple[Fetched, _Converted]] = collections.deque()
        self._error: Exception | None = None

    def next(self) -> tuple[Fetched, _Converted] | None:
        """The next batch, with what it was made of; None at the end of the data."""
        if not self._staged and not self._stage():
            return None
        return self._staged.popleft()

    def ahead(self) -> None:
        """Converts the next batch if it is here. What goes wrong concerns whoever asks for that one."""
        try:
            if self._source.is_ready():
                self._stage()
        except Exception as error:
            self._error = error

    def _stage(self) -> bool:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        fetched = self._source.next()
        if fetched is None:
            return False
        try:
            self._staged.append((fetched, self._convert(fetched.batch)))
        except Exception:
            self._source.refuse(fetched)
            raise
        self._source.clock.converted()
        return True

    def clear(self) -> None:
        """Drops what was converted ahead; the source still has to give it back."""
        self._staged.clear()
