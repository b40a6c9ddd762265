"""The Rust extension. Reached only through `reverb._binding`; its errors are the classes of `reverb.errors`."""

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self, disjoint_base

from reverb._settings import ServerOptions
from reverb.data.endpoint import Endpoint
from reverb.replay_sample import BatchInfo, Ragged, ReplaySample
from reverb.writing.options import WriterOptions

__all__ = [
    "BatchIterator",
    "BatchMaker",
    "BatchedWriter",
    "BenchTable",
    "Call",
    "Calls",
    "CellRef",
    "CheckpointReader",
    "Checkpointer",
    "Client",
    "Draw",
    "Frames",
    "ItemIterator",
    "LocalDraws",
    "PatternReader",
    "PatternWriter",
    "RowWriter",
    "SampledBatch",
    "SampledFrames",
    "Server",
    "StatsClock",
    "Table",
    "Tables",
    "TensorMaker",
    "TrajectoryColumn",
    "TrajectoryWriter",
    "Wakeups",
    "WriterCalls",
    "WriterSession",
    "_ColumnHistory",
    "check_endpoint",
    "checkpoint_list",
    "checkpoint_summary",
    "checkpoint_verify",
    "checkpoint_verify_log",
    "descriptor_set",
    "end_log",
    "end_threads",
    "health",
    "importance_weights",
    "limiter_rule",
    "tensorflow_kernel",
    "tokens_of_text",
    "unconfirmed",
    "wait_for_streams",
]

_FlatSpec = tuple[str, int, Sequence[int] | None]
_Signatures = Mapping[str, tuple[bytes, Sequence[_FlatSpec]] | None]
# The number of values of a column that are kept, and the rows of a chunk; None: the library chooses.
_ColumnOptions = tuple[int, int | None]
# What a closed writer has discarded: the number of unconfirmed items by table, and reasons.
_Discarded = tuple[dict[str, int], list[str]]
# Whether this package wrote a checkpoint; for each table a serialized `deepmind.reverb.TableInfo`, and its items.
_Summary: TypeAlias = tuple[bool, list[tuple[bytes, int | None]]]
# An option of a table: its name, its value on the server, that in the checkpoint, and the one that holds.
_Option: TypeAlias = tuple[str, str, str, str]
# A table of a checkpoint: its name there, its name on the server if it is loaded, its items if their number is known,
# and its options if the server has it.
_Planned: TypeAlias = tuple[str, str | None, int | None, list[_Option] | None]
# The checkpoint, the damage of newer ones, and the tables of the checkpoint.
_Plan: TypeAlias = tuple[pathlib.Path | None, list[str], list[_Planned]]

def tensorflow_kernel(function: Callable[[int], object]) -> int:
    """The address of a kernel of TensorFlow, which passes its pointer to the first function that was given here."""

def unconfirmed() -> list[tuple[str, dict[str, int], int]]:
    """What each writer of this process has not confirmed: the address of its client, items by table, and bytes.

    Writers without unconfirmed items are left out.
    """

def end_threads() -> None:
    """Keeps other threads in calls of the extension. For interpreter exit, which ends threads amid a call."""

def end_log() -> None:
    """Logs no further events, and waits for those under way. For interpreter exit, which ends threads that log."""

def wait_for_streams(timeout: float) -> None:
    """Waits for clients that were dropped, until their servers have processed the receipts of all their batches."""

def limiter_rule(rate_limiter: tuple[float, int, float, float]) -> str:
    """Says what a rate limiter is for, from its samples per insert, minimum size, minimum and maximum diff."""

def tokens_of_text(text: str, name: str) -> list[tuple[str, str]]:
    """The names and roles of the tokens in the text of a file of tokens, which errors call by `name`."""

def descriptor_set() -> bytes:
    """A serialized `google.protobuf.FileDescriptorSet` of all messages, each file after those that it imports."""

def check_endpoint(endpoint: Endpoint) -> None:
    """Raises InvalidArgumentError if the address is not valid."""

def health(endpoint: Endpoint, service: str, timeout: float) -> bool:
    """Whether a server serves `service`, by `grpc.health.v1`; an empty name means the server as a whole.

    Asks once. Raises UnavailableError if no server answers, DeadlineExceededError if it does not answer in time,
    ValueError if it has no such service, and UnimplementedError if it does not tell its health.
    """

def importance_weights(
    probabilities: NDArray[np.float64], table_sizes: NDArray[np.int64], beta: float, normalize: bool
) -> NDArray[np.float32]:
    """`(N * P)^-beta` for arrays `[n]`, over the greatest if `normalize`; float32 `[n]`."""

