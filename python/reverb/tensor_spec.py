"""Specs describe one leaf of a table's signature: its shape, dtype and name, and its bounds if it has any.

Programs with TensorFlow can use `tf.TensorSpec`. Programs without it use these specs, which compare equal to
TensorFlow's. Specs of other libraries are converted into these.
"""

import operator
import sys
from collections.abc import Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from reverb.data import dtypes

__all__ = ["BoundedTensorSpec", "TensorShape", "TensorSpec", "spec_from_leaf"]


class TensorShape:
    """The sizes of the dimensions of an array. The sizes, and even the rank, may be unknown.

    Compares equal to TensorFlow's shapes, and to lists and tuples of the same sizes, with None for unknown ones. In a
    nest a TensorShape is a leaf, not a sequence.

    Args:
      dims: Sizes of the dimensions, None for each unknown size; or None if the rank is unknown.
    """

    __slots__ = ("_dims",)

    def __init__(self, dims: Any) -> None:
        self._dims = _dims_of(dims)

    @property
    def rank(self) -> int | None:
        """The number of dimensions; None if it is unknown."""
        return None if self._dims is None else len(self._dims)

    @property
    def ndims(self) -> int | None:
        """Alias of `rank`, as in TensorFlow."""
        return self.rank

    @property
    def dims(self) -> list[int | None] | None:
        """The sizes of the dimensions; None if the rank is unknown."""
        return None if self._dims is None else list(self._dims)

    def as_list(self) -> list[int | None]:
        """The sizes of the dimensions, with None for unknown ones.

        Raises:
          ValueError: The rank is unknown.
        """
        return list(self._known())

    def is_fully_defined(self) -> bool:
        """Whether the rank and all sizes are known."""
        return self._dims is not None and None not in self._dims

    def num_elements(self) -> int | None:
        """The product of the sizes; None if any of them is unknown."""
        if self._dims is None:
            return None
        product = 1
        for size in self._dims:
            if size is None:
                return None
            product *= size
        return product

    def is_compatible_with(self, other: Any) -> bool:
        """Whether an array could match both shapes."""
        ours, theirs = self._dims, _dims_of(other)
        if ours is None or theirs is None:
            return True
        return len(ours) == len(theirs) and all(
            a is None or b is None or a == b for a, b in zip(ours, theirs, strict=True)
        )

    def _known(self) -> tuple[int | None, ...]:
        if self._dims is None:
            raise ValueError("The rank of this shape is unknown.")
        return self._dims

    def __len__(self) -> int:
        return len(self._known())

    def __bool__(self) -> bool:
        return self._dims is not None

    def __iter__(self) -> Iterator[int | None]:
        return iter(self._known())

    @overload
    def __getitem__(self, index: int) -> int | None: ...
    @overload
    def __getitem__(self, index: slice) -> "TensorShape": ...
    def __getitem__(self, index: int | slice) -> "int | TensorShape | None":
        if isinstance(index, slice):
            return TensorShape(self._known()[index])
        return self._known()[index]

    def __add__(self, other: Any) -> "TensorShape":
        theirs = _dims_of(other)
        return TensorShape(None if self._dims is None or theirs is None else self._dims + theirs)

    def __radd__(self, other: Any) -> "TensorShape":
        return TensorShape(other) + self

    def __eq__(self, other: object) -> bool:
        try:
            return self._dims == _dims_of(other)
        except (TypeError, ValueError):
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self._dims)

    def __reduce__(self) -> tuple[type["TensorShape"], tuple[tuple[int | None, ...] | None]]:
        return TensorShape, (self._dims,)

    def __str__(self) -> str:
        return "<unknown>" if self._dims is None else str(self._dims)

    def __repr__(self) -> str:
        return f"TensorShape({None if self._dims is None else list(self._dims)})"


def _dims_of(shape: Any) -> tuple[int | None, ...] | None:
    """The sizes in one of our or TensorFlow's TensorShapes, a sequence, an int (rank 1), or None."""
    if shape is None:
        return None
    if isinstance(shape, TensorShape):
        return shape._dims
    if isinstance(shape, (str, bytes, dict, set, frozenset)):
        raise TypeError(f"Not a shape: {shape!r}.")
    if hasattr(shape, "as_list"):
        return None if shape.rank is None else tuple(_size(size) for size in shape.as_list())
    if hasattr(shape, "__index__") and not isinstance(shape, np.ndarray):
        return (_size(shape),)
    return tuple(_size(size) for size in shape)


