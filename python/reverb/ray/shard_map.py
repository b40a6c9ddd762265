"""The actor that knows where the shards of a cluster are."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Any

import ray

from reverb.ray import actors
from reverb.ray.secrets import Credentials, Secrets, make_secrets

# Seconds that a question for addresses waits for shards that the map does not know.
_ASK_S = 1.0
# Seconds that a map which starts again waits for the secrets of the cluster.
_RECOVERY_S = 5.0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a shard is.

    Attributes:
      id: Number of the shard in its cluster.
      host: Address that the shard listens on.
      port: Port that it listens on.
      is_loopback: Whether only programs of its node reach it.
      is_tls: Whether it speaks TLS.
      node: Id of its node in Ray.
      node_ip: Address of its node.
      pid: Number of its process.
    """

    id: int
    host: str
    port: int
    is_loopback: bool
    is_tls: bool
    node: str
    node_ip: str
    pid: int

    @property
    def address(self) -> str:
        """The address for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'grpcs://' if self.is_tls else ''}{host}:{self.port}"


@dataclasses.dataclass(frozen=True)
class Access:
    """What a client needs to know.

    Attributes:
      places: Where the shards are, as far as that is known.
      num_shards: Number of all shards.
      credentials: What shards ask of clients; None if they ask for nothing.
      refused: Why shards refuse to start, by their numbers.
    """

    places: list[Place]
    num_shards: int
    credentials: Credentials | None
    refused: dict[int, str]


class ShardMap:
    """Knows the last place of each shard, and the secrets of the cluster. Shards tell it where they are as they start.

    If it starts again, it asks them for both. Only if none answers within five seconds, it makes new secrets.

    Args:
      cluster: Name of the cluster.
      num_shards: Number of its shards.
      is_tls: Whether shards and clients need secrets.
    """

    def __init__(self, cluster: str, num_shards: int, is_tls: bool) -> None:
        self._cluster, self._num_shards = cluster, num_shards
        self._places: dict[int, Place] = {}
        self._refused: dict[int, str] = {}
        self._secrets = (self._recovered() or make_secrets()) if is_tls else None

    def _recovered(self) -> Secrets | None:
        if ray.get_runtime_context().was_current_actor_reconstructed:
            asked = [shard.secrets.remote() for shard in self._shards(range(self._num_shards))]
            while asked:
                answered, asked = ray.wait(asked, timeout=_RECOVERY_S)
                for answer in answered:
                    with contextlib.suppress(ray.exceptions.RayError):
                        found: Secrets = ray.get(answer)
                        return found
                if not answered:
                    break
        return None

    def _shards(self, numbers: Iterable[int]) -> list[Any]:
        found = [actors.find(actors.shard_name(self._cluster, number)) for number in numbers]
        return [shard for shard in found if shard is not None]

    def secrets(self) -> Secrets | None:
        """Returns what shards need; None if they listen without TLS."""
        return self._secrets

    def access(self) -> Access:
        """Returns what clients need to know."""
        credentials = None if self._secrets is None else self._secrets.credentials
        return Access(self.places(), self._num_shards, credentials, self._refused)

    def put(self, place: Place) -> None:
        """Notes the place of a shard that has started."""
        self._places[place.id] = place
        self._refused.pop(place.id, None)

    def refuse(self, shard_id: int, why: str) -> None:
        """Notes why a shard refuses to start."""
        self._refused[shard_id] = why

    def last(self, shard_id: int) -> Place | None:
        """Returns where a shard was last, without asking it; None if that is not known."""
        return self._places.get(shard_id)

    def places(self) -> list[Place]:
        """Returns where the shards are, by their numbers.

        Shards of which nothing is known, and that do not answer within a second, are left out.
        """
        unknown = [number for number in range(self._num_shards) if number not in self._places]
        asked = [shard.place.remote() for shard in self._shards(unknown)]
        if asked:
            for answer in ray.wait(asked, num_returns=len(asked), timeout=_ASK_S)[0]:
                with contextlib.suppress(ray.exceptions.RayError):
                    self.put(ray.get(answer))
        return [self._places[number] for number in sorted(self._places)]
