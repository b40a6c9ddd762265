"""How writers end that nobody closed: with their last reference, or with the interpreter."""

import atexit
import logging
import time
import weakref
from typing import Any, Protocol

__all__ = ["end_all", "forget", "log_lost", "when_deleted"]

_logger = logging.getLogger("reverb")

# How long a writer waits for what is unconfirmed when it ends; at the end of the interpreter all of them together.
_PATIENCE_SECONDS = 5.0


class _Closable(Protocol):
    def close(self, patience: float) -> str | None: ...


_open: dict[int, _Closable] = {}


def when_deleted(owner: Any, writer: _Closable, *, complaint: str | None = None) -> "weakref.finalize[Any, Any]":
    """Closes `writer` when `owner` is deleted, or when the interpreter ends, whichever comes first.

    Args:
      owner: What programs hold.
      writer: What must be closed. It has no reference to `owner`.
      complaint: Logged if that happens.

    Returns:
      The finalizer; calling it closes the writer, without the complaint if it is detached first.
    """
    _open[id(writer)] = writer
    finalizer = weakref.finalize(owner, _end, writer, complaint)
    finalizer.atexit = False
    return finalizer


def forget(writer: _Closable) -> None:
    """Says that the writer was closed."""
    _open.pop(id(writer), None)


def log_lost(lost: str | None) -> None:
    """Names what a writer has given up."""
    if lost is not None:
        _logger.warning("A writer was closed: %s", lost)


def _end(writer: _Closable, complaint: str | None) -> None:
    if complaint is not None:
        _logger.warning(complaint)
    forget(writer)
    log_lost(writer.close(_PATIENCE_SECONDS))


@atexit.register
def end_all() -> None:
    """Closes all writers that are open."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while _open:
        _, writer = _open.popitem()
        log_lost(writer.close(max(0.0, deadline - time.monotonic())))
