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

    def columns_of(self, step: Any) -> tuple[list[int], list[tuple[int, tuple[int, int | None]]]]:
        """The columns that the leaves of a step belong to, in flattening order. New leaves become new columns.

        Returns:
          The columns; and those of the new ones that are to be configured, with their options.

        Raises:
          ValueError: The step has a value where others have a structure, or the other way round, or other kinds of
            containers. Nothing has changed then.
        """
        root = _plan(self._root, step, ())
        columns: list[int] = []
        first_new = self.num_columns
        self._root = self._commit(root, columns)
        new = range(first_new, self.num_columns)
        options = [(column, self.options[self._paths[column]]) for column in new if self._paths[column] in self.options]
        return columns, options

    def path(self, column: int) -> str:
        """The path of a column, as text."""
        return repr(self._paths[column])

    def path_of(self, column: int) -> Path:
        """The path of a column."""
        return self._paths[column]

    def column_at(self, path: Path) -> int | None:
        """The column at a path, if there is one."""
        return self._paths.index(path) if path in self._paths else None

    def build(self, make: Callable[[int], Any]) -> Any:
        """A nest of the union structure, each leaf made from its column's number."""
        return None if self._root is None else self._root.build(make)

    def _commit(self, planned: "_Planned", columns: list[int]) -> "_Node":
        """Enters what a step adds."""
        node = planned.node
        if node is None:
            node = planned.make()
            self.version += 1
        if isinstance(node, _Leaf):
            if node.column < 0:
                node.column = self.num_columns
                self.num_columns += 1
                self._paths.append(planned.path)
            if planned.is_value:
                node.has_values = True
            columns.append(node.column)
            return node
        if planned.is_absent:
            # The whole structure has no value in this step; the one leaf that stands for it is skipped.
            columns.append(0)
            return node
        for key, child in planned.children:
            known = node.children.get(key)
            entered = self._commit(child, columns)
            if entered is not known:
                node.children[key] = entered
                self.version += 1
        return node


class FixedStructure:
    """The structure of steps that all have that of the first. Leaf number i is column i; None is a leaf."""

    def __init__(self) -> None:
        self._paths: list[Path] | None = None

    def columns_of(self, step: Any) -> tuple[list[int], list[Any]]:
        """The columns that the leaves of a step belong to, in flattening order, and no options.

        Raises:
          ValueError: The step has another structure than the first.
        """
        paths = list(_paths(step, ()))
        if self._paths is None:
            self._paths = paths
        elif len(paths) != len(self._paths):
            raise ValueError(
                f"Flattened data has an unexpected length, got {len(paths)} but wanted {len(self._paths)}."
            )
        elif paths != self._paths:
            got, wanted = next(pair for pair in zip(paths, self._paths, strict=True) if pair[0] != pair[1])
            raise ValueError(f"The step has another structure than the first: got a leaf {got}, expected {wanted}.")
        return list(range(len(paths))), []

    def path(self, column: int) -> str:
        """The column, as errors name it."""
        return f"{column} (path={(self._paths or [])[column]})"


def _paths(value: Any, path: Path) -> Iterator[Path]:
    if not _is_container(value):
        yield path
        return
    for key, child in _items(value):
        yield from _paths(child, (*path, key))


class _Leaf:
    """A column. One that was only ever None may still turn out to be a structure."""

    def __init__(self) -> None:
        self.column = -1
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
        self.is_value = not is_container and value is not None
        self.is_absent = not is_container and value is None
        self.children: list[tuple[Any, _Planned]] = []
        self._example = value if is_container else None
        self._is_container = is_container

    def make(self) -> "_Node":
        return _Container(self._example) if self._is_container else _Leaf()


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
