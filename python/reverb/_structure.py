"""The structure of a writer's steps: the union of all forms of step that were appended, and the column of each leaf."""

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["FixedStructure", "Structure"]

Path = tuple[Any, ...]


class Structure:
    """Grows with the steps. Leaves are matched by their path, as dm-tree names it; None says that there is no value.

    Attributes:
      num_columns: How many columns have appeared; they are numbered from 0.
      version: Changes when the structure does.
      options: What columns are to be configured with when they appear, by path.
    """

    def __init__(self) -> None:
        self.num_columns = 0
        self.version = 0
        self.options: dict[Path, tuple[int, int | None]] = {}
        self._root: _Node | None = None
        self._paths: list[Path] = []
        # What `commit` enters.
        self._planned: _Planned | None = None
        self._new_paths: list[Path] = []

    def columns_of(self, step: Any) -> tuple[list[int], list[tuple[int, tuple[int, int | None]]]]:
        """The columns that the leaves of a step belong to, in flattening order; new leaves belong to new columns.

        Nothing changes before `commit` says that the step was taken.

        Returns:
          The columns; and those of the new ones that are to be configured, with their options.

        Raises:
          ValueError: The step has a value where others have a structure, or the other way round, or other kinds of
            containers.
        """
        planned = _plan(self._root, step, ())
        columns: list[int] = []
        new: list[Path] = []
        self._number(planned, columns, new)
        self._planned, self._new_paths = planned, new
        options = [(self.num_columns + i, self.options[path]) for i, path in enumerate(new) if path in self.options]
        return columns, options

    def commit(self) -> None:
        """Enters what the step that was asked for last adds."""
        if self._planned is not None:
            self._root = self._enter(self._planned)
            self._paths += self._new_paths
            self._planned, self._new_paths = None, []

    def path(self, column: int) -> str:
        """The path of a column, as text; also of one that a step would add."""
        return repr([*self._paths, *self._new_paths][column])

    def path_of(self, column: int) -> Path:
        """The path of a column."""
        return self._paths[column]

    def column_at(self, path: Path) -> int | None:
        """The column at a path, if there is one."""
        return self._paths.index(path) if path in self._paths else None

    def build(self, make: Callable[[int], Any]) -> Any:
        """A nest of the union structure, each leaf made from its column's number."""
        return None if self._root is None else self._root.build(make)

    def _number(self, planned: "_Planned", columns: list[int], new: list[Path]) -> None:
        """Numbers of the columns of a step; paths of those that are new, in the order in which they are entered."""
        if planned.is_container:
            for _, child in planned.children:
                self._number(child, columns, new)
        elif isinstance(planned.node, _Leaf):
            columns.append(planned.node.column)
        elif planned.node is None:
            columns.append(self.num_columns + len(new))
            new.append(planned.path)
        else:
            # A whole structure has no value in this step; the one leaf that stands for it is passed over.
            columns.append(0)

    def _enter(self, planned: "_Planned") -> "_Node":
        node = planned.node
        if node is None:
            node = planned.make(self.num_columns)
            self.num_columns += isinstance(node, _Leaf)
            self.version += 1
        if isinstance(node, _Leaf):
            node.has_values |= planned.has_value
        else:
            for key, child in planned.children:
                node.children[key] = self._enter(child)
        return node


class FixedStructure:
    """The structure of steps that all have that of the first. Leaf number i is column i; None is a leaf."""

    def __init__(self) -> None:
        self._paths: list[Path] | None = None
        self._last: list[Path] = []

    def columns_of(self, step: Any) -> tuple[list[int], list[Any]]:
        """The columns that the leaves of a step belong to, in flattening order, and no options.

        Raises:
          ValueError: The step has another structure than the first that was taken.
        """
        paths = self._last = list(_paths(step, ()))
        if self._paths is not None and len(paths) != len(self._paths):
            raise ValueError(
                f"Flattened data has an unexpected length, got {len(paths)} but wanted {len(self._paths)}."
            )
        if self._paths is not None and paths != self._paths:
            got, wanted = next(pair for pair in zip(paths, self._paths, strict=True) if pair[0] != pair[1])
            raise ValueError(f"The step has another structure than the first: got a leaf {got}, expected {wanted}.")
        return list(range(len(paths))), []

    def commit(self) -> None:
        """Says that the step was taken."""
        self._paths = self._last

    def path(self, column: int) -> str:
        """The column, as errors name it."""
        return f"{column} (path={self._last[column]})"


