"""Looks at all shards of a cluster at once, and what they say together."""

import dataclasses
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from reverb import _binding, errors
from reverb.cli import output
from reverb.cli.observing import Observation, Observer, total
from reverb.cluster.addresses import each_address
from reverb.data.cluster_options import ClusterOptions
from reverb.data.endpoint import Endpoint

_RATES = ("inserts_per_second", "samples_per_second")
# Figures of tables and of clients that add up.
_OF_TABLES = ("items", "max_items", "bytes", "max_bytes", *_RATES)
_OF_CLIENTS = ("receive_bytes", "transmit_bytes", "receive_bytes_per_second", "transmit_bytes_per_second", *_RATES)


@dataclasses.dataclass(frozen=True)
class Shard:
    """A shard of a cluster at a look.

    Attributes:
      address: Address of the shard.
      id: Number of the shard in its cluster; None if it was never reached.
      seen: What it says; None if it is missing.
      error: Why it is missing.
    """

    address: str
    id: int | None = None
    seen: Observation | None = None
    error: errors.ReverbError | None = None

    @property
    def label(self) -> str:
        """Its id, or its address if it was never reached."""
        return self.address if self.id is None else str(self.id)

    @property
    def name(self) -> str:
        """What a sentence calls it."""
        return self.address if self.id is None else f"shard {self.id}"


class ClusterObservation:
    """What the shards of a cluster say of themselves, and what that is together.

    Args:
      shards: The shards, of which at least one is present.

    Attributes:
      shards: The shards in the order of their ids; those that were never reached come last.
      present: Those that answered, with what they said.
      tables: The sums over the shards, by the names of tables, with the documents of each shard in `shards`. A table
        of a shard has the label of that in `shard`.
      waits: The requests that wait, longest first. What a client waits for at several shards is one, with their labels
        in `at`.
      clients: The connected clients, each with the sums over its shards.
      left: The clients that have left lately and are at no shard now, the latest first.
      verdict: That of the shard that is worst off, which the line names.
      now: The time from which those of `left` count.
    """

    def __init__(self, shards: Iterable[Shard]) -> None:
        self.shards = sorted(shards, key=lambda shard: (shard.id is None, shard.id))
        self.present = [(shard, shard.seen) for shard in self.shards if shard.seen is not None]
        self.tables = _tables(self.present)
        self.waits = _waits(self.present)
        clients = _by_name(client for _, seen in self.present for client in seen.clients)
        self.clients = [_client(documents) for documents in clients.values()]
        # Each shard has a clock of its own.
        left = _by_name({**one, "at": one["at"] - seen.now} for _, seen in self.present for one in seen.left)
        latest = [max(documents, key=_when) for name, documents in left.items() if name not in clients]
        self.left = sorted(latest, key=_when, reverse=True)
        self.now = 0.0
        levels = list(output.LEVELS)
        worst, seen = max(self.present, key=lambda one: levels.index(one[1].verdict["level"]))
        self.verdict = {**seen.verdict, "line": f"{worst.name}: {seen.verdict['line']}"}


