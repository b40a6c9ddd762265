"""Checks of the arguments of a table."""

import operator
from typing import Any, cast

from reverb.data import checks

__all__ = ["as_name", "as_seed", "check_limiter"]


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


def as_seed(seed: object) -> int | None:
    """Converts a seed to 64 bits; None stays None."""
    if seed is None:
        return None
    try:
        return operator.index(cast(Any, seed)) % 2**64
    except TypeError:
        checks.refuse("seed", "an int or None", seed)
