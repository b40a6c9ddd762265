"""Converts NumPy arrays to JAX arrays, in the dtypes that JAX has."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from reverb.data.leaves import map_leaves
from reverb.frameworks.dtype_rules import narrow, refuse
from reverb.replay_sample import Ragged


def as_device(device: Any) -> Any:
    """Converts a name, such as `cpu`, `gpu` or `cuda:1`, to a device. Devices, shardings and None stay as they are.

    Raises:
      ValueError: JAX has no such device here, or the name has another form.
    """
    if not isinstance(device, str):
        return device
    platform, _, number = device.partition(":")
    if number and not number.isdecimal():
        raise ValueError(f"device {device!r}: expected a platform and a number, such as 'cpu' or 'cuda:0'")
    try:
        # Those of this process: others cannot be given arrays.
        found = jax.local_devices(backend=platform)
    except RuntimeError:
        found = []
    place = int(number or 0)
    if place >= len(found):
        names = ", ".join(f"{each.platform}:{each.id}" for each in jax.local_devices())
        raise ValueError(f'device "{device}": JAX sees {names} here')
    return found[place]


def to_arrays(nest: Any, device: Any = None) -> Any:
    """Puts a nest of arrays on a device. Raises the errors of `fit`."""
    return jax.device_put(map_leaves(fit, nest), device)


def fit_all(columns: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Converts columns to dtypes that JAX has; see `fit`."""
    return [fit(column, name) for column, name in zip(columns, names, strict=True)]


def fit(array: Any, name: str) -> Any:
    """Converts a column to a dtype that JAX has. None stays None.

    Args:
      array: Column to convert, an array or a Ragged.
      name: Path of the column, for error messages.

    Raises:
      TypeError: JAX has no dtype for the column.
      OverflowError: The column has 64-bit integers that JAX would truncate by default.
    """
    if isinstance(array, np.ndarray):
        return array if array.dtype.char in _FITTING else _fit_array(array, name)
    return Ragged(fit(array.values, name), fit(array.row_lengths, name)) if isinstance(array, Ragged) else array


# NumPy's type characters of the common types that JAX accepts or rounds. A dtype lookup would cost more than the rest.
# 64-bit floats are left to JAX, which rounds them when they are put on a device.
_FITTING = frozenset("?bBhHiIefdFD")
_NARROWER = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32}


def _fit_array(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.dtype.kind == "O":
        refuse(name, array.dtype, "JAX")
    narrower = _NARROWER.get(array.dtype)
    if narrower is None or jax.config.jax_enable_x64:  # type: ignore[attr-defined, unused-ignore]
        return array
    return narrow(array, narrower, name, "JAX")
