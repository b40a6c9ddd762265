"""Types that are shared by many modules."""

import builtins
import dataclasses
from typing import Any, Literal, TypeAlias

from reverb import _binding, _protos
from reverb.data.spec_text import format_signature
from reverb.data.table_figures import TableFigures
from reverb.item_selectors import Fifo, HeapSelector, Lifo, Prioritized, Uniform, selector_from_proto
from reverb.rate_limiters import RateLimiter

__all__ = ["Fifo", "Heap", "Lifo", "LogInfo", "Prioritized", "SelectorType", "SpecNest", "TableInfo", "Uniform"]

# The class of `MinHeap()` and `MaxHeap()`.
Heap = HeapSelector
SelectorType: TypeAlias = Fifo | Heap | Lifo | Prioritized | Uniform
# A nest of specs.
SpecNest: TypeAlias = Any


@dataclasses.dataclass(repr=False)
class _ReferenceInfo:
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


@dataclasses.dataclass(frozen=True)
class LogInfo:
    """What a server tells of its log of changes, which makes it durable; see docs/durability.md.

    Of the servers of a cluster it is the worst of each, and the sum of their sizes.

    Attributes:
      mode: What a confirmed change survives: `"process"` or `"power"`; see `reverb.Durability`.
      size_bytes: Size of what was written to the log. Its files are made ahead, and are larger.
      sync_age: Seconds for which something has been written and not synced; 0 if all is synced.
      disk_low: Whether the disk has too little free space for the log and a checkpoint.
      failure: What has closed the log, so that inserts, deletes, resets and changes of options are refused; None while
        it works.
    """

    mode: Literal["process", "power"]
    size_bytes: int
    sync_age: float
    disk_low: bool
    failure: str | None


