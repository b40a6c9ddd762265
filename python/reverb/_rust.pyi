"""The Rust extension. Reached only through `reverb.pybind`; its errors are the classes of `reverb.errors`."""

import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self, disjoint_base

from reverb.loaders.here import Plan
from reverb.replay_sample import Ragged

__all__ = [
    "BatchIterator",
    "BatchedWriter",
    "CellRef",
    "CheckpointReader",
    "Checkpointer",
    "Client",
    "Draw",
    "DrawsHere",
    "Frames",
    "PatternReader",
    "PatternWriter",
    "RowWriter",
    "Server",
    "StatsClock",
    "Table",
    "TensorMaker",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "_ColumnHistory",
    "checkpoint_list",
    "checkpoint_summary",
    "checkpoint_verify",
    "descriptor_set",
    "importance_weights",
]

_FlatSpec = tuple[str, int, Sequence[int] | None]
_Signatures = Mapping[str, Sequence[_FlatSpec] | None]
# Values kept of a column, and rows of a chunk; None: as many as are good.
_ColumnOptions = tuple[int, int | None]
# Bytes of unconfirmed items past which the caller waits, and seconds that a lost server is looked for.
_Limits = tuple[int, float]
# A codec (`none`, `lz4`, `zstd`, `auto`), and whether integers are stored as differences.
_Compression = tuple[str, bool]
# Key, probability, table size, priority and times sampled of each sample.
_Infos: TypeAlias = tuple[
    NDArray[np.uint64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int32]
]
# What `Client.sample` returns.
_Sampled: TypeAlias = tuple[_Infos, list[NDArray[Any] | Ragged], int, list[bool]]
# Whether this package wrote a checkpoint; of each table a serialized `deepmind.reverb.TableInfo`, and its items.
_Summary: TypeAlias = tuple[bool, list[tuple[bytes, int | None]]]

def descriptor_set() -> bytes:
    """A serialized `google.protobuf.FileDescriptorSet` of all messages, each file after those that it imports."""

def importance_weights(
    probabilities: NDArray[np.float64], table_sizes: NDArray[np.int64], beta: float, normalize: bool
) -> NDArray[np.float32]:
    """`(N * P)^-beta` for arrays `[n]`, over the greatest if `normalize`; float32 `[n]`."""

@final
class Table:
    """A table. Belongs to no server until one is made with it."""

    def __new__(
        cls,
        name: str,
        sampler: tuple[str, float],
        remover: tuple[str, float],
        max_size: int,
        max_times_sampled: int,
        rate_limiter: tuple[float, int, float, float],
        signature: bytes | None,
        specs: Sequence[tuple[str, int, Sequence[int] | None]] | None,
        max_bytes: int | None,
        seed: int | None,
    ) -> Table:
        """An empty table.

        Args:
          name: Its name on the server.
          sampler: A selector: `fifo`, `lifo`, `uniform`, `prioritized`, `min_heap` or `max_heap`, and the exponent of
            `prioritized`, 0.0 for the others.
          remover: Likewise.
          max_size: Items the table may hold.
          max_times_sampled: Below 1: no limit.
          rate_limiter: `samples_per_insert`, `min_size_to_sample`, `min_diff`, `max_diff`.
          signature: A serialized `tensorflow.StructuredValue`.
          specs: The signature flattened: name, number of the dtype, and dimensions with -1 where unknown, None where
            the rank is unknown.
          max_bytes: Bytes the items may take; None: no limit.
          seed: Of the draws; None: from the operating system.
        """

    @property
    def name(self) -> str: ...
    def can_sample(self, n: int) -> bool: ...
    def can_insert(self, n: int) -> bool: ...
    def info(self) -> bytes:
        """A serialized `deepmind.reverb.TableInfo`."""

    def undelivered_samples(self) -> int:
        """Samples that were drawn and are not received yet."""

    def close(self) -> None:
        """Fails all who wait and all who come."""

