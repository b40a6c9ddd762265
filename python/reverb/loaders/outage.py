"""Log lines of a loader whose server is away."""

import logging
import time

from reverb.errors import ReverbError

_logger = logging.getLogger("reverb")
# Time between lines while the server is away.
_PERIOD_S = 10.0


class Outage:
    """Tells of a server that is away: when that begins, every ten seconds, and when it is over.

    Args:
      address: The address of the server, as the program has given it.
      tables: The names of the tables that the loader draws from.

    Attributes:
      since: When the server went away, by the monotonic clock; None while it is there.
    """

    def __init__(self, address: str, tables: list[str]) -> None:
        self._address = address
        self._tables = ", ".join(tables)
        self.since: float | None = None
        self._told = 0.0

    def goes_on(self, error: ReverbError) -> None:
        """Notes that the server is away, for the reason that the error says."""
        now = time.monotonic()
        if self.since is None:
            self.since = now
        elif now - self._told < _PERIOD_S:
            return
        self._told = now
        waited = now - self.since
        self._tell(f"has waited {waited:.1f} s for the server at {self._address}: {error}", waited)

    def is_over(self) -> None:
        """Notes that the server was reached."""
        if self.since is not None:
            waited, self.since = time.monotonic() - self.since, None
            self._tell(f"has reached the server at {self._address} again after {waited:.1f} s", waited)

    def _tell(self, what: str, waited: float) -> None:
        fields = {"table": self._tables, "operation": "sample", "waited_s": waited}
        _logger.warning("a loader of table %s %s", self._tables, what, extra={"fields": fields})
