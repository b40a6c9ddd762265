"""The types that sampling returns."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import TypeVar

__all__ = ["INFO_DTYPES", "BatchInfo", "ItemInfo", "Ragged", "ReplaySample", "SampleInfo"]

# Dtypes of the fields of SampleInfo, in the order of the list in `crates/reverb-core/src/batch_info.rs`.
INFO_DTYPES = ("uint64", "float64", "int64", "float64", "int32")


class SampleInfo(NamedTuple):
    """State of an item, or of a batch of items, in its table at the time of the draw.

    The fields are numbers in samples from `Client.sample`, arrays `[batch]` in samples from `Client.sample_batch`, and
    tensors in elements of datasets.
    """

    # uint64: identifies the item.
    key: Any
    # float64: the probability of drawing this item, given the priorities at that time.
    probability: Any
    # int64: the number of items in the table, including this one.
    table_size: Any
    # float64: the priority of the item, as given by the user.
    priority: Any
    # int32: includes this draw. The default is for programs that predate this field and create infos themselves.
    times_sampled: Any = 1

    @classmethod
    def tf_dtypes(cls) -> "SampleInfo":
        """The TensorFlow dtypes of the fields. Imports TensorFlow."""
        import tensorflow as tf

        return cls(*(tf.as_dtype(dtype) for dtype in INFO_DTYPES))

    @classmethod
    def tf_shapes(cls) -> "SampleInfo":
        """The shapes of the fields, which are all scalars, as `tf.TensorShape`. Imports TensorFlow."""
        import tensorflow as tf

        return cls(*(tf.TensorShape([]) for _ in cls._fields))

    @classmethod
    def zeros(cls) -> "SampleInfo":
        """An info whose fields are all zero, with the Python types of the fields."""
        return cls(*(np.dtype(dtype).type(0).item() for dtype in INFO_DTYPES))


if TYPE_CHECKING:
    # Subclasses and type parameters for type checkers only, so that pickles and `isinstance` know one class of each.
    class BatchInfo(SampleInfo):
        """Info of a batch, whose fields are arrays `[batch]`."""

        key: NDArray[np.uint64]
        probability: NDArray[np.float64]
        table_size: NDArray[np.int64]
        priority: NDArray[np.float64]
        times_sampled: NDArray[np.int32]

    class ItemInfo(SampleInfo):
        """Info of one item, whose fields are Python numbers."""

        key: int
        probability: float
        table_size: int
        priority: float
        times_sampled: int

    InfoT = TypeVar("InfoT", bound=SampleInfo, default=SampleInfo, covariant=True)
    DataT = TypeVar("DataT", default=Any, covariant=True)

    class ReplaySample(NamedTuple, Generic[InfoT, DataT]):
        """An item, a step of an item, or a batch of items."""

        info: InfoT
        # A nest of arrays if the structure is known, otherwise a flat list of columns.
        data: DataT

else:
    BatchInfo = ItemInfo = SampleInfo

    class ReplaySample(NamedTuple):
        """An item, a step of an item, or a batch of items."""

        info: SampleInfo
        # A nest of arrays if the structure is known, otherwise a flat list of columns.
        data: Any


if TYPE_CHECKING:
    # Checkers take the items of a named tuple for its fields, whatever `__getitem__` says.
    class _RaggedFields:
        _fields: ClassVar[tuple[str, str]]
        values: NDArray[Any]
        row_lengths: NDArray[np.int64]

        def __init__(self, values: NDArray[Any], row_lengths: NDArray[np.int64]) -> None: ...
        def __iter__(self) -> Iterator[NDArray[Any]]: ...
        def _asdict(self) -> dict[str, Any]: ...
        def _replace(self, **fields: Any) -> "Ragged": ...

else:

    class _RaggedFields(NamedTuple):
        values: NDArray[Any]
        row_lengths: NDArray[np.int64]


class Ragged(_RaggedFields):
    """A column of a batch whose items may differ in length. The rows of the items are concatenated.

    Where data is inserted or appended, it is a leaf: each item is the array of one step, and lengths may differ.

    Its length is the number of items, `column[i]` are the rows of item i, and a slice is a Ragged of some items. The
    arrays are those of NumPy, PyTorch or JAX. To nests it is a named tuple: iteration and unpacking give the two
    fields, so that functions such as `jax.tree.map` find the arrays. To iterate over the items, `split` them.

    Attributes:
      values: The rows of all items, `[sum(row_lengths), *step_shape]`.
      row_lengths: The number of rows of each item, int64 `[batch]`; int32 in JAX.
    """

    __slots__ = ()

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> "Ragged":
        # That of named tuples would take the number of items for the number of fields.
        return cls(*iterable)

    def __len__(self) -> int:
        return int(self.row_lengths.shape[0])

    @overload
    def __getitem__(self, key: SupportsIndex) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, key: slice) -> "Ragged": ...
    def __getitem__(self, key: SupportsIndex | slice) -> "NDArray[Any] | Ragged":
        """The rows of one item, or a Ragged of several."""
        ends = self._ends()
        items = range(len(ends))[key]
        if isinstance(items, int):
            return self.values[ends[items - 1] if items else 0 : ends[items]]
        if items.step == 1:
            first, end = (ends[place - 1] if place else 0 for place in (items.start, max(items.start, items.stop)))
            return Ragged(self.values[first:end], self.row_lengths[items.start : max(items.start, items.stop)])
        rows = [row for item in items for row in range(ends[item - 1] if item else 0, ends[item])]
        # An empty list would be an index of floats.
        return Ragged(self.values[np.array(rows, np.int64)], self.row_lengths[np.array(items, np.int64)])

    def split(self) -> list[NDArray[Any]]:
        """The rows of each item: views in NumPy and PyTorch."""
        ends = self._ends()
        return [self.values[first:end] for first, end in zip([0, *ends], ends, strict=False)]

    def to_padded(self, length: int | None = None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Pads all items to one length, at their ends, with zeros or empty strings.

        Args:
          length: Number of rows per item after padding; None takes that of the longest item.

        Returns:
          The padded items, `[batch, length, *step_shape]`, and a mask that is True for rows that are not padding, bool
          `[batch, length]`.

        Raises:
          ValueError: An item has more rows than `length`.
        """
        values, lengths = self
        longest = int(lengths.max()) if len(self) else 0
        if length is None:
            length = longest
        elif longest > length:
            raise ValueError(f"`length` must be at least {longest}, the rows of the longest item, got {length}.")
        shape = (len(self), length, *values.shape[1:])
        places: Any = np.arange(length, dtype=np.int64)
        if isinstance(values, np.ndarray):
            mask = places < lengths[:, None]
            padded = np.full(shape, b"", values.dtype) if values.dtype.kind == "O" else np.zeros(shape, values.dtype)
            # Rows are stored item by item, which is the order in which assignment through a mask fills them.
            padded[mask] = values
            return padded, mask
        if hasattr(values, "new_zeros"):
            mask = lengths.new_tensor(places) < lengths[:, None]
            padded = values.new_zeros(shape)
            padded[mask] = values
            return padded, mask
        # JAX, whose arrays cannot be assigned to.
        mask = places < lengths[:, None]
        if not len(values):
            return values.__array_namespace__().zeros(shape, values.dtype), mask
        rows = (lengths.cumsum(0) - lengths)[:, None] + places
        return values[rows * mask].at[~mask].set(0), mask

    def _ends(self) -> list[int]:
        """For each item the place in `values` after its last row."""
        lengths: list[int] = self.row_lengths.tolist()
        return list(itertools.accumulate(lengths))
