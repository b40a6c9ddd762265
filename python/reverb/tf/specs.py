"""Compares a dataset's request with the table's signature and with the data received, with dm-reverb's messages."""

from typing import Any, NamedTuple

from numpy.typing import NDArray

from reverb.data import dtypes
from reverb.errors import InvalidArgumentError
from reverb.replay_sample import Ragged

_TF_NAMES = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "object": "string",
}


class LeafSpec(NamedTuple):
    """The name, dtype and shape of one leaf, as far as they are known.

    Attributes:
      name: Path of the leaf in a signature, or `?`.
      dtype: Number of the dtype in TensorFlow's `DataType`.
      dims: Sizes of the dimensions, with None for unknown ones; None if the rank is unknown.
    """

    name: str
    dtype: int
    dims: tuple[int | None, ...] | None

    def fits(self, dtype: int, dims: tuple[int | None, ...] | None) -> bool:
        """Whether the dtypes are equal and the shapes are compatible."""
        if dtype != self.dtype:
            return False
        if self.dims is None or dims is None:
            return True
        return len(dims) == len(self.dims) and all(
            a is None or b is None or a == b for a, b in zip(dims, self.dims, strict=True)
        )


def of_signature(signature: Any) -> list[LeafSpec]:
    """The leaves of a table's signature."""
    from reverb.data import signatures

    flat = signatures.flat_specs(signature) or []
    return [
        LeafSpec(name, dtype, None if dims is None else tuple(None if dim < 0 else dim for dim in dims))
        for name, dtype, dims in flat
    ]


def check_request(table: str, requested: list[LeafSpec], signature: list[LeafSpec]) -> None:
    """Refuses a dataset that cannot fit the table.

    Raises:
      InvalidArgumentError: The request and the signature differ in the number of leaves, a dtype or a shape.
    """
    if len(requested) != len(signature):
        raise InvalidArgumentError(
            f"Inconsistent number of tensors requested from table '{table}'.  Requested {len(requested)} tensors, but "
            f"table signature shows {len(signature)} tensors.  Table signature: {_all_text(signature)}"
        )
    for index, (asked, spec) in enumerate(zip(requested, signature, strict=True)):
        if not spec.fits(asked.dtype, asked.dims):
            raise InvalidArgumentError(
                f"Requested incompatible tensor at flattened index {index} from table '{table}'.  Requested "
                f"(dtype, shape): {_pair_text(asked.dtype, asked.dims)}.  Signature (dtype, shape): "
                f"{_pair_text(spec.dtype, spec.dims)}.  Table signature: {_all_text(signature)}"
            )


def check_batch(
    table: str,
    specs: list[LeafSpec],
    columns: list[NDArray[Any] | Ragged],
    squeezed: list[bool],
    has_open_rows: list[bool],
    of_steps: bool,
) -> None:
    """Refuses data that do not fit the specs.

    Raises:
      InvalidArgumentError: The data and the specs differ in the number of leaves, a dtype or a shape.
    """
    forms = zip(columns, squeezed, has_open_rows, strict=True)
    found = [_column_spec(column, flag, is_open, of_steps) for column, flag, is_open in forms]
    if len(found) != len(specs):
        raise InvalidArgumentError(
            f"Inconsistent number of tensors received from table '{table}'.  Specification has {len(specs)} tensors, "
            f"but data coming from the table shows {len(found)} tensors.\nTable signature: {_all_text(specs)}.\n"
            f"Incoming tensor signature: {_all_text(found)}"
        )
    for index, (spec, got) in enumerate(zip(specs, found, strict=True)):
        if not spec.fits(got.dtype, got.dims):
            raise InvalidArgumentError(
                f"Received incompatible tensor at flattened index {index} from table '{table}'.  Specification has "
                f"(dtype, shape): {_pair_text(spec.dtype, spec.dims)}.  Tensor has (dtype, shape): "
                f"{_pair_text(got.dtype, got.dims)}.\nTable signature: {_all_text(specs)}"
            )


def _column_spec(column: NDArray[Any] | Ragged, squeezed: bool, is_open: bool, of_steps: bool) -> LeafSpec:
    if isinstance(column, Ragged):
        dims: tuple[int | None, ...] = column.values.shape[1:]
        if is_open:
            time = () if squeezed or of_steps else (1,)
            return LeafSpec("?", dtypes.number_of(column.values.dtype), (*time, None, *dims))
        return LeafSpec("?", dtypes.number_of(column.values.dtype), dims if of_steps else (None, *dims))
    dims = column.shape[2:] if of_steps and not squeezed else column.shape[1:]
    return LeafSpec("?", dtypes.number_of(column.dtype), dims)


def _all_text(specs: list[LeafSpec]) -> str:
    return ", ".join(
        f"{index}: Tensor<name: '{spec.name}', dtype: {dtype_text(spec.dtype)}, shape: {_shape_text(spec.dims)}>"
        for index, spec in enumerate(specs)
    )


def _pair_text(dtype: int, dims: tuple[int | None, ...] | None) -> str:
    return f"({dtype_text(dtype)}, {_shape_text(dims)})"


def dtype_text(dtype: int) -> str:
    """Returns TensorFlow's name of a dtype, which is given as its number in TensorFlow's enum."""
    name: str = dtypes.dtype_from_number(dtype).name
    return _TF_NAMES.get(name, name)


def _shape_text(dims: tuple[int | None, ...] | None) -> str:
    return "<unknown>" if dims is None else f"[{','.join('?' if dim is None else str(dim) for dim in dims)}]"
