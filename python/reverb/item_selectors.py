"""Selectors choose the item of a table that is drawn next, or removed when the table is full.

A selector here is only a kind and its options. The state belongs to the table, where a selector has one role.
"""

import functools
import weakref
from typing import Any, ClassVar

from reverb.data import checks

__all__ = ["Fifo", "HeapSelector", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Selector", "Uniform"]


class Selector:
    """A kind of selector and its options. Selectors of one kind with the same options are equal."""

    __slots__ = ("__weakref__", "_owner")

    # The name of the kind in the extension and in the messages.
    kind: ClassVar[str]

    def __init__(self) -> None:
        self._owner: weakref.ref[Any] | None = None

    def options(self) -> tuple[str, float]:
        """The kind and its numeric option (0 if it has none), in the form that the extension expects."""
        return self.kind, 0.0

    def __eq__(self, other: object) -> bool:
        return self.options() == other.options() if isinstance(other, Selector) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.options())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}Selector"


class Fifo(Selector):
    """Selects the item that was inserted first. Its probability is 1."""

    __slots__ = ()
    kind = "fifo"


class Lifo(Selector):
    """Selects the item that was inserted last. Its probability is 1."""

    __slots__ = ()
    kind = "lifo"


class Uniform(Selector):
    """Selects any item, all with the same probability."""

    __slots__ = ()
    kind = "uniform"


class Prioritized(Selector):
    """Selects item i with probability p_i^e / sum of all p^e.

    Schaul et al. 2016, "Prioritized Experience Replay", §3.3. An item with priority 0 has weight 0. If all priorities
    are 0, all items have the same probability.

    Args:
      priority_exponent: Exponent e of the priorities. With 0, all items whose priority is not 0 are equally likely.

    Raises:
      TypeError: `priority_exponent` is not a number.
    """

    __slots__ = ("priority_exponent",)
    kind = "prioritized"

    def __init__(self, priority_exponent: float) -> None:
        super().__init__()
        self.priority_exponent = checks.as_float("priority_exponent", priority_exponent)

    def options(self) -> tuple[str, float]:
        """The kind and the exponent."""
        return self.kind, self.priority_exponent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.priority_exponent,)

    def __repr__(self) -> str:
        return f"PrioritizedSelector(priority_exponent={self.priority_exponent:g})"


class HeapSelector(Selector):
    """Selects the item of lowest or highest priority, with probability 1.

    Among items of equal priority it selects the one that was inserted or updated least recently.

    Args:
      min_heap: Whether to select the item of lowest priority; if False, the one of highest priority.
    """

    __slots__ = ("min_heap",)
    kind = "heap"

    def __init__(self, min_heap: bool) -> None:
        super().__init__()
        self.min_heap = bool(min_heap)

    def options(self) -> tuple[str, float]:
        """The kind, `min_heap` or `max_heap`, and 0."""
        return ("min_heap" if self.min_heap else "max_heap"), 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.min_heap,)

    def __repr__(self) -> str:
        return f"HeapSelector(sign={1 if self.min_heap else -1})"


MinHeap = functools.partial(HeapSelector, True)
MaxHeap = functools.partial(HeapSelector, False)


def selector_to_proto(selector: Selector) -> Any:
    """Converts a selector into a `KeyDistributionOptions` message."""
    from reverb.cc import schema_pb2

    message = schema_pb2.KeyDistributionOptions()
    if isinstance(selector, Prioritized):
        message.prioritized.priority_exponent = selector.priority_exponent
    elif isinstance(selector, HeapSelector):
        message.heap.min_heap = selector.min_heap
    else:
        setattr(message, selector.kind, True)
    message.is_deterministic = not isinstance(selector, (Prioritized, Uniform))
    return message


def selector_from_proto(message: Any) -> Selector:
    """Creates a selector with the options of a `KeyDistributionOptions` message.

    Raises:
      ValueError: The message does not name a kind of selector.
    """
    kind = message.WhichOneof("distribution")
    if kind == "prioritized":
        return Prioritized(message.prioritized.priority_exponent)
    if kind == "heap":
        return HeapSelector(message.heap.min_heap)
    for cls in (Fifo, Lifo, Uniform):
        if cls.kind == kind:
            return cls()
    raise ValueError("The options do not name a kind of selector: `distribution` is not set.")
