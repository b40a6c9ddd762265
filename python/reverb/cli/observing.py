"""Looks at a server, with the rates since the look before."""

import collections
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from reverb import _binding
from reverb.data.endpoint import Endpoint

# Number of rates that are kept: those of a minute, at a look a second.
KEPT = 60
# Counts of tables and of clients of which there are rates.
_COUNTS = ("inserts", "samples", "receive_bytes", "transmit_bytes")

_Seen = TypeVar("_Seen")
_Figure = TypeVar("_Figure", int, float)


@dataclasses.dataclass
class Observation:
    """What a server says of itself, as `Observe` describes it.

    Attributes:
      server: Document of the process and its gRPC service.
      tables: The tables, in the order of the server. Each has `inserts_per_second` and `samples_per_second`, which are
        None in the first look, and `history`, a dict with the rates of the last minute by their names.
      waits: The requests that wait, longest first.
      clients: The connected clients, by process. Each has the rates of its counts, as tables have.
      left: The clients that have left lately, the latest first.
      checkpoints: The folder of checkpoints, and the log of changes.
      verdict: Whether the server works, in one line.
    """

    server: dict[str, Any]
    tables: list[dict[str, Any]]
    waits: list[dict[str, Any]]
    clients: list[dict[str, Any]]
    left: list[dict[str, Any]]
    checkpoints: dict[str, Any]
    verdict: dict[str, Any]

    @property
    def now(self) -> float:
        """When the server was asked, by its clock, as the times of those that left."""
        return float(self.server["now"])


class Observer:
    """Looks at one server repeatedly.

    Args:
      endpoint: Endpoint of the server.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = _binding.Client(endpoint)
        self._before: Observation | None = None
        self._histories: dict[str, dict[str, collections.deque[float]]] = {}

    def look(self, timeout: float | None) -> Observation:
        """Asks the server.

        Raises:
          UnavailableError, DeadlineExceededError: The server cannot be reached, or does not answer.
          UnimplementedError: The server is one of dm-reverb, or of an earlier version.
        """
        seen = Observation(**self._documents(timeout))
        before = self._before
        if before is not None and before.server["server_id"] != seen.server["server_id"]:
            # Another server listens there now.
            before, self._histories = None, {}
        _add_rates(seen, before)
        for table in seen.tables:
            table["history"] = self._remember(table)
        self._before = seen
        return seen

    def _documents(self, timeout: float | None) -> dict[str, Any]:
        observed = json.loads(self._client.observe(timeout))
        # Later servers add documents.
        return {field.name: observed[field.name] for field in dataclasses.fields(Observation)}

    def _remember(self, table: dict[str, Any]) -> dict[str, list[float]]:
        history = self._histories.setdefault(table["name"], {})
        for name in ("inserts_per_second", "samples_per_second"):
            rates = history.setdefault(name, collections.deque(maxlen=KEPT))
            if table[name] is not None:
                rates.append(table[name])
        return {name: list(rates) for name, rates in history.items()}


def at_intervals(interval: float, look: Callable[[], _Seen]) -> Iterator[_Seen]:
    """Yields what `look` returns, at once and then each `interval` seconds."""
    while True:
        began = time.monotonic()
        yield look()
        time.sleep(max(0.0, began + interval - time.monotonic()))


def total(figures: Iterable[_Figure | None]) -> _Figure | None:
    """The sum of a figure over tables or servers; None if one of them does not tell it."""
    known = list(figures)
    return None if None in known else sum(filter(None, known))


def _add_rates(seen: Observation, before: Observation | None) -> None:
    # The clock of the server: a slow network does not delay it.
    seconds = 0.0 if before is None else seen.server["now"] - before.server["now"]
    for documents, earlier, key in (
        (seen.tables, before.tables if before else [], "name"),
        (seen.clients, before.clients if before else [], "id"),
    ):
        known = {document[key]: document for document in earlier}
        for document in documents:
            then = known.get(document[key])
            for count in _COUNTS:
                if count in document:
                    document[f"{count}_per_second"] = _rate(document, then, count, seconds)


def _rate(document: dict[str, Any], then: dict[str, Any] | None, count: str, seconds: float) -> float | None:
    if then is None or seconds <= 0:
        return None
    # A table that was reset counts from zero.
    return float(max(0, document[count] - then[count]) / seconds)
