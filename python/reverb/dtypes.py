"""Types of elements: numpy's on this side, TensorFlow's numbers on the wire.

Strings are `object` arrays of `bytes`. What numpy lacks (bfloat16, the float8 kinds, the int4 kinds) is that of
ml_dtypes, which is only imported where such a type occurs.
"""

import functools
from typing import Any

import numpy as np

__all__ = ["STRING", "as_dtype", "dtype_from_number", "name_of", "number_of"]

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
# TensorFlow's quantised types: as there, a record of one field that is named like the type.
_QUANTISED = {
    11: ("qint8", "i1"),
    12: ("quint8", "u1"),
    13: ("qint32", "i4"),
    15: ("qint16", "i2"),
    16: ("quint16", "u2"),
}
_QUANTISED_NUMBERS = {name: number for number, (name, _) in _QUANTISED.items()}


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """A numpy dtype from whatever names one.

    Args:
      dtype: A numpy dtype, a scalar type, a name, or a `tf.DType`.

    Returns:
      The dtype, in the byte order of this machine; `object` for any kind of string.

    Raises:
      TypeError: Not a dtype, or one whose elements cannot be stored.
    """
    dtype = getattr(dtype, "as_numpy_dtype", dtype)
    if dtype is None:
        raise TypeError("None is not a dtype.")
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind in "OSU":
        return np.dtype(object)
    number_of(found)
    return found.newbyteorder("=") if not found.isnative else found


def number_of(dtype: np.dtype[Any]) -> int:
    """The number that TensorFlow's `DataType` has for a dtype.

    Raises:
      TypeError: It has none.
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
    """The name of the type that has a number in TensorFlow's `DataType`, as TensorFlow prints it.

    Raises:
      KeyError: None is known.
    """
    if number == STRING:
        return "string"
    return _QUANTISED[number][0] if number in _QUANTISED else _NAMES[number]


@functools.cache
def dtype_from_number(number: int) -> np.dtype[Any]:
    """The numpy dtype for a number of TensorFlow's `DataType`.

    Raises:
      TypeError: None is known.
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
