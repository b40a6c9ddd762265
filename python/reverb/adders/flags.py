"""Values that a step has once for each environment, such as the flags that end episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb.data.arrays import as_array


def per_env(name: str, values: ArrayLike, dtype: Any, num_envs: int | None) -> NDArray[Any]:
    """One value for each environment, `[num_envs]`, or `[1]` without a vector. A single value counts for all.

    Raises:
      TypeError: The values are a mapping, such as rewards by agent.
      ValueError: There are more or fewer values than environments.
    """
    refuse_mapping(name, values, num_envs)
    array = as_array(values, dtype)
    if array.size == 1 or array.shape == (num_envs,):
        each: NDArray[Any] = np.broadcast_to(array.ravel(), (num_envs or 1,))
        return each
    shape = list(array.shape)
    if num_envs is None:
        raise ValueError(f"{name} has shape {shape}; this adder was made without num_envs (num_envs={shape[0]}?).")
    raise ValueError(f"{name} has shape {shape}; this adder was made with num_envs={num_envs}.")


def refuse_mapping(name: str, values: Any, num_envs: int | None) -> None:
    """Raises TypeError if values are a mapping, such as rewards by agent."""
    if isinstance(values, Mapping):
        expected = "a number" if num_envs is None else f"a number or [{num_envs}]"
        keys = ", ".join(map(str, values))
        raise TypeError(f"{name}: expected {expected}, got a {type(values).__name__} with the keys {keys}")