def _size(size: Any) -> int | None:
    if size is None:
        return None
    number = operator.index(getattr(size, "value", size))  # TensorFlow 1's dimensions have a `value`.
    if number < 0:
        raise ValueError(f"A dimension cannot have the size {number}; None means unknown.")
    return number


def _swapped(shape: Any) -> TypeError | None:
    """The error for a dtype in place of a shape; None if it is something else."""
    try:
        dtype = dtypes.as_dtype(shape)
    except (TypeError, ValueError):
        return None
    return TypeError(f"shape: expected ints, got {dtype}; the order is (shape, dtype).")


class TensorSpec:
    """Shape and dtype of one leaf of a signature.

    Args:
      shape: Sizes of the dimensions, None for each unknown size; or None if the rank is unknown.
      dtype: Dtype of the elements in any form that numpy accepts, a `tf.DType` or a `torch.dtype`; float32 by default.
        All kinds of strings become `object`.
      name: Name of the leaf, which becomes part of the column's name in error messages; None for no name.

    Raises:
      TypeError: Elements of the dtype cannot be stored, or the shape or name has the wrong type.
    """

    __slots__ = ("_dtype", "_name", "_shape")

    def __init__(self, shape: Any, dtype: Any = np.float32, name: str | None = None) -> None:
        # TensorFlow's `==` reads attributes with these three names from the other operand.
        try:
            self._shape = TensorShape(shape)
        except TypeError as error:
            raise _swapped(shape) or error from None
        self._dtype = dtypes.as_dtype(dtype)
        self._name = name

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> "TensorSpec":
        """Copies a spec of any library, with a new name if one is given."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> "TensorSpec":
        """Creates the spec with the exact shape and dtype of an array."""
        array = tensor if hasattr(tensor, "shape") and hasattr(tensor, "dtype") else np.asarray(tensor)
        return TensorSpec(array.shape, array.dtype, name)

    @property
    def shape(self) -> TensorShape:
        """The shape, as far as it is known."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype; `object` for strings."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """The name of the leaf; None if it has no name."""
        return self._name

    def is_compatible_with(self, spec_or_tensor: Any) -> bool:
        """Whether an array or another spec has the same dtype as this spec, and a compatible shape."""
        other = spec_or_tensor
        if not (hasattr(other, "shape") and hasattr(other, "dtype")):
            other = np.asarray(other)
        return dtypes.as_dtype(other.dtype) == self._dtype and self._shape.is_compatible_with(other.shape)

    def __eq__(self, other: object) -> bool:
        if not _is_plain_spec(other):
            return NotImplemented
        return not hasattr(other, "minimum") and self._same(other)

    def _same(self, other: Any) -> bool:
        return bool(
            self._shape == other.shape and self._dtype == dtypes.as_dtype(other.dtype) and self._name == other.name
        )

    def __hash__(self) -> int:
        return hash((self._shape, self._dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._shape, self._dtype, self._name)

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype}, name={self._name!r})"


