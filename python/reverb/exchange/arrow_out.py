"""Converts items to Arrow, bit for bit. Numbers are copied as bytes, without a look at their values."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from reverb.errors import InvalidArgumentError
from reverb.exchange.items import Column, Items, item_values
from reverb.exchange.layout import FIXED, ColumnLayout, Layout, storage
from reverb.replay_sample import Ragged


def to_record_batch(items: Items, layout: Layout, schema: pa.Schema) -> pa.RecordBatch:
    """Converts items to a record batch.

    Args:
      items: Items of one table, at least one.
      layout: Layout of that table.
      schema: Arrow schema of the layout.

    Raises:
      InvalidArgumentError: The items differ from earlier ones in a property that is fixed for a whole file.
    """
    key = int(items.keys[0])
    if len(items.columns) != len(layout.columns):
        raise InvalidArgumentError(
            f"item {key} has {len(items.columns)} columns, earlier items have {len(layout.columns)}: all items of an "
            "exported table must have the same number of columns"
        )
    fixed: tuple[NDArray[Any], ...] = (items.keys, items.priorities, items.times_sampled, items.inserted_at)
    arrays = [_primitive(array, field.type) for array, field in zip(fixed, FIXED, strict=True)]
    for column, squeezed, column_layout in zip(items.columns, items.squeezed, layout.columns, strict=True):
        _check(column, squeezed, column_layout, key)
        to_arrow = _irregular if column_layout.shape is None else _regular
        arrays.append(to_arrow(column, column_layout))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check(column: Column, squeezed: bool, layout: ColumnLayout, key: int) -> None:
    values = column.values if isinstance(column, Ragged) else column
    assert isinstance(values, np.ndarray), "columns of tables come as arrays"
    shape = values.shape[1 if squeezed or isinstance(column, Ragged) else 2 :]
    same_shape = layout.shape is None or shape == layout.shape
    if values.dtype == layout.dtype and same_shape and squeezed != layout.timed:
        return
    got = f"rows of {values.dtype}{list(shape)} {'without' if squeezed else 'with'} a time axis"
    expected = f"{layout.dtype}{'' if layout.shape is None else list(layout.shape)}"
    raise InvalidArgumentError(
        f"column {layout.name!r}: item {key} has {got}, earlier items have {expected} "
        f"{'with' if layout.timed else 'without'} one. An exported column has one dtype, and one row shape unless "
        "the table's signature leaves it open (None)."
    )


def _regular(column: Column, layout: ColumnLayout) -> pa.Array:
    lengths = None
    if isinstance(column, Ragged):
        values, lengths = column.values, column.row_lengths
    else:
        assert isinstance(column, np.ndarray), "columns of tables come as arrays"
        values = column
        if layout.timed:
            lengths = np.full(len(column), column.shape[1], np.int64)
    rows = _values(values, layout)
    if not layout.is_plain():
        rows = pa.FixedSizeListArray.from_arrays(rows, layout.width())
    if lengths is None:
        return rows
    return pa.LargeListArray.from_arrays(_offsets(lengths), rows)


def _irregular(column: Column, layout: ColumnLayout) -> pa.Array:
    items = list(item_values(column))
    shapes = [item.shape for item in items]
    flat = [item.reshape(-1) for item in items]
    values = _values(np.concatenate(flat), layout)
    factor = 1 if layout.dtype.kind == "O" else storage(layout.dtype)[1]
    sizes = np.array([factor * item.size for item in items], np.int64)
    lists = [
        pa.array(shapes, pa.list_(pa.int64())),
        pa.LargeListArray.from_arrays(_offsets(sizes), values),
    ]
    return pa.StructArray.from_arrays(lists, fields=list(layout.arrow_type()))


def _offsets(lengths: NDArray[np.int64]) -> pa.Array:
    return _primitive(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]), pa.int64())


def _values(values: NDArray[Any], layout: ColumnLayout) -> pa.Array:
    if layout.dtype.kind == "O":
        return pa.array(values.reshape(-1).tolist(), pa.large_binary())
    flat = np.ascontiguousarray(values).reshape(-1)
    return _primitive(flat.view(storage(layout.dtype)[0]), layout.value_type())


def _primitive(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Copies values as bytes, so that no conversion looks at them: NaNs keep their bits, and none becomes a null."""
    packed = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])
