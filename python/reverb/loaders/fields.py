"""The parts of a nest that a loader keeps."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reverb import nests

__all__ = ["Selection", "select"]


class Selection(NamedTuple):
    """Which columns make up the data, and how.

    Attributes:
      columns: Their numbers, in the order in which `pack` takes them.
      names: For people, the path of each.
      pack: From as many leaves to the nest.
      keys: Where the nest is a dict of columns alone: its keys, in order, and for each which of the leaves it has.
        None: it is another one.
      is_all: Whether these are all columns, in their own order.
    """

    columns: list[int]
    names: list[str]
    pack: nests.Packer
    keys: list[tuple[Any, int]] | None
    is_all: bool


def select(structure: Any, fields: Sequence[Any] | None) -> Selection:
    """Chooses parts of a structure.

    Args:
      structure: A nest whose leaves are the numbers of the columns.
      fields: As of Options.

    Returns:
      The selection.

    Raises:
      ValueError: A field is not there.
    """
    chosen = structure if fields is None else _chosen(structure, fields)
    import tree

    leaves = tree.flatten_with_path(chosen)
    columns = [number for _, number in leaves]
    return Selection(
        columns=columns,
        names=["/".join(map(str, path)) or "data" for path, _ in leaves],
        pack=nests.compile_packer(chosen),
        keys=_keys_of_columns(chosen, columns),
        is_all=fields is None and columns == list(range(len(columns))),
    )


def _keys_of_columns(nest: Any, columns: list[int]) -> list[tuple[Any, int]] | None:
    if type(nest) is not dict or not all(isinstance(column, int) for column in nest.values()):
        return None
    return [(key, columns.index(column)) for key, column in nest.items()]


def _chosen(structure: Any, fields: Sequence[Any]) -> Any:
    is_list = isinstance(structure, (list, tuple)) and not hasattr(structure, "_fields")
    if is_list and all(isinstance(field, int) for field in fields):
        return [_part(structure, (field,)) for field in fields]
    chosen: dict[Any, Any] = {}
    for field in fields:
        path = field if isinstance(field, tuple) else (field,)
        place = chosen
        for key in path[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ValueError(f"`fields` names both {key!r} and a part of it.")
        place[path[-1]] = _part(structure, path)
    return chosen


def _part(structure: Any, path: tuple[Any, ...]) -> Any:
    node = structure
    for depth, key in enumerate(path):
        keys = _keys(node)
        if key not in keys:
            where = "/".join(map(str, path[:depth])) or "the data"
            raise ValueError(
                f"`fields` names {key!r} in {where}, which has: {', '.join(map(repr, keys)) or 'no parts'}."
            )
        node = getattr(node, key) if hasattr(node, "_fields") else node[key]
    return node


def _keys(node: Any) -> list[Any]:
    if isinstance(node, Mapping):
        return list(node)
    if hasattr(node, "_fields"):
        return list(node._fields)
    return list(range(len(node))) if isinstance(node, (list, tuple)) else []
