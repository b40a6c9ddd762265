"""Exit on SIGTERM, and ordered shutdown at interpreter exit.

The order does not depend on which module was imported first.
"""

import atexit
import contextlib
import enum
import signal
import sys
import threading
from collections.abc import Callable

# The exit status of a process that ends by SIGTERM, as shells report it.
SIGTERM_STATUS = 128 + signal.SIGTERM


class Stage(enum.IntEnum):
    """Shutdown stages; lower stages run first."""

    # TensorFlow's threads call into this package, so they must stop while the package still works.
    TENSORFLOW = 1
    # Writers send their remaining items, so they must close while servers of this process still accept items.
    WRITERS = 2
    # Readers send their last receipts, for which a server of this process waits otherwise.
    READERS = 3
    # Servers save the items that the writers have sent, and no samples that readers have received.
    SERVERS = 4
    # Events of all that come before are logged.
    LOG = 5
    # From here on, threads that wait in this package do not come back: the interpreter would end them there.
    THREADS = 6


_hooks: dict[Stage, list[tuple[Callable[[], None], Callable[[], bool] | None]]] = {}
_ended: set[Stage] = set()


def at_exit(stage: Stage, hook: Callable[[], None], *, is_due: Callable[[], bool] | None = None) -> None:
    """Registers a function to be called at interpreter exit, after the functions of earlier stages.

    A stage registers one `atexit` hook, so it runs before all hooks that the program registered earlier. Earlier
    stages run first, even if they were registered later. They run again at their own position in `atexit`, to close
    everything that was opened in the meantime.

    Args:
      stage: The stage that the function belongs to.
      hook: The function. It may be called more than once, and in a forked child.
      is_due: A function that says at interpreter exit whether `hook` has anything to do; None if `hook` is always
        called. A stage without due hooks does not run earlier stages.
    """
    if stage not in _hooks:
        _hooks[stage] = []
        atexit.register(_end, stage)
    _hooks[stage].append((hook, is_due))


def _end(stage: Stage) -> None:
    if not _due(stage):
        return
    stages = [earlier for earlier in sorted(_hooks) if earlier < stage and earlier not in _ended] + [stage]
    # Calls all hooks, in last-in-first-out order, even if one of them fails.
    with contextlib.ExitStack() as calls:
        for ending in reversed(stages):
            for hook in reversed(_due(ending)):
                calls.callback(hook)
    _ended.update(stages)


def _due(stage: Stage) -> list[Callable[[], None]]:
    return [hook for hook, is_due in _hooks[stage] if is_due is None or is_due()]


class ExitOnSigterm:
    """Makes SIGTERM raise SystemExit in the main thread, so that the program ends as usual instead of being killed.

    The exit status is 143, as shells report the death by this signal. Later signals do nothing, so that they do not
    interrupt what the program does to end.
    """

    def __init__(self) -> None:
        self._has_raised = False

    def begin(self) -> None:
        """Handles SIGTERM from now on. Does nothing in other threads, or if the program handles or ignores SIGTERM."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._exit)

    def end(self) -> None:
        """Restores what SIGTERM did before, unless the program has installed a handler in the meantime."""
        if signal.getsignal(signal.SIGTERM) == self._exit:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _exit(self, number: int, frame: object) -> None:
        if not self._has_raised:
            self._has_raised = True
            sys.exit(SIGTERM_STATUS)
