"""Closes writers that the program has not closed, when they are deleted or when the interpreter exits."""

import collections
import logging
import os
import threading
import time
import weakref
from typing import Any

from reverb._binding import WriterSession
from reverb._shutdown import Stage, at_exit
from reverb.data import nests
from reverb.writing.reports import Reports

_logger = logging.getLogger("reverb")

# How long a closed writer waits for its unconfirmed items. Writers that end together all wait at the same time.
# limit (Writers): time that a closed or deleted writer, and a `flush` after the interpreter has begun to end, has for
# unconfirmed items | {:time} | the items given up are named in the log, in one line for writers that end together
CLOSE_TIMEOUT_SECONDS = 5.0
# How long the deletion of one of several writers waits before a thread takes over.
_DELETE_SECONDS = 0.1
# Maximum number of reasons in one line of the log, and of characters of each.
_MAX_REASONS = 5
_MAX_REASON_LENGTH = 400

# What a writer has discarded: the number of unconfirmed items by table, and reasons.
Discarded = tuple[dict[str, int], list[str]]


_open: dict[int, tuple[WriterSession, Reports]] = {}
# Writers are kept here so that no new object gets the id of one.
_closed_at_exit: dict[int, WriterSession] = {}
_is_exiting = False


def close_when_deleted(
    owner: Any, writer: WriterSession, reports: Reports, *, warning: str | None = None
) -> "weakref.finalize[Any, Any]":
    """Closes `writer` when `owner` is deleted or when the interpreter exits, whichever comes first.

    Args:
      owner: The writer object that the program holds.
      writer: The extension's writer, which must be closed. It must not refer to `owner`.
      reports: Errors that its owner has kept. Those that no call has raised are logged at the end.
      warning: Text that is logged as a warning if `owner` is deleted before it was closed; None logs nothing.

    Returns:
      The finalizer. Detaching it prevents that `writer` is closed when `owner` is deleted.
    """
    _open[id(writer)] = writer, reports
    finalizer = weakref.finalize(owner, _close_deleted, writer, reports, warning)
    finalizer.atexit = False
    return finalizer


def mark_closed(writer: WriterSession) -> None:
    """Removes a closed writer from those to close at interpreter exit."""
    _open.pop(id(writer), None)


def was_closed_at_exit(writer: WriterSession) -> bool:
    """Returns whether interpreter exit has closed a writer, and logged the items that it discarded.

    A `__del__` that runs later may still flush the writer, which then has nothing left to send.
    """
    return id(writer) in _closed_at_exit


def limited_at_exit(seconds: float | None) -> float | None:
    """Returns the time limit for a wait, in seconds: at interpreter exit that of `close`, unless it was shorter.

    A server of this process has stopped then, and the writer would wait for it until its `reconnect_timeout`.
    """
    if not _is_exiting:
        return seconds
    return CLOSE_TIMEOUT_SECONDS if seconds is None else min(seconds, CLOSE_TIMEOUT_SECONDS)


def discard(writer: WriterSession, reports: Reports, patience: float) -> Discarded | None:
    """Closes a writer.

    Args:
      writer: The extension's writer.
      reports: Errors that its owner has kept.
      patience: Time in seconds to wait for its unconfirmed items.

    Returns:
      What was discarded, with the reasons that no call has raised; None if there is nothing to log.
    """
    items, reasons = writer.close(patience) or ({}, [])
    reasons = [*reports.take_texts(), *reasons]
    return (items, reasons) if items or reasons else None


def close_now(writer: WriterSession, reports: Reports) -> None:
    """Closes a writer. Waits for its unconfirmed items, and logs those that are discarded.

    Of calls that overlap, the last logs the items of all.
    """
    mark_closed(writer)
    _closing.begin()
    discarded = None
    try:
        discarded = discard(writer, reports, CLOSE_TIMEOUT_SECONDS)
    finally:
        log_discarded(*_closing.end(discarded))


def close_later(writer: WriterSession, reports: Reports) -> None:
    """Closes a writer without a wait, for an event loop: a thread waits for its unconfirmed items."""
    if writer.num_pending_items:
        try:
            _deleted.add(writer, reports)
        except RuntimeError:
            # The interpreter is ending, and waits as for the other writers.
            pass
        else:
            return
    close_now(writer, reports)