@final
class Checkpointer:
    """Where and how a server keeps checkpoints. Does nothing before a server is made with it."""

    def __new__(
        cls,
        root: str | os.PathLike[str],
        group: str,
        fallback: str | os.PathLike[str] | None,
        keep: int,
        compression: int,
        interval: float | None,
        save_on_stop: bool,
        is_temporary: bool,
        load_path: str | os.PathLike[str] | None,
        tables: Sequence[tuple[str, str]] | None,
        keep_definitions: bool,
    ) -> Checkpointer:
        """See `reverb.checkpointers.DefaultCheckpointer`; `is_temporary`: the folder goes if nothing was saved."""

@final
class CheckpointReader:
    """The items of a checkpoint, in memory."""

    def __new__(cls, path: str | os.PathLike[str], tables: Sequence[str] | None, limit_bytes: int) -> CheckpointReader:
        """See `reverb.checkpointers.open`."""

    @property
    def path(self) -> pathlib.Path: ...
    def infos(self) -> list[bytes]:
        """A serialized `deepmind.reverb.TableInfo` for each table."""

    def batch(
        self, table: str, first: int, count: int, squeeze_time: bool
    ) -> tuple[_Sampled, NDArray[np.uint64]] | None:
        """Items from the `first` on, and when they were inserted (ns since 1970); None behind the last."""

