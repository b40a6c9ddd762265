"""The type of the histories of writers, which have the structure of the steps."""

from collections.abc import Iterator
from typing import Any, Protocol, SupportsIndex, TypeVar, overload

ColumnT = TypeVar("ColumnT", covariant=True)


class History(Protocol[ColumnT]):
    """A column of a history, or a nest of columns: the structure of the steps is not known before the program runs."""

    # The part of a mapping.
    @overload
    def __getitem__(self, key: str, /) -> "History[ColumnT]": ...
    # Rows of a column.
    @overload
    def __getitem__(self, key: slice | list[int], /) -> ColumnT: ...
    # A row of a column, or a part of a list or tuple.
    @overload
    def __getitem__(self, key: SupportsIndex, /) -> ColumnT | Any: ...
    def __getattr__(self, name: str, /) -> Any:
        """The part of a named tuple, or a method of the structure."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
