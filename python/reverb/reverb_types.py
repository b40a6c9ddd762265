"""Types that are shared by many modules."""

import dataclasses
from itertools import starmap
from typing import Any, TypeAlias

from reverb import _binding
from reverb.item_selectors import Fifo, HeapSelector, Lifo, Prioritized, Uniform

__all__ = ["Fifo", "Heap", "Lifo", "Prioritized", "SelectorType", "SpecNest", "TableInfo", "Uniform"]

# The class of `MinHeap()` and `MaxHeap()`.
Heap = HeapSelector
SelectorType: TypeAlias = Fifo | Heap | Lifo | Prioritized | Uniform
# A nest of specs.
SpecNest: TypeAlias = Any


@dataclasses.dataclass
class TableInfo:
    """Options and current state of a table.

    Attributes:
      name: Name of the table.
      sampler_options: Selector for sampling, a `KeyDistributionOptions` message.
      remover_options: Selector for removal, a `KeyDistributionOptions` message.
      max_size: Maximum number of items in the table.
      max_times_sampled: Number of samples after which an item is removed; 0 and negative numbers mean no limit.
      rate_limiter_info: Parameters of the rate limiter and counts of inserts and samples, a `RateLimiterInfo` message.
      signature: Nest of specs that items must fit; None if the table has no signature.
      current_size: Number of items now in the table.
      num_episodes: Number of distinct episodes that items now refer to.
      num_deleted_episodes: Number of episodes to which no item refers any longer.
      num_unique_samples: Number of items that have been sampled at least once since the last reset.
      table_worker_time: Time that the table has spent in each state, in milliseconds, a `TableWorkerTime` message.
      undelivered_samples: Number of samples that are drawn but not delivered, because they are in transit or prefetched
        by a loader. They count as sampled, and return to the table if the loader is closed. Ignored in comparisons.
    """

    name: str
    sampler_options: Any
    remover_options: Any
    max_size: int
    max_times_sampled: int
    rate_limiter_info: Any
    signature: SpecNest | None
    current_size: int
    num_episodes: int
    num_deleted_episodes: int
    num_unique_samples: int
    table_worker_time: Any
    undelivered_samples: int = dataclasses.field(default=0, compare=False)

    @classmethod
    def from_serialized_proto(cls, serialized_proto: bytes, undelivered_samples: int = 0) -> "TableInfo":
        """Parses a serialized `deepmind.reverb.TableInfo`, a message that lacks `undelivered_samples`.

        Raises:
          google.protobuf.message.DecodeError: The bytes are not a `TableInfo` message.
          ValueError: The message contains an invalid signature.
        """
        from reverb.cc import schema_pb2
        from reverb.data import signatures

        message = schema_pb2.TableInfo.FromString(serialized_proto)
        return cls(
            name=message.name,
            sampler_options=message.sampler_options,
            remover_options=message.remover_options,
            max_size=message.max_size,
            max_times_sampled=message.max_times_sampled,
            rate_limiter_info=message.rate_limiter_info,
            signature=signatures.decode(message.signature) if message.HasField("signature") else None,
            current_size=message.current_size,
            num_episodes=message.num_episodes,
            num_deleted_episodes=message.num_deleted_episodes,
            num_unique_samples=message.num_unique_samples,
            table_worker_time=message.table_worker_time,
            undelivered_samples=undelivered_samples,
        )


def table_infos(engine: _binding.Client, timeout: float | None) -> dict[str, TableInfo]:
    """Asks a server for the infos of its tables, and returns them by table name.

    Args:
      engine: Native client of the server.
      timeout: Time limit in seconds; None means no limit.

    Raises:
      DeadlineExceededError: The server did not answer within the timeout.
    """
    infos = starmap(TableInfo.from_serialized_proto, engine.server_info(timeout))
    return {info.name: info for info in infos}