def log_discarded(*discarded: Discarded | None) -> None:
    """Logs what closed writers have discarded, if anything, in one line."""
    writers = [one for one in discarded if one is not None]
    if not writers:
        return
    items: collections.Counter[str] = collections.Counter()
    for tables, _ in writers:
        items.update(tables)
    parts = []
    if items:
        tables_text = ", ".join(f"{count} for table `{table}`" for table, count in sorted(items.items()))
        parts.append(f"{items.total()} items were not confirmed and are given up ({tables_text})")
    reasons = collections.Counter(reason for _, reasons in writers for reason in reasons)
    parts += [_summary(reason, count) for reason, count in list(reasons.items())[:_MAX_REASONS]]
    if len(reasons) > _MAX_REASONS:
        parts.append(f"{len(reasons) - _MAX_REASONS} more reasons")
    subject = "A writer was closed" if len(writers) == 1 else f"{len(writers)} writers were closed"
    _logger.warning("%s: %s", subject, "; ".join(parts))


def _summary(reason: str, count: int) -> str:
    """A reason as a part of one line, with the number of times that it was given."""
    text = " ".join(reason.split())
    if len(text) > _MAX_REASON_LENGTH:
        text = text[: _MAX_REASON_LENGTH - 3] + "..."
    return text if count == 1 else f"{text} ({count} times)"


def log_late(reason: str) -> None:
    """Logs why a writer that the program leaves still has unconfirmed items."""
    _logger.warning("A writer still has items that are not in their tables, and goes on sending them: %s", reason)


class _OverlappingCalls:
    """Collects what calls that overlap have discarded. A finalizer may close a writer within any of the methods."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._calls = 0
        self._discarded: list[Discarded] = []

    def begin(self) -> None:
        with self._lock:
            self._calls += 1

    def end(self, discarded: Discarded | None) -> list[Discarded]:
        """Adds what a call has discarded. Returns what all have discarded if it is the last call."""
        with self._lock:
            self._calls -= 1
            if discarded is not None:
                self._discarded.append(discarded)
            if self._calls:
                return []
            collected, self._discarded = self._discarded, []
            return collected


class _DeletedWriters:
    """Deleted writers that wait for their items. One thread closes all of them and logs one line."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: collections.deque[tuple[WriterSession, Reports, float]] = collections.deque()
        self._has_thread = False

    def add(self, writer: WriterSession, reports: Reports) -> None:
        """Closes a writer in the background.

        Raises:
          RuntimeError: The interpreter is ending, and starts no thread.
        """
        with self._lock:
            if not self._has_thread:
                # Not a daemon: the interpreter waits for it before it ends.
                threading.Thread(target=self._run, name="reverb-close").start()
                self._has_thread = True
            self._waiting.append((writer, reports, time.monotonic() + CLOSE_TIMEOUT_SECONDS))

    def _run(self) -> None:
        discarded: list[Discarded | None] = []
        while True:
            with self._lock:
                if not self._waiting:
                    self._has_thread = False
                    break
                writer, reports, deadline = self._waiting.popleft()
            discarded.append(discard(writer, reports, max(0.0, deadline - time.monotonic())))
            mark_closed(writer)
        log_discarded(*discarded)


_closing = _OverlappingCalls()
_deleted = _DeletedWriters()


def _forget_parent() -> None:
    """Replaces what refers to threads that exist only in the parent of a forked child."""
    global _closing, _deleted
    _closing, _deleted = _OverlappingCalls(), _DeletedWriters()


os.register_at_fork(after_in_child=_forget_parent)


def _close_deleted(writer: WriterSession, reports: Reports, warning: str | None) -> None:
    if warning is not None:
        _logger.warning(warning)
    # A writer that is alone shares its line of the log with no other, so the program waits as it does in `close`.
    if len(_open) > 1 and not writer.drain(_DELETE_SECONDS):
        try:
            _deleted.add(writer, reports)
        except RuntimeError:
            pass
        else:
            return
    close_now(writer, reports)


def _close_all() -> None:
    """Waits for the items of all open writers, and closes those that have any left.

    The others stay open for a `__del__` that runs later and writes to them.
    """
    global _is_exiting
    _is_exiting = True
    if _open:
        # The `__del__` could not import it.
        nests.dm_tree()
    deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
    for writer, _ in list(_open.values()):
        # All of them send their items while the first waits.
        writer.drain(0.0)
    discarded = []
    for number, (writer, reports) in list(_open.items()):
        writer.drain(max(0.0, deadline - time.monotonic()))
        is_settled = writer.is_settled and not reports.kept
        if not is_settled and _open.pop(number, None) is not None:
            _closed_at_exit[number] = writer
            discarded.append(discard(writer, reports, 0.0))
    log_discarded(*discarded)


at_exit(Stage.WRITERS, _close_all)
