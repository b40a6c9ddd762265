"""Arrays of what programs give: numbers, arrays of any library, and the tensors of PyTorch that NumPy refuses."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb.data import dtypes

# Dtypes of PyTorch that NumPy lacks, and integers of the same size, as which their bits are passed on.
BITS = {"bfloat16": "int16", "float8_e5m2": "uint8", "float8_e4m3fn": "uint8"}


def as_array(value: Any, dtype: Any = None) -> NDArray[Any]:
    """Does what `numpy.asarray` does, also for tensors of PyTorch of any dtype, with a gradient, or on a device.

    Args:
      value: Value to convert.
      dtype: Dtype of the array; None keeps that of the value.

    Raises:
      TypeError, ValueError, RuntimeError: The value cannot be converted.
    """
    try:
        return np.asarray(value, dtype)
    except (TypeError, RuntimeError):
        # A program that has a tensor has imported PyTorch.
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        if tensor is None or not isinstance(value, tensor):
            raise
    return np.asarray(_of_tensor(value), dtype)


def _of_tensor(tensor: Any) -> NDArray[Any]:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in BITS:
        whole: NDArray[Any] = tensor.numpy(force=True)
        return whole
    bits: NDArray[Any] = tensor.detach().cpu().view(getattr(sys.modules["torch"], BITS[name])).numpy()
    return bits.view(dtypes.as_dtype(tensor.dtype))
