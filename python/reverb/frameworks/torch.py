"""Converts NumPy arrays to PyTorch tensors, without a copy where possible."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reverb._binding import TensorMaker
from reverb.data.arrays import BITS
from reverb.data.leaves import map_leaves
from reverb.frameworks.dtype_rules import narrow, refuse
from reverb.replay_sample import Ragged

# Types that older releases lack, and the types that replace them there.
_UNSIGNED = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
# Whether this release has all dtypes except strings.
TAKES_ALL = all(hasattr(torch, name) for name in (*BITS, *_UNSIGNED))


def as_device(device: Any) -> torch.device | None:
    """Converts a name to a device. None stays None.

    Raises:
      ValueError: PyTorch sees no such device in this process.
    """
    if device is None:
        return None
    found = torch.device(device)
    backend: Any = getattr(torch, found.type, None)
    # The CPU and virtual devices have no such function, and are always there.
    if hasattr(backend, "device_count") and found.type != "cpu":
        count = backend.device_count()
        if count <= (found.index or 0):
            raise ValueError(f'device "{device}": PyTorch sees {count or "none"} here')
    return found


def to_tensors(nest: Any, device: Any = None) -> Any:
    """Converts a nest of arrays to tensors, which share the arrays' memory unless a device is given."""
    if device is None:
        return map_leaves(to_tensor, nest)
    return map_leaves(lambda array, name: to_tensor(array, name).to(device), nest)


# Cache of the dtypes that torch accepts unchanged: reading a dtype's name costs more than making the tensor.
_plain: set[np.dtype[Any]] = set()
_from_numpy = torch.from_numpy


def to_leaves(columns: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Converts columns that are not tensors yet; see `to_tensor`."""
    pairs = zip(columns, names, strict=True)
    return [column if isinstance(column, torch.Tensor) else to_tensor(column, name) for column, name in pairs]


def tensor_maker() -> TensorMaker | None:
    """A maker of tensors without intermediate arrays; None if this release of PyTorch does not support it."""
    api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    return None if api is None else TensorMaker.of(api)


def to_tensor(array: Any, name: str) -> Any:
    """Converts a column to a tensor that shares its memory. A `Ragged` becomes a Ragged of tensors; None stays None.

    Args:
      array: Column to convert, an array or a Ragged.
      name: Path of the column, for error messages.

    Raises:
      TypeError: PyTorch has no such dtype.
      OverflowError: A column of uint64 has values that an old PyTorch cannot hold.
    """
    if type(array) is np.ndarray and array.dtype in _plain:
        return _from_numpy(array)
    if array is None:
        return None
    if isinstance(array, Ragged):
        return Ragged(to_tensor(array.values, name), torch.from_numpy(array.row_lengths))
    return _tensor(array, name)


def _tensor(array: NDArray[Any], name: str) -> torch.Tensor:
    kind = array.dtype.name
    if kind in BITS:
        dtype = getattr(torch, kind, None)
        if dtype is None:
            refuse(name, array.dtype, "this PyTorch")
        return torch.from_numpy(array.view(BITS[kind])).view(dtype)
    if kind in _UNSIGNED and not hasattr(torch, kind):
        array = narrow(array, _UNSIGNED[kind], name, "this PyTorch")
    try:
        tensor = torch.from_numpy(array)
        _plain.add(array.dtype)
        return tensor
    except TypeError:
        refuse(name, array.dtype, "PyTorch")


def to_tensordict(data: Any, batch_size: int, device: Any = None) -> Any:
    """Converts a nest of tensors to a TensorDict.

    Args:
      data: Nest of tensors whose first axis is the batch.
      batch_size: Size of the batch axis.
      device: The device that the tensors are on, which the TensorDict names; None names none.

    Raises:
      ValueError: A column is a `Ragged`.
    """
    from tensordict import TensorDict

    return TensorDict(_as_dicts(data), batch_size=[batch_size], device=device)


def _as_dicts(data: Any) -> Any:
    """Converts a nest to nested dicts with str keys, as a TensorDict requires."""
    if isinstance(data, dict):
        return {str(key): _as_dicts(value) for key, value in data.items()}
    if isinstance(data, Ragged):
        raise ValueError("a TensorDict cannot hold items of different lengths: pad them with `pad_to`.")
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return {key: _as_dicts(value) for key, value in zip(data._fields, data, strict=True)}
    if isinstance(data, (list, tuple)):
        return {str(place): _as_dicts(value) for place, value in enumerate(data)}
    return data
