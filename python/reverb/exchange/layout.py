"""How a table's content lies in Arrow: one row an item.

`key` (uint64), `priority` (float64), `times_sampled` (int32), `inserted_at` (timestamp in nanoseconds, UTC), and a
column `data/<path>` for each column of the table:

    with a time axis       large_list of rows
    without                a row
    a row of shape ()      a value
    another fixed shape    fixed_size_list of its values, in C order
    shapes that differ     struct of `shape` (with the time axis) and `values`, for the whole item

Values have Arrow's type of the same name where there is one; strings are large_binary; complex numbers are two floats;
bfloat16, float8 and the like are unsigned integers of their bits. The schema's metadata `reverb` says in JSON what
Arrow has no word for.
"""

import base64
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reverb import dtypes, nests, signatures
from reverb.checkpoint_reader import CheckpointTable
from reverb.errors import InvalidArgumentError
from reverb.exchange.items import Column, Items
from reverb.replay_sample import Ragged

__all__ = ["FIXED", "Form", "Layout", "column_name", "storage"]

_METADATA = b"reverb"
_VERSION = 1
FIXED = [
    pa.field("key", pa.uint64(), nullable=False),
    pa.field("priority", pa.float64(), nullable=False),
    pa.field("times_sampled", pa.int32(), nullable=False),
    pa.field("inserted_at", pa.timestamp("ns", "UTC"), nullable=False),
]
_MOST_DIMENSIONS = 32


def storage(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], int]:
    """As what the values of a dtype are stored, and how many of these make one. Not for strings."""
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}"), 2
    if dtype.kind in "biuf" and dtype.isbuiltin == 1:
        return dtype, 1
    return np.dtype(f"u{dtype.itemsize}"), 1


