"""The layout of an exported table in Arrow, with one row per item.

The columns are `key` (uint64), `priority` (float64), `times_sampled` (int32), `inserted_at` (timestamp in nanoseconds,
UTC), and one column `data/<path>` for each column of the table:

    with a time axis       large_list of rows
    without a time axis    one row
    a row of shape ()      one value
    another fixed shape    fixed_size_list of the row's values, in C order
    varying shapes         struct of `shape` (with the time axis) and `values`, for the whole item

Values have the Arrow type of the same name if there is one. Strings are large_binary, and complex numbers are two
floats. bfloat16, float8 and similar types are stored as unsigned integers with the same bits. The schema's metadata
`reverb` holds, as JSON, the properties that Arrow's types do not express.
"""

import base64
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reverb.checkpoint_reader import CheckpointTable
from reverb.data import dtypes, signatures
from reverb.data.column_names import column_names
from reverb.errors import InvalidArgumentError
from reverb.exchange.items import Column, Items
from reverb.replay_sample import Ragged

_METADATA = b"reverb"
_VERSION = 1
FIXED = [
    pa.field("key", pa.uint64(), nullable=False),
    pa.field("priority", pa.float64(), nullable=False),
    pa.field("times_sampled", pa.int32(), nullable=False),
    pa.field("inserted_at", pa.timestamp("ns", "UTC"), nullable=False),
]
_MAX_DIMENSIONS = 32


def storage(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], int]:
    """The dtype in which values of a dtype are stored, and the number of stored values per value. Not for strings."""
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}"), 2
    if dtype.kind in "biuf" and dtype.isbuiltin == 1:
        return dtype, 1
    return np.dtype(f"u{dtype.itemsize}"), 1


class ColumnLayout(NamedTuple):
    """The layout of one column.

    Attributes:
      name: Name of the Arrow column.
      dtype: Dtype of the table's column; `object` for strings.
      shape: Shape of a row; None if the shapes of items vary.
      timed: Whether the column has a time axis.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None
    timed: bool

    def value_type(self) -> pa.DataType:
        """The Arrow type of a single stored value."""
        return pa.large_binary() if self.dtype.kind == "O" else pa.from_numpy_dtype(storage(self.dtype)[0])

    def width(self) -> int:
        """The number of stored values per row."""
        return math.prod(self.shape or ()) * (1 if self.dtype.kind == "O" else storage(self.dtype)[1])

    def arrow_type(self) -> pa.DataType:
        """The type of the Arrow column."""
        value = self.value_type()
        if self.shape is None:
            return pa.struct([("shape", pa.list_(pa.int64())), ("values", pa.large_list(value))])
        row = value if self.is_plain() else pa.list_(value, self.width())
        return pa.large_list(row) if self.timed else row

    def is_plain(self) -> bool:
        """Whether a row is a single stored value."""
        return self.shape == () and self.width() == 1

    def describe(self) -> dict[str, Any]:
        """The description that goes into the schema's JSON metadata."""
        shape = None if self.shape is None else list(self.shape)
        number = dtypes.number_of(self.dtype)
        return {"name": self.name, "dtype": dtypes.name_of(number), "shape": shape, "time": self.timed}

    @classmethod
    def parse(cls, described: Any) -> "ColumnLayout":
        """Reads what `describe` returned.

        Raises:
          KeyError, TypeError, ValueError: The value is not a description of a column.
        """
        shape = described["shape"]
        if shape is not None:
            shape = tuple(shape)
            if len(shape) > _MAX_DIMENSIONS or not all(type(size) is int and 0 < size < 2**31 for size in shape):
                raise ValueError(f"invalid shape {list(shape)}")
            if math.prod(shape) >= 2**31:
                raise ValueError(f"the shape {list(shape)} has too many values")
        if not isinstance(described["name"], str) or not isinstance(described["time"], bool):
            raise ValueError("`name` must be a string, and `time` true or false")
        return cls(described["name"], _dtype_named(described["dtype"]), shape, described["time"])


