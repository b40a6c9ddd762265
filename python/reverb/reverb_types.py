"""Types that many modules share."""

import dataclasses
from typing import Any, TypeAlias

from reverb.item_selectors import Fifo, HeapSelector, Lifo, Prioritized, Uniform

__all__ = ["Fifo", "Heap", "Lifo", "Prioritized", "SelectorType", "SpecNest", "TableInfo", "Uniform"]

# What `MinHeap()` and `MaxHeap()` are instances of.
Heap = HeapSelector
SelectorType: TypeAlias = Fifo | Heap | Lifo | Prioritized | Uniform
# A nest of specs.
SpecNest: TypeAlias = Any


@dataclasses.dataclass
class TableInfo:
    """A table's options, and how it stands.

    Attributes:
      name: Of the table.
      sampler_options: A `KeyDistributionOptions` message: the selector for sampling.
      remover_options: Likewise, for removal.
      max_size: Items the table may hold.
      max_times_sampled: How often an item may be sampled; below 1: no limit.
      rate_limiter_info: A `RateLimiterInfo` message: the limiter's parameters, and inserts and samples so far.
      signature: A nest of specs, None if the table has none.
      current_size: Items in the table now.
      num_episodes: Distinct episodes that items refer to now.
      num_deleted_episodes: Episodes that no item refers to any more.
      num_unique_samples: Items that were sampled at least once since the last reset.
      table_worker_time: A `TableWorkerTime` message: how the table has spent its time, in milliseconds.
      undelivered_samples: Drawn, and not with the learner yet: on their way, or fetched ahead by a loader. They count
        as sampled, and go back if the loader is closed. Not part of comparisons.
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
        """The info in a serialized `deepmind.reverb.TableInfo`, which does not have `undelivered_samples`.

        Raises:
          google.protobuf.message.DecodeError: The bytes are no such message.
          ValueError: The signature in it is none.
        """
        from reverb import signatures
        from reverb.cc import schema_pb2

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
