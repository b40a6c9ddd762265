"""Conversion between numpy's dtypes and TensorFlow's numbers for them, which are used on the wire.

Strings are `object` arrays of `bytes`. Dtypes that numpy lacks (bfloat16, and the float8 and int4 kinds) are those of
ml_dtypes, which is imported only when such a dtype occurs.
"""

import functools
from typing import Any

import numpy as np

STRING = 7

_NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
    "float8_e5m2": 24,
    "float8_e4m3fn": 25,
    "int4": 29,
    "uint4": 30,
}
_NAMES = {number: name for name, number in _NUMBERS.items()}
_BEYOND_NUMPY = {14, 24, 25, 29, 30}
# TensorFlow's quantised types. As in TensorFlow, the numpy dtype is a record with one field named after the type.
_QUANTISED = {
    11: ("qint8", "i1"),
    12: ("quint8", "u1"),
    13: ("qint32", "i4"),
    15: ("qint16", "i2"),
    16: ("quint16", "u2"),
}
_QUANTISED_NUMBERS = {name: number for number, (name, _) in _QUANTISED.items()}


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Converts any description of a dtype to a numpy dtype.

    Args:
      dtype: A numpy dtype, a scalar type, a name, a `tf.DType` or a `torch.dtype`.

    Returns:
      The dtype in the byte order of this machine; `object` for any kind of string.

    Raises:
      TypeError: The argument is not a dtype, or elements of the dtype cannot be stored.
    """
    dtype = getattr(dtype, "as_numpy_dtype", dtype)
    if dtype is None:
        raise TypeError("None is not a dtype.")
    if type(dtype).__module__ == "torch":
        name = str(dtype).removeprefix("torch.")
        if name not in _NUMBERS:
            raise TypeError(f"Elements of dtype {dtype} cannot be stored.")
        return dtype_from_number(_NUMBERS[name])
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind in "OSU":
        return np.dtype(object)
    number_of(found)
    return found.newbyteorder("=") if not found.isnative else found


def number_of(dtype: np.dtype[Any]) -> int:
    """The number of a dtype in TensorFlow's `DataType`.

    Raises:
      TypeError: The dtype has no number, so its elements cannot be stored.
    """
    if dtype.kind in "OSU":
        return STRING
    number = _NUMBERS.get(dtype.name)
    if number is None and dtype.names is not None and len(dtype.names) == 1:
        number = _QUANTISED_NUMBERS.get(dtype.names[0])
    if number is None:
        raise TypeError(f"Elements of dtype {dtype} cannot be stored.")
    return number


def name_of(number: int) -> str:
    """The name, as printed by TensorFlow, of the dtype with a number in TensorFlow's `DataType`.

    Raises:
      KeyError: The number is unknown.
    """
    if number == STRING:
        return "string"
    return _QUANTISED[number][0] if number in _QUANTISED else _NAMES[number]


def numbers() -> dict[str, int]:
    """The numbers in TensorFlow's `DataType` of the dtypes that tables are made with, by name."""
    return {**_NUMBERS, "string": STRING}


@functools.cache
def dtype_from_number(number: int) -> np.dtype[Any]:
    """The numpy dtype for a number in TensorFlow's `DataType`.

    Raises:
      TypeError: The number is unknown.
    """
    if number == STRING:
        return np.dtype(object)
    if number in _QUANTISED:
        return np.dtype([_QUANTISED[number]])
    name = _NAMES.get(number)
    if name is None:
        raise TypeError(f"No dtype has the number {number}.")
    if number in _BEYOND_NUMPY:
        import ml_dtypes

        beyond: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return beyond
    return np.dtype(name)
