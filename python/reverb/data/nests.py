"""Nests of dicts, lists, tuples and named tuples, by dm-tree's rules.

Mappings are flattened in the order of their sorted keys and rebuilt in their own order. None is a leaf. dm-tree itself,
which is correct but slow, is imported only for containers of other types.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reverb.replay_sample import Ragged

Packer = Callable[[Sequence[Any]], Any]


@functools.cache
def dm_tree() -> Any:
    """The module `tree`, imported by the first call, since that takes long.

    Later calls also work when the interpreter has begun to end, and an `import` does not.
    """
    import tree

    # Its first call imports more.
    tree.flatten([0])
    return tree


def compile_packer(structure: Any) -> Packer:
    """Compiles a function that puts flat leaves into a structure, like `tree.unflatten_as` but about ten times as fast.

    Args:
      structure: Nest with any leaves, whose structure the function builds.

    Returns:
      A function from a sequence of leaves to a nest of new containers. It raises ValueError if the number of leaves
      differs from that of the structure.
    """
    builder = _ExpressionBuilder()
    expression = builder.expression(structure)
    if builder.is_exotic:
        return _slow_packer(structure)
    names = [f"v{number}" for number in range(builder.num_leaves)]
    target = f"[{', '.join(names)}]"
    # The function is fast because it is one expression without loops. The source contains only names and numbers that
    # are created here. Keys and classes are passed as constants, so text from a server is never executed.
    source = (
        f"def pack(leaves):\n"
        f"  try: {target} = leaves\n"
        f"  except ValueError: pass\n"
        f"  else: return {expression}\n"
        f"  raise ValueError(f'The structure has {builder.num_leaves} leaves, got {{len(leaves)}}.')\n"
    )
    namespace = dict(builder.constants)
    exec(compile(source, "<packer of a nest>", "exec"), namespace)
    pack: Packer = namespace["pack"]
    return pack


def flat_keys(structure: Any) -> list[tuple[Any, int]] | None:
    """Returns the keys of a dict whose values are all leaves, in their own order, each with the number of its leaf.

    Args:
      structure: Nest with leaves of any kind.

    Returns:
      None if the nest is not such a dict.
    """
    if type(structure) is not dict or any(map(is_container, structure.values())):
        return None
    numbers = {key: number for number, key in enumerate(sorted(structure))}
    return [(key, numbers[key]) for key in structure]


class _ExpressionBuilder:
    """Builds the expression that creates a structure from its leaves `v0`, `v1`, … and constants `c0`, `c1`, …."""

    def __init__(self) -> None:
        self.num_leaves = 0
        self.constants: dict[str, Any] = {}
        self.is_exotic = False

    def expression(self, node: Any) -> str:
        kind = type(node)
        if kind is dict:
            return self._dict(node)
        if kind is list:
            return f"[{', '.join([self.expression(value) for value in node])}]"
        if kind is tuple:
            return f"({''.join([self.expression(value) + ', ' for value in node])})"
        if isinstance(node, tuple) and hasattr(node, "_fields"):
            return f"{self._constant(kind)}({', '.join([self.expression(value) for value in node])})"
        if is_container(node):
            self.is_exotic = True
            return "None"
        self.num_leaves += 1
        return f"v{self.num_leaves - 1}"

    def _dict(self, node: dict[Any, Any]) -> str:
        values = {key: self.expression(node[key]) for key in sorted(node)}
        return f"{{{', '.join(f'{self._constant(key)}: {values[key]}' for key in node)}}}"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


def is_container(node: Any) -> bool:
    """Whether dm-tree finds children in it, if it has any. A `Ragged`, although a named tuple, is a leaf."""
    if isinstance(node, (Mapping, list, tuple)):
        return not isinstance(node, Ragged)
    if node is None or type(node).__module__ in ("builtins", "numpy", "reverb.tensor_spec"):
        return False
    return bool(dm_tree().is_nested(node))


def _slow_packer(structure: Any) -> Packer:
    tree = dm_tree()

    def pack(leaves: Sequence[Any]) -> Any:
        return tree.unflatten_as(structure, leaves)

    return pack
