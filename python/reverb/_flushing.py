"""What the writers that send in the background have in common: waiting for confirmations, and ending."""

import datetime
from types import TracebackType
from typing import Protocol, TypeVar

from reverb import _checks, _endings
from reverb.errors import DeadlineExceededError, ReverbError

__all__ = ["FlushingWriter", "as_seconds"]

_Writer = TypeVar("_Writer", bound="FlushingWriter")


class _Flushable(Protocol):
    def flush(self, but_last: int, timeout: float | None) -> None: ...
    def close(self, patience: float) -> str | None: ...


class FlushingWriter:
    """A writer whose items the extension sends. A context manager that flushes, and leaves the writer open.

    Args:
      sender: The extension's writer. It has no reference to this one.
    """

    def __init__(self, sender: _Flushable) -> None:
        self._sender = sender
        self._closed = False
        self._finalizer = _endings.when_deleted(self, sender)

    def __enter__(self: _Writer) -> _Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes, unless the body raised an error of Reverb. The writer stays usable."""
        if not isinstance(error, ReverbError):
            self.flush()

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Sends what can be sent and waits until at most `block_until_num_items` items are unconfirmed.

        Chunks that only the last `block_until_num_items` items refer to stay open.

        Args:
          block_until_num_items: How many items may stay behind, at least 0.
          timeout_ms: Milliseconds; 0 looks once; None: as long as the tables' limiters block.

        Raises:
          ValueError: A number is negative; or the server refused an item made before, which is gone then.
          DeadlineExceededError: Too many items were still unconfirmed in time. They stay queued.
          UnavailableError: The server could not be reached for `reconnect_timeout`.
        """
        if block_until_num_items < 0:
            raise ValueError(f"block_until_num_items must be >= 0, got {block_until_num_items}")
        self._flush("Flush", block_until_num_items, timeout_ms)

    def _flush(self, what: str, but_last: int, timeout_ms: int | None) -> None:
        seconds = as_seconds(timeout_ms)
        try:
            self._sender.flush(but_last, seconds)
        except DeadlineExceededError as error:
            # The reference's words, and the reason.
            timeout = datetime.timedelta(milliseconds=timeout_ms or 0)
            raise DeadlineExceededError(
                f"{what} call did not complete within provided timeout of {timeout}: {error}"
            ) from None

    def close(self) -> None:
        """Ends the writer. Waits up to 5 seconds; what is unconfirmed then is given up and named in the log.

        A second call does nothing.
        """
        if not self._closed:
            self._closed = True
            self._finalizer()


def as_seconds(timeout_ms: int | None) -> float | None:
    """A timeout in milliseconds as seconds.

    Raises:
      TypeError: It is no integer.
      ValueError: It is negative.
    """
    if timeout_ms is None:
        return None
    milliseconds = _checks.as_int("timeout_ms", timeout_ms)
    if milliseconds < 0:
        raise ValueError(f"timeout_ms must be None or >= 0, got {timeout_ms}")
    return milliseconds / 1000
