"""Checks of the arguments of a table."""

import math
import operator
from typing import Any, cast

from reverb.data import checks


def check_limiter(name: str, limiter: tuple[float, int, float, float], max_size: int) -> None:
    """Refuses a table that could never hold enough items for a sample."""
    min_size = limiter[1]
    if min_size > max_size:
        raise ValueError(
            f"Table `{name}` could never be sampled: its rate limiter's min_size_to_sample ({min_size}) is above its "
            f"max_size ({max_size})."
        )


def as_name(name: object) -> str:
    """Converts the name of a table, which may be bytes."""
    if isinstance(name, bytes):
        return name.decode()
    if not isinstance(name, str):
        checks.refuse("name", "a str", name)
    return name


def as_changes(
    max_size: object, max_bytes: object, max_times_sampled: object
) -> tuple[int | None, int | None, int | None]:
    """Converts new options of a table; None stays None, and an infinite `max_bytes` becomes 0."""
    size = None if max_size is None else _fitting("max_size", checks.as_count("max_size", max_size))
    times = None if max_times_sampled is None else checks.as_int("max_times_sampled", max_times_sampled)
    if times is not None:
        times = _fitting("max_times_sampled", times)
    if isinstance(max_bytes, float) and max_bytes == math.inf:
        return size, 0, times
    limit = None if max_bytes is None else checks.as_count("max_bytes", max_bytes)
    if limit is not None and limit >= 2**64:
        raise ValueError(f'`max_bytes` must be below 2**64, got {limit}; float("inf") removes the limit.')
    return size, limit, times


def _fitting(name: str, number: int) -> int:
    if number not in checks.INT32:
        raise TypeError(f"`{name}` must fit into 32 bits, got {number}.")
    return number


def as_stall_after(seconds: object) -> float | None:
    """Converts the longest pause of a table that is not a stall. None stays None.

    Raises:
      TypeError: It is not a number.
      ValueError: It is not above 0.
    """
    if seconds is None:
        return None
    number = checks.as_float("stall_after", seconds)
    if not number > 0:
        raise ValueError(f"`stall_after` must be above 0 seconds, got {number:g}.")
    return number


def as_seed(seed: object) -> int | None:
    """Converts a seed to 64 bits; None stays None."""
    if seed is None:
        return None
    try:
        return operator.index(cast(Any, seed)) % 2**64
    except TypeError:
        checks.refuse("seed", "an int or None", seed)
