"""Arguments that must be numbers: taken as the reference's binding takes them, refused with the argument's name."""

import math
import operator
from typing import Any, NoReturn, SupportsFloat, cast

__all__ = ["as_count", "as_float", "as_int", "as_int32", "as_key", "as_timeout", "refuse"]

_INT32 = range(-(2**31), 2**31)
_KEYS = range(2**64)


def refuse(name: str, expected: str, value: object) -> NoReturn:
    """Raises the TypeError of a constructor, which begins as that of the reference does."""
    raise TypeError(
        f"__init__(): incompatible constructor arguments. `{name}` must be {expected}, got {value!r} "
        f"({type(value).__name__})."
    )


def as_int32(name: str, value: object) -> int:
    """An int, or whatever numpy counts as one, of 32 bits."""
    try:
        number = operator.index(cast(Any, value))
    except TypeError:
        refuse(name, "an int", value)
    if number not in _INT32:
        refuse(name, "an int of 32 bits", value)
    return number


def as_float(name: str, value: object) -> float:
    """A float, or a number that becomes one. No text."""
    if isinstance(value, (str, bytes, bytearray)):
        refuse(name, "a number", value)
    try:
        return float(cast(SupportsFloat, value))
    except TypeError:
        refuse(name, "a number", value)


def as_int(name: str, value: object) -> int:
    """A whole number.

    Raises:
      TypeError: Not an integer.
    """
    try:
        return operator.index(cast(Any, value))
    except TypeError:
        raise TypeError(f"`{name}` must be an int, got {value!r} ({type(value).__name__}).") from None


def as_count(name: str, value: object) -> int:
    """A whole number of at least 1.

    Raises:
      TypeError: Not an integer.
      ValueError: Below 1.
    """
    number = as_int(name, value)
    if number < 1:
        raise ValueError(f"`{name}` must be at least 1, got {number}.")
    return number


def as_timeout(timeout: object) -> float | None:
    """Seconds; None where there is no limit.

    Raises:
      TypeError: Not a number.
      ValueError: Negative or NaN.
    """
    if timeout is None:
        return None
    try:
        seconds = float(cast(SupportsFloat, timeout)) if not isinstance(timeout, (str, bytes)) else None
    except TypeError:
        seconds = None
    if seconds is None:
        raise TypeError(f"`timeout` must be seconds or None, got {timeout!r}.")
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"`timeout` must not be negative, got {timeout!r}.")
    return None if seconds == math.inf else seconds


def as_key(key: object) -> int:
    """The key of an item: an int, or an integer scalar or array of one element of any library.

    Raises:
      TypeError: Not an integer, or outside [0, 2**64).
    """
    try:
        number = operator.index(cast(Any, key))
    except TypeError:
        number = _only_element(key)
    if number not in _KEYS:
        raise TypeError(f"Keys of items lie in [0, 2**64), got {number}.")
    return number


def _only_element(key: object) -> int:
    item = getattr(key, "item", None)
    if callable(item) and getattr(key, "size", None) == 1:
        number = item()
        if isinstance(number, int):
            return number
    raise TypeError(f"Keys of items are ints, got {key!r} ({type(key).__name__}).")
