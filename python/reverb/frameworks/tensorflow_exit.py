"""Ends TensorFlow's iterators before the interpreter shuts down.

TensorFlow's threads call into Python for the datasets of this package. A thread that does so during interpreter
shutdown waits forever, and so does the deletion of its iterator: a third of the programs that ended with such an
iterator hung.
"""

import gc
from collections.abc import Callable

import tensorflow as tf

from reverb import _shutdown

_before: list[Callable[[], None]] = []
_after: list[Callable[[], None]] = []
_registered = False


def at_exit(before: Callable[[], None] | None = None, after: Callable[[], None] | None = None) -> None:
    """Arranges that all `tf.data` iterators end before the interpreter shuts down.

    Args:
      before: Function to call before the iterators end; None calls nothing.
      after: Function to call once the iterators have ended; None calls nothing.
    """
    global _registered
    if not _registered:
        _registered = True
        _shutdown.at_exit(_shutdown.Stage.TENSORFLOW, _end_iterators)
    _before.extend([before] if before else [])
    _after.extend([after] if after else [])


def _end_iterators() -> None:
    for function in _before:
        function()
    for candidate in gc.get_objects():
        if isinstance(candidate, tf.data.Iterator):
            # Clearing the attributes releases its resource, which stops the iteration in TensorFlow's threads.
            vars(candidate).clear()
    candidate = None
    for function in _after:
        function()
