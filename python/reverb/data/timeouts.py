"""Timeouts of calls, in seconds."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

from reverb.data import checks
from reverb.errors import DeadlineExceededError, ReverbError

_Answer = TypeVar("_Answer")
# Time between two attempts to reach a lost server.
PAUSE_S = 0.1
# A server that a call has waited at for this long was found again: the time of a lost one starts anew.
_FOUND_S = 2.0


def countdown(timeout: float | None) -> Callable[[], float | None]:
    """A function that returns the seconds left of a timeout that starts now, at least 0; None for no limit."""
    seconds = checks.as_timeout(timeout)
    if seconds is None:
        return lambda: None
    deadline = time.monotonic() + seconds
    return lambda: max(0.0, deadline - time.monotonic())


def as_reconnect_timeout(seconds: float) -> float:
    """Converts the time to wait for a lost server to a float, which may be infinite.

    Raises:
      TypeError: It is not a number.
      ValueError: It is negative or NaN.
    """
    # Asked first, because a small batch takes only a few microseconds in total.
    if type(seconds) is float and seconds >= 0.0:
        return seconds
    limit = checks.as_timeout(seconds)
    return math.inf if limit is None else limit


class Losses:
    """The losses of its server that a call which changes nothing outlives, because it is made again.

    Args:
      remaining: Function that returns the seconds left of the call; None for no limit.
      patience: Time in seconds to wait for a lost server.
      is_remote: Function that returns whether the last call has reached a server in another process.
    """

    def __init__(self, remaining: Callable[[], float | None], patience: float, is_remote: Callable[[], bool]) -> None:
        self._remaining = remaining
        self._patience = patience
        self._is_remote = is_remote
        self._lost: ReverbError | None = None
        self._lost_at = self._begun = 0.0
        self._is_reached = False

    @property
    def is_lost(self) -> bool:
        """Whether the server was lost, so that it must be reached first: by a short call with the timeout `limit()`.

        The call alone would not tell how long it looked for the server, and how long it waited there.
        """
        return self._lost is not None

    def limit(self) -> float | None:
        """The seconds in which a lost server must be reached; None for no limit."""
        left, most = self._remaining(), max(0.0, self._lost_at + self._patience - time.monotonic())
        limit = most if left is None else min(left, most)
        return limit if limit < math.inf else None

    def begin(self) -> None:
        """Notes that the call begins, at a server that was reached or not yet lost."""
        self._is_reached, self._begun = True, time.monotonic()

    def note(self, error: ReverbError) -> None:
        """Notes an error of the call, or of reaching the server. Raises it unless the call is to be made again."""
        now = time.monotonic()
        if self._lost is not None and not self._is_reached and isinstance(error, DeadlineExceededError):
            if self._remaining() == 0.0:
                raise error
            raise self._lost from None
        if self._lost is None or (self._is_reached and now - self._begun > _FOUND_S):
            self._lost_at = now
        is_transient = error.is_transient and self._is_remote()
        if not is_transient or now - self._lost_at >= self._patience or self._remaining() == 0.0:
            raise error
        self._lost, self._is_reached = error, False


def persistently(call: Callable[[], _Answer], reach: Callable[[float | None], object], losses: Losses) -> _Answer:
    """Makes a call that changes nothing, and makes it again while its server is lost.

    Args:
      call: Function that makes the call, and may wait long.
      reach: Function that makes a short call with a timeout in seconds; None for no limit.
      losses: What tells whether to make it again.
    """
    while True:
        try:
            if losses.is_lost:
                reach(losses.limit())
            losses.begin()
            return call()
        except ReverbError as error:
            losses.note(error)
        time.sleep(PAUSE_S)
