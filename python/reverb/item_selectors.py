"""Selectors: which item of a table is drawn next, or removed when the table is full.

A selector here is a kind and its options; its state lives in the table it is given to, and in one role only.
"""

import functools
import weakref
from typing import Any, ClassVar

from reverb import _checks

__all__ = ["Fifo", "HeapSelector", "Lifo", "MaxHeap", "MinHeap", "Prioritized", "Selector", "Uniform"]


class Selector:
    """A kind of selector and its options. Selectors of one kind with the same options are equal."""

    __slots__ = ("__weakref__", "_owner")

    # As the extension and the messages name it.
    kind: ClassVar[str]

    def __init__(self) -> None:
        self._owner: weakref.ref[Any] | None = None

    def options(self) -> tuple[str, float]:
        """The kind and the one number that some kinds have, as the extension takes them."""
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
    """The item that was inserted first. Its probability is 1."""

    __slots__ = ()
    kind = "fifo"


class Lifo(Selector):
    """The item that was inserted last. Its probability is 1."""

    __slots__ = ()
    kind = "lifo"


class Uniform(Selector):
    """Any item, all with the same probability."""

    __slots__ = ()
    kind = "uniform"


class Prioritized(Selector):
    """Item i with probability p_i^e / sum of all p^e: Schaul et al. 2016, "Prioritized Experience Replay", §3.3.

    A priority of 0 has weight 0; if all are 0, all items have the same probability.

    Args:
      priority_exponent: e. 0 is uniform over the priorities that are not 0.

    Raises:
      TypeError: Not a number.
    """

    __slots__ = ("priority_exponent",)
    kind = "prioritized"

    def __init__(self, priority_exponent: float) -> None:
        super().__init__()
        self.priority_exponent = _checks.as_float("priority_exponent", priority_exponent)

    def options(self) -> tuple[str, float]:
        """The kind and the exponent."""
        return self.kind, self.priority_exponent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.priority_exponent,)

    def __repr__(self) -> str:
        return f"PrioritizedSelector(priority_exponent={self.priority_exponent:g})"


class HeapSelector(Selector):
    """The item of lowest or highest priority; of several, the one least recently inserted or updated. Probability 1.

    Args:
      min_heap: Lowest if true, else highest.
    """

    __slots__ = ("min_heap",)
    kind = "heap"

    def __init__(self, min_heap: bool) -> None:
        super().__init__()
        self.min_heap = bool(min_heap)

    def options(self) -> tuple[str, float]:
        """Which of the two kinds of heaps."""
        return ("min_heap" if self.min_heap else "max_heap"), 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.min_heap,)

    def __repr__(self) -> str:
        return f"HeapSelector(sign={1 if self.min_heap else -1})"


MinHeap = functools.partial(HeapSelector, True)
MaxHeap = functools.partial(HeapSelector, False)


def selector_to_proto(selector: Selector) -> Any:
    """The options of a selector as a `KeyDistributionOptions` message."""
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
    """A fresh selector with the options in a `KeyDistributionOptions` message.

    Raises:
      ValueError: The message names no kind.
    """
    kind = message.WhichOneof("distribution")
    if kind == "prioritized":
        return Prioritized(message.prioritized.priority_exponent)
    if kind == "heap":
        return HeapSelector(message.heap.min_heap)
    for cls in (Fifo, Lifo, Uniform):
        if cls.kind == kind:
            return cls()
    raise ValueError("The options name no kind of selector: `distribution` is not set.")
