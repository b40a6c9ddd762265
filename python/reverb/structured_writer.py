"""Patterns declare once which items to create from a stream of steps, instead of creating them step by step.

A pattern is a nest of references to columns of the newest steps, where -1 is the newest:

    config = create_config(
        pattern_from_transform(step, lambda x: {"obs": x["obs"][-3:-1], "action": x["action"][-2]}),
        table="replay",
        conditions=[Condition.step_index() >= 2],
    )

Configs are protobuf messages, with the same bytes as those of dm-reverb.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from reverb._conditions import Condition, ConditionBuilder, ConditionProto, as_int32
from reverb.cc import patterns_pb2
from reverb.data import leaves, nests, signatures, structures
from reverb.writing.patterns.signature import infer_signature
from reverb.writing.patterns.writer import StructuredWriter

__all__ = [
    "Condition",
    "ConditionProto",
    "Config",
    "ConfigList",
    "Pattern",
    "PatternNode",
    "PatternTransform",
    "ReferenceNode",
    "ReferenceStep",
    "StructuredWriter",
    "constant_priority_fn",
    "create_config",
    "create_reference_step",
    "infer_signature",
    "pattern_from_transform",
    "td_error",
    "unpack_pattern",
]

# Type checkers do not know message classes that are created at run time.
if TYPE_CHECKING:
    Config: TypeAlias = Any
    PatternNode: TypeAlias = Any
    Priority: TypeAlias = Any
else:
    Config = patterns_pb2.StructuredWriterConfig
    PatternNode = patterns_pb2.PatternNode
    Priority = patterns_pb2.Priority

# A nest of pattern nodes.
Pattern = Sequence[Any] | Mapping[str, Any] | PatternNode
# A nest of reference nodes, which stands for a step when a pattern is written.
ReferenceStep = Any
PatternTransform = Callable[[ReferenceStep], Pattern]
ConfigList = Sequence[Config]


class ReferenceNode:
    """A column of the step. `node[-1]` is its newest row, `node[-3:]` its newest three rows.

    Args:
      index: Index of the leaf in the flattened step.
    """

    __slots__ = ("_index",)

    def __init__(self, index: int) -> None:
        self._index = index

    def __getitem__(self, key: int | slice) -> PatternNode:
        """A reference to rows, counted back from the newest, which is -1.

        Args:
          key: An int for one row without a time axis (`[:-2]` means `[-2]`), or a slice that starts with a negative
            number. Ranges are checked when a writer is created.

        Raises:
          ValueError: The key is neither an int nor a slice, or does not fit into 32 bits.
          TypeError: A part of the slice is not an int.
        """
        node = patterns_pb2.PatternNode(flat_source_index=self._index)
        if isinstance(key, slice):
            for name in ("start", "stop", "step"):
                value = getattr(key, name)
                if value is not None:
                    setattr(node, name, as_int32(f"The {name} of a slice", value))
            return node
        try:
            position = operator.index(key)
        except TypeError:
            raise ValueError(f"Key must be int or slice by got {key} (type {type(key)}).") from None
        node.stop = as_int32("The key of a node", position)
        return node

    # Without this, iteration would never end: Python would try the keys 0, 1, 2, ..., and each of them gives a node.
    __iter__ = None

    def __repr__(self) -> str:
        return f"ReferenceNode({self._index})"


def create_reference_step(step_structure: Any) -> ReferenceStep:
    """Creates a reference step for writing patterns.

    Args:
      step_structure: Nest with the structure of the steps that will be appended; the values of its leaves are ignored.

    Returns:
      The same nest with a ReferenceNode for each leaf.
    """
    import tree

    structure = leaves.without_ragged(step_structure)
    count = len(tree.flatten(structure))
    return tree.unflatten_as(structure, [ReferenceNode(index) for index in range(count)])


def pattern_from_transform(step_structure: Any, transform: PatternTransform) -> Pattern:
    """The pattern that a function returns for a reference step.

    Args:
      step_structure: Nest with the structure of the steps that will be appended; the values of its leaves are ignored.
      transform: Function from a reference step to a pattern.
    """
    return transform(create_reference_step(step_structure))


def create_config(
    pattern: Pattern,
    table: str,
    conditions: Sequence[ConditionProto] = (),
    priority: "Priority | None" = None,
) -> Config:
    """Combines a pattern with the table for its items and the conditions for creating them.

    Args:
      pattern: Nest of pattern nodes, which describes the item. Its attrs objects become named tuples of their fields.
      table: Name of the table for the items.
      conditions: Conditions that must all hold for an item to be created. By default there are none. Writers add the
        condition that the buffers hold enough steps.
      priority: Priority of the items, created by `constant_priority_fn` or `td_error`; None means the constant 1.

    Returns:
      A new message with copies of the arguments.

    Raises:
      TypeError: A leaf of the pattern, a condition or the priority has the wrong type, such as a node without an index
        or a condition without a comparison; or a key of a mapping is not a str.
    """
    if not isinstance(table, str):
        raise TypeError(f"`table` must be a str, got {table!r} ({type(table).__name__}).")
    if priority is None:
        priority = constant_priority_fn(1.0)
    if not isinstance(priority, patterns_pb2.Priority):
        raise TypeError(f"`priority` must be a Priority message, got {priority!r} ({type(priority).__name__}).")
    config = patterns_pb2.StructuredWriterConfig(table=table, priority=priority)

    def encode_leaf(_: Any, message: Any) -> None:
        message.none_value.SetInParent()

    signatures.encode_nest(structures.skeleton(pattern), config.pattern_structure, encode_leaf)
    config.flat.extend(map(_checked_node, nests.dm_tree().flatten(pattern)))
    config.conditions.extend(_checked_condition(*place) for place in enumerate(conditions or ()))
    return config


def _checked_node(leaf: Any) -> Any:
    if isinstance(leaf, patterns_pb2.PatternNode):
        return leaf
    hint = " Say which rows, such as `[-1]`." if isinstance(leaf, ReferenceNode) else ""
    raise TypeError(f"The leaves of a pattern must be pattern nodes, got {leaf!r} ({type(leaf).__name__}).{hint}")


def _checked_condition(index: int, condition: Any) -> Any:
    if isinstance(condition, patterns_pb2.Condition):
        return condition
    if isinstance(condition, ConditionBuilder):
        hint = " Compare it with an int, as in `Condition.step_index() >= 3`."
    elif isinstance(condition, bool):
        hint = " `Condition.is_end_episode()` takes no comparison."
    else:
        hint = ""
    kind = type(condition).__name__
    raise TypeError(f"`conditions[{index}]` must be a Condition message, got {condition!r} ({kind}).{hint}")


def unpack_pattern(config: Config) -> Pattern:
    """The pattern of a config, as it was passed to `create_config`, with named tuples for attrs objects.

    Args:
      config: Config to take the pattern from. Without `pattern_structure` the pattern is a list of nodes.

    Raises:
      ValueError: The number of leaves in the structure differs from the number of nodes in the config.
    """
    if not config.HasField("pattern_structure"):
        return list(config.flat)
    structure = signatures.decode(config.pattern_structure)
    return nests.compile_packer(structure)(list(config.flat))


def constant_priority_fn(value: float) -> Priority:
    """Gives all items of a config the same priority."""
    priority = patterns_pb2.Priority()
    priority.constant_fn.value = value
    return priority


def td_error(
    max_priority_weight: float,
    step_structure: Any,
    get_field_from_step_fn: Callable[[Any], Any],
) -> Priority:
    """Gives an item the priority w * max |d| + (1 - w) * mean |d|, where d is the column of its TD errors.

    Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning", §2.3.

    Args:
      max_priority_weight: Weight w of the maximum, from 0 (only the mean) to 1 (only the maximum).
      step_structure: Nest with the structure of the steps that will be appended; the values of its leaves are ignored.
      get_field_from_step_fn: Function that picks the column of TD errors out of a nest with the structure of a step.
        The errors are scalars of float32, float64, int32 or int64, and the item must contain a column of them.

    Raises:
      TypeError: The function did not return a leaf of the step.
    """
    import tree

    structure = leaves.without_ragged(step_structure)
    count = len(tree.flatten(structure))
    index = get_field_from_step_fn(tree.unflatten_as(structure, list(range(count))))
    if not isinstance(index, int) or not 0 <= index < count:
        raise TypeError(f"`get_field_from_step_fn` must return a leaf of the step, got {index!r}.")
    priority = patterns_pb2.Priority()
    priority.td_error.max_priority_weight = max_priority_weight
    priority.td_error.flat_source_index = index
    return priority