@final
class Table:
    """A table. It does not belong to a server until one is made with it."""

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
        stall_after: float | None,
    ) -> Table:
        """An empty table.

        Args:
          name: The name of the table on the server.
          sampler: The selector of draws: `fifo`, `lifo`, `uniform`, `prioritized`, `min_heap` or `max_heap`; and the
            exponent of `prioritized`, 0.0 for the others.
          remover: The selector of removals, in the same form.
          max_size: The number of items that the table may hold.
          max_times_sampled: The number of draws after which an item is removed; below 1: there is no limit.
          rate_limiter: The numbers `samples_per_insert`, `min_size_to_sample`, `min_diff` and `max_diff`.
          signature: A serialized `tensorflow.StructuredValue`; None: the table has no signature.
          specs: The flat signature: name, number of the dtype, and dimensions, with -1 where a dimension and None where
            the rank is unknown.
          max_bytes: The number of bytes that the items may take; None: there is no limit.
          seed: The seed of the draws; None: a seed from the operating system.
          stall_after: The longest pause in seconds that is not a stall; None: it is learned from the pauses so far.
        """

    @property
    def name(self) -> str: ...
    def can_sample(self, n: int) -> bool: ...
    def can_insert(self, n: int) -> bool: ...
    def info(self) -> bytes:
        """A serialized `deepmind.reverb.TableInfo`."""

    def status(self) -> bytes:
        """A serialized `reverb.replay.v1.TableStatus`."""

    def close(self) -> None:
        """Fails all waiting calls and all later ones."""

@final
class Checkpointer:
    """The options of the checkpoints of a server. It does nothing before a server is made with it."""

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
        definitions: Literal["saved", "edited", "here"],
        must_be_writable: bool,
    ) -> Checkpointer:
        """See `reverb.checkpointers.DefaultCheckpointer`; `is_temporary`: an unused folder is removed."""

    def plan(self, tables: Sequence[Table]) -> _Plan:
        """What a server with these tables would load. Reads no items, and changes nothing."""

    def plan_log(self, path: str | os.PathLike[str] | None, *, is_durable: bool) -> tuple[int, int, int] | None:
        """As `checkpoint_verify_log`, for the log that a server would replay after this checkpoint."""

@final
class CheckpointReader:
    """The items of a checkpoint, in memory."""

    def __new__(
        cls, path: str | os.PathLike[str], tables: Sequence[str] | None, limit_bytes: int | None
    ) -> CheckpointReader:
        """See `reverb.checkpointers.open`."""

    @property
    def path(self) -> pathlib.Path: ...
    def infos(self) -> list[bytes]:
        """A serialized `deepmind.reverb.TableInfo` for each table."""

    def batch(self, table: str, first: int, count: int, squeeze_time: bool) -> SampledBatch | None:
        """Items from number `first` on, `count` at most, with `inserted_at`; None after the last item."""