def checkpoint_list(root: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The checkpoints in a folder, newest first."""

def checkpoint_summary(path: str | os.PathLike[str]) -> _Summary:
    """The definitions of a checkpoint's tables; the number of items is None where only all of them would tell."""

def checkpoint_verify(path: str | os.PathLike[str], limit_bytes: int) -> _Summary:
    """Reads a checkpoint whole and checks it."""

@final
class Server:
    """Tables behind a port."""

    def __new__(
        cls,
        tables: Sequence[Table],
        host: str | None,
        port: int | None,
        max_message_size: int,
        checkpointer: Checkpointer | None,
    ) -> Server:
        """Loads the checkpoint, binds and starts. `host` None: loopback; `port` None or 0: a free one."""

    @property
    def restored_from(self) -> str | None: ...
    @property
    def port(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def unix_path(self) -> str | None: ...
    def stop(self) -> None: ...
    def wait(self, timeout: float | None) -> bool:
        """True once the server has stopped, False when `timeout` seconds have passed."""

@final
class Draw:
    """A draw under way. Its samples count as undelivered until `received`; dropped before that, they go back."""

    def result(self, timeout: float | None) -> _Sampled | None:
        """What `Client.sample` returns, once; None if it is not here after `timeout` seconds."""

    def is_ready(self) -> bool:
        """Whether `result` would not wait."""

    def received(self) -> None:
        """The samples are the caller's. Before `result` it gives them back."""

    def give_back(self) -> None:
        """On return they are back in a table of this process; a server was told to take them back."""

    def times(self) -> tuple[float, float]:
        """Seconds that the draw waited for its table, and that it took in all; zeros before `result`."""

@final
class Frames:
    """Frames of a buffer: `segments` rings of `length` rows each. The frames of one add have the same id."""

    def __new__(
        cls,
        columns: Sequence[tuple[int, Sequence[int]]],
        segments: int,
        length: int,
        priority_exponent: float | None,
        seed: int | None,
    ) -> Frames:
        """`columns`: numbers of dtypes and shapes of rows. With an exponent frames are drawn by priority."""

    @property
    def added(self) -> int:
        """The id of the next frames."""

    @property
    def oldest(self) -> int:
        """The oldest id that is there."""

    def clear(self, next_id: int) -> None:
        """Forgets all frames; the next ones have the id `next_id`."""

    def add(self, data: object, priorities: Sequence[float]) -> int:
        """Adds rows `[n * segments, ...]`, all segments in turn, with a priority each or one for all; the first id."""

    def sample(
        self, count: int, steps: int, prefix: Sequence[int]
    ) -> tuple[list[NDArray[Any]], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Draws sequences: columns `[*prefix, ...]`, segments and ids at which they begin, and probabilities."""

    def gather(
        self, segments: NDArray[np.int64], ids: NDArray[np.int64], steps: int, prefix: Sequence[int]
    ) -> list[NDArray[Any]]:
        """Sequences of `steps` frames: columns `[*prefix, ...]`."""

    def update_priorities(
        self, segments: NDArray[np.int64], ids: NDArray[np.int64], priorities: NDArray[np.float64]
    ) -> None: ...

@disjoint_base
class BatchIterator:
    """Iterates over batches: what a DrawsHere gives, and where that gives none what `_next` of a subclass returns.

    A loop over a loader calls nothing of Python's for each batch of microseconds.
    """

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        """Takes no notice of the arguments, which are a subclass's."""

    def _prefer(self, here: DrawsHere) -> None:
        """What is asked first; once."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any:
        """The next batch.

        Raises:
          StopIteration: `_next` gave None.
        """

@final
class DrawsHere:
    """Draws batches of one table of a server of this process, on the thread that asks for one; closed at first."""

    def __new__(cls, clock: StatsClock) -> DrawsHere: ...
    def open(self, plan: Plan, left: int | None) -> None:
        """From now on there are batches, if they can be had without waiting.

        Args:
          plan: How they are drawn and made.
          left: How many; None: without end.
        """

    def close(self) -> tuple[int, Draw | None]:
        """From now on there are none. Batches given since `open`, and a draw that must be waited for."""

@final
class StatsClock:
    """Adds up the times of a `reverb.loaders.LoaderStats`."""

    def __new__(cls) -> StatsClock: ...
    @property
    def batches(self) -> int:
        """Given to the learner."""

    def asked(self) -> None:
        """The learner asks for a batch."""

    def arrived(self, limiter_s: float, total_s: float) -> None:
        """A batch, or the news that there is none, has been waited for.

        Args:
          limiter_s: Of the draw's whole time, which may have begun before the batch was asked for.
          total_s: The draw's whole time.
        """

    def converted(self) -> None:
        """A batch that had arrived has the form in which it is given."""

    def given(self, samples: int) -> None:
        """A batch goes to the learner."""

    def stats(self) -> tuple[int, int, float, float, float, float]:
        """The fields of `LoaderStats` but `undelivered`."""

@final
class TensorMaker:
    """Makes tensors of a library, by the functions that it offers to native code (DLPack's exchange API)."""

    @staticmethod
    def of(api: object) -> TensorMaker | None:
        """Of the capsule that the library's tensor type has as `__dlpack_c_exchange_api__`.

        Returns:
          None if it is of a version that is not known.
        """

@final
class Client:
    """A way to a server, the shortest there is. Timeouts are seconds of the whole call; None: no limit."""

    def __new__(cls, address: str) -> Client:
        """Contacts nobody."""

    @property
    def address(self) -> str: ...
    @property
    def road(self) -> str:
        """`same_process`, `unix`, `tcp` or `unconnected`."""

    def insert(self, data: object, priorities: Mapping[str, Any], timeout: float | None) -> None: ...
    def insert_batch(self, data: object, priorities: Mapping[str, Any], timeout: float | None) -> None: ...
    def sample(
        self, table: str, at_least: int, at_most: int, ahead: int, timeout: float | None, squeeze_time: bool
    ) -> _Sampled:
        """Draws items.

        Args:
          table: Where from.
          at_least: Items to wait for.
          at_most: Items to take if they can be had without waiting.
          ahead: Further items to draw, only if neither limiter nor `max_times_sampled` counts samples.
          timeout: When it ends, what has been drawn is returned; DeadlineExceededError if that is nothing.
          squeeze_time: Whether columns of items of one step lose their time axis.

        Returns:
          The infos (key, probability, table size, priority, times sampled), each `[batch]`; the columns, stacked
          `[batch, time, ...]`; a number that changes with the table's signature, 0 if it has none; and which columns
          have no time axis.
        """

    def begin_sample(
        self,
        table: str,
        counts: tuple[int, int],
        timeout: float | None,
        squeeze_time: bool,
        connect_timeout: float | None = None,
        by_caller: bool = False,
        at_once: bool = False,
    ) -> Draw:
        """Begins to draw items as `sample` does; waits at most for a connection.

        Args:
          table: Its name.
          counts: How many items at least, and at most.
          timeout: In seconds; of the draw.
          squeeze_time: As of `sample`.
          connect_timeout: In seconds; None: the draw's, or as long as usual.
          by_caller: Whether the thread that waits for the draw reads the connection itself, which saves small batches
            two wake-ups. What comes meanwhile is read when somebody waits, or after 50 ms.
          at_once: Whether a batch of this process that can be had now is copied before this returns, however large.

        Raises:
          UnavailableError: There is no server.
          DeadlineExceededError: That was not known in time.
        """

    def mutate_priorities(
        self, table: str, updates: Sequence[tuple[int, float]], deletes: Sequence[int], timeout: float | None
    ) -> None: ...
    def update_priorities(
        self, table: str, keys: NDArray[np.uint64], priorities: NDArray[np.float64], timeout: float | None
    ) -> None: ...
    def reset(self, table: str, timeout: float | None) -> None: ...
    def server_info(self, timeout: float | None) -> list[tuple[bytes, int]]:
        """For each table a serialized `deepmind.reverb.TableInfo`, and how many of its samples are undelivered."""

    def table_statuses(self, timeout: float | None) -> list[bytes]:
        """A serialized `reverb.replay.v1.TableStatus` for each table."""

    def checkpoint(self, timeout: float | None) -> str:
        """Saves all tables; the path on the server's machine."""

    def peek(self, table: str, count: int, newest: bool, timeout: float | None) -> list[tuple[_Sampled, int]]:
        """Items as batches of one, and when they were inserted (ns since 1970). They are neither drawn nor counted."""

@final
class CellRef:
    """One value of one column, which its writer may still keep."""

    @property
    def expired(self) -> bool:
        """Whether the writer keeps the value no longer; then only this can be asked."""

    @property
    def shape(self) -> list[int]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def numpy(self) -> NDArray[Any]:
        """The value, an array of its own.

        Raises:
          RuntimeError: It has expired.
        """

@final
class TrajectoryColumn:
    """A column of an item: references to values, in order. Made by indexing a writer's history, or from references.

    Indexing it follows the rules of tuples: an int gives a column without time axis, a slice or a list one with it.
    """

    def __new__(
        cls, data_references: Iterable[CellRef | None], *, squeeze: bool = False, path: object = None
    ) -> TrajectoryColumn:
        """A column of these values.

        Args:
          data_references: Of columns with the same dtype and shape.
          squeeze: Whether the time axis is dropped; there must be one reference then.
          path: Named in errors.

        Raises:
          ValueError: A reference is None, or `squeeze` is set with another number than one.
          TypeError: Something else than a reference.
        """

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[CellRef]: ...
    def __getitem__(self, key: SupportsIndex | slice | list[int], /) -> TrajectoryColumn: ...
    @property
    def is_squeezed(self) -> bool: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """Of a value, with the time axis in front unless it is dropped. IndexError for an empty column."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    def numpy(self) -> NDArray[Any]:
        """The values, stacked unless the time axis is dropped.

        Raises:
          RuntimeError: A value has expired.
          ValueError: There is none.
        """

@final
class _ColumnHistory:
    """The live view of one column of a trajectory writer."""

    def __new__(cls, writer: TrajectoryWriter, column: int, path: tuple[Any, ...]) -> _ColumnHistory: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[CellRef | None]: ...
    def __getitem__(self, key: SupportsIndex | slice | list[int], /) -> TrajectoryColumn: ...

@final
class TrajectoryWriter:
    """Behind `reverb.TrajectoryWriter`."""

    def __new__(
        cls,
        client: Client,
        structure: object,
        options: _ColumnOptions,
        signatures: _Signatures | None,
        compression: _Compression,
        limits: _Limits,
    ) -> TrajectoryWriter:
        """`structure`: a `reverb._structure.Structure`. `signatures` None: items are not checked."""

    def append(self, data: object, partial_step: bool) -> None: ...
    def create_item(self, table: str, priority: float, trajectory: object) -> None: ...
    def set_signatures(self, signatures: _Signatures) -> None: ...
    def configure(self, column: int, options: _ColumnOptions) -> None: ...
    def flush(self, but_last: int, timeout: float | None) -> None: ...
    def end_episode(self, clear_buffers: bool) -> None:
        """Without a flush."""

    def close(self, patience: float) -> str | None:
        """What was given up after `patience` seconds, in words; None: nothing."""

    @property
    def episode_steps(self) -> int: ...
    @property
    def step_is_open(self) -> bool: ...
    @property
    def num_pending_items(self) -> int: ...

@final
class PatternReader:
    """Behind `reverb.PatternDataset`."""

    def __new__(cls, structure: object, configs: Sequence[bytes]) -> PatternReader: ...
    def append(self, data: object) -> list[list[NDArray[Any]]]:
        """The items that are due after this step, each a list of its columns."""

    def end_episode(self, clear_buffers: bool) -> list[list[NDArray[Any]]]:
        """The items that are due where an episode ends."""

@final
class PatternWriter:
    """Behind `reverb.structured_writer.StructuredWriter`."""

    def __new__(
        cls,
        client: Client,
        structure: object,
        configs: Sequence[bytes],
        max_chunk_length: int | None,
        compression: _Compression,
        limits: _Limits,
    ) -> PatternWriter:
        """`configs`: serialized `deepmind.reverb.StructuredWriterConfig`s."""

    def append(self, data: object, partial_step: bool) -> None: ...
    def make_last_items(self) -> None:
        """Makes the items that are due where an episode ends."""

    def flush(self, but_last: int, timeout: float | None) -> None: ...
    def end_episode(self, clear_buffers: bool) -> None: ...
    def close(self, patience: float) -> str | None: ...
    @property
    def step_is_open(self) -> bool: ...
    @property
    def num_pending_items(self) -> int: ...

@final
class RowWriter:
    """Behind `reverb.Writer`."""

    def __new__(
        cls,
        client: Client,
        lengths: tuple[int, int],
        max_in_flight: int,
        signatures: _Signatures,
        compression: _Compression,
        limits: _Limits,
    ) -> RowWriter:
        """`lengths`: of the longest item, and of a chunk."""

    def append(self, data: object) -> None: ...
    def create_item(self, table: str, num_timesteps: int, priority: float) -> None: ...
    def set_signatures(self, signatures: _Signatures) -> None: ...
    def flush(self, timeout: float | None) -> None: ...
    def close(self, patience: float) -> str | None: ...
    @property
    def has_server(self) -> bool: ...
    @property
    def episode_id(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def num_pending_items(self) -> int: ...

@final
class BatchedWriter:
    """Behind `reverb.BatchedWriter`."""

    def __new__(
        cls,
        client: Client,
        structure: object,
        num_envs: int,
        options: _ColumnOptions,
        configs: Sequence[bytes],
        compression: _Compression,
        limits: _Limits,
    ) -> BatchedWriter: ...
    def append(self, data: object, mask: NDArray[np.bool_] | None, ends: NDArray[np.bool_] | None) -> None: ...
    def create_items(
        self,
        table: str,
        priorities: NDArray[np.float64],
        columns: Sequence[tuple[int, int | None, int | None, int, bool]],
        mask: NDArray[np.bool_] | None,
    ) -> NDArray[np.bool_]: ...
    def flush(self, but_last: int, timeout: float | None) -> None: ...
    def close(self, patience: float) -> str | None: ...
    def episode_steps(self) -> NDArray[np.int64]: ...
    @property
    def num_pending_items(self) -> int: ...
