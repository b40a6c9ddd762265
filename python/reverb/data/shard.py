"""Which shard of a cluster a server is."""

from __future__ import annotations

import dataclasses

from reverb.data import checks

__all__ = ["Shard"]

# Those that a cluster can have.
_IDS = range(256)


@dataclasses.dataclass(frozen=True)
class Shard:
    """A server's place in a cluster: several servers, the shards, that are one buffer together.

    The keys of the items of a shard are in slots that it alone owns, for ever, so that a key tells where its item is.
    Clients choose such keys by themselves once they are connected. A server that starts again, also on another
    machine, has to be the same shard as before, and no two servers of a cluster may be the same one.

    Attributes:
      id: Number of the shard in its cluster, from 0 to 255.
      cluster: Name of the cluster, the same for all of its shards; printable, and 256 bytes at most.

    Raises:
      TypeError: The id is not an integer, or the name is not a str.
      ValueError: There is no shard of this id, or the name is empty or not printable.
    """

    id: int
    cluster: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", checks.as_int("id", self.id))
        if self.id not in _IDS:
            raise ValueError(f"id must be {_IDS[0]} to {_IDS[-1]}, the numbers of a cluster's shards, got {self.id}")
        if not isinstance(self.cluster, str):
            raise TypeError(f"cluster must be a str, the name of the cluster, got {self.cluster!r}")
        if not self.cluster or not self.cluster.isprintable():
            raise ValueError(f"cluster must be a printable name, got {self.cluster!r}")
