"""Ends what TensorFlow still iterates while Python can be called.

TensorFlow's threads call into Python for the datasets of this package. One that does so while the interpreter ends
waits for ever, and with it the deletion of its iterator: a third of the programs that ended with such an iterator hung.
"""

import atexit
import gc
from collections.abc import Callable

import tensorflow as tf

__all__ = ["at_exit"]

_before: list[Callable[[], None]] = []
_after: list[Callable[[], None]] = []
_registered = False


def at_exit(before: Callable[[], None] | None = None, after: Callable[[], None] | None = None) -> None:
    """From now on, all iterators of `tf.data` end before the interpreter does.

    Args:
      before: Called first.
      after: Called when they have ended.
    """
    global _registered
    if not _registered:
        _registered = True
        atexit.register(_end_iterators)
    _before.extend([before] if before else [])
    _after.extend([after] if after else [])


def _end_iterators() -> None:
    for function in _before:
        function()
    for candidate in gc.get_objects():
        if isinstance(candidate, tf.data.Iterator):
            # Its resource goes with its attributes; what iterates in TensorFlow's threads is stopped by that.
            vars(candidate).clear()
    candidate = None
    for function in _after:
        function()
