"""Converts Arrow data to items. Checks lengths and shapes, and that no value is missing."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from reverb.errors import InvalidArgumentError
from reverb.exchange.items import Column, Items
from reverb.exchange.layout import FIXED, ColumnLayout, Layout, storage
from reverb.replay_sample import Ragged

# The dtypes of numbers, by their types. `DataType.to_pandas_dtype` needs pandas in some releases.
_DTYPES = {
    pa.from_numpy_dtype(code): np.dtype(code)
    for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}


def to_items(batch: pa.RecordBatch, layout: Layout, where: str) -> Items:
    """Reads the items of a record batch.

    Args:
      batch: Record batch whose schema contains the layout's columns, in any order. Further columns are ignored.
      layout: Layout of the table that the batch was exported from.
      where: Origin of the batch, for error messages.

    Raises:
      InvalidArgumentError: A value is missing, or a shape does not fit its values.
    """
    keys, priorities, times_sampled, inserted_at = (
        _fixed(batch.column(field.name), f"{where}, column {field.name!r}") for field in FIXED
    )
    columns = [
        _column(batch.column(column.name), column, f"{where}, column {column.name!r}") for column in layout.columns
    ]
    squeezed = [not column.timed for column in layout.columns]
    return Items(keys, priorities, times_sampled, inserted_at, columns, squeezed)


def _fixed(array: pa.Array, where: str) -> NDArray[Any]:
    if pa.types.is_timestamp(array.type):
        return _numbers(array.view(pa.int64()), where).view(np.uint64)
    return _numbers(array, where)


def _column(array: pa.Array, layout: ColumnLayout, where: str) -> Column:
    if layout.shape is None:
        return _irregular(array, layout, where)
    if not layout.timed:
        return _rows(array, layout, where)
    _check_present(array, where)
    lengths = np.diff(_numbers(array.offsets, where))
    rows = _rows(array.flatten(), layout, where)
    if len(lengths) and not lengths.all():
        raise InvalidArgumentError(
            f"{where}: row {int(np.argmin(lengths != 0))} has no steps; an item has at least one"
        )
    return Ragged(rows, lengths)


def _rows(array: pa.Array, layout: ColumnLayout, where: str) -> NDArray[Any]:
    """Reads rows of one fixed shape as an array `[rows, *shape]`."""
    assert layout.shape is not None, "only called for columns with a fixed row shape"
    count = len(array)
    if not layout.is_plain():
        _check_present(array, where)
        array = array.flatten()
    return _values(array, layout, where).reshape(count, *layout.shape)


def _irregular(array: pa.Array, layout: ColumnLayout, where: str) -> list[NDArray[Any]]:
    _check_present(array, where)
    shapes, lists = array.field("shape"), array.field("values")
    _check_present(shapes, f"{where}, shape")
    _check_present(lists, f"{where}, values")
    factor = 1 if layout.dtype.kind == "O" else storage(layout.dtype)[1]
    ends = _numbers(lists.offsets, where)
    ends = (ends - ends[0]) // factor
    values = _values(lists.flatten(), layout, where)
    items = []
    for row, shape in enumerate(shapes.to_pylist()):
        part = values[ends[row] : ends[row + 1]]
        if len(shape) > 32 or not all(size is not None and size >= 0 for size in shape):
            raise InvalidArgumentError(f"{where}, row {row}: invalid shape {shape}")
        if layout.timed and (not shape or not shape[0]):
            raise InvalidArgumentError(f"{where}, row {row}: the shape {shape} has no steps; an item has at least one")
        if math.prod(shape) != len(part):
            raise InvalidArgumentError(
                f"{where}, row {row}: expected {math.prod(shape)} values of shape {shape}, got {len(part)}"
            )
        items.append(part.reshape(shape))
    return items


def _values(array: pa.Array, layout: ColumnLayout, where: str) -> NDArray[Any]:
    if layout.dtype.kind == "O":
        _check_present(array, where)
        values = np.empty(len(array), object)
        values[:] = array.to_pylist()
        return values
    return _numbers(array, where).view(layout.dtype)


def _numbers(array: pa.Array, where: str) -> NDArray[Any]:
    _check_present(array, where)
    if pa.types.is_boolean(array.type):
        flags: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return flags
    # The bytes are reinterpreted, as on export: no conversion looks at the values.
    dtype = _DTYPES[array.type]
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def _check_present(array: pa.Array, where: str) -> None:
    if array.null_count:
        raise InvalidArgumentError(f"{where}: expected no missing values, got {array.null_count}")
