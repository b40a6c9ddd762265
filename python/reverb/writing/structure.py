"""The structure of a writer's steps: the union of the structures of all appended steps, and the column of each leaf."""

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reverb.data import nests
from reverb.data.structures import LIST_IS_NEST

Path = tuple[Any, ...]


class Structure:
    """The union structure, which grows with the steps. Leaves are matched by their dm-tree path. None means no value.

    Attributes:
      num_columns: Number of columns that have appeared. Columns are numbered from 0.
      version: Counter that changes whenever the structure changes.
      options: Mapping from paths of columns to the options to configure them with when they appear.
    """

    def __init__(self) -> None:
        self.num_columns = 0
        self.version = 0
        self.options: dict[Path, tuple[int, int | None]] = {}
        self._root: _Node | None = None
        self._paths: list[Path] = []
        # The change that `commit` will make.
        self._planned: _Planned | None = None
        self._new_paths: list[Path] = []

    def columns_of(self, step: Any) -> tuple[list[int], list[tuple[int, tuple[int, int | None]]]]:
        """The columns of the leaves of a step, in flattening order. New leaves get new columns.

        The structure does not change before `commit` is called.

        Returns:
          The columns, and the new columns that have options, each with its options.

        Raises:
          ValueError: The step has a value where earlier steps have a structure, a structure where they have a value, or
            another kind of container.
        """
        planned = _plan(self._root, step, ())
        columns: list[int] = []
        new: list[Path] = []
        self._number(planned, columns, new)
        self._planned, self._new_paths = planned, new
        options = [(self.num_columns + i, self.options[path]) for i, path in enumerate(new) if path in self.options]
        return columns, options

    def commit(self) -> None:
        """Adds the new leaves of the step that was last passed to `columns_of`."""
        if self._planned is not None:
            self._root = self._enter(self._planned)
            self._paths += self._new_paths
            self._planned, self._new_paths = None, []

    def path(self, column: int) -> str:
        """The path of a column as text, including columns that are not committed yet."""
        return repr([*self._paths, *self._new_paths][column])

    def path_of(self, column: int) -> Path:
        """The path of a committed column."""
        return self._paths[column]

    def column_at(self, path: Path) -> int | None:
        """The column at a path; None if there is no such column."""
        return self._paths.index(path) if path in self._paths else None

    def build(self, make: Callable[[int], Any]) -> Any:
        """Builds a nest with the union structure. Each leaf is the result of `make` for the number of its column."""
        return None if self._root is None else self._root.build(make)

    def _number(self, planned: "_Planned", columns: list[int], new: list[Path]) -> None:
        """Collects the column numbers of a step, and the paths of new columns in the order in which they are added."""
        if planned.is_container:
            for _, child in planned.children:
                self._number(child, columns, new)
        elif isinstance(planned.node, _Leaf):
            columns.append(planned.node.column)
        elif planned.node is None:
            columns.append(self.num_columns + len(new))
            new.append(planned.path)
        else:
            # A None replaces a whole structure. The None is a leaf, and the extension ignores its column number.
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
    """The structure of steps that must all have the structure of the first. Leaf i is column i; None is a leaf."""

    def __init__(self) -> None:
        self._paths: list[Path] | None = None
        self._last: list[Path] = []

    def columns_of(self, step: Any) -> tuple[list[int], list[Any]]:
        """The columns of the leaves of a step, in flattening order, and no options.

        Raises:
          ValueError: The structure of the step differs from that of the first committed step.
        """
        paths = self._last = list(_paths(step, ()))
        if self._paths is not None and len(paths) != len(self._paths):
            # The first line is the text of dm-reverb.
            lines = [f"Flattened data has an unexpected length, got {len(paths)} but wanted {len(self._paths)}."]
            for what, some, others in (("missing", self._paths, paths), ("unknown", paths, self._paths)):
                if different := ["/".join(map(str, path)) for path in some if path not in set(others)]:
                    lines.append(f"{what}: {', '.join(different)}")
            if any(path[:-1] in self._paths and isinstance(path[-1], int) for path in paths if path):
                lines.append(LIST_IS_NEST)
            raise ValueError("\n".join(lines))
        if self._paths is not None and paths != self._paths:
            got, wanted = next(pair for pair in zip(paths, self._paths, strict=True) if pair[0] != pair[1])
            text = f"The structure of the step differs from the first: got a leaf {got}, expected {wanted}."
            raise ValueError(f"{text} {LIST_IS_NEST}" if got[:-1] == wanted and isinstance(got[-1], int) else text)
        return list(range(len(paths))), []

    def commit(self) -> None:
        """Records that the step was appended."""
        self._paths = self._last

    def path(self, column: int) -> str:
        """The name of a column in error messages."""
        return f"{column} (path={self._last[column]})"


def _paths(value: Any, path: Path) -> Iterator[Path]:
    if not nests.is_container(value):
        yield path
        return
    for key, child in _items(value):
        yield from _paths(child, (*path, key))


class _Leaf:
    """A column. A leaf that has always been None can still become a structure."""

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
    """The planned change at one path: the existing node, if any, and the plans for its children."""

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
    """Checks whether a value fits a node, without changing the node."""
    if not nests.is_container(value):
        if isinstance(node, _Container) and value is not None:
            raise ValueError(f"Field {path}: earlier steps have a {node.kind.__name__} here, got {value!r}.")
        return _Planned(node, value, path, is_container=False)
    if isinstance(node, _Leaf):
        if node.has_values:
            text = f"Field {path}: earlier steps have a value here, got a {type(value).__name__}."
            raise ValueError(f"{text} {LIST_IS_NEST}" if isinstance(value, list) else text)
        # The leaf has always been None.
        node = None
    if isinstance(node, _Container) and node.is_sequence != _is_sequence(value):
        raise ValueError(f"Field {path}: earlier steps have a {node.kind.__name__} here, got a {type(value).__name__}.")
    planned = _Planned(node, value, path, is_container=True)
    known: dict[Any, _Node] = node.children if isinstance(node, _Container) else {}
    for key, child in _items(value):
        if isinstance(node, _Container) and key not in known and not _can_grow(node.kind):
            raise ValueError(f"Field {path}: a {node.kind.__name__} cannot have a new field {key!r}.")
        planned.children.append((key, _plan(known.get(key), child, (*path, key))))
    return planned


def _can_grow(kind: type) -> bool:
    return issubclass(kind, Mapping) or (issubclass(kind, (list, tuple)) and not hasattr(kind, "_fields"))


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
