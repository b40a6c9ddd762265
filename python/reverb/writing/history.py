"""The histories of writers, which have the structure of the steps: their type, and what is no item of them."""

from collections.abc import Iterator
from typing import Any, Protocol, SupportsIndex, TypeVar, overload

from reverb.data import leaves, structures

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


def whole_column_line(trajectory: Any, kind: type) -> str | None:
    """Says which leaf of a trajectory is a column instead of rows of it.

    Args:
      trajectory: Nest that should have rows.
      kind: Type of the columns of the history.

    Returns:
      A line that says what to write; None if no leaf is a column.
    """
    import tree

    for path, leaf in tree.flatten_with_path(leaves.without_ragged(trajectory)):
        if isinstance(leaf, kind):
            name = "/".join(map(str, path)) or "the trajectory"
            line = f"{name}: expected rows of the column, such as `[-1:]`, got the whole column."
            return f"{line} {structures.LIST_IS_NEST}" if any(isinstance(key, int) for key in path) else line
    return None
