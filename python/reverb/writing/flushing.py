"""Base class of the writers that send in the background: waiting for confirmations, and closing."""

import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from reverb import _binding
from reverb.data import checks
from reverb.errors import CancelledError, DeadlineExceededError, ReverbError
from reverb.writing import closing
from reverb.writing.reports import Reports

_Writer = TypeVar("_Writer", bound="FlushingWriter")


class FlushingWriter:
    """A writer whose items are sent by the extension. As a context manager it flushes and leaves the writer open.

    Args:
      sender: The extension's writer, which must not refer to this object.

    Attributes:
      sender: The extension's writer.
      reports: Errors of earlier items that later calls raise. Both are for other modules of this package, and not part
        of the public interface.
    """

    def __init__(self, sender: _binding.WriterSession) -> None:
        self.sender = sender
        self._closed = False
        self.reports = Reports()
        self._finalizer = closing.close_when_deleted(self, sender, self.reports)

    def __enter__(self: _Writer) -> _Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes without a time limit, unless the body raised a ReverbError or closed the writer. It stays usable."""
        if not (isinstance(error, ReverbError) or self._closed):
            self.flush()

    def note_priority(self, priority: float) -> None:
        """Gives later items of priority "max" at least this priority. For adders.

        Args:
          priority: Lower bound of the priority, at least 0.
        """
        self.sender.note_priority(priority)

    def take_keys(self, num_envs: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The keys of the items that were made since the last call, environment by environment. For adders.

        Args:
          num_envs: Number of environments of the writer.

        Returns:
          The keys, uint64 `[items]`, and the number of items of each environment, int64 `[num_envs]`.
        """
        return self.sender.take_keys(num_envs)

    def leave(self, error: BaseException | None) -> None:
        """Flushes as `__exit__` does, but waits only as long as `close`. For adders.

        Items that are not in their tables by then are logged. They stay queued, and the writer stays usable.

        Args:
          error: Exception that the body of the `with` statement raised; None if it raised none.
        """
        if isinstance(error, ReverbError) or self._closed or closing.was_closed_at_exit(self.sender):
            return
        self.reports.finish(step_taken=False)
        try:
            self.sender.flush(0, closing.CLOSE_TIMEOUT_SECONDS)
        except DeadlineExceededError as late:
            closing.log_late(str(late))

    def flush(
        self, block_until_num_items: int = 0, timeout_ms: int | None = None, *, timeout: float | None = None
    ) -> None:
        """Sends all items that can be sent, and waits until at most `block_until_num_items` items are unconfirmed.

        Chunks that only the last `block_until_num_items` items refer to stay open. At interpreter exit, as in a
        `__del__` that runs late, the call waits for 5 seconds at most.

        Args:
          block_until_num_items: Number of items that may stay unconfirmed, at least 0.
          timeout_ms: Time limit in milliseconds. 0 checks once without waiting; None waits as long as the tables' rate
            limiters block, and logs every 10 s what is not in its table yet.
          timeout: Time limit in seconds, instead of `timeout_ms`.

        Raises:
          ValueError: A number is negative, both time limits are given, or the server rejected an earlier item, which is
            then dropped.
          DeadlineExceededError: Too many items were still unconfirmed at the timeout. They stay queued.
          UnavailableError: The server could not be reached within `reconnect_timeout`.
        """
        seconds = as_seconds(timeout_ms, timeout)
        self._flush("Flush", self.begin_flush(block_until_num_items), seconds)

    def begin_flush(self, block_until_num_items: int) -> int:
        """Begins a flush: checks its argument, and raises the first of the errors that were kept.

        For `reverb.aio`; it is not part of the public interface.

        Args:
          block_until_num_items: Number of items that may stay unconfirmed, at least 0.
        """
        if block_until_num_items < 0:
            raise ValueError(f"block_until_num_items must be >= 0, got {block_until_num_items}")
        self.reports.finish(step_taken=False)
        return block_until_num_items

    def _end_episode(self, end: Callable[[bool], None], clear_buffers: bool, seconds: float | None) -> None:
        """Flushes, and ends the episode also if items were not confirmed in time or were refused."""
        try:
            self._flush("End episode", 0, seconds)
        except CancelledError:
            raise
        except ReverbError as error:
            end(clear_buffers)
            error.step_taken = True
            raise
        end(clear_buffers)

    def _flush(self, what: str, but_last: int, seconds: float | None) -> None:
        seconds = closing.limited_at_exit(seconds)
        if closing.was_closed_at_exit(self.sender):
            return
        try:
            self.sender.flush(but_last, seconds)
        except DeadlineExceededError as error:
            # The reason, followed by the text of dm-reverb.
            text = f"{what} call did not complete within provided timeout of {_as_clock(seconds or 0)}"
            raise DeadlineExceededError(f"{error}\n{text}") from None

    @property
    def is_closed(self) -> bool:
        """Whether the writer was closed."""
        return self._closed

    def leave_behind(self) -> None:
        """Closes the writer without a wait: in the background, its items have as long as in `close`.

        For `reverb.aio`; it is not part of the public interface.
        """
        if not self._closed:
            self._closed = True
            self._finalizer.detach()
            closing.close_later(self.sender, self.reports)

    def pace_in_event_loop(self) -> None:
        """From now on no call waits, and neither does the deletion of the writer.

        For `reverb.aio`, which awaits the room for items; it is not part of the public interface.
        """
        self.pace()
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, closing.close_later, self.sender, self.reports)
        self._finalizer.atexit = False

    def pace(self) -> None:
        """From now on only `take_room` waits for room. For adders; it is not part of the public interface."""
        self.sender.pace()

    def has_room(self, count: int) -> bool:
        """Whether there is room for so many more items. For adders; it is not part of the public interface."""
        return self.sender.has_room(count)

    def take_room(self, count: int, timeout: float | None) -> None:
        """Waits until there is room for so many more items. For adders; it is not part of the public interface.

        Args:
          count: Number of items; for more than `max_in_flight_items` the call waits until no item is unconfirmed.
          timeout: Time limit in seconds; None means no limit.

        Raises:
          DeadlineExceededError: There was no room within the timeout.
        """
        if not closing.was_closed_at_exit(self.sender):
            self.sender.take_room(count, closing.limited_at_exit(timeout))

    def close(self) -> None:
        """Closes the writer. Waits up to 5 seconds; items that are still unconfirmed are then discarded and logged.

        A second call does nothing.
        """
        if not self._closed:
            self._closed = True
            self._finalizer.detach()
            if not closing.was_closed_at_exit(self.sender):
                closing.close_now(self.sender, self.reports)


def as_seconds(timeout_ms: int | None, timeout: float | None) -> float | None:
    """Converts a timeout, which may be given in milliseconds or in seconds, to seconds.

    Raises:
      TypeError: The timeout is not a number, or `timeout_ms` is not an integer.
      ValueError: The timeout is negative, or both are given.
    """
    if timeout_ms is None:
        return checks.as_timeout(timeout)
    if timeout is not None:
        raise ValueError(f"give `timeout` (seconds) or `timeout_ms`, not both: got {timeout!r} and {timeout_ms!r}.")
    milliseconds = checks.as_int("timeout_ms", timeout_ms)
    if milliseconds < 0:
        raise ValueError(f"timeout_ms must be None or >= 0, got {timeout_ms}")
    return milliseconds / 1000


def _as_clock(seconds: float) -> str:
    """Seconds as a timedelta shows them.

    CPython 3.13.0 crashes where a timedelta is made as the interpreter ends, when writers are flushed.
    """
    whole, millionths = divmod(round(seconds * 1e6), 10**6)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" + (f".{millionths:06}" if millionths else "")
