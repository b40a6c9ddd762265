"""Converts keys and priorities of many items to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, SupportsFloat, TypeGuard, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb.data.arrays import as_array
from reverb.data.checks import as_key, check_key_bits

# The priority of a new item: a number, or the largest that its table has seen since it was reset.
ItemPriority = float | Literal["max"]


def is_max(priority: object) -> TypeGuard[Literal["max"]]:
    """Whether a priority is the word for the largest one so far."""
    return isinstance(priority, str) and priority == "max"


def as_item_priority(priority: object) -> ItemPriority:
    """Converts the priority of a new item to a float, unless it is "max".

    Raises:
      TypeError: The priority is another text, or cannot be converted to a float.
    """
    return priority if is_max(priority) else as_priority(priority)


def as_priority(priority: object) -> float:
    """Converts the priority of an item, a number or a one-element array of any library, to a float.

    Raises:
      TypeError: The priority is text, or cannot be converted to a float.
    """
    if type(priority) is float:
        return priority
    if isinstance(priority, (str, bytes)):
        raise TypeError(f"Priorities must be numbers, got {priority!r}.")
    if isinstance(priority, np.ndarray) and priority.size == 1:
        return float(priority.item())
    if hasattr(priority, "detach"):
        # PyTorch warns of tensors that require a gradient.
        priority = priority.detach()
    return float(cast(SupportsFloat, priority))


def as_updates(updates: object) -> list[tuple[int, float]]:
    """Converts a mapping from keys to priorities to pairs. None means no updates.

    Raises:
      TypeError: It is not a mapping, a key is not an integer of 64 bits, or a priority is not a number.
    """
    if updates is None:
        return []
    if not isinstance(updates, Mapping):
        raise TypeError(
            f"updates: expected a mapping from keys to priorities, got {type(updates).__name__}; "
            "update_priorities takes keys and priorities as arrays."
        )
    return [(as_key(key), as_priority(priority)) for key, priority in updates.items()]


def as_deletes(deletes: Iterable[int] | None) -> list[int]:
    """Converts the keys of items to delete; None means no deletes.

    Raises:
      TypeError: A key is not an integer of 64 bits.
    """
    return [as_key(key) for key in (() if deletes is None else deletes)]


def as_keys(keys: ArrayLike) -> NDArray[np.uint64]:
    """Converts the keys of many items to a flat array.

    Raises:
      TypeError: A key is not an integer, or has less than 64 bits.
      ValueError: A key is negative.
    """
    if not isinstance(keys, np.ndarray):
        array = np.asarray(keys)
        # Numpy converts a list to floats if it has both ints below and at or above 2**63.
        keys = array if array.dtype.kind in "ui" and (array.ndim or array.dtype.itemsize < 8) else _keys_of_list(keys)
    if keys.dtype != np.uint64:
        if keys.dtype.kind not in "ui":
            raise TypeError(f"Keys of items must be integers, got {keys.dtype}.")
        check_key_bits(keys.dtype)
        if keys.dtype.kind == "i" and (keys < 0).any():
            raise ValueError(
                f"Keys of items must not be negative. In {keys.dtype}, as in PyTorch, those from 2**63 are; keys are "
                "uint64: keys.view(np.uint64)."
            )
    return np.ascontiguousarray(keys, dtype=np.uint64).ravel()


def _keys_of_list(keys: Any) -> NDArray[np.uint64]:
    try:
        listed = list(keys)
    except TypeError:
        listed = [keys]
    return np.array([as_key(key) for key in listed], dtype=np.uint64)


def as_arrays(keys: ArrayLike, priorities: ArrayLike) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Converts keys and their priorities, or one priority for all, to flat arrays of the same length.

    Raises:
      TypeError, ValueError: See `Client.update_priorities`.
    """
    keys = as_keys(keys)
    values = np.ascontiguousarray(as_array(priorities, np.float64))
    return keys, values if values.shape == keys.shape else np.ascontiguousarray(broadcast(values, keys.shape))


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
