"""Compares the structure of data with that of a table's signature, and says what does not fit.

Columns are matched by their position in the flattened nests. Where the signature is a mapping, and the data one too, a
named tuple or an attrs object, their keys must be the same, and columns are matched by them, since otherwise a misspelt
or misplaced name would put values into other columns.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from reverb.data import signatures
from reverb.data.arrays import as_array
from reverb.replay_sample import Ragged

LIST_IS_NEST = (
    "A list in a step is a nest, with a column for each of its arrays: append one array, and rows that differ in "
    "length as a `reverb.Ragged(values, row_lengths)`."
)
_STACKED = "insert_batch takes n stacked steps, arrays [n, ...]"
_REMEDY = "One step: insert. A list of steps: stack them first."


def key_differences(table: str, data: Any, structure: bytes) -> str | None:
    """Says which keys of the data are missing or unknown.

    Args:
      table: Name of the table.
      data: Nest with leaves of any kind.
      structure: Serialized signature of the table; empty if it is unknown.

    Returns:
      A line such as `table "t": missing: reward; unknown: rewards`. None if all keys are those of the signature, also
      where data and signature are not both mappings.
    """
    missing: list[str] = []
    unknown: list[str] = []
    signature = _decode(structure)
    _compare(_by_name(data, signature), signature, "", missing, unknown)
    parts = [f"{kind}: {', '.join(paths)}" for kind, paths in (("missing", missing), ("unknown", unknown)) if paths]
    return f'table "{table}": {"; ".join(parts)}' if parts else None


@functools.lru_cache(maxsize=64)
def _decode(structure: bytes) -> Any:
    try:
        return signatures.decode(signatures.parse(structure)) if structure else None
    except ValueError:
        # Only readers need a signature that has a structure.
        return None


def _compare(data: Any, signature: Any, path: str, missing: list[str], unknown: list[str]) -> None:
    if isinstance(data, Mapping) and isinstance(signature, Mapping):
        values = {str(key): value for key, value in data.items()}
        missing += [path + key for key in signature if key not in values]
        unknown += [path + key for key in values if key not in signature]
        for key, spec in signature.items():
            if key in values:
                _compare(values[key], spec, f"{path}{key}/", missing, unknown)
    elif isinstance(data, (list, tuple)) and isinstance(signature, (list, tuple)) and len(data) == len(signature):
        for position, (value, spec) in enumerate(zip(data, signature, strict=True)):
            _compare(value, spec, f"{path}{position}/", missing, unknown)


def likely_mistake(data: Any, structure: bytes, is_batch: bool) -> str | None:
    """Says which mistake the caller probably made, if data does not fit a signature.

    Args:
      data: Nest of values, or of columns of a writer.
      structure: Serialized signature of the table.
      is_batch: Whether the data was passed to `insert_batch`.

    Returns:
      A line about a list where the signature has a single value, or about steps that `insert_batch` does not take. None
      if the data does not look like one of these.
    """
    signature = _decode(structure)
    is_sequence = isinstance(data, (list, tuple)) and all(isinstance(step, Mapping) for step in data)
    if is_batch and is_sequence and isinstance(signature, Mapping):
        return f"{_STACKED}; got {_described(data)} of {len(data)} steps. {_REMEDY}"
    for path, value, spec in _sequences_for_leaves(data, signature, ""):
        count = sum(1 for _ in _leaves(value, ""))
        what = f"{path or 'the data'} is {_described(value)} of {count} leaves"
        if not is_batch and _has_open_length(spec):
            return f"{what}; one step has one row there, an array or a `reverb.Ragged` of one row (lists are nests)."
        return f"{what}; np.asarray makes one array (lists are nests)."
    if is_batch:
        shapes = [(path, list(getattr(leaf, "shape", ()))) for path, leaf in _leaves(data, "")]
        if _fit(shapes, signature):
            first, *others = [f"{path or 'the data'} is {_text(shape)}" for path, shape in shapes[:2]]
            return f"{_STACKED}; {', '.join([first, *others])}, which is one step. {_REMEDY}"
    return None


def _described(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a tuple"


def _text(shape: list[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _sequences_for_leaves(data: Any, signature: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The lists and tuples of data at places where the signature has a leaf, each with its path and the leaf."""
    if isinstance(signature, Mapping):
        if isinstance(data, Mapping):
            for key in sorted(signature):
                if key in data:
                    yield from _sequences_for_leaves(data[key], signature[key], f"{path}/{key}" if path else key)
    elif isinstance(signature, (list, tuple)):
        if isinstance(data, (list, tuple)) and len(data) == len(signature):
            for position, (value, spec) in enumerate(zip(data, signature, strict=True)):
                yield from _sequences_for_leaves(value, spec, f"{path}/{position}" if path else str(position))
    elif signature is not None and isinstance(data, (list, tuple)) and not isinstance(data, Ragged):
        yield path, data, signature


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        children: Any = ((key, node[key]) for key in sorted(node))
    elif isinstance(node, (list, tuple)) and not isinstance(node, Ragged):
        children = enumerate(node)
    else:
        yield path, node
        return
    for key, child in children:
        yield from _leaves(child, f"{path}/{key}" if path else str(key))