class BoundedTensorSpec(TensorSpec):
    """A spec with bounds for the elements. The bounds are stored but never checked against data.

    Args:
      shape: Sizes of the dimensions, None for each unknown size; or None if the rank is unknown.
      dtype: Dtype of the elements in any form that numpy accepts, a `tf.DType` or a `torch.dtype`.
      minimum: Lower bound, inclusive: a scalar, or an array that broadcasts to the shape.
      maximum: Upper bound, inclusive: a scalar, or an array that broadcasts to the shape.
      name: Name of the leaf, which becomes part of the column's name in error messages; None for no name.

    Raises:
      TypeError: Elements of the dtype cannot be stored, or the shape or name has the wrong type.
      ValueError: A bound does not broadcast to the shape.
    """

    __slots__ = ("_maximum", "_minimum")

    def __init__(self, shape: Any, dtype: Any, minimum: Any, maximum: Any, name: str | None = None) -> None:
        super().__init__(shape, dtype, name)
        self._minimum = self._bound("minimum", minimum)
        self._maximum = self._bound("maximum", maximum)

    def _bound(self, which: str, value: Any) -> NDArray[Any]:
        bound = np.array(value, dtype=self._dtype)
        if self._shape.is_fully_defined():
            try:
                np.broadcast_to(bound, self._shape.as_list())  # type: ignore[arg-type]
            except ValueError:
                raise ValueError(f"`{which}` of shape {bound.shape} does not broadcast to {self._shape}.") from None
        bound.setflags(write=False)
        return bound

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> "BoundedTensorSpec":
        """Copies a spec, with a new name if one is given. Without bounds, the copy gets the limits of its dtype."""
        dtype = dtypes.as_dtype(spec.dtype)
        minimum, maximum = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
        if minimum is None or maximum is None:
            limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
            minimum, maximum = limits.min, limits.max
        return cls(spec.shape, dtype, minimum, maximum, name or spec.name)

    @property
    def minimum(self) -> NDArray[Any]:
        """The inclusive lower bound, a read-only array with the shape in which it was given."""
        return self._minimum

    @property
    def maximum(self) -> NDArray[Any]:
        """The inclusive upper bound, a read-only array with the shape in which it was given."""
        return self._maximum

    def __eq__(self, other: object) -> bool:
        if not (_is_plain_spec(other) and hasattr(other, "minimum") and hasattr(other, "maximum")):
            return NotImplemented
        theirs: Any = other
        return (
            self._same(other)
            and np.array_equal(self._minimum, theirs.minimum)
            and np.array_equal(self._maximum, theirs.maximum)
        )

    __hash__ = TensorSpec.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._shape, self._dtype, self._minimum, self._maximum, self._name)

    def __repr__(self) -> str:
        return (
            f"BoundedTensorSpec(shape={self._shape}, dtype={self._dtype}, name={self._name!r}, "
            f"minimum={self._minimum!r}, maximum={self._maximum!r})"
        )


def spec_from_leaf(leaf: Any) -> TensorSpec:
    """Converts a leaf of a signature to one of our specs.

    Args:
      leaf: Spec to convert: one of ours, a `tf.TensorSpec` or `dm_env.specs.Array` or the bounded kind of either, or
        another object that has `shape` and `dtype` but no data, such as `jax.ShapeDtypeStruct` or a space of Gymnasium.

    Returns:
      The spec, which is bounded if the leaf is.

    Raises:
      ValueError: The leaf is something else, such as an array, a number, None or a ragged spec.
    """
    if isinstance(leaf, TensorSpec):
        return leaf
    if _is_plain_spec(leaf) or _describes_an_array(leaf):
        try:
            return _convert(leaf)
        except (TypeError, ValueError):
            pass
    raise ValueError(f"Unsupported signature spec: {leaf}")


def _convert(spec: Any) -> TensorSpec:
    name = getattr(spec, "name", None)
    minimum, maximum = getattr(spec, "minimum", None), getattr(spec, "maximum", None)
    if minimum is None or maximum is None:
        return TensorSpec(spec.shape, spec.dtype, name)
    return BoundedTensorSpec(spec.shape, spec.dtype, minimum, maximum, name)


def _is_plain_spec(leaf: Any) -> bool:
    """Whether the object is our, TensorFlow's or dm_env's spec of a dense tensor. Imports neither library."""
    if isinstance(leaf, TensorSpec):
        return True
    for module, name in (("tensorflow", "TensorSpec"), ("dm_env.specs", "Array")):
        cls = getattr(sys.modules.get(module), name, None)
        if cls is not None and isinstance(leaf, cls):
            return True
    return False


def _describes_an_array(leaf: Any) -> bool:
    if isinstance(leaf, type) or type(leaf).__module__.partition(".")[0] == "tensorflow":
        return False  # Only TensorFlow's dense specs, for which the caller has checked, have a usable shape.
    has_data = any(hasattr(leaf, name) for name in ("__array__", "__array_interface__", "__dlpack__"))
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not has_data