def _paths(value: Any, path: Path) -> Iterator[Path]:
    if not _is_container(value):
        yield path
        return
    for key, child in _items(value):
        yield from _paths(child, (*path, key))


class _Leaf:
    """A column. One that was only ever None may still turn out to be a structure."""

    def __init__(self, column: int) -> None:
        self.column = column
        self.has_values = False

    def build(self, make: Callable[[int], Any]) -> Any:
        return make(self.column)


class _Container:
    """A mapping, named tuple or attrs class (children by name), or a list or tuple (children by position)."""

    def __init__(self, example: Any) -> None:
        self.kind = type(example)
        self.is_sequence = _is_sequence(example)
        self.order = [] if self.is_sequence else list(_names(example))
        self.factory = getattr(example, "default_factory", None)
        self.children: dict[Any, _Node] = {}

    def build(self, make: Callable[[int], Any]) -> Any:
        if self.is_sequence:
            return self.kind(self.children[index].build(make) for index in range(len(self.children)))
        names = [*self.order, *(key for key in self.children if key not in self.order)]
        children = {name: self.children[name].build(make) for name in names if name in self.children}
        if issubclass(self.kind, collections.defaultdict):
            return self.kind(self.factory, children)
        make_whole: Callable[..., Any] = self.kind
        return make_whole(children) if issubclass(self.kind, Mapping) else make_whole(**children)


_Node = _Leaf | _Container


class _Planned:
    """What a step has at a place: the node that is there already, if any, and what comes below it."""

    def __init__(self, node: "_Node | None", value: Any, path: Path, *, is_container: bool) -> None:
        self.node = node
        self.path = path
        self.is_container = is_container
        self.has_value = not is_container and value is not None
        self.children: list[tuple[Any, _Planned]] = []
        self._example = value if is_container else None

    def make(self, column: int) -> "_Node":
        return _Container(self._example) if self.is_container else _Leaf(column)


def _plan(node: "_Node | None", value: Any, path: Path) -> _Planned:
    """Looks whether a value fits a node, without changing anything."""
    if not _is_container(value):
        if isinstance(node, _Container) and value is not None:
            raise ValueError(f"Field {path}: steps before have a structure here ({node.kind.__name__}), got {value!r}.")
        return _Planned(node, value, path, is_container=False)
    if isinstance(node, _Leaf):
        if node.has_values:
            raise ValueError(f"Field {path}: steps before have a value here, got a structure ({type(value).__name__}).")
        # It was never more than None.
        node = None
    if isinstance(node, _Container) and node.is_sequence != _is_sequence(value):
        raise ValueError(f"Field {path}: steps before have a {node.kind.__name__} here, got a {type(value).__name__}.")
    planned = _Planned(node, value, path, is_container=True)
    known: dict[Any, _Node] = node.children if isinstance(node, _Container) else {}
    for key, child in _items(value):
        if isinstance(node, _Container) and key not in known and not _can_grow(node.kind):
            raise ValueError(f"Field {path}: a {node.kind.__name__} cannot get a field {key!r}.")
        planned.children.append((key, _plan(known.get(key), child, (*path, key))))
    return planned


def _can_grow(kind: type) -> bool:
    return issubclass(kind, Mapping) or (issubclass(kind, (list, tuple)) and not hasattr(kind, "_fields"))


def _is_container(value: Any) -> bool:
    if isinstance(value, (dict, list, tuple)):
        return True
    if value is None or type(value).__module__ in ("builtins", "numpy"):
        return False
    import tree

    return bool(tree.is_nested(value))


def _is_sequence(value: Any) -> bool:
    return not isinstance(value, Mapping) and not hasattr(value, "_fields") and not hasattr(value, "__attrs_attrs__")


def _names(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value
    elif hasattr(value, "_fields"):
        yield from value._fields
    else:
        yield from (attribute.name for attribute in value.__attrs_attrs__)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """The children in flattening order."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield key, value[key]
    elif _is_sequence(value):
        yield from enumerate(value)
    else:
        for name in _names(value):
            yield name, getattr(value, name)