class ClusterObserver:
    """Looks at the shards of a cluster repeatedly.

    Args:
      endpoint: Endpoint of the cluster.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._shards = [
            _Asked(dataclasses.replace(endpoint, address=address, cluster=None))
            for address in each_address(endpoint.address)
        ]

    def look(self, timeout: float) -> ClusterObservation:
        """Asks all shards at once. Does not wait for those that were missing before: a later look has their answers.

        Raises:
          ReverbError: No shard answers. It has the type of the first one's error, and the texts of all.
        """
        for shard in self._shards:
            shard.begin(timeout)
        for shard in self._shards:
            if shard.now.error is None:
                shard.wait()
        seen = [shard.answer() for shard in self._shards]
        missing = [shard.error for shard in seen if shard.error is not None]
        if len(missing) == len(seen):
            raise type(missing[0])("; ".join(map(str, missing)))
        return ClusterObservation(seen)


class _Asked:
    """A shard that is asked on a thread of its own, so that a silent one holds up neither others nor the program's end.

    Args:
      endpoint: Endpoint of the shard as a server of its own.

    Attributes:
      now: What is known of it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._observer = Observer(endpoint)
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self.now = Shard(endpoint.address)

    def begin(self, timeout: float) -> None:
        """Asks, unless it is still being asked."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._ask, args=(timeout,), name="reverb-top-shard", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Waits for the answer."""
        if self._thread is not None:
            self._thread.join()

    def answer(self) -> Shard:
        """Returns what is known of the shard, or raises what nobody expects of one."""
        if self._failure is not None:
            raise self._failure
        return self.now

    def _ask(self, timeout: float) -> None:
        before = self.now
        try:
            seen = self._observer.look(timeout)
            is_same = before.seen is not None and before.seen.server["server_id"] == seen.server["server_id"]
            number = before.id if is_same else self._id(timeout)
            self.now = Shard(self._endpoint.address, number, seen)
        except errors.ReverbError as error:
            self.now = Shard(self._endpoint.address, before.id, error=error)
        except Exception as error:  # `answer` raises it.
            self._failure = error

    def _id(self, timeout: float) -> int | None:
        """The number of the shard, which only clients of clusters are told."""
        client = _binding.Client(dataclasses.replace(self._endpoint, cluster=ClusterOptions()))
        [(number, _, _)] = client.shards(timeout)
        return number


def _when(left: dict[str, Any]) -> float:
    return float(left["at"])


def _by_name(documents: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    named: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        named.setdefault(document["name"], []).append(document)
    return named


def _sums(figures: Iterable[str], documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {figure: total(document[figure] for document in documents) for figure in figures}


def _tables(present: Iterable[tuple[Shard, Observation]]) -> list[dict[str, Any]]:
    tables = _by_name({**table, "shard": shard.label} for shard, seen in present for table in seen.tables)
    return [_table(number, documents) for number, documents in enumerate(tables.values())]


def _table(number: int, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    levels = list(output.LEVELS)
    summed = {
        "number": number,
        "name": documents[0]["name"],
        "shard": "all",
        **_sums(_OF_TABLES, documents),
        "history": {rate: _added([document["history"][rate] for document in documents]) for rate in _RATES},
        # Each shard has one of its own.
        "limiter": None,
        "progress": {"level": max((document["progress"]["level"] for document in documents), key=levels.index)},
        "shards": documents,
    }
    for waiting in ("waiting_inserts", "waiting_samples"):
        each = [document[waiting] for document in documents]
        longest = max((one["longest_seconds"] for one in each if one["longest_seconds"] is not None), default=None)
        summed[waiting] = {**_sums(["count"], each), "longest_seconds": longest}
    return summed


def _added(histories: Sequence[list[float]]) -> list[float]:
    """The sums of rates of which the last ones are of the same time."""
    length = max(map(len, histories))
    return [sum(rates) for rates in zip(*([0.0] * (length - len(one)) + one for one in histories), strict=True)]


def _waits(present: Iterable[tuple[Shard, Observation]]) -> list[dict[str, Any]]:
    waits: dict[tuple[str, str], dict[str, Any]] = {}
    for shard, seen in present:
        for wait in seen.waits:
            one = waits.setdefault((wait["client_name"] or wait["address"], wait["reason"]), {**wait, "at": []})
            one["seconds"] = max(one["seconds"], wait["seconds"])
            if shard.label not in one["at"]:
                one["at"].append(shard.label)
    return _longest_first(waits.values())


def _longest_first(waits: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(waits, key=lambda wait: -wait["seconds"])


def _client(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    roles = {document["role"] for document in documents} - {"none"}
    return {
        **documents[0],
        **_sums(_OF_CLIENTS, documents),
        "role": "both" if len(roles) > 1 else next(iter(roles), "none"),
        "transport": ", ".join(sorted({document["transport"] for document in documents})),
        "waits": _longest_first(wait for document in documents for wait in document["waits"]),
    }