def _fit(shapes: list[tuple[str, list[int]]], signature: Any) -> bool:
    """Whether the shapes are those of one step."""
    specs = signatures.flat_specs(signature)
    return (
        specs is not None
        and len(specs) == len(shapes)
        and all(
            dims is None or (len(dims) == len(shape) and all(a in (-1, b) for a, b in zip(dims, shape, strict=True)))
            for (_, _, dims), (_, shape) in zip(specs, shapes, strict=True)
        )
    )


def _by_name(data: Any, signature: Any) -> Any:
    """A nest with dicts in place of named tuples and attrs objects where the signature has a mapping; else `data`."""
    if isinstance(signature, Mapping):
        names = field_names(data)
        if names is not None:
            return {name: _by_name(getattr(data, name), signature.get(name)) for name in names}
        if isinstance(data, Mapping):
            parts = {key: _by_name(value, signature.get(str(key))) for key, value in data.items()}
            return data if all(parts[key] is value for key, value in data.items()) else parts
    elif isinstance(signature, (list, tuple)) and isinstance(data, (list, tuple)) and len(data) == len(signature):
        values = [_by_name(value, spec) for value, spec in zip(data, signature, strict=True)]
        return data if all(new is old for new, old in zip(values, data, strict=True)) else values
    return data


def field_names(data: Any) -> Sequence[str] | None:
    """The fields of a named tuple or attrs object; None of other objects."""
    if isinstance(data, tuple):
        return None if isinstance(data, Ragged) else getattr(data, "_fields", None)
    attributes = getattr(type(data), "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def has_fields(data: Any) -> bool:
    """Whether a named tuple or an attrs object is in a nest.

    Args:
      data: Nest with leaves of any kind.
    """
    if isinstance(data, Mapping):
        return any(has_fields(value) for value in data.values())
    is_sequence = isinstance(data, (list, tuple)) and not isinstance(data, Ragged)
    return field_names(data) is not None or (is_sequence and any(map(has_fields, data)))


def order_by_name(data: Any, structure: bytes) -> list[int] | None:
    """The order in which the leaves of a nest are those of the signature, where fields are matched by name.

    Args:
      data: Nest with leaves of any kind.
      structure: Serialized signature of the table.

    Returns:
      For each column of the signature the number of its leaf; None if leaves are matched by position.
    """
    import tree

    nest = skeleton(data)
    numbered = tree.unflatten_as(nest, list(range(len(tree.flatten(nest)))))
    named = _by_name(numbered, _decode(structure))
    return None if named is numbered else tree.flatten(named)


def lists_to_ragged(data: Any, structure: bytes) -> Any:
    """Makes a `Ragged` of each list of arrays at whose place the signature has one array of open length.

    Args:
      data: Nest of stacked steps, in which such a list has an array for each step.
      structure: Serialized signature of the table.

    Returns:
      A nest of new containers. Lists elsewhere, and those whose arrays do not fit together, stay as they are.
    """
    return lists_as_specified(data, _decode(structure))


def lists_as_specified(data: Any, signature: Any) -> Any:
    """The same as `lists_to_ragged`, for a signature that is a nest of specs, or the part of one for this nest."""
    if isinstance(data, Mapping):
        if isinstance(signature, Mapping):
            return {key: lists_as_specified(value, signature.get(key)) for key, value in data.items()}
    elif isinstance(data, (list, tuple)) and isinstance(signature, (list, tuple)):
        if len(data) == len(signature):
            parts = [lists_as_specified(value, spec) for value, spec in zip(data, signature, strict=True)]
            return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    elif isinstance(data, list) and _has_open_length(signature):
        return ragged_of(data) or data
    return data


def ragged_of(arrays: list[Any]) -> Ragged | None:
    """The rows of a list of arrays; None if they do not fit together."""
    rows = [as_array(row) for row in arrays]
    if any(not row.ndim or (row.dtype, row.shape[1:]) != (rows[0].dtype, rows[0].shape[1:]) for row in rows):
        return None
    return Ragged(np.concatenate(rows), np.array([len(row) for row in rows], np.int64)) if rows else None


def _has_open_length(signature: Any) -> bool:
    specs = None if signature is None or isinstance(signature, (Mapping, tuple, list)) else [signature]
    return any(size < 0 for _, _, shape in signatures.flat_specs(specs) or () for size in shape or ())


def skeleton(data: Any, leaf: type = Ragged) -> Any:
    """Copies a nest. Mappings become dicts, attrs objects named tuples, and leaves None.

    Args:
      data: Nest with leaves of any kind.
      leaf: Type of leaves that are tuples.
    """
    if isinstance(data, leaf):
        return None
    if isinstance(data, Mapping):
        return {key: skeleton(value, leaf) for key, value in data.items()}
    if isinstance(data, list):
        return [skeleton(value, leaf) for value in data]
    names = field_names(data)
    if names is not None:
        parts = [skeleton(getattr(data, name), leaf) for name in names]
        return signatures.named_tuple(type(data).__name__, tuple(names))(*parts)
    return tuple(skeleton(value, leaf) for value in data) if isinstance(data, tuple) else None
