"""Converts small arrays, such as the bounds of specs, to and from `tensorflow.TensorProto`."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reverb.data import dtypes

# Maps a dtype to the typed field that holds its elements, and to the dtype for reading the numbers of that field.
_FIELDS = {
    "float32": ("float_val", "f4"),
    "float64": ("double_val", "f8"),
    "complex64": ("scomplex_val", "f4"),
    "complex128": ("dcomplex_val", "f8"),
    "int64": ("int64_val", "i8"),
    "uint32": ("uint32_val", "u4"),
    "uint64": ("uint64_val", "u8"),
    "bool": ("bool_val", "?"),
    "float16": ("half_val", "u2"),
    "bfloat16": ("half_val", "u2"),
    "float8_e5m2": ("float8_val", "u1"),
    "float8_e4m3fn": ("float8_val", "u1"),
}
_NARROW_INTEGERS = ("int_val", "i4")
# A message of a few bytes can specify an arbitrarily large shape, so the number of elements is limited.
_MAX_ELEMENTS = 2**24


def encode(array: NDArray[Any], message: Any) -> None:
    """Writes an array into a message. As in dm-reverb, strings and scalars use the typed field, other arrays bytes.

    Args:
      array: Array to write, of any dtype that can be stored.
      message: Empty `tensorflow.TensorProto` message to fill.
    """
    message.dtype = dtypes.number_of(array.dtype)
    message.tensor_shape.SetInParent()
    for size in array.shape:
        message.tensor_shape.dim.add().size = size
    if array.dtype.kind in "OSU":
        message.string_val.extend(_as_bytes(value) for value in array.ravel())
    elif array.ndim > 0:
        message.tensor_content = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    else:
        _encode_scalar(array, message)


def _encode_scalar(array: NDArray[Any], message: Any) -> None:
    name, raw = _FIELDS.get(array.dtype.name, _NARROW_INTEGERS)
    if name == "float8_val":
        message.float8_val = array.tobytes()
        return
    numbers = array.astype("i4") if name == "int_val" else array.reshape(1).view(raw)
    getattr(message, name).extend(numbers.ravel().tolist())


def decode(message: Any) -> NDArray[Any]:
    """Reads an array from a message.

    Args:
      message: The `tensorflow.TensorProto` to read.

    Returns:
      The array. If a typed field has fewer values than the shape has elements, the last value is repeated; if it is
      empty, all elements are 0.

    Raises:
      TypeError: The dtype is unknown.
      ValueError: The content does not fit the shape, or the shape is negative or too large.
    """
    dtype = dtypes.dtype_from_number(message.dtype)
    shape = [dim.size for dim in message.tensor_shape.dim]
    if message.tensor_content and dtype.kind != "O":
        return np.frombuffer(message.tensor_content, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    values = _typed_values(message, dtype)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count > _MAX_ELEMENTS:
        raise ValueError(f"Invalid shape {shape} of a bound.")
    if len(values) == 0:
        return np.zeros(shape, dtype)
    if len(values) > count:
        raise ValueError(f"A tensor of shape {shape} must have at most {count} values, got {len(values)}.")
    return np.concatenate([values, np.repeat(values[-1:], count - len(values))]).reshape(shape)


def _typed_values(message: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind == "O":
        return np.array([*message.string_val], dtype=object)
    name, raw = _FIELDS.get(dtype.name, _NARROW_INTEGERS)
    if name == "float8_val":
        return np.frombuffer(message.float8_val, dtype)
    values = np.array(getattr(message, name)[:], dtype=raw)
    return values.astype(dtype) if name == "int_val" else values.view(dtype)


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
