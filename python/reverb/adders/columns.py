"""Columns of a step that an item treats differently from the others."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tree

from reverb.data import checks


def as_names(argument: str, names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of columns; a single one may be given alone.

    Raises:
      TypeError: A name is not a str.
    """
    listed = (names,) if isinstance(names, str) else tuple(names)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` must be names of columns, got {name!r} ({type(name).__name__}).")
    return listed


def as_stack(stack: Mapping[str, int] | None) -> dict[str, int]:
    """Numbers of frames by name.

    Raises:
      ValueError: A number is below 1.
      TypeError: A name is not a str, or a number is not an integer.
    """
    given = dict(stack or {})
    as_names("stack", tuple(given))
    return {name: checks.as_count(f"stack[{name!r}]", number) for name, number in given.items()}


def places(argument: str, names: Sequence[str], step: Any) -> dict[int, str]:
    """The leaves of a step below the given names, by their position in the flattened step.

    Args:
      argument: Name of the argument that gave the names, for the error.
      names: Names of columns, or paths such as `observation/pixels`. A name also stands for all that is below it.
      step: Nest of a step.

    Raises:
      ValueError: The step has no column of a name.
    """
    paths = ["/".join(map(str, path)) for path, _ in tree.flatten_with_path(step)]
    found = {}
    for name in names:
        below = [index for index, path in enumerate(paths) if path == name or path.startswith(f"{name}/")]
        if not below:
            raise ValueError(f"`{argument}` names {name!r}, but the step has: {', '.join(paths)}.")
        found.update(dict.fromkeys(below, name))
    return found


def blank(step: Any) -> Any:
    """A step without values."""
    return tree.map_structure(lambda _: None, step)


def only(step: Any, keep: Collection[int]) -> Any:
    """The step with values in the given leaves only."""
    leaves = [leaf if index in keep else None for index, leaf in enumerate(tree.flatten(step))]
    return tree.unflatten_as(step, leaves)


def replaced(step: Any, keep: Collection[int], values: Any, argument: str) -> Any:
    """The step with the given leaves taken from another nest, which may lack the others.

    Raises:
      ValueError: The other nest lacks one of these leaves.
    """
    given = {} if values is None else dict(tree.flatten_with_path(values))
    leaves = []
    for index, (path, leaf) in enumerate(tree.flatten_with_path(step)):
        if index not in keep:
            leaves.append(leaf)
        elif path in given:
            leaves.append(given[path])
        else:
            name = "/".join(map(str, path))
            raise ValueError(f"`{argument}` must have {name!r} after the step, since the adder was made with it.")
    return tree.unflatten_as(step, leaves)


def refuse_none(step: Any, optional: Collection[int] = ()) -> None:
    """Refuses a step that lacks a value, since the items that need it would not be created.

    Args:
      step: Nest of a step.
      optional: Leaves that may be None, by their position in the flattened step.

    Raises:
      ValueError: Another leaf is None.
    """
    missing = {index for index, leaf in enumerate(tree.flatten(step)) if leaf is None}.difference(optional)
    if missing:
        path, _ = tree.flatten_with_path(step)[min(missing)]
        name = "/".join(map(str, path)) or "the step"
        raise ValueError(f"{name} is None, but the items need a value of each step; the step was not added.")
