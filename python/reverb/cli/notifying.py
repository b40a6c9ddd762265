"""Tells systemd that `reverb serve` is ready, and that it stops, for units of `Type=notify` (`sd_notify`)."""

import logging
import os
import socket

from reverb.server import Server

_logger = logging.getLogger("reverb")


def notify(state: str) -> None:
    """Sends a state to the manager that started the process. Does nothing without one.

    A manager that cannot be reached is logged, and the server goes on.

    Args:
      state: Assignment that the manager knows, such as `READY=1`.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        # The name of an abstract socket, which begins with a zero byte.
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.sendto(state.encode(), address)
    except OSError as error:
        _logger.warning("systemd was not told %s: %s", state, error)


class NotifyingServer(Server):
    """A server that tells the manager when it begins to stop: before the last save, which may take minutes."""

    _has_told = False

    def stop(self, *, returns: bool = False) -> None:
        """See the base class."""
        if not self._has_told:
            self._has_told = True
            notify("STOPPING=1")
        super().stop(returns=returns)
