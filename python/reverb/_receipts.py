"""Tells servers at exit which batches the program has received, so that their samples do not go back."""

import os
import sys
import time
import weakref
from typing import Protocol

from reverb import _binding
from reverb._shutdown import Stage, at_exit

# limit (Draws): time that the end of a program waits for servers to process its last receipts | {:time} | samples that
# the program has may go back
SETTLE_SECONDS = 1.0


class _Client(Protocol):
    """What is needed of a Client.

    Attributes:
      engine: The native client.
    """

    engine: _binding.Client


_clients: "weakref.WeakSet[_Client]" = weakref.WeakSet()
_is_hooked = False


def settle_at_exit(client: _Client) -> None:
    """Settles the receipts of a client when the process ends."""
    _clients.add(client)


def settle_all() -> None:
    """Waits until servers have processed the receipts of all clients. Those of the parent of a forked child stay."""
    deadline = time.monotonic() + SETTLE_SECONDS
    for client in list(_clients):
        client.engine.settle(max(0.0, deadline - time.monotonic()))
    _binding.wait_for_streams(max(0.0, deadline - time.monotonic()))


def _hook_children() -> None:
    """Lets children of `multiprocessing` settle, too: they run finalizers of their own instead of `atexit`."""
    global _is_hooked
    util = sys.modules.get("multiprocessing.util")
    if util is None or _is_hooked:
        return
    _is_hooked = True

    def in_child(_: object = None) -> None:
        util.Finalize(None, settle_all, exitpriority=0)

    # A child forgets the finalizers of its parent, and then runs this.
    util.register_after_fork(settle_all, in_child)
    if sys.modules["multiprocessing.process"].parent_process() is not None:
        in_child()


at_exit(Stage.READERS, settle_all)
_hook_children()
if hasattr(os, "register_at_fork"):
    # The parent may import `multiprocessing` later.
    os.register_at_fork(before=_hook_children)
