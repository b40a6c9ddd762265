"""From NumPy arrays to tensors of PyTorch, without a copy where that can be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reverb.loaders.batch import Batch
from reverb.loaders.dtype_rules import narrow, refuse
from reverb.loaders.leaves import map_leaves
from reverb.pybind import TensorMaker
from reverb.replay_sample import Ragged

__all__ = ["TAKES_ALL", "tensor_maker", "to_leaves", "to_tensor", "to_tensors", "to_torch"]

# What ml_dtypes adds to NumPy: the bits go over as an integer type of the same size.
_BY_BITS = {"bfloat16": np.int16, "float8_e5m2": np.uint8, "float8_e4m3fn": np.uint8}
# Types that older releases lack, and those that hold their values there.
_UNSIGNED = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
# Whether this release has all dtypes but strings.
TAKES_ALL = all(hasattr(torch, name) for name in (*_BY_BITS, *_UNSIGNED))


def to_torch(batch: Batch, tensordict: bool = False) -> Batch:
    """A batch whose weights are a tensor, too.

    Args:
      batch: Its data and mask are made of tensors, by `to_tensor`.
      tensordict: Whether the data are to be a TensorDict, whose keys are those of the data.

    Raises:
      ValueError: Items differ in length, and the data are to be a TensorDict.
    """
    if tensordict:
        batch = batch._replace(data=_tensordict(batch.data, len(batch.info.key)))
    return batch if batch.weights is None else batch._replace(weights=torch.from_numpy(batch.weights))


def to_tensors(nest: Any, device: Any = None) -> Any:
    """A nest of tensors that share the arrays' memory, or are on a device."""
    if device is None:
        return map_leaves(to_tensor, nest)
    return map_leaves(lambda array, name: to_tensor(array, name).to(device), nest)


# The dtypes that torch takes as they are, as they were met: looking at a dtype's name costs more than the tensor.
_plain: set[np.dtype[Any]] = set()
_from_numpy = torch.from_numpy


def to_leaves(columns: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Columns as tensors, those that are none yet; see `to_tensor`."""
    pairs = zip(columns, names, strict=True)
    return [column if isinstance(column, torch.Tensor) else to_tensor(column, name) for column, name in pairs]


def tensor_maker() -> TensorMaker | None:
    """Makes tensors without arrays; None if this release, or what it offers, is too old for that."""
    api = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    return None if api is None else TensorMaker.of(api)


def to_tensor(array: Any, name: str) -> Any:
    """A column as a tensor that shares its memory. A `Ragged` stays one, of tensors; None stays None.

    Args:
      array: The column.
      name: For messages.

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
    if kind in _BY_BITS:
        dtype = getattr(torch, kind, None)
        if dtype is None:
            refuse(name, array.dtype, "this PyTorch")
        return torch.from_numpy(array.view(_BY_BITS[kind])).view(dtype)
    if kind in _UNSIGNED and not hasattr(torch, kind):
        array = narrow(array, _UNSIGNED[kind], name, "this PyTorch")
    try:
        tensor = torch.from_numpy(array)
        _plain.add(array.dtype)
        return tensor
    except TypeError:
        refuse(name, array.dtype, "PyTorch")


def _tensordict(data: Any, batch_size: int) -> Any:
    from tensordict import TensorDict

    return TensorDict(_as_dicts(data), batch_size=[batch_size])


def _as_dicts(data: Any) -> Any:
    """Nested dicts with str keys, which is all that a TensorDict takes."""
    if isinstance(data, dict):
        return {str(key): _as_dicts(value) for key, value in data.items()}
    if isinstance(data, Ragged):
        raise ValueError("a TensorDict has one batch size: pad items of different lengths with `pad_to`.")
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return {key: _as_dicts(value) for key, value in zip(data._fields, data, strict=True)}
    if isinstance(data, (list, tuple)):
        return {str(place): _as_dicts(value) for place, value in enumerate(data)}
    return data