class Layout(NamedTuple):
    """The layout of a table.

    Attributes:
      columns: Layouts of the table's columns, in order.
      signature: The table's signature as a serialized `tensorflow.StructuredValue`; None if the table has none.
    """

    columns: list[ColumnLayout]
    signature: bytes | None

    @classmethod
    def of(cls, table: CheckpointTable, items: Items | None) -> "Layout":
        """Derives the layout of a table.

        Args:
          table: Table that will be exported.
          items: First items of the table; None if it is empty, in which case the layout has no columns.
        """
        signature = signatures.encode(table.info.signature)
        if items is None:
            return cls([], signature)
        specs: Sequence[signatures.FlatSpec | None] = signatures.flat_specs(table.info.signature) or [None] * len(
            items.columns
        )
        columns = []
        names = column_names(table.info.signature, len(items.columns))
        for place, (name, spec) in enumerate(zip(names, specs, strict=True)):
            dtype, shape = _row(items, place)
            columns.append(
                ColumnLayout(name, dtype, None if _varies(shape, spec) else shape, timed=not items.squeezed[place])
            )
        return cls(columns, signature)

    def schema(self) -> pa.Schema:
        """The Arrow schema, whose metadata describe the layout."""
        described = {
            "version": _VERSION,
            "columns": [column.describe() for column in self.columns],
            "signature": None if self.signature is None else base64.b64encode(self.signature).decode(),
        }
        fields = [pa.field(column.name, column.arrow_type(), nullable=False) for column in self.columns]
        return pa.schema([*FIXED, *fields], metadata={_METADATA: json.dumps(described)})

    @classmethod
    def parse(cls, schema: pa.Schema, where: str) -> "Layout":
        """Reads the layout from the schema of an exported table.

        Args:
          schema: Arrow schema to read.
          where: Origin of the schema, for error messages.

        Raises:
          InvalidArgumentError: The schema is not that of an exported table, or its columns contradict its metadata.
        """
        text = (schema.metadata or {}).get(_METADATA)
        if text is None:
            raise InvalidArgumentError(
                f"{where} is not an exported table: its schema has no metadata `reverb`; its columns are: "
                f"{', '.join(schema.names[:20])}"
            )
        try:
            described = json.loads(text)
            if described["version"] != _VERSION:
                raise InvalidArgumentError(
                    f"{where} has version {described['version']!r} of the layout, but this package reads version "
                    f"{_VERSION}"
                )
            columns = [ColumnLayout.parse(column) for column in described["columns"]]
            encoded = described["signature"]
            layout = cls(columns, None if encoded is None else base64.b64decode(encoded, validate=True))
            layout.structure()
        except InvalidArgumentError:
            raise
        except Exception as error:  # Any failure here means that the file's metadata are invalid.
            raise InvalidArgumentError(
                f"{where}: the metadata `reverb` of its schema is damaged: {type(error).__name__}: {error}"
            ) from error
        layout.check(schema, where)
        return layout

    def check(self, schema: pa.Schema, where: str) -> None:
        """Raises InvalidArgumentError if a schema does not have this layout's columns."""
        for field in [*FIXED, *(pa.field(column.name, column.arrow_type()) for column in self.columns)]:
            index = schema.get_field_index(field.name)
            if index < 0:
                raise InvalidArgumentError(
                    f"{where}: expected exactly one column {field.name!r}, got: {', '.join(schema.names[:20])}"
                )
            if schema.field(index).type != field.type:
                raise InvalidArgumentError(
                    f"{where}, column {field.name!r}: expected {field.type}, got {schema.field(index).type}"
                )

    def structure(self) -> Any:
        """The nest of specs of the data; without a signature, a list with one None per column.

        Raises:
          ValueError: The number of leaves in the signature differs from the number of columns.
        """
        if self.signature is None:
            return [None] * len(self.columns)
        signature = signatures.decode(signatures.parse(self.signature))
        leaves = len(signatures.flat_specs(signature) or [])
        if self.columns and leaves != len(self.columns):
            raise ValueError(f"the signature has {leaves} leaves, but there are {len(self.columns)} columns")
        return signature


def _row(items: Items, place: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and shape of a column's rows."""
    column: Column = items.columns[place]
    if isinstance(column, Ragged):
        return column.values.dtype, column.values.shape[1:]
    assert isinstance(column, np.ndarray), "columns of tables come as arrays"
    return column.dtype, column.shape[1 if items.squeezed[place] else 2 :]


def _varies(shape: tuple[int, ...], spec: signatures.FlatSpec | None) -> bool:
    """Whether later rows may have other shapes."""
    if 0 in shape:
        # A fixed_size_list of width 0 cannot tell how many rows there are.
        return True
    if spec is None or not shape:
        return False
    dims = spec[2]
    return dims is None or -1 in dims[-len(shape) :]


def _dtype_named(name: Any) -> np.dtype[Any]:
    for number in range(32):
        try:
            if dtypes.name_of(number) == name:
                return dtypes.dtype_from_number(number)
        except KeyError:
            continue
    raise ValueError(f"unknown dtype {name!r}")
