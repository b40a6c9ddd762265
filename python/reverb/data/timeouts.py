"""Timeouts of calls, in seconds."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

from reverb.data import checks
from reverb.errors import DeadlineExceededError, ReverbError

_Answer = TypeVar("_Answer")
# Time between two attempts to reach a lost server.
_PAUSE_S = 0.1
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


def persistently(
    call: Callable[[], _Answer],
    reach: Callable[[float | None], object],
    remaining: Callable[[], float | None],
    patience: float,
    is_remote: Callable[[], bool],
) -> _Answer:
    """Makes a call that changes nothing, and makes it again while its server is lost.

    Args:
      call: Function that makes the call, and may wait long.
      reach: Function that makes a short call with a timeout in seconds; None for no limit.
      remaining: Function that returns the seconds left of the call; None for no limit.
      patience: Time in seconds to wait for a lost server.
      is_remote: Function that returns whether the last call has reached a server in another process.
    """
    lost: ReverbError | None = None
    lost_at = begun = 0.0
    while True:
        is_reached = False
        try:
            if lost is not None:
                # The call alone would not tell how long it looked for the server, and how long it waited there.
                left, most = remaining(), max(0.0, lost_at + patience - time.monotonic())
                limit = most if left is None else min(left, most)
                reach(limit if limit < math.inf else None)
            is_reached, begun = True, time.monotonic()
            return call()
        except ReverbError as error:
            now = time.monotonic()
            if lost is not None and not is_reached and isinstance(error, DeadlineExceededError):
                if remaining() == 0.0:
                    raise
                raise lost from None
            if lost is None or (is_reached and now - begun > _FOUND_S):
                lost_at = now
            if not (error.is_transient and is_remote()) or now - lost_at >= patience or remaining() == 0.0:
                raise
            lost = error
        time.sleep(_PAUSE_S)
