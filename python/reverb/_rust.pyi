"""The Rust extension. Reached only through `reverb.pybind`; its errors are the classes of `reverb.errors`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from reverb.replay_sample import Ragged

__all__ = ["Client", "Draw", "Frames", "Server", "Table", "descriptor_set", "importance_weights"]

# What `Client.sample` returns.
_Sampled: TypeAlias = tuple[
    tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int32]],
    list[NDArray[Any] | Ragged],
    int,
    list[bool],
]

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
class Server:
    """Tables behind a port."""

    def __new__(cls, tables: Sequence[Table], host: str | None, port: int | None, max_message_size: int) -> Server:
        """Binds and starts. `host` None: loopback; `port` None or 0: a free one."""

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

    def begin_sample(self, table: str, at_least: int, at_most: int, timeout: float | None, squeeze_time: bool) -> Draw:
        """Begins to draw items as `sample` does; waits at most for a connection."""

    def mutate_priorities(
        self, table: str, updates: Sequence[tuple[int, float]], deletes: Sequence[int], timeout: float | None
    ) -> None: ...
    def update_priorities(
        self, table: str, keys: NDArray[np.uint64], priorities: NDArray[np.float64], timeout: float | None
    ) -> None: ...
    def reset(self, table: str, timeout: float | None) -> None: ...
    def server_info(self, timeout: float | None) -> list[tuple[bytes, int]]:
        """For each table a serialized `deepmind.reverb.TableInfo`, and how many of its samples are undelivered."""
