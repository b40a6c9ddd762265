"""Converts keys and priorities of many items to arrays."""

from __future__ import annotations

from typing import Any, SupportsFloat, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb.data.checks import as_key

__all__ = ["as_keys", "as_priority", "broadcast"]


def as_priority(priority: object) -> float:
    """Converts the priority of an item, a number or a one-element array of any library, to a float.

    Raises:
      TypeError: The priority is text, or cannot be converted to a float.
    """
    if isinstance(priority, (str, bytes)):
        raise TypeError(f"Priorities must be numbers, got {priority!r}.")
    if isinstance(priority, np.ndarray) and priority.size == 1:
        return float(priority.item())
    return float(cast(SupportsFloat, priority))


def as_keys(keys: ArrayLike) -> NDArray[np.uint64]:
    """Converts the keys of many items to a flat array.

    Raises:
      TypeError: A key is not an integer.
      ValueError: A key is negative.
    """
    if not isinstance(keys, np.ndarray):
        array = np.asarray(keys)
        # Numpy converts a list to floats if it has both ints below and at or above 2**63.
        keys = array if array.dtype.kind in "ui" and array.ndim else _keys_of_list(keys)
    if keys.dtype != np.uint64:
        if keys.dtype.kind not in "ui":
            raise TypeError(f"Keys of items must be integers, got {keys.dtype}.")
        if keys.dtype.kind == "i" and (keys < 0).any():
            raise ValueError("Keys of items must not be negative.")
    return np.ascontiguousarray(keys, dtype=np.uint64).ravel()


def _keys_of_list(keys: Any) -> NDArray[np.uint64]:
    try:
        listed = list(keys)
    except TypeError:
        listed = [keys]
    return np.array([as_key(key) for key in listed], dtype=np.uint64)


def broadcast(values: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Gives priorities the shape of the keys. A single priority is repeated for all keys.

    Raises:
      ValueError: The numbers of priorities and keys differ.
    """
    if values.size != 1:
        values = values.ravel()
        if values.shape != shape:
            raise ValueError(f"Expected {shape[0]} priorities, or one for all keys, got {values.size}.")
        return values
    return np.full(shape, values.item())
