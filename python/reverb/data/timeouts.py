"""Timeouts of calls, in seconds."""

import math
import time
from collections.abc import Callable

from reverb.data import checks


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
