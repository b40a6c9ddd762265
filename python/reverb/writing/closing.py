"""Closes writers that the program has not closed, when they are deleted or when the interpreter exits."""

import logging
import time
import weakref
from typing import Any, Protocol

from reverb._shutdown import Stage, at_exit

__all__ = ["close_when_deleted", "log_discarded", "mark_closed", "was_closed_at_exit"]

_logger = logging.getLogger("reverb")

# How long a deleted writer waits for its unconfirmed items. At interpreter exit, all writers together wait this long.
_CLOSE_TIMEOUT_SECONDS = 5.0


class _Closable(Protocol):
    def close(self, patience: float) -> str | None: ...


_open: dict[int, _Closable] = {}
# Writers are kept here so that no new object gets the id of one.
_closed_at_exit: dict[int, _Closable] = {}


def close_when_deleted(owner: Any, writer: _Closable, *, warning: str | None = None) -> "weakref.finalize[Any, Any]":
    """Closes `writer` when `owner` is deleted or when the interpreter exits, whichever comes first.

    Args:
      owner: The writer object that the program holds.
      writer: The extension's writer, which must be closed. It must not refer to `owner`.
      warning: Text that is logged as a warning if `owner` is deleted before it was closed; None logs nothing.

    Returns:
      The finalizer. Calling it closes the writer; detaching it prevents that.
    """
    _open[id(writer)] = writer
    finalizer = weakref.finalize(owner, _close, writer, warning)
    finalizer.atexit = False
    return finalizer


def mark_closed(writer: _Closable) -> None:
    """Removes a closed writer from those to close at interpreter exit."""
    _open.pop(id(writer), None)


def was_closed_at_exit(writer: _Closable) -> bool:
    """Returns whether interpreter exit has closed a writer: its items are in their tables, or logged as discarded.

    A `__del__` that runs later may still flush the writer. The extension can then no longer raise its errors, because
    they would be imported.
    """
    return id(writer) in _closed_at_exit


def log_discarded(discarded: str | None) -> None:
    """Logs the items that a closed writer has discarded, if any."""
    if discarded is not None:
        _logger.warning("A writer was closed: %s", discarded)


def _close(writer: _Closable, warning: str | None) -> None:
    if warning is not None:
        _logger.warning(warning)
    mark_closed(writer)
    log_discarded(writer.close(_CLOSE_TIMEOUT_SECONDS))


def _close_all() -> None:
    """Closes all open writers."""
    deadline = time.monotonic() + _CLOSE_TIMEOUT_SECONDS
    while _open:
        number, writer = _open.popitem()
        _closed_at_exit[number] = writer
        log_discarded(writer.close(max(0.0, deadline - time.monotonic())))


at_exit(Stage.WRITERS, _close_all)