def checkpoint_list(root: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The checkpoints in a folder, newest first."""

def checkpoint_summary(path: str | os.PathLike[str]) -> _Summary:
    """The definitions of a checkpoint's tables; the number of items is None where only all of them would tell."""

def checkpoint_verify(path: str | os.PathLike[str], limit_bytes: int | None) -> _Summary:
    """Reads a whole checkpoint and checks it."""

def checkpoint_verify_log(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """Checks the log after a checkpoint: frames with changes, their bytes, torn bytes; None if it names no log."""

@final
class Server:
    """Tables behind a port."""

    def __new__(cls, tables: Sequence[Table], options: ServerOptions, checkpointer: Checkpointer | None) -> Server:
        """Loads the checkpoint, binds and starts."""

    @property
    def restored_from(self) -> str | None: ...
    @property
    def port(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def unix_path(self) -> str | None: ...
    @property
    def http_port(self) -> int | None: ...
    @property
    def dashboard_url(self) -> str | None: ...
    def stop(self, end: Literal["for good", "returns", "with program", "collected"]) -> None:
        """Stops. Clients elsewhere are told whether the server will be back; by default the exit status says it."""

    def reload(self) -> None:
        """Reads certificates and tokens again, if their files have changed."""

    @staticmethod
    def set_last(is_last: bool) -> None:
        """Says whether the end of this program is for good whatever its exit status."""

    def wait(self, timeout: float | None) -> bool:
        """True once the server has stopped, False when `timeout` seconds have passed."""

@final
class Draw:
    """A draw in progress. Its samples are undelivered until `received`; if it is dropped before, they go back."""

    def result(self, timeout: float | None) -> SampledBatch | None:
        """The batch, once; None if it is not here after `timeout` seconds."""

    def is_ready(self) -> bool:
        """Whether `result` would return at once."""

    def arrival(self, timeout: float | None) -> Call:
        """A call that ends when `result` would return at once, or after `timeout` seconds. For draws of `Calls`."""

    def received(self, waits: bool = False) -> None:
        """Marks the samples as delivered. Before `result` it gives them back. Another server is told some time later.

        Args:
          waits: Whether it is not told with the next draw, because that may begin before the program has the batch.

        Raises:
          UnavailableError, CancelledError: The samples went back: the connection was lost, or the server was stopped.
        """

    def is_lost(self) -> bool:
        """Whether the samples of a batch that has arrived went back, so that `received` would raise."""

    def give_back(self) -> None:
        """Gives the samples back. On return a table of this process has them; another server was told to take them.

        After `received` only those of a server elsewhere that was not told yet.
        """

    def times(self) -> tuple[float, float]:
        """Seconds that the draw waited for its table, and seconds that it took in all; zeros before `result`."""

@final
class SampledBatch:
    """Items of a table, stacked column by column.

    Its arrays are made when they are first asked for. Those of the infos share one block of memory, those of the
    columns another.
    """

    @property
    def signature_token(self) -> int:
        """A number that changes with the table's signature; 0 for a table without one."""

    def __len__(self) -> int:
        """The number of items."""

    @property
    def num_columns(self) -> int: ...
    @property
    def info(self) -> BatchInfo:
        """What is known of the items: arrays `[batch]`."""

    @property
    def columns(self) -> list[NDArray[Any] | Ragged]:
        """The columns: `[batch, time, ...]`, `[batch, ...]` without a time axis, or ragged."""

    @property
    def has_open_rows(self) -> list[bool]:
        """For each column whether the lengths of its `Ragged` are those of single rows, one of each item."""

    @property
    def squeezed(self) -> list[bool]:
        """For each column whether its items have no time axis."""

    @property
    def inserted_at(self) -> NDArray[np.uint64] | None:
        """Nanoseconds since 1970 at which each item was inserted; None for a draw, which does not tell."""

@final
class BatchMaker:
    """Makes samples and batches of the items of one table; built once for each signature, and used for each batch."""

    def __new__(
        cls,
        *,
        signature_token: int = 0,
        columns: Sequence[int] | None = None,
        names: list[str] | None = None,
        keys: Sequence[tuple[Any, int]] | None = None,
        pack: Callable[[list[Any]], Any] | None = None,
        to_leaves: Callable[[list[Any], list[str]], Iterable[Any]] | None = None,
        tensor_maker: TensorMaker | None = None,
        convert: Callable[[Any], Any] | None = None,
        unknown_lengths: Sequence[tuple[int, int]] = ...,
    ) -> BatchMaker:
        """Makes nothing yet.

        Args:
          signature_token: The signature of the batches.
          columns: The numbers of the columns that are kept; None: all.
          names: The paths of these columns, for error messages; None: their numbers.
          keys: The data are a dict with these keys, in order, each with the place of its leaf among the kept columns.
          pack: Makes the data from the list of leaves, where there are no `keys`. None: the data are that list.
          to_leaves: Makes the leaves from the kept columns and their names. None: the columns are the leaves.
          tensor_maker: Makes tensors of as many columns as it can, from their memory. If it cannot make all of them,
            `to_leaves` gets its tensors and the other columns.
          convert: Makes what `batch` returns from a `reverb.loaders.Batch`. None: that batch.
          unknown_lengths: Places of the kept columns whose signature leaves the number of rows open, each with the
            number of axes of the signature. Such a column is always ragged in a batch.
        """

    @property
    def signature_token(self) -> int: ...
    @property
    def unknown_lengths(self) -> list[tuple[int, int]]: ...
    def sample(self, sampled: SampledBatch) -> ReplaySample[BatchInfo]:
        """All items as one sample, whose arrays are `[batch, ...]`."""

    def batch(self, sampled: SampledBatch, *, beta: float | None = None, table: NDArray[np.int32] | None = None) -> Any:
        """All items as a loader gives them.

        Args:
          sampled: Items to make one batch of.
          beta: The exponent of the importance weights; None: the batch has no weights.
          table: The number of the table of each item; None: the loader has one table only.
        """

    def columns(self, sampled: SampledBatch) -> list[NDArray[Any] | Ragged]:
        """The kept columns of all items."""

    def data(self, columns: Sequence[Any]) -> Any:
        """The data made of the kept columns, which the caller may have changed."""

@final
class ItemIterator:
    """Cuts a batch into its items, or these into their steps. All arrays share the batch's memory."""

    def __new__(cls, sampled: SampledBatch, maker: BatchMaker, *, of_steps: bool) -> ItemIterator:
        """Begins with the first item.

        Args:
          sampled: Batch that was sampled.
          maker: Makes the data of an item or a step from its columns.
          of_steps: Whether each item is a list of samples, one for each step, which share their info.

        Raises:
          ValueError: Steps are asked for, but a column has no time axis.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any:
        """The next ReplaySample, or list of them.

        Raises:
          ValueError: Steps are asked for, but the columns of this item differ in length.
        """

@final
class Frames:
    """The frames of a buffer: `segments` rings of `length` rows. The frames of one `add` have the same id."""

    def __new__(
        cls,
        columns: Sequence[tuple[int, Sequence[int]]],
        segments: int,
        length: int,
        priority_exponent: float | None,
        seed: int | None,
    ) -> Frames:
        """`columns`: numbers of dtypes, and shapes of rows. With an exponent, frames are drawn by priority."""

    @property
    def added(self) -> int:
        """The id of the next frames."""

    @property
    def oldest(self) -> int:
        """The oldest id that is still stored."""

    def clear(self, next_id: int) -> None:
        """Removes all frames; the next frames have the id `next_id`."""

    def add(self, data: object, priorities: Sequence[float]) -> int:
        """Adds rows `[n * segments, ...]` to all segments in turn, with one or all priorities. Returns the first id."""

    def sample(self, count: int, steps: int, prefix: Sequence[int]) -> SampledFrames:
        """Draws `count` sequences of `steps` frames, whose columns are `[*prefix, ...]`."""

    def gather(
        self, segments: NDArray[np.int64], ids: NDArray[np.int64], steps: int, prefix: Sequence[int]
    ) -> list[NDArray[Any]]:
        """Sequences of `steps` frames: columns `[*prefix, ...]`."""

    def priorities(self) -> NDArray[np.float64] | None:
        """The priorities `[segments * stored]`, segment by segment, oldest first; None if frames have none."""

    def update_priorities(
        self, segments: NDArray[np.int64], ids: NDArray[np.int64], priorities: NDArray[np.float64]
    ) -> None: ...

@final
class SampledFrames:
    """Sequences that were drawn from Frames."""

    @property
    def columns(self) -> list[NDArray[Any]]: ...
    @property
    def segments(self) -> NDArray[np.int64]:
        """The segment of each sequence."""

    @property
    def ids(self) -> NDArray[np.int64]:
        """The id of the first frame of each sequence."""

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The probability with which each sequence was drawn."""

@disjoint_base
class BatchIterator:
    """Iterates over batches: those of a LocalDraws, and where it gives none those that `_next` of a subclass returns.

    A loop over a loader does not run Python code for batches that take microseconds.
    """

    def __new__(cls, *_args: Any, **_options: Any) -> Self:
        """Ignores the arguments, which are for the `__init__` of a subclass."""

    def _prefer(self, local: LocalDraws) -> None:
        """Sets the draws that are asked first. Only the first call counts."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any:
        """The next batch.

        Raises:
          StopIteration: `_next` returned None.
        """

@final
class LocalDraws:
    """Draws batches of one table of a server of this process, on the thread that asks for one; closed at first.

    A small batch takes ten microseconds. To begin it ahead, to queue it and to wait for it would cost half as much
    again, and to do all of this in Python a fifth.
    """

    def __new__(
        cls, *, client: Client, table: str, batch_size: int, squeeze_time: bool, takes_all: bool, clock: StatsClock
    ) -> LocalDraws:
        """Draws nothing yet.

        Args:
          client: A client of the server.
          table: The name of the table.
          batch_size: The number of items of a batch.
          squeeze_time: Whether columns of items of one step lose their time axis.
          takes_all: Whether the maker refuses nothing but strings. Other batches are then drawn without a lease.
          clock: The clock that gets the times of all batches.
        """

    def open(self, maker: BatchMaker, *, beta: Callable[[int], float | None] | None, left: int | None) -> None:
        """From now on there are batches, if they can be had without waiting.

        Args:
          maker: Makes the batches, as long as the table has the signature that the maker was built for.
          beta: Gives the exponent of the importance weights for the number of a batch; None: there are no weights.
          left: The number of batches; None: without end.
        """

    def close(self) -> tuple[int, Draw | None]:
        """From now on there are none. Returns the batches given since `open`, and a draw that must be waited for."""

@final
class StatsClock:
    """Adds up the times of a `reverb.loaders.LoaderStats`."""

    def __new__(cls) -> StatsClock: ...
    @property
    def batches(self) -> int:
        """The number of batches that were given to the learner."""

    def asked(self) -> None:
        """Notes that the learner asks for a batch."""

    def arrived(self, limiter_s: float, total_s: float) -> None:
        """Notes that the wait for a batch is over, whether there is one or not.

        Args:
          limiter_s: The part of the draw's time in which it waited for the rate limiter, in seconds.
          total_s: The whole time of the draw, which may have begun before the batch was requested, in seconds.
        """

    def converted(self) -> None:
        """Notes that a batch that had arrived is converted."""

    def given(self, samples: int) -> None:
        """Counts a batch that goes to the learner."""

    def stats(self) -> tuple[int, int, float, float, float, float]:
        """The fields of `LoaderStats`, except `undelivered`."""

@final
class TensorMaker:
    """Makes tensors of a library by the functions that it offers to native code (DLPack's exchange API)."""

    @staticmethod
    def of(api: object) -> TensorMaker | None:
        """A maker from the capsule that the library's tensor type has as `__dlpack_c_exchange_api__`.

        Returns:
          None if the version of the capsule is unknown.
        """

@final
class BenchTable:
    """An empty table of a server to measure with. It exists until it is closed or this process ends.

    Only inserts and draws over connections find it, by its name. Raises UnimplementedError for a server of dm-reverb or
    of an earlier version, ValueError for several servers or one of this process, and ResourceExhaustedError if others
    measure too.
    """

    def __new__(cls, endpoint: Endpoint, timeout: float | None) -> BenchTable: ...
    @property
    def name(self) -> str: ...
    @property
    def road(self) -> str:
        """How its connection reaches the server: `unix` or `tcp`."""

    def close(self) -> None:
        """Removes the table. Does nothing if it is closed."""

@final
class Client:
    """A client of a server, over the shortest road. Timeouts are seconds of the whole call; None: no limit."""

    def __new__(cls, endpoint: Endpoint, max_pending_bytes: int = ...) -> Client:
        """Does not contact the server. `max_pending_bytes` limits the unconfirmed items of all writers together."""

    @property
    def address(self) -> str: ...
    def note_drawn(self, table: str) -> None:
        """Notes that this process draws from a table, for the reports of writers that wait."""

    @property
    def road(self) -> str:
        """`same_process`, `unix`, `tcp` or `unconnected`."""

    @property
    def is_remote(self) -> bool:
        """Whether the server is known to be in another process."""

    def insert(self, data: object, priorities: Mapping[str, Any], timeout: float | None) -> int:
        """Returns the key of the item, which is the same in all tables."""

    def insert_batch(self, data: object, priorities: Mapping[str, Any], timeout: float | None) -> NDArray[np.uint64]:
        """Returns the keys of the items, which are the same in all tables."""

    def sample(
        self,
        table: str,
        at_least: int,
        at_most: int,
        ahead: int,
        timeout: float | None,
        squeeze_time: bool,
        reconnect_timeout: float | None = None,
    ) -> tuple[SampledBatch, Draw | None]:
        """Draws items. They go back to their table unless the draw is acknowledged. None: they never go back.

        Args:
          table: The name of the table.
          at_least: The number of items to wait for.
          at_most: The number of items to take if they are there without a wait.
          ahead: The number of further items to draw if neither limiter nor `max_times_sampled` counts samples.
          timeout: The number of seconds after which the items drawn so far are returned; without any item, a
            DeadlineExceededError is raised.
          squeeze_time: Whether columns of items of one step lose their time axis.
          reconnect_timeout: The number of seconds to look for a server elsewhere that was lost; None: an error is
            raised at once.
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
        is_ahead: bool = False,
    ) -> Draw:
        """Begins to draw items as `sample` does. It may wait for a connection, but not for the items.

        Args:
          table: The name of the table.
          counts: The numbers of items to wait for, and to take at most.
          timeout: The timeout of the draw in seconds.
          squeeze_time: Whether columns of items of one step lose their time axis.
          connect_timeout: The timeout of the connection in seconds; None: that of the draw, or the usual one.
          by_caller: Whether the thread that waits for the draw reads the connection itself, which saves small batches
            two wake-ups. Data that arrives meanwhile is read when a thread waits, or after 50 ms.
          at_once: Whether a batch of a server of this process is copied before this returns, however large it is, if it
            needs no wait.
          is_ahead: Whether the program does not wait for the batch yet, so that its wait is no stall of the server.

        Raises:
          UnavailableError: The server cannot be reached.
          DeadlineExceededError: The connection took longer than its timeout.
        """

    def mutate_priorities(
        self, table: str, updates: Sequence[tuple[int, float]], deletes: Sequence[int], timeout: float | None
    ) -> int | None:
        """Returns how many updates and deletes found their item; None if the server is older and does not say."""

    def update_priorities(
        self, table: str, keys: NDArray[np.uint64], priorities: NDArray[np.float64], timeout: float | None
    ) -> int | None:
        """Returns how many of the keys are in the table; None if the server is older and does not say."""

    def check_keys(self, table: str, data: object) -> list[int]:
        """Asks the server for the signature of a table, and compares its keys with those of the data.

        Returns:
          For each column of the table the number of its leaf; nothing if leaves are matched by position.

        Raises:
          SignatureMismatchError: Keys are missing or unknown.
          UnavailableError: The server cannot be reached.
        """

    def configure_table(
        self,
        table: str,
        max_size: int | None,
        max_bytes: int | None,
        max_times_sampled: int | None,
        rate_limiter: tuple[float, int, float, float] | None,
        timeout: float | None,
    ) -> None:
        """Changes options of a table; None keeps one. A `max_bytes` of 0 removes the limit."""

    def reset(self, table: str, timeout: float | None) -> None: ...
    def settle(self, timeout: float) -> None:
        """Waits until the servers have processed the receipts of the batches that the program has, as long at most."""

    def close(self, timeout: float) -> None:
        """Waits as `settle` does, then closes the connections. Calls that wait are withdrawn, and later ones raise."""

    def disconnect(self) -> None:
        """As `close` without a wait, for a client whose calls are those of `Calls`."""

    def shards(self, timeout: float | None) -> list[tuple[int | None, str, bytes | None]]:
        """Returns the id, the address and the answer to `observe` of each shard of a cluster; None of missing ones."""

    def add_shards(self, endpoint: Endpoint) -> None:
        """Takes the shards that an endpoint lists beyond those of the client, and waits until they were tried."""

    def cluster_counts(self) -> tuple[int, int, list[str], list[str], int]:
        """Returns rounds, spare arrivals, addresses of missing and of slow shards, and keys that were passed over."""

    def server_info(self, timeout: float | None) -> list[bytes]:
        """A serialized `deepmind.reverb.TableInfo` for each table."""

    def table_statuses(self, timeout: float | None) -> list[bytes]:
        """A serialized `reverb.replay.v1.TableStatus` for each table."""

    def checkpoint(self, timeout: float | None) -> str:
        """Saves all tables; the path on the server's machine."""

    def peek(self, table: str, count: int, newest: bool, timeout: float | None) -> list[SampledBatch]:
        """Items as batches of one, with `inserted_at`. They are neither drawn nor counted."""

    def get(
        self, table: str, keys: NDArray[np.uint64], columns: Sequence[int], timeout: float | None
    ) -> list[tuple[NDArray[np.uint32], SampledBatch]]:
        """Items by their keys, in parts: places of keys that were found, and their items. They are not counted.

        Args:
          table: The name of the table.
          keys: The keys of the items, uint64 `[n]`.
          columns: The numbers of the columns to read, in this order; empty: all.
          timeout: The timeout in seconds.
        """

    def newer(self, table: str, seen: int | None, timeout: float | None) -> SampledBatch:
        """Waits until the newest item of a table has another key than `seen`. It is not a draw.

        Args:
          table: The name of the table.
          seen: The key of the item that was seen; None: any item ends the wait.
          timeout: The timeout in seconds.

        Returns:
          A batch of one, without a time axis if the item has one step.
        """

    def observe(self, timeout: float | None) -> bytes:
        """One JSON object: `server`, `tables`, `waits`, `clients` and `checkpoints`. Not of address lists."""

@final
class Wakeups:
    """The numbers of calls that have ended, for one event loop."""

    def __new__(cls) -> Wakeups: ...
    def fileno(self) -> int:
        """A socket that is readable while there are numbers to take."""

    def take(self, most: int) -> list[int]:
        """Takes up to `most` numbers."""

@final
class Call:
    """A call in progress, on threads of the extension. It is withdrawn if it is dropped before its result was taken."""

    def wake(self, wakeups: Wakeups, number: int) -> bool:
        """Adds a number to the wakeups when the call ends. False if it has ended."""

    def result(self) -> Any:
        """Takes the result of a call that has ended, or raises its error."""

    def cancel(self) -> None:
        """Withdraws the call. Samples that have arrived go back to their table."""

@final
class Tables:
    """The tables of a server."""

    def names(self) -> list[str]: ...
    def status(self, table: str) -> bytes:
        """A serialized `reverb.replay.v1.TableStatus`.

        Raises:
          TableNotFoundError: The server has no such table.
        """

    def check_keys(self, table: str, data: object) -> list[int]:
        """As `Client.check_keys`, without asking the server."""

@final
class Calls:
    """Begins calls of a client, and never waits. See `Client` for arguments and results."""

    def __new__(cls, client: Client) -> Calls: ...
    def insert(
        self, data: object, priorities: Mapping[str, Any], timeout: float | None, tables: Tables | None = None
    ) -> Call | None:
        """None: the nest is new, and `tables` are needed to compare it with their signatures."""

    def insert_batch(
        self, data: object, priorities: Mapping[str, Any], timeout: float | None, tables: Tables | None = None
    ) -> Call | None:
        """None: the nest is new, and `tables` are needed to compare it with their signatures."""

    def sample(self, table: str, size: int, timeout: float | None, squeeze_time: bool) -> Call:
        """The result is that of `Client.sample`."""

    def begin_sample(
        self,
        table: str,
        size: int,
        timeout: float | None,
        squeeze_time: bool,
        connect_timeout: float | None,
        is_ahead: bool,
    ) -> Call:
        """The result is a Draw."""

    def mutate_priorities(
        self, table: str, updates: Sequence[tuple[int, float]], deletes: Sequence[int], timeout: float | None
    ) -> Call: ...
    def update_priorities(
        self, table: str, keys: NDArray[np.uint64], priorities: NDArray[np.float64], timeout: float | None
    ) -> Call: ...
    def get(self, table: str, keys: NDArray[np.uint64], columns: Sequence[int], timeout: float | None) -> Call:
        """The result is that of `Client.get`."""

    def newer(self, table: str, seen: int | None, timeout: float | None) -> Call:
        """The result is that of `Client.newer`."""

    def tables(self, timeout: float | None) -> Call:
        """The result is a `Tables`."""

    def connection(self) -> int | None:
        """A number that changes with the connection; None if the next call looks for the server."""

    def settle(self, timeout: float) -> Call: ...

@final
class WriterCalls:
    """Begins waits of a writer. One that is withdrawn changes nothing."""

    def __new__(cls, writer: WriterSession) -> WriterCalls: ...
    def take_room(self, wakeups: Wakeups, count: int, timeout: float | None) -> Call:
        """Waits until there is room for so many more items."""

    def flush(self, wakeups: Wakeups, but_last: int, timeout: float | None) -> Call:
        """Waits until at most `but_last` items are unconfirmed."""

    def drain(self, patience: float) -> Call:
        """Waits at most `patience` seconds until no item is unconfirmed. The result is whether none is."""

@final
class CellRef:
    """One value of one column, which its writer may still keep."""

    @property
    def expired(self) -> bool:
        """Whether the writer has dropped the value. All other methods then fail."""

    @property
    def shape(self) -> list[int]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def numpy(self) -> NDArray[Any]:
        """A copy of the value.

        Raises:
          RuntimeError: The value has expired.
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
          data_references: The references, to values of columns with the same dtype and shape.
          squeeze: Whether the time axis is dropped, which needs exactly one reference.
          path: The path of the column, for error messages.

        Raises:
          ValueError: A reference is None, or `squeeze` is set and there is not exactly one reference.
          TypeError: An element is not a reference.
        """

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[CellRef]: ...
    def __getitem__(self, key: SupportsIndex | slice | list[int], /) -> TrajectoryColumn: ...
    @property
    def is_squeezed(self) -> bool: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value, after the time axis unless that is dropped. IndexError for an empty column."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    def numpy(self) -> NDArray[Any]:
        """The values, stacked unless the time axis is dropped.

        Raises:
          RuntimeError: A value has expired.
          ValueError: The column is empty.
        """

@final
class _ColumnHistory:
    """The live view of one column of a trajectory writer."""

    def __new__(cls, writer: TrajectoryWriter, column: int, path: tuple[Any, ...]) -> _ColumnHistory: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[CellRef | None]: ...
    def __getitem__(self, key: SupportsIndex | slice | list[int], /) -> TrajectoryColumn: ...

@disjoint_base
class WriterSession:
    """The base class of writers: what has been sent, and what the server has confirmed."""

    def flush(self, but_last: int, timeout: float | None) -> None: ...
    def drain(self, patience: float) -> bool:
        """Waits at most `patience` seconds until no item is unconfirmed. Returns whether none is."""

    @property
    def is_settled(self) -> bool:
        """Whether all items are confirmed and no error is left to be reported."""

    def close(self, patience: float) -> _Discarded | None:
        """Waits at most `patience` seconds for confirmations. Returns what was discarded, if anything was."""

    def has_room(self, count: int) -> bool:
        """Whether there is room for so many more items."""

    def take_room(self, count: int, timeout: float | None) -> None:
        """Waits until there is room for so many more items."""

    def pace(self) -> None:
        """From now on only `take_room` waits for room, and items are noted for `take_keys`."""

    def take_keys(self, num_envs: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The keys of the items that a paced writer has made since the last call, and how many each environment has."""

    def note_priority(self, priority: float) -> None:
        """Gives later items of priority "max" at least this priority."""

    @property
    def num_pending_items(self) -> int: ...
    @property
    def has_server(self) -> bool:
        """Whether the server is reachable, as far as is known."""

@final
class TrajectoryWriter(WriterSession):
    """Behind `reverb.TrajectoryWriter`."""

    def __new__(
        cls,
        client: Client,
        structure: object,
        num_keep_alive_refs: int,
        signatures: _Signatures | None,
        options: WriterOptions,
    ) -> TrajectoryWriter:
        """`structure`: a `reverb.writing.structure.Structure`. `signatures` None: items are not checked."""

    def append(self, data: object, partial_step: bool) -> None: ...
    def create_item(
        self, table: str, priority: float | Literal["max"], trajectory: object, timeout: float | None = None
    ) -> int:
        """Returns the key of the item."""

    def set_signatures(self, signatures: _Signatures) -> None: ...
    def know_table(self, table: str, tables: Tables) -> None:
        """Takes the signature of one table from those of a server.

        Raises:
          TableNotFoundError: The server has no such table.
        """

    def configure(self, column: int, options: _ColumnOptions) -> None: ...
    def end_episode(self, clear_buffers: bool) -> None:
        """Without a flush."""

    @property
    def episode_steps(self) -> int: ...
    @property
    def step_is_open(self) -> bool: ...

@final
class PatternReader:
    """Behind `reverb.PatternDataset`."""

    def __new__(cls, structure: object, configs: Sequence[bytes]) -> PatternReader: ...
    def append(self, data: object) -> list[list[NDArray[Any]]]:
        """The items that are due after this step, each a list of its columns."""

    def end_episode(self, clear_buffers: bool) -> list[list[NDArray[Any]]]:
        """The items that are due where an episode ends."""

@final
class PatternWriter(WriterSession):
    """Behind `reverb.structured_writer.StructuredWriter`."""

    def __new__(
        cls,
        client: Client,
        structure: object,
        configs: Sequence[bytes],
        options: WriterOptions,
    ) -> PatternWriter:
        """`configs`: serialized `deepmind.reverb.StructuredWriterConfig`s."""

    def reorder(self, orders: Sequence[Sequence[int]]) -> None:
        """Puts the columns of each pattern's items in this order; an empty one leaves them."""

    def append(self, data: object, partial_step: bool, priority: float | Literal["max"] | None = None) -> None:
        """`priority`: of the items that are due; None takes those of the configs."""

    def make_last_items(self, priority: float | Literal["max"] | None = None) -> None:
        """Makes the items that are due where an episode ends."""

    def end_episode(self, clear_buffers: bool) -> None: ...
    @property
    def step_is_open(self) -> bool: ...

@final
class RowWriter(WriterSession):
    """Behind `reverb.Writer`."""

    def __new__(
        cls,
        client: Client,
        max_sequence_length: int,
        signatures: _Signatures,
        options: WriterOptions,
    ) -> RowWriter: ...
    def append(self, data: object) -> None: ...
    def create_item(self, table: str, num_timesteps: int, priority: float | Literal["max"]) -> int:
        """Returns the key of the item."""

    def set_signatures(self, signatures: _Signatures) -> None: ...
    @property
    def episode_id(self) -> int: ...
    @property
    def num_steps(self) -> int: ...

@final
class BatchedWriter(WriterSession):
    """Behind `reverb.BatchedWriter`."""

    def __new__(
        cls,
        client: Client,
        structure: object,
        num_envs: int,
        num_keep_alive_refs: int,
        configs: Sequence[bytes],
        options: WriterOptions,
    ) -> BatchedWriter: ...
    def reorder(self, orders: Sequence[Sequence[int]]) -> None:
        """Puts the columns of each pattern's items in this order; an empty one leaves them."""

    def append(
        self,
        data: object,
        mask: NDArray[np.bool_] | None,
        ends: NDArray[np.bool_] | None,
        priorities: NDArray[np.float64] | Literal["max"] | None = None,
    ) -> None: ...
    def create_items(
        self,
        table: str,
        priorities: NDArray[np.float64] | Literal["max"],
        columns: Sequence[tuple[int, int | None, int | None, int, bool]],
        mask: NDArray[np.bool_] | None,
        timeout: float | None = None,
    ) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """Returns which environments got an item, and the keys of the items; 0 for the others."""

    def episode_steps(self) -> NDArray[np.int64]: ...