class Form(NamedTuple):
    """How one column lies.

    Attributes:
      name: Of the Arrow column.
      dtype: Of the table's column; `object` for strings.
      shape: Of a row; None if items differ.
      timed: Whether it has a time axis.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None
    timed: bool

    def value_type(self) -> pa.DataType:
        """Of a single stored value."""
        return pa.large_binary() if self.dtype.kind == "O" else pa.from_numpy_dtype(storage(self.dtype)[0])

    def width(self) -> int:
        """Stored values of a row."""
        return math.prod(self.shape or ()) * (1 if self.dtype.kind == "O" else storage(self.dtype)[1])

    def arrow_type(self) -> pa.DataType:
        """Of the Arrow column."""
        value = self.value_type()
        if self.shape is None:
            return pa.struct([("shape", pa.list_(pa.int64())), ("values", pa.large_list(value))])
        row = value if self.is_plain() else pa.list_(value, self.width())
        return pa.large_list(row) if self.timed else row

    def is_plain(self) -> bool:
        """Whether a row is one value."""
        return self.shape == () and self.width() == 1

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        shape = None if self.shape is None else list(self.shape)
        number = dtypes.number_of(self.dtype)
        return {"name": self.name, "dtype": dtypes.name_of(number), "shape": shape, "time": self.timed}

    @classmethod
    def parse(cls, described: Any) -> "Form":
        """From JSON.

        Raises:
          KeyError, TypeError, ValueError: It is no description of a column.
        """
        shape = described["shape"]
        if shape is not None:
            shape = tuple(shape)
            if len(shape) > _MOST_DIMENSIONS or not all(type(size) is int and 0 < size < 2**31 for size in shape):
                raise ValueError(f"the shape {list(shape)} is none")
            if math.prod(shape) >= 2**31:
                raise ValueError(f"the shape {list(shape)} has too many values")
        if not isinstance(described["name"], str) or not isinstance(described["time"], bool):
            raise ValueError("`name` must be text and `time` true or false")
        return cls(described["name"], _dtype_named(described["dtype"]), shape, described["time"])


class Layout(NamedTuple):
    """How a table lies.

    Attributes:
      forms: Of its columns, in order.
      signature: A serialized `tensorflow.StructuredValue`; None if the table has none.
    """

    forms: list[Form]
    signature: bytes | None

    @classmethod
    def of(cls, table: CheckpointTable, items: Items | None) -> "Layout":
        """The layout of a table.

        Args:
          table: Which.
          items: Its first items; None if it has none, and then no columns either.
        """
        signature = signatures.encode(table.info.signature)
        if items is None:
            return cls([], signature)
        specs: Sequence[signatures.FlatSpec | None] = signatures.flat_specs(table.info.signature) or [None] * len(
            items.columns
        )
        forms = []
        for place, (name, spec) in enumerate(zip(_names(table, len(items.columns)), specs, strict=True)):
            dtype, shape = _row(items, place)
            forms.append(Form(name, dtype, None if _varies(shape, spec) else shape, timed=not items.squeezed[place]))
        return cls(forms, signature)

    def schema(self) -> pa.Schema:
        """With what describes the layout in its metadata."""
        described = {
            "version": _VERSION,
            "columns": [form.describe() for form in self.forms],
            "signature": None if self.signature is None else base64.b64encode(self.signature).decode(),
        }
        fields = [pa.field(form.name, form.arrow_type(), nullable=False) for form in self.forms]
        return pa.schema([*FIXED, *fields], metadata={_METADATA: json.dumps(described)})

    @classmethod
    def parse(cls, schema: pa.Schema, where: str) -> "Layout":
        """The layout that a schema describes.

        Args:
          schema: What came.
          where: It came from, for messages.

        Raises:
          InvalidArgumentError: It is not that of an exported table, or its columns are not as it says.
        """
        text = (schema.metadata or {}).get(_METADATA)
        if text is None:
            raise InvalidArgumentError(
                f"{where} is no exported table: its schema has no metadata `reverb`; its columns are: "
                f"{', '.join(schema.names[:20])}"
            )
        try:
            described = json.loads(text)
            if described["version"] != _VERSION:
                raise InvalidArgumentError(
                    f"{where} has version {described['version']!r} of the layout, this package reads {_VERSION}"
                )
            forms = [Form.parse(column) for column in described["columns"]]
            encoded = described["signature"]
            layout = cls(forms, None if encoded is None else base64.b64decode(encoded, validate=True))
            layout.structure()
        except InvalidArgumentError:
            raise
        except Exception as error:  # Whatever is in the file, it is the file that is wrong.
            raise InvalidArgumentError(
                f"{where}: the metadata `reverb` of its schema is damaged: {type(error).__name__}: {error}"
            ) from error
        layout.check(schema, where)
        return layout

    def check(self, schema: pa.Schema, where: str) -> None:
        """Raises InvalidArgumentError where a schema is not this layout's."""
        for field in [*FIXED, *(pa.field(form.name, form.arrow_type()) for form in self.forms)]:
            index = schema.get_field_index(field.name)
            if index < 0:
                raise InvalidArgumentError(
                    f"{where}: there must be one column {field.name!r}, got: {', '.join(schema.names[:20])}"
                )
            if schema.field(index).type != field.type:
                raise InvalidArgumentError(
                    f"{where}, column {field.name!r}: expected {field.type}, got {schema.field(index).type}"
                )

    def structure(self) -> Any:
        """The nest of specs that the data have; a list of as many Nones as there are columns without a signature.

        Raises:
          ValueError: The signature has another number of leaves.
        """
        if self.signature is None:
            return [None] * len(self.forms)
        signature = signatures.decode(signatures.parse(self.signature))
        leaves = len(signatures.flat_specs(signature) or [])
        if self.forms and leaves != len(self.forms):
            raise ValueError(f"the signature has {leaves} leaves, there are {len(self.forms)} columns")
        return signature


def column_name(path: tuple[Any, ...]) -> str:
    """The Arrow column for the leaf at a path."""
    return "/".join(["data", *map(str, path)])


def _names(table: CheckpointTable, count: int) -> list[str]:
    import tree

    signature = table.info.signature
    numbers = list(range(count)) if signature is None else nests.compile_packer(signature)(list(range(count)))
    found = [column_name(path) for path, _ in tree.flatten_with_path(numbers)]
    # Keys with slashes in them may make two names the same.
    names: list[str] = []
    for name in found:
        names.append(name if name not in names else f"{name}#{len(names)}")
    return names


def _row(items: Items, place: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Dtype and shape of the rows of a column."""
    column: Column = items.columns[place]
    if isinstance(column, Ragged):
        return column.values.dtype, column.values.shape[1:]
    assert isinstance(column, np.ndarray), "columns of tables come as arrays"
    return column.dtype, column.shape[1 if items.squeezed[place] else 2 :]


def _varies(shape: tuple[int, ...], spec: signatures.FlatSpec | None) -> bool:
    """Whether rows of other shapes may come."""
    if 0 in shape:
        # Rows of no values leave nothing to count.
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
    raise ValueError(f"no dtype is called {name!r}")
