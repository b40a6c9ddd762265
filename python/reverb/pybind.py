"""The names of dm-reverb's extension module, with its call signatures, for programs that use them directly.

They are thin covers of this package's public classes, which new programs should use. `reverb.selectors` and
`reverb.rate_limiters` have the classes of selectors and rate limiters.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reverb import errors, item_selectors, server
from reverb._binding import CellRef as WeakCellRef
from reverb.client import Client as _Client
from reverb.data import checks, signatures
from reverb.item_selectors import Fifo as FifoSelector
from reverb.item_selectors import HeapSelector
from reverb.item_selectors import Lifo as LifoSelector
from reverb.item_selectors import Prioritized as PrioritizedSelector
from reverb.item_selectors import Selector as ItemSelector
from reverb.item_selectors import Uniform as UniformSelector
from reverb.platform.default.checkpointers import CheckpointerBase, DefaultCheckpointer
from reverb.rate_limiters import RateLimiter
from reverb.replay_sample import INFO_DTYPES, SampleInfo
from reverb.trajectory_writer import TrajectoryColumn

if TYPE_CHECKING:
    from reverb.structured_writer import StructuredWriter as _StructuredWriter
    from reverb.trajectory_writer import TrajectoryWriter as _TrajectoryWriter
    from reverb.writer import Writer as _Writer

__all__ = [
    "AutoTunedChunkerOptions",
    "Checkpointer",
    "ChunkerOptions",
    "Client",
    "ConstantChunkerOptions",
    "FifoSelector",
    "HeapSelector",
    "ItemSelector",
    "LifoSelector",
    "PrioritizedSelector",
    "RateLimiter",
    "Sampler",
    "Server",
    "StructuredWriter",
    "Table",
    "TableExtension",
    "TrajectoryWriter",
    "UniformSelector",
    "WeakCellRef",
    "Writer",
    "create_default_checkpointer",
    "selector_from_proto",
]


class _Unconstructible:
    """A class whose objects are returned by calls of others."""

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError(f"reverb.pybind.{type(self).__name__}: No constructor defined!")


class TableExtension(_Unconstructible):
    """A part of a table extension. There are no such parts yet."""


class Checkpointer(_Unconstructible, CheckpointerBase):
    """A checkpointer of `Server`, made by `create_default_checkpointer`."""

    _checkpointer: DefaultCheckpointer

    def internal_checkpointer(self) -> Any:
        """The checkpointer in the form that servers of this package take."""
        return self._checkpointer.internal_checkpointer()

    def __repr__(self) -> str:
        return repr(self._checkpointer)


def create_default_checkpointer(name: str, group: str, fallback_checkpoint_path: str | None = None, /) -> Checkpointer:
    """Makes a checkpointer.

    Args:
      name: Folder that holds the checkpoints.
      group: Name of a group, which is only displayed.
      fallback_checkpoint_path: Path of the checkpoint to load if the folder has none; None loads nothing then.
    """
    made = Checkpointer.__new__(Checkpointer)
    made._checkpointer = DefaultCheckpointer(name, group, fallback_checkpoint_path)
    return made


def selector_from_proto(options: bytes, /) -> ItemSelector:
    """Makes a selector from a serialized `KeyDistributionOptions`.

    Raises:
      ValueError: The bytes are not such a message, or it does not name a kind of selector.
    """
    from google.protobuf.message import DecodeError

    from reverb.cc import schema_pb2

    try:
        message = schema_pb2.KeyDistributionOptions.FromString(options)
    except DecodeError:
        raise ValueError(
            f"Unable to deserialize KeyDistributionOptions from serialized proto bytes: {options!r}"
        ) from None
    return item_selectors.selector_from_proto(message)


class Table:
    """A table, as `reverb.Table`.

    Args:
      name: Name of the table on the server, not empty.
      sampler: Selector of the item that is drawn.
      remover: Selector of the item that is removed when an insert exceeds `max_size`.
      max_size: Maximum number of items in the table, at least 1.
      max_times_sampled: Number of samples after which an item is removed; 0 and negative numbers mean no limit.
      rate_limiter: Limiter that decides when inserts and samples may proceed.
      extensions: Parts of extensions, which must be empty.
      signature: Serialized `tensorflow.StructuredValue` of the specs that items must fit; None accepts any items.
    """

    def __init__(
        self,
        name: str,
        sampler: ItemSelector,
        remover: ItemSelector,
        max_size: int,
        max_times_sampled: int,
        rate_limiter: RateLimiter,
        extensions: Sequence[TableExtension],
        signature: bytes | None,
    ) -> None:
        for part in extensions:
            checks.refuse("extensions", "an empty list", part)
        nest = None if signature is None else signatures.decode(signatures.parse(signature))
        self._table = server.Table(name, sampler, remover, max_size, rate_limiter, max_times_sampled, (), nest)

    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    def can_sample(self, count: int, /) -> bool:
        """Whether the rate limiter allows this number of samples now."""
        return self._table.can_sample(count)

    def can_insert(self, count: int, /) -> bool:
        """Whether the rate limiter allows this number of inserts now."""
        return self._table.can_insert(count)

    def info(self) -> bytes:
        """A serialized `TableInfo`."""
        return self._table.internal_table.info()

    def __repr__(self) -> str:
        return str(self._table)


class Server:
    """A server, as `reverb.Server`.

    Args:
      priority_tables: Tables of the server, at least one.
      port: Port to listen on.
      checkpointer: Checkpointer that saves the tables; None saves into a new temporary folder.
    """

    def __init__(self, priority_tables: Sequence[Table], port: int, checkpointer: Checkpointer | None = None) -> None:
        for table in priority_tables:
            if not isinstance(table, Table):
                checks.refuse("priority_tables", "a list of reverb.pybind.Tables", table)
        self._server = server.Server([table._table for table in priority_tables], port, checkpointer)

    def Stop(self) -> None:  # noqa: N802
        """Stops the server."""
        self._server.stop()

    def Wait(self) -> bool:  # noqa: N802
        """Waits until the server is stopped. Returns whether Ctrl-C stopped it."""
        try:
            self._server.wait()
        except KeyboardInterrupt:
            return True
        return False

    def __repr__(self) -> str:
        return str(self._server)


class ChunkerOptions(_Unconstructible):
    """The options of a column's chunks.

    Attributes:
      max_chunk_length: Maximum number of steps in a chunk; None lets the writer choose.
      num_keep_alive_refs: Number of values that items may refer to.
    """

    max_chunk_length: int | None
    num_keep_alive_refs: int


class ConstantChunkerOptions(ChunkerOptions):
    """Chunks of a fixed length.

    Args:
      max_chunk_length: Number of steps in a chunk, at most `num_keep_alive_refs`.
      num_keep_alive_refs: Number of values that items may refer to.
    """

    def __init__(self, max_chunk_length: int, num_keep_alive_refs: int) -> None:
        self.max_chunk_length = checks.as_int32("max_chunk_length", max_chunk_length)
        self.num_keep_alive_refs = checks.as_int32("num_keep_alive_refs", num_keep_alive_refs)


class AutoTunedChunkerOptions(ChunkerOptions):
    """Chunks whose length the writer chooses.

    Args:
      num_keep_alive_refs: Number of values that items may refer to.
      throughput_weight: Number that is accepted and has no effect.
    """

    max_chunk_length = None

    def __init__(self, num_keep_alive_refs: int, throughput_weight: float) -> None:
        checks.as_float("throughput_weight", throughput_weight)
        self.num_keep_alive_refs = checks.as_int32("num_keep_alive_refs", num_keep_alive_refs)


def _check_chunker(options: ChunkerOptions) -> None:
    if not isinstance(options, ChunkerOptions):
        checks.refuse("options", "a reverb.pybind.ChunkerOptions", options)
    length, keep = options.max_chunk_length, options.num_keep_alive_refs
    if length is not None and length < 1:
        raise errors.InvalidArgumentError(f"max_chunk_length must be > 0 but got {length}.")
    if keep < 1:
        raise errors.InvalidArgumentError(f"num_keep_alive_refs must be > 0 but got {keep}.")
    if length is not None and length > keep:
        raise errors.InvalidArgumentError(f"num_keep_alive_refs ({keep}) must be >= max_chunk_length ({length}).")


class Client:
    """A client of one server, as `reverb.Client`. Arguments are as in dm-reverb.

    Args:
      server_name: Address of the server, `host:port`.
    """

    def __init__(self, server_name: str) -> None:
        self._client = _Client(server_name)

    def NewWriter(  # noqa: N802
        self,
        chunk_length: int,
        max_timesteps: int,
        delta_encoded: bool = False,
        max_in_flight_items: int | None = None,
    ) -> "Writer":
        """Makes a writer whose items consist of the last steps."""
        if max_in_flight_items is None:
            raise TypeError("NewWriter(): incompatible function arguments. `max_in_flight_items` is missing.")
        writer = Writer.__new__(Writer)
        writer._writer = self._client.writer(max_timesteps, delta_encoded, chunk_length, max_in_flight_items)
        return writer

    def NewTrajectoryWriter(self, options: ChunkerOptions, validate_items: bool, /) -> "TrajectoryWriter":  # noqa: N802
        """Makes a writer whose items may refer to any of the last values of each column."""
        _check_chunker(options)
        writer = TrajectoryWriter.__new__(TrajectoryWriter)
        writer._keep = options.num_keep_alive_refs
        writer._writer = self._client.trajectory_writer(
            options.num_keep_alive_refs, validate_items=validate_items, max_chunk_length=options.max_chunk_length
        )
        return writer

    def NewStructuredWriter(self, configs: Iterable[bytes], /) -> "StructuredWriter":  # noqa: N802
        """Makes a writer of items from serialized `StructuredWriterConfig`s."""
        from reverb.cc import patterns_pb2

        parsed = [patterns_pb2.StructuredWriterConfig.FromString(config) for config in configs]
        writer = StructuredWriter.__new__(StructuredWriter)
        writer._writer = self._client.structured_writer(parsed)
        return writer

    def NewSampler(self, table: str, max_samples: int, buffer_size: int, /) -> "Sampler":  # noqa: N802
        """Makes a sampler of a table; -1 samples do not end. `buffer_size` has no effect: nothing is drawn ahead."""
        if max_samples == 0 or max_samples < -1:
            raise errors.InvalidArgumentError(f"max_samples ({max_samples}) must be -1 or >= 1")
        if buffer_size < 1:
            raise errors.InvalidArgumentError(f"buffer_size ({buffer_size}) must be a positive integer")
        sampler = Sampler.__new__(Sampler)
        sampler._client, sampler._table, sampler._left, sampler._steps = self._client, table, max_samples, []
        return sampler

    def MutatePriorities(  # noqa: N802
        self, table: str, updates: Iterable[tuple[int, float]], deletes: Iterable[int], /
    ) -> None:
        """Deletes items, then changes priorities."""
        pairs: Mapping[int, float] = dict(updates)
        self._client.mutate_priorities(table, pairs, deletes)

    def Reset(self, table: str, /) -> None:  # noqa: N802
        """Removes all items of a table."""
        self._client.reset(table)

    def ServerInfo(self, timeout: int, /) -> list[bytes]:  # noqa: N802
        """The serialized `TableInfo`s of all tables; a timeout in seconds, or 0 for no limit."""
        try:
            return self._client.engine.server_info(timeout if timeout > 0 else None)
        except errors.DeadlineExceededError:
            raise errors.UnavailableError("Deadline Exceeded") from None

    def Checkpoint(self) -> str:  # noqa: N802
        """Saves all tables of the server, and returns the folder of the checkpoint."""
        return self._client.checkpoint()


class Sampler(_Unconstructible):
    """Draws items of one table, made by `Client.NewSampler`."""

    # Number of arrays of an item or step that precede its data: the fields of SampleInfo.
    NUM_INFO_TENSORS: ClassVar[int] = len(SampleInfo._fields)

    _client: _Client
    _table: str
    _left: int
    _steps: list[Any]

    def GetNextTrajectory(self) -> list[NDArray[Any]]:  # noqa: N802
        """Draws an item: the fields of its info, and its columns."""
        return _flat(self._next(of_steps=False))

    def GetNextTimestep(self) -> tuple[list[NDArray[Any]], bool]:  # noqa: N802
        """The next step of an item, as the fields of its info and its leaves, and whether it is the item's last."""
        if not self._steps:
            self._steps = self._next(of_steps=True)[::-1]
        step = self._steps.pop()
        return _flat(step), not self._steps

    def _next(self, of_steps: bool) -> Any:
        if self._left == 0:
            raise RuntimeError("`max_samples` already returned.")
        sample = next(self._client.sample(self._table, 1, emit_timesteps=of_steps))
        self._left -= self._left > 0
        return sample


