"""Nests: dicts, lists, tuples and named tuples of leaves, by dm-tree's rules.

Mappings count in the order of their sorted keys and are rebuilt in their own; None is a leaf. dm-tree itself, which is
correct and slow, is only imported for what is none of the four.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["Packer", "compile_packer"]

Packer = Callable[[Sequence[Any]], Any]


def compile_packer(structure: Any) -> Packer:
    """A function that puts flat leaves into a structure, like `tree.unflatten_as` and some ten times as fast.

    Args:
      structure: A nest, whatever its leaves are.

    Returns:
      A function from a sequence of leaves to a nest of new containers. It raises ValueError if the number of leaves is
      another one than that of the structure.
    """
    writer = _Writer()
    expression = writer.expression(structure)
    if writer.is_exotic:
        return _slow_packer(structure)
    names = [f"v{number}" for number in range(writer.num_leaves)]
    target = f"[{', '.join(names)}]"
    # One expression without loops is what makes it fast. Only names and numbers made here enter the source; keys and
    # classes come in as constants, so that no text of a server is ever executed.
    source = (
        f"def pack(leaves):\n"
        f"  try: {target} = leaves\n"
        f"  except ValueError: pass\n"
        f"  else: return {expression}\n"
        f"  raise ValueError(f'The structure has {writer.num_leaves} leaves, got {{len(leaves)}}.')\n"
    )
    namespace = dict(writer.constants)
    exec(compile(source, "<packer of a nest>", "exec"), namespace)
    pack: Packer = namespace["pack"]
    return pack


class _Writer:
    """Writes the expression that builds a structure from its leaves `v0`, `v1`, … and constants `c0`, `c1`, …."""

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
        if isinstance(node, (Mapping, list, tuple)) or _is_nested(node):
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


def _is_nested(node: Any) -> bool:
    if node is None or type(node).__module__ in ("builtins", "numpy", "reverb.tensor_spec"):
        return False
    import tree

    return bool(tree.is_nested(node))


def _slow_packer(structure: Any) -> Packer:
    import tree

    def pack(leaves: Sequence[Any]) -> Any:
        return tree.unflatten_as(structure, leaves)

    return pack
