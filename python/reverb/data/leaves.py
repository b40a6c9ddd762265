"""Maps a function over the leaves of a batch's data."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from reverb.replay_sample import Ragged


def map_leaves(change: Callable[[Any, str], Any], nest: Any, path: tuple[str, ...] = ()) -> Any:
    """Applies `change(leaf, name)` to the leaves of a nest. A `Ragged` is a leaf.

    Args:
      change: Function from a leaf and its human-readable path to the new leaf.
      nest: Nest of dicts, lists, tuples, named tuples, and other containers that dm-tree knows.
      path: Path of the nest within a larger nest, empty by default.

    Returns:
      A nest of new containers.
    """
    if type(nest) is np.ndarray:
        return change(nest, "/".join(path) or "data")
    if isinstance(nest, dict):
        parts = [(key, map_leaves(change, value, (*path, str(key)))) for key, value in nest.items()]
        return dict(parts) if type(nest) is dict else type(nest)(parts)
    if isinstance(nest, Ragged) or not isinstance(nest, (list, tuple, Mapping)):
        return change(nest, "/".join(path) or "data")
    if isinstance(nest, Mapping):
        import tree

        return tree.map_structure_with_path(lambda place, leaf: change(leaf, "/".join(map(str, place))), nest)
    names = getattr(nest, "_fields", range(len(nest)))
    values = [map_leaves(change, value, (*path, str(name))) for name, value in zip(names, nest, strict=True)]
    return type(nest)(*values) if hasattr(nest, "_fields") else type(nest)(values)


def without_ragged(nest: Any) -> Any:
    """A nest in which each `Ragged` is replaced by its values, so that dm-tree takes it for a leaf."""
    import tree

    return tree.traverse(lambda node: node.values if isinstance(node, Ragged) else None, nest)
