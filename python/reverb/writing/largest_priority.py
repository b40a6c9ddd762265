"""The largest priority so far of the items of a table, as far as this process knows it."""

import threading
import weakref
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from reverb.data.keys import as_priority

# Those that want to hear of updates, by the server's address and the table's name. Lists are replaced, never changed.
_listeners: dict[tuple[str, str], list["weakref.ref[LargestPriority]"]] = {}
_lock = threading.Lock()


class LargestPriority:
    """The largest of 1 and the priorities noted so far, those that clients of this process set included.

    Args:
      address: Address of the server, as passed to the clients whose updates count.
      table: Name of the table whose updates count.
    """

    __slots__ = ("__weakref__", "_lock", "_value")

    def __init__(self, address: str, table: str) -> None:
        self._value = 1.0
        self._lock = threading.Lock()
        with _lock:
            alive = [listener for listener in _listeners.get((address, table), ()) if listener() is not None]
            _listeners[address, table] = [*alive, weakref.ref(self)]

    @property
    def value(self) -> float:
        """The largest priority so far."""
        return self._value

    def note(self, priorities: ArrayLike) -> None:
        """Takes priorities into account. Those that are not finite are ignored."""
        values = np.asarray(priorities, np.float64)
        largest = float(np.max(values, initial=0.0, where=np.isfinite(values)))
        with self._lock:
            self._value = max(self._value, largest)


def note_update(address: str, table: str, priorities: Iterable[object]) -> None:
    """Tells the listeners that a client has set priorities of items of a table."""
    if not _listeners:
        return
    for listener in _listeners.get((address, table), ()):
        largest = listener()
        if largest is not None:
            if not isinstance(priorities, np.ndarray):
                priorities = [as_priority(priority) for priority in priorities]
            largest.note(np.asarray(priorities, np.float64))
