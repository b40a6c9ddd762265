"""What a client of a cluster knows of it."""

import dataclasses
import json

__all__ = ["ClusterStats", "ShardState", "shard_state"]


@dataclasses.dataclass(frozen=True)
class ShardState:
    """A shard of a cluster.

    Attributes:
      id: Number of the shard in its cluster; None if the client has never reached it.
      address: Address of the shard.
      alive: Whether it answers. The following are None if it does not.
      pid: Number of the process that it is.
      node: Name of the machine that it is on.
      items: Number of items in all of its tables.
      bytes: Size of the data of its tables.
      refused: Why it refuses to start, and so does not come back by itself, such as a damaged file; None if it does not
        refuse, and where nobody knows. Clusters on Ray know it.
    """

    id: int | None
    address: str
    alive: bool
    pid: int | None = None
    node: str | None = None
    items: int | None = None
    bytes: int | None = None
    refused: str | None = None


@dataclasses.dataclass(frozen=True)
class ClusterStats:
    """Counts of a client of a cluster since it was made.

    Attributes:
      rounds: Races of all shards for a batch, or for a part of one. More rounds than batches: shards had too little, or
        one was lost within a round.
      spare_arrivals: Items that went back to their shards since others were earlier.
      missing: Addresses of the shards that the last draw went on without, or waits for.
      slow: Addresses of shards that are connected, but have not answered within `shard_timeout`, nor since.
      keys_passed_over: Keys of updates, deletes and reads that were passed over since their shard was missing.
    """

    rounds: int
    spare_arrivals: int
    missing: tuple[str, ...]
    slow: tuple[str, ...]
    keys_passed_over: int


def shard_state(shard: int | None, address: str, observed: bytes | None) -> ShardState:
    """A shard by its answer to `observe`; None: it is missing."""
    if observed is None:
        return ShardState(shard, address, alive=False)
    document = json.loads(observed)
    server, tables = document["server"], document["tables"]
    items = sum(table["items"] or 0 for table in tables)
    size = sum(table["bytes"] or 0 for table in tables)
    return ShardState(shard, address, True, server["pid"], server["hostname"], items, size)
