"""Infers the signature of a table whose items are created from patterns."""

from collections.abc import Sequence
from typing import Any

from reverb.cc import patterns_pb2
from reverb.data import dtypes, nests, signatures
from reverb.tensor_spec import TensorShape

# The TensorFlow number of the dtype, and the shape.
_LeafSpec = tuple[int, TensorShape]


def infer_signature(configs: Sequence[Any], step_spec: Any) -> Any:
    """Infers the signature of the items that configs create from steps.

    Args:
      configs: Configs for the same table, with the same pattern structure; at least one.
      step_spec: Nest with the structure of a step, whose leaves have `dtype` and `shape`: specs of any library, or
        arrays.

    Returns:
      The structure of the pattern with a spec for each leaf, named after its path. The shape of a slice of rows starts
      with its length. If configs differ only in the first dimension, that dimension is None. The specs are those of
      TensorFlow if the program has imported TensorFlow, otherwise ours.

    Raises:
      ValueError: There is no config; the configs differ in their tables, structures, dtypes or shapes; the rank of a
        step's leaf is unknown; or a node refers to no column or no row.
    """
    import tree

    configs = [configs] if isinstance(configs, patterns_pb2.StructuredWriterConfig) else list(configs)
    structure = _common_structure(configs)
    columns = tree.flatten(step_spec)
    paths = [path for path, _ in tree.flatten_with_path(structure)]
    for config in configs:
        if len(config.flat) != len(paths):
            raise ValueError(f"A config has {len(config.flat)} nodes for the {len(paths)} leaves of its structure.")
    leaves = []
    for index, path in enumerate(paths):
        seen = [_leaf(config.flat[index], columns, path) for config in configs]
        number, shape = _merge(seen, path)
        leaves.append(signatures.make_spec(shape.as_list(), number, "/".join(str(step) for step in path)))
    return nests.compile_packer(structure)(leaves)


# The public module of the function, which pickles refer to.
infer_signature.__module__ = "reverb.structured_writer"


def _common_structure(configs: list[Any]) -> Any:
    if not configs:
        raise ValueError("At least one config must be provided.")
    first = configs[0]
    for config in configs[1:]:
        if (config.HasField("pattern_structure"), config.pattern_structure) != (
            first.HasField("pattern_structure"),
            first.pattern_structure,
        ):
            raise ValueError("All configs must have exactly the same pattern_structure.")
    tables = sorted({config.table for config in configs})
    if len(tables) > 1:
        raise ValueError(f"All configs must target the same table but provided configs included {', '.join(tables)}.")
    if first.HasField("pattern_structure"):
        return signatures.decode(first.pattern_structure)
    return [None] * len(first.flat)


def _leaf(node: Any, columns: list[Any], path: tuple[Any, ...]) -> _LeafSpec:
    """The dtype and shape that one config gives to one leaf."""
    if not 0 <= node.flat_source_index < len(columns):
        raise ValueError(
            f"The node at {path} refers to column {node.flat_source_index} of steps that have {len(columns)}."
        )
    spec = columns[node.flat_source_index]
    if not (hasattr(spec, "dtype") and hasattr(spec, "shape")):
        raise ValueError(f"A leaf of `step_spec` must have `dtype` and `shape`, got {spec!r} ({type(spec).__name__}).")
    number = dtypes.number_of(dtypes.as_dtype(spec.dtype))
    shape = TensorShape(spec.shape)
    return number, shape if not node.HasField("start") else TensorShape([_length(node, path)]) + shape


def _length(node: Any, path: tuple[Any, ...]) -> int:
    step: int = node.step if node.HasField("step") else 1
    rows: int = node.stop - node.start
    if step < 1 or rows < 1:
        raise ValueError(f"The node at {path} refers to no rows: {' '.join(str(node).split())}.")
    return -(-rows // step)  # Rounded up: [-5::2] selects the rows -5, -3 and -1.


def _merge(seen: list[_LeafSpec], path: tuple[Any, ...]) -> _LeafSpec:
    """Merges the leaves that the configs have at one path."""
    numbers = list(dict.fromkeys(number for number, _ in seen))
    if len(numbers) > 1:
        names = ", ".join(f"tf.{dtypes.name_of(number)}" for number in numbers)
        raise ValueError(f"Configs produce trajectories with multiple dtypes at {path}. Got [{names}].")
    shapes = list(dict.fromkeys(shape for _, shape in seen))
    if any(shape.rank is None for shape in shapes):
        raise ValueError("Cannot iterate over a shape with unknown rank.")
    if len(shapes) == 1:
        return numbers[0], shapes[0]
    if any(not shape or shape[1:] != shapes[0][1:] or len(shape) == 0 for shape in shapes):
        raise ValueError(f"Configs produce trajectories with incompatible shapes at {path}. Got {shapes}.")
    return numbers[0], TensorShape([None, *shapes[0][1:]])