@dataclasses.dataclass(repr=False, kw_only=True)
class TableInfo(TableFigures, _ReferenceInfo):
    """Options and current state of a table. Its `repr` is short; `str` gives all fields.

    Fields after `table_worker_time` are not in dm-reverb. Comparisons ignore them. Those of `TableFigures` are None
    where they are not known: if the server is one of dm-reverb or of an earlier version, and for a table of a
    checkpoint.

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
      max_bytes: Maximum of `bytes`, above which items are removed; None if the table has no byte limit.
      waits: Reasons why the longest waiting insert and the longest waiting sample wait; empty if none waits.
      unconfirmed_items: Number of items for this table that writers of this process have made, and that the server has
        not confirmed; set only by `Client.server_info`. Writers whose clients have another address are left out.
      unconfirmed_bytes: Size in bytes of all unconfirmed items of the writers that have some for this table, including
        their items for other tables.
      log: The log of the table's server, the same for all of its tables; set only by `server_info` of clients. None if
        the server, or one of several, is not durable, is of an earlier version, or is one of dm-reverb.
    """

    max_bytes: int | None = dataclasses.field(default=None, compare=False)
    waits: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    unconfirmed_items: int = dataclasses.field(default=0, compare=False)
    unconfirmed_bytes: int = dataclasses.field(default=0, compare=False)
    log: LogInfo | None = dataclasses.field(default=None, compare=False)

    def __repr__(self) -> str:
        parts = {"name": repr(self.name), "current_size": self.current_size, "max_size": self.max_size}
        for name in ("insert_stats", "sample_stats"):
            stats = getattr(self.rate_limiter_info, name, None)
            if stats is not None:
                parts[name.replace("_stats", "s")] = stats.completed
        if self.bytes is not None:
            parts["bytes"] = self.bytes
        if self.waiting_inserts or self.waiting_samples:
            parts.update(waiting_inserts=self.waiting_inserts, waiting_samples=self.waiting_samples)
        if self.unconfirmed_items:
            parts["unconfirmed_items"] = self.unconfirmed_items
        if self.log is not None and self.log.failure is not None:
            parts["log_failure"] = repr(self.log.failure)
        parts["signature"] = format_signature(self.signature)
        return f"TableInfo({', '.join(f'{name}={value}' for name, value in parts.items())})"

    def __str__(self) -> str:
        fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return f"TableInfo({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Objects that were pickled before a field was added get its default.
        for field in dataclasses.fields(self):
            setattr(self, field.name, state.get(field.name, field.default))

    @classmethod
    def from_serialized_status(cls, serialized_status: builtins.bytes) -> "TableInfo":
        """Parses a serialized `reverb.replay.v1.TableStatus`, which has all fields.

        Raises:
          google.protobuf.message.DecodeError: The bytes are not a `TableStatus` message.
          ValueError: The message contains an invalid signature.
        """
        # Gives the messages of an info the names by which they are pickled.
        from reverb.cc import schema_pb2  # noqa: F401

        status = _protos.message_class("reverb.replay.v1.TableStatus").FromString(serialized_status)
        info = cls.from_message(status.info)
        for figure in dataclasses.fields(TableFigures):
            name = figure.metadata.get("name", figure.name)
            if status.HasField(name):
                value = getattr(status, name)
                setattr(info, figure.name, value if isinstance(value, int | float) else _counts(value))
        info.max_bytes = status.max_bytes or None
        info.waits = tuple(reason for reason in (status.insert_wait, status.sample_wait) if reason)
        info.log = _log(status.log) if status.HasField("log") else None
        return info

    @classmethod
    def from_serialized_proto(cls, proto_string: builtins.bytes, undelivered_samples: int | None = None) -> "TableInfo":
        """Parses a serialized `deepmind.reverb.TableInfo`, which has no figures of `TableFigures`.

        Raises:
          google.protobuf.message.DecodeError: The bytes are not a `TableInfo` message.
          ValueError: The message contains an invalid signature.
        """
        from reverb.cc import schema_pb2

        return cls.from_message(schema_pb2.TableInfo.FromString(proto_string), undelivered_samples)

    @classmethod
    def from_message(cls, message: Any, undelivered_samples: int | None = None) -> "TableInfo":
        """Makes an info of a `deepmind.reverb.TableInfo` message.

        Raises:
          ValueError: The message contains an invalid signature.
        """
        from reverb.data import signatures

        fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(_ReferenceInfo)}
        fields["signature"] = signatures.decode(message.signature) if message.HasField("signature") else None
        return cls(**fields, undelivered_samples=undelivered_samples)


def _log(message: Any) -> LogInfo:
    failure = message.failure if message.HasField("failure") else None
    return LogInfo(message.mode, message.size_bytes, message.sync_age_seconds, message.disk_low, failure)


def _counts(message: Any) -> dict[str, int]:
    if message.DESCRIPTOR.name == "ClientCounts":
        return dict(message.counts)
    counts = {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
    # The names are those of the metrics.
    return {"delete" if reason == "deleted" else reason: count for reason, count in counts.items()}


def table_infos(engine: _binding.Client, timeout: float | None) -> dict[str, TableInfo]:
    """Asks a server for the infos of its tables, and returns them by table name.

    Args:
      engine: Native client of the server.
      timeout: Time limit in seconds; None means no limit.

    Raises:
      DeadlineExceededError: The server did not answer within the timeout.
    """
    infos = map(TableInfo.from_serialized_status, engine.table_statuses(timeout))
    return {info.name: info for info in infos}


def limiter_from_info(info: TableInfo) -> RateLimiter:
    """Creates a rate limiter with the parameters of a table's."""
    limiter = info.rate_limiter_info
    return RateLimiter(limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff)


def table_text(info: TableInfo, signature: str) -> str:
    """The text with which dm-reverb shows a table, for a given text of its signature."""
    return (
        f"Table(sampler={selector_from_proto(info.sampler_options)}, "
        f"remover={selector_from_proto(info.remover_options)}, max_size={info.max_size}, "
        f"max_times_sampled={info.max_times_sampled}, name={info.name}, rate_limiter={limiter_from_info(info)}, "
        f"signature={signature})"
    )
