"""From items to Arrow, bit for bit. Numbers go over without a look at their values."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from reverb.errors import InvalidArgumentError
from reverb.exchange.items import Column, Items, item_values
from reverb.exchange.layout import FIXED, Form, Layout, storage
from reverb.replay_sample import Ragged

__all__ = ["to_record_batch"]


def to_record_batch(items: Items, layout: Layout, schema: pa.Schema) -> pa.RecordBatch:
    """Some items as Arrow.

    Args:
      items: At least one.
      layout: That of their table.
      schema: The layout's.

    Raises:
      InvalidArgumentError: They differ from the items before in more than a file can hold.
    """
    key = int(items.keys[0])
    if len(items.columns) != len(layout.forms):
        raise InvalidArgumentError(
            f"item {key} has {len(items.columns)} columns, those before have {len(layout.forms)}: such a table cannot "
            "be one file"
        )
    fixed: tuple[NDArray[Any], ...] = (items.keys, items.priorities, items.times_sampled, items.inserted_at)
    arrays = [_primitive(array, field.type) for array, field in zip(fixed, FIXED, strict=True)]
    for column, squeezed, form in zip(items.columns, items.squeezed, layout.forms, strict=True):
        _check(column, squeezed, form, key)
        arrays.append(_irregular(column, form) if form.shape is None else _regular(column, form))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check(column: Column, squeezed: bool, form: Form, key: int) -> None:
    values = column.values if isinstance(column, Ragged) else column
    assert isinstance(values, np.ndarray), "columns of tables come as arrays"
    shape = values.shape[1 if squeezed or isinstance(column, Ragged) else 2 :]
    same_shape = form.shape is None or shape == form.shape
    if values.dtype == form.dtype and same_shape and squeezed != form.timed:
        return
    got = f"rows of {values.dtype}{list(shape)} {'without' if squeezed else 'with'} a time axis"
    expected = f"{form.dtype}{'' if form.shape is None else list(form.shape)}"
    raise InvalidArgumentError(
        f"column {form.name!r}: item {key} has {got}, those before have {expected} "
        f"{'with' if form.timed else 'without'} one. A column of a file has one dtype, and one shape of rows unless "
        "the table's signature leaves it open (None)."
    )


def _regular(column: Column, form: Form) -> pa.Array:
    lengths = None
    if isinstance(column, Ragged):
        values, lengths = column.values, column.row_lengths
    else:
        assert isinstance(column, np.ndarray), "columns of tables come as arrays"
        values = column
        if form.timed:
            lengths = np.full(len(column), column.shape[1], np.int64)
    rows = _values(values, form)
    if not form.is_plain():
        rows = pa.FixedSizeListArray.from_arrays(rows, form.width())
    if lengths is None:
        return rows
    return pa.LargeListArray.from_arrays(_offsets(lengths), rows)


def _irregular(column: Column, form: Form) -> pa.Array:
    items = list(item_values(column))
    shapes = [item.shape for item in items]
    flat = [item.reshape(-1) for item in items]
    values = _values(np.concatenate(flat), form)
    factor = 1 if form.dtype.kind == "O" else storage(form.dtype)[1]
    sizes = np.array([factor * item.size for item in items], np.int64)
    lists = [
        pa.array(shapes, pa.list_(pa.int64())),
        pa.LargeListArray.from_arrays(_offsets(sizes), values),
    ]
    return pa.StructArray.from_arrays(lists, fields=list(form.arrow_type()))


def _offsets(lengths: NDArray[np.int64]) -> pa.Array:
    return _primitive(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]), pa.int64())


def _values(values: NDArray[Any], form: Form) -> pa.Array:
    if form.dtype.kind == "O":
        return pa.array(values.reshape(-1).tolist(), pa.large_binary())
    flat = np.ascontiguousarray(values).reshape(-1)
    return _primitive(flat.view(storage(form.dtype)[0]), form.value_type())


def _primitive(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """By their bytes, so that no conversion looks at values: NaNs stay what they are, and none is taken for null."""
    packed = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])
