"""The parts of a nest that a reader keeps."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reverb.data import nests


class Selection(NamedTuple):
    """The columns that make up the data, and their structure.

    Attributes:
      columns: The numbers of the columns, in the order in which `pack` takes them.
      names: The path of each column, as text for messages.
      pack: The function from as many leaves to the nest.
      keys: The keys of a nest that is a dict of leaves alone, in their own order, each with the number of its leaf.
        None: the nest is not such a dict.
      is_all: Whether these are all columns, in their own order.
    """

    columns: list[int]
    names: list[str]
    pack: nests.Packer
    keys: list[tuple[Any, int]] | None
    is_all: bool


def select(structure: Any, fields: Sequence[Any] | None, argument: str = "fields") -> Selection:
    """Selects parts of a structure.

    Args:
      structure: A nest whose leaves are the numbers of the columns.
      fields: The parts to keep, as keys or paths; None: all parts.
      argument: Name of the argument that gave them, for errors.

    Returns:
      The selection.

    Raises:
      ValueError: A field does not exist.
    """
    chosen = structure if fields is None else _chosen(structure, fields, argument)
    import tree

    leaves = tree.flatten_with_path(chosen)
    columns = [number for _, number in leaves]
    return Selection(
        columns=columns,
        names=["/".join(map(str, path)) or "data" for path, _ in leaves],
        pack=nests.compile_packer(chosen),
        keys=nests.flat_keys(chosen),
        is_all=fields is None and columns == list(range(len(columns))),
    )


def _chosen(structure: Any, fields: Sequence[Any], argument: str) -> Any:
    is_list = isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields")
    if is_list and all(isinstance(field, int) for field in fields):
        return [_part(structure, (field,), argument) for field in fields]
    chosen: dict[Any, Any] = {}
    for field in fields:
        path = field if isinstance(field, tuple) else (field,)
        place = chosen
        for key in path[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ValueError(f"`{argument}` names both {key!r} and a part of it.")
        place[path[-1]] = _part(structure, path, argument)
    return chosen


def _part(structure: Any, path: tuple[Any, ...], argument: str) -> Any:
    node = structure
    for depth, key in enumerate(path):
        keys = _keys(node)
        if key not in keys:
            where = "/".join(map(str, path[:depth])) or "the data"
            raise ValueError(
                f"`{argument}` names {key!r} in {where}, which has: {', '.join(map(repr, keys)) or 'no parts'}."
            )
        node = getattr(node, key) if hasattr(node, "_fields") else node[key]
    return node


def _keys(node: Any) -> list[Any]:
    if isinstance(node, Mapping):
        return list(node)
    if hasattr(node, "_fields"):
        return list(node._fields)
    return list(range(len(node))) if isinstance(node, (list, tuple)) else []
