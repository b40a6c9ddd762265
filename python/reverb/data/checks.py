"""Checks of numeric arguments. They accept what dm-reverb's binding accepts, and errors name the argument."""

import math
import operator
from typing import Any, NoReturn, SupportsFloat, cast

import numpy as np

INT32 = range(-(2**31), 2**31)
_KEYS = range(2**64)


def refuse(name: str, expected: str, value: object) -> NoReturn:
    """Raises the TypeError of a constructor. Its text starts like that of dm-reverb."""
    raise TypeError(
        f"__init__(): incompatible constructor arguments. `{name}` must be {expected}, got {value!r} "
        f"({type(value).__name__})."
    )


def as_int32(name: str, value: object) -> int:
    """Converts an int, or any value that numpy accepts as an index, to an int that fits into 32 bits.

    Raises:
      TypeError: The value is not an integer, or does not fit into 32 bits.
    """
    try:
        number = operator.index(cast(Any, value))
    except TypeError:
        refuse(name, "an int", value)
    if number not in INT32:
        refuse(name, "an int that fits into 32 bits", value)
    return number


def as_float(name: str, value: object) -> float:
    """Converts a number to a float. Text is rejected.

    Raises:
      TypeError: The value is not a number.
    """
    if isinstance(value, (str, bytes, bytearray)):
        refuse(name, "a number", value)
    try:
        return float(cast(SupportsFloat, value))
    except TypeError:
        refuse(name, "a number", value)


def as_flag(name: str, value: object) -> bool:
    """Converts a value to whether it is true. Text is rejected, since "no" would be true.

    Raises:
      TypeError: The value is a text.
    """
    if isinstance(value, (str, bytes, bytearray)):
        refuse(name, "a bool", value)
    return bool(value)


def as_int(name: str, value: object) -> int:
    """Converts an integer of any type to an int.

    Raises:
      TypeError: The value is not an integer.
    """
    try:
        return operator.index(cast(Any, value))
    except TypeError:
        raise TypeError(f"`{name}` must be an int, got {value!r} ({type(value).__name__}).") from None


def as_count(name: str, value: object) -> int:
    """Converts an integer of at least 1 to an int.

    Raises:
      TypeError: The value is not an integer.
      ValueError: The value is below 1.
    """
    number = as_int(name, value)
    if number < 1:
        raise ValueError(f"`{name}` must be at least 1, got {number}.")
    return number


def as_bytes(name: str, value: object) -> int:
    """Converts a number of bytes, of 0 to 2**63 - 1, to an int.

    Raises:
      TypeError: The value is not an integer.
      ValueError: The value is out of range.
    """
    number = as_int(name, value)
    if not 0 <= number < 2**63:
        raise ValueError(f"`{name}` must be a number of bytes, 0 or more, got {number}.")
    return number


def as_timeout(timeout: object) -> float | None:
    """Converts a timeout to seconds. None and infinity become None, which means no limit.

    Raises:
      TypeError: The timeout is not a number.
      ValueError: The timeout is negative or NaN.
    """
    if timeout is None:
        return None
    try:
        seconds = float(cast(SupportsFloat, timeout)) if not isinstance(timeout, (str, bytes)) else None
    except TypeError:
        seconds = None
    if seconds is None:
        raise TypeError(f"`timeout` must be a number of seconds or None, got {timeout!r}.")
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"`timeout` must not be negative, got {timeout!r}.")
    return None if seconds == math.inf else seconds


def as_key(key: object) -> int:
    """Converts the key of an item, an int or an integer scalar or one-element array of any library, to an int.

    Raises:
      TypeError: The key is not an integer, has less than 64 bits, or is not in [0, 2**64).
    """
    if type(key) is not int and hasattr(key, "dtype"):
        check_key_bits(np.asarray(key).dtype)
    try:
        number = operator.index(cast(Any, key))
    except TypeError:
        number = _only_element(key)
    if number not in _KEYS:
        hint = " In int64, keys from 2**63 are negative; keys are uint64: keys.view(np.uint64)." if number < 0 else ""
        raise TypeError(f"Keys of items must be in [0, 2**64), got {number}.{hint}")
    return number


def check_key_bits(dtype: "np.dtype[Any]") -> None:
    """Refuses integer types into which keys do not fit.

    Raises:
      TypeError: The type is an integer of less than 64 bits.
    """
    if dtype.kind in "ui" and dtype.itemsize < 8:
        raise TypeError(
            f"Keys of items are uint64, got {dtype}: keys that went through {8 * dtype.itemsize} bits, as with "
            "jax.device_put, no longer name their items. Keep info.key as a NumPy array."
        )


def _only_element(key: object) -> int:
    item = getattr(key, "item", None)
    if callable(item) and getattr(key, "size", None) == 1:
        number = item()
        if isinstance(number, int):
            return number
    raise TypeError(f"Keys of items must be ints, got {key!r} ({type(key).__name__}).")
