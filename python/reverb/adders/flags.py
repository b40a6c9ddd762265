"""Values that a step has once for each environment, such as the flags that end episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb.data.arrays import as_array


def per_env(name: str, values: ArrayLike, dtype: Any, num_envs: int | None) -> NDArray[Any]:
    """One value for each environment, `[num_envs]`, or `[1]` without a vector. A single value counts for all.

    Raises:
      TypeError: The values are a dict, such as rewards by agent.
      ValueError: There are more or fewer values than environments.
    """
    refuse_dict(name, values, num_envs)
    array = as_array(values, dtype)
    if array.size == 1 or array.shape == (num_envs,):
        each: NDArray[Any] = np.broadcast_to(array.ravel(), (num_envs or 1,))
        return each
    shape = list(array.shape)
    if num_envs is None:
        raise ValueError(f"{name} has shape {shape}; this adder was made without num_envs (num_envs={shape[0]}?).")
    raise ValueError(f"{name} has shape {shape}; this adder was made with num_envs={num_envs}.")


def refuse_dict(name: str, values: Any, num_envs: int | None) -> None:
    """Raises TypeError if values are a dict, such as rewards by agent. As a flag, NumPy would take one for true."""
    if isinstance(values, dict):
        expected = "a number" if num_envs is None else f"a number or [{num_envs}]"
        keys = ", ".join(map(str, values))
        raise TypeError(f"{name}: expected {expected}, got a dict with the keys {keys}")