def _flat(sample: Any) -> list[NDArray[Any]]:
    info = [np.array(field, dtype) for field, dtype in zip(sample.info, INFO_DTYPES, strict=True)]
    return [*info, *sample.data]


class Writer(_Unconstructible):
    """Writes steps, made by `Client.NewWriter`."""

    _writer: "_Writer"

    def Append(self, step: Sequence[Any], /) -> None:  # noqa: N802
        """Appends a step, given as its leaves."""
        self._writer.append(list(step))

    def AppendSequence(self, sequence: Sequence[Any], /) -> None:  # noqa: N802
        """Appends steps that are stacked along the first axis of every leaf."""
        self._writer.append_sequence(list(sequence))

    def CreateItem(self, table: str, num_timesteps: int, priority: float, /) -> None:  # noqa: N802
        """Makes an item of the last steps."""
        self._writer.create_item(table, num_timesteps, priority)

    def Flush(self) -> None:  # noqa: N802
        """Sends all items, and waits until they are in their tables."""
        self._writer.flush()

    def Close(self, retry_on_unavailable: bool, /) -> None:  # noqa: N802
        """Flushes and closes the writer."""
        if self._writer.is_closed:
            raise errors.CancelledError("Calling method Close after Close has been called")
        self._writer.close(retry_on_unavailable)

    def __repr__(self) -> str:
        return self._writer.describe()


class TrajectoryWriter(_Unconstructible):
    """Writes steps and items of any of their values, made by `Client.NewTrajectoryWriter`."""

    _writer: "_TrajectoryWriter"
    _keep: int

    def Append(self, step: Sequence[Any], /) -> list[WeakCellRef | None]:  # noqa: N802
        """Appends a step, given as its leaves or None, and returns references to the values."""
        return self._append(step, partial_step=False)

    def AppendPartial(self, step: Sequence[Any], /) -> list[WeakCellRef | None]:  # noqa: N802
        """Appends a part of a step, which stays open."""
        return self._append(step, partial_step=True)

    def _append(self, step: Sequence[Any], *, partial_step: bool) -> list[WeakCellRef | None]:
        values = list(step)
        self._writer.append(values, partial_step=partial_step)
        history = self._writer.history
        return [None if value is None else next(iter(history[i][-1])) for i, value in enumerate(values)]

    def CreateItem(  # noqa: N802
        self, table: str, priority: float, columns: Sequence[Sequence[WeakCellRef]], squeeze: Sequence[bool], /
    ) -> None:
        """Makes an item of columns, each given as its values and whether it loses its time axis."""
        trajectory = [TrajectoryColumn(refs, squeeze=flag) for refs, flag in zip(columns, squeeze, strict=True)]
        self._writer.create_item(table, priority, trajectory)

    def ConfigureChunker(self, column: int, options: ChunkerOptions, /) -> None:  # noqa: N802
        """Sets the options of the chunks of one column."""
        _check_chunker(options)
        self._writer.configure(
            (column,), num_keep_alive_refs=options.num_keep_alive_refs, max_chunk_length=options.max_chunk_length
        )
        self._keep = max(self._keep, options.num_keep_alive_refs)

    def Flush(self, ignore_last_num_items: int, timeout_ms: int, /) -> None:  # noqa: N802
        """Waits until all items but the last ones are confirmed; a negative timeout means no limit."""
        self._writer.flush(ignore_last_num_items, timeout_ms if timeout_ms > 0 else None)

    def EndEpisode(self, clear_buffers: bool, timeout_ms: int | None, /) -> None:  # noqa: N802
        """Flushes, and ends the episode."""
        self._writer.end_episode(clear_buffers, timeout_ms)

    def Close(self) -> None:  # noqa: N802
        """Closes the writer."""
        self._writer.close()

    @property
    def episode_steps(self) -> int:
        """The number of complete steps in the episode so far."""
        return self._writer.episode_steps

    @property
    def max_num_keep_alive_refs(self) -> int:
        """The largest number of values that items may refer to, of all columns."""
        return self._keep


class StructuredWriter(_Unconstructible):
    """Writes steps from which patterns make items, made by `Client.NewStructuredWriter`."""

    _writer: "_StructuredWriter"

    def Append(self, step: Sequence[Any], /) -> None:  # noqa: N802
        """Appends a step, given as its leaves or None."""
        self._writer.append(list(step))

    def AppendPartial(self, step: Sequence[Any], /) -> None:  # noqa: N802
        """Appends a part of a step, which stays open."""
        self._writer.append(list(step), partial_step=True)

    def Flush(self, ignore_last_num_items: int, timeout_ms: int | None, /) -> None:  # noqa: N802
        """Waits until all items but the last ones are confirmed."""
        self._writer.flush(ignore_last_num_items, timeout_ms)

    def EndEpisode(self, clear_buffers: bool, timeout_ms: int | None, /) -> None:  # noqa: N802
        """Flushes, and ends the episode."""
        self._writer.end_episode(clear_buffers, timeout_ms)

    @property
    def step_is_open(self) -> bool:
        """Whether the last step is still open."""
        return self._writer.step_is_open
