"""The client: how programs write to and read from a server's tables."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import starmap
from typing import Any, SupportsFloat, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import _checks, _client_writers, _items, nests, pybind
from reverb.errors import DeadlineExceededError
from reverb.replay_sample import ReplaySample, SampleInfo
from reverb.reverb_types import TableInfo
from reverb.writer import Writer

__all__ = ["Client", "Writer"]

# How many items `sample` draws beyond the one it returns, from tables that do not count samples.
_AHEAD = 63
# How long to wait for the signature of a table whose items are there already.
_LOOK_UP_SECONDS = 10.0

# Makes a named tuple without its constructor written in Python: a batch of 32 takes 5 microseconds in all.
_new = tuple.__new__


class Client(_client_writers.ClientWriters):
    """A way to a server. Making one contacts nobody; a pickled one comes back with the address alone.

    Timeouts are seconds of the whole call. With None a call waits as long as it must.

    Args:
      server_address: `host:port`.

    Raises:
      TypeError: The address is not a str.
    """

    def __init__(self, server_address: str) -> None:
        if not isinstance(server_address, str):
            _checks.refuse("server_address", "a str", server_address)
        self._server_address = server_address
        self._client = pybind.Client(server_address)
        # For each table the number that came with its samples, and the packer of the signature that belongs to it.
        self._packers: dict[str, tuple[int, nests.Packer]] = {}

    @property
    def server_address(self) -> str:
        """The address, as it was given."""
        return self._server_address

    @property
    def road(self) -> str:
        """How the server was reached last: `same_process`, `unix`, `tcp`, or `unconnected` before the first call."""
        return self._client.road

    def __reduce__(self) -> tuple[type["Client"], tuple[str]]:
        return self.__class__, (self._server_address,)

    def __repr__(self) -> str:
        return f"Client, server_address={self._server_address}"

    def insert(self, data: Any, priorities: dict[str, float], *, timeout: float | None = None) -> None:
        """Inserts one item of one step, into one or more tables.

        Args:
          data: A nest of arrays, or of what numpy makes arrays of.
          priorities: For each table that gets the item, its priority there.
          timeout: Seconds; None: as long as the tables' limiters block.

        Raises:
          ValueError: `priorities` is empty, or the data do not fit a table's signature (SignatureMismatchError).
          TypeError: A leaf is None or otherwise nothing that can be stored.
          TableNotFoundError: A table does not exist.
          DeadlineExceededError: Not all items were in their tables in time.
        """
        _check_priorities(priorities)
        self._client.insert(data, priorities, _checks.as_timeout(timeout))

    def insert_batch(self, data: Any, priorities: Mapping[str, ArrayLike], *, timeout: float | None = None) -> None:
        """Inserts many items of one step each: what `insert` does, once a row, in one call.

        Args:
          data: A nest of arrays `[n, ...]`: row i of all leaves is item i.
          priorities: For each table that gets the items, one priority for all, or an array `[n]`.
          timeout: Seconds; None: as long as the tables' limiters block.

        Raises:
          ValueError: `priorities` is empty, the leaves differ in n, or the data do not fit a table's signature
            (SignatureMismatchError).
          TypeError: A leaf cannot be stored.
          TableNotFoundError: A table does not exist.
          DeadlineExceededError: Not all items were in their tables in time.
        """
        _check_priorities(priorities)
        self._client.insert_batch(data, priorities, _checks.as_timeout(timeout))

    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Any]:
        """Draws items, one after the other. Nothing happens before the first `next`.

        Up to 64 items travel together where the table counts no samples (no `max_times_sampled`, and a limiter without
        a ratio); their arrays are views into one buffer, which lives as long as the last of them.

        Args:
          table: Where from.
          num_samples: How many; -1 yields nothing.
          emit_timesteps: Whether an item comes as a list of its steps.
          unpack_as_table_signature: Whether the data have the structure of the table's signature. Without it, or if
            the table has none, they are a flat list.
          timeout: Seconds for all items together, from the first `next` on.

        Yields:
          With `emit_timesteps` a list of ReplaySample, one a step, which share their info and whose arrays are
          `[...]`. Else one ReplaySample whose arrays are `[time, ...]`, or `[...]` for columns without a time axis.
          Scalars are 0-d arrays, strings object arrays of bytes; the fields of the info are Python numbers.

        Raises:
          ValueError: `num_samples` is 0 or below -1; with `unpack_as_table_signature`, the table does not exist; with
            `emit_timesteps`, the columns of an item differ in length or lack the time axis.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: Not all items came in time.
        """
        if num_samples == 0 or num_samples < -1:
            raise ValueError(f"max_samples ({num_samples}) must be -1 or >= 1")
        left = 0 if num_samples == -1 else _checks.as_count("num_samples", num_samples)
        remaining = _countdown(timeout)
        if left and unpack_as_table_signature and table not in self._packers:
            self._check_table_exists(table, remaining())
        split = _items.steps if emit_timesteps else _items.whole
        while left > 0:
            infos, columns, token, squeezed = self._client.sample(
                table, 1, 1, min(_AHEAD, left - 1), remaining(), False
            )
            left -= len(infos[0])
            pack = self._packer(table, token) if unpack_as_table_signature else list
            yield from split(infos, columns, squeezed, pack)

    def sample_batch(
        self, table: str, batch_size: int, timeout: float | None = None, *, squeeze_time: bool = False
    ) -> ReplaySample:
        """Draws items with replacement and stacks them.

        Never draws more than it returns.

        Args:
          table: Where from.
          batch_size: Items to draw, at least 1.
          timeout: Seconds. When they are over, the items drawn so far are returned.
          squeeze_time: Whether columns of items of one step lose their time axis.

        Returns:
          `info`, whose fields are arrays `[batch]`, and `data` in the structure of the table's signature, or the flat
          list of columns if it has none. Arrays are `[batch, time, ...]`, or `[batch, ...]` for columns without a time
          axis; a column whose items differ in length is a `Ragged`. `batch` is `batch_size`, or less if the
          time was over.

        Raises:
          ValueError: `batch_size` is below 1.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: No item came in time.
        """
        # Checks are called only where they are needed: a small batch takes some microseconds in all.
        size = batch_size if type(batch_size) is int and batch_size > 0 else _checks.as_count("batch_size", batch_size)
        seconds = None if timeout is None else _checks.as_timeout(timeout)
        infos, columns, token, _ = self._client.sample(table, size, size, 0, seconds, squeeze_time)
        known = self._packers.get(table)
        pack = known[1] if known is not None and known[0] == token else self._packer(table, token)
        return _new(ReplaySample, (_new(SampleInfo, infos), pack(columns)))

    def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Iterable[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Deletes items, then changes priorities. Keys that the table does not hold are passed over.

        Args:
          table: Whose items.
          updates: New priorities by key.
          deletes: Keys.
          timeout: Seconds; None: until the server answers.

        Raises:
          TypeError: A key is not an integer in [0, 2**64), or a priority not a number.
          InvalidPriorityError: A priority that the table's selectors cannot take. Nothing has changed then.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: The server did not answer in time.
        """
        pairs = [(_checks.as_key(key), _as_priority(priority)) for key, priority in (updates or {}).items()]
        keys = [_checks.as_key(key) for key in (() if deletes is None else deletes)]
        self._client.mutate_priorities(table, pairs, keys, _checks.as_timeout(timeout))

    def update_priorities(
        self, table: str, keys: ArrayLike, priorities: ArrayLike, *, timeout: float | None = None
    ) -> None:
        """Changes the priorities of many items. Keys that the table does not hold are passed over.

        Args:
          table: Whose items.
          keys: Integers `[n]`, as `info.key` has them.
          priorities: `[n]`, or one for all.
          timeout: Seconds; None: until the server answers.

        Raises:
          TypeError: A key is not an integer.
          ValueError: A key is negative, or the shapes do not fit.
          InvalidPriorityError: A priority that the table's selectors cannot take. Nothing has changed then.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: The server did not answer in time.
        """
        keys = _as_keys(keys)
        values = np.ascontiguousarray(priorities, dtype=np.float64)
        if values.shape != keys.shape:
            values = np.ascontiguousarray(_broadcast(values, keys.shape))
        self._client.update_priorities(table, keys, values, _checks.as_timeout(timeout))

    def reset(self, table: str, *, timeout: float | None = None) -> None:
        """Removes all items of a table and sets its counters back, those of its limiter too.

        Args:
          table: Which.
          timeout: Seconds; None: until the server answers.

        Raises:
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: The server did not answer in time.
        """
        self._client.reset(table, _checks.as_timeout(timeout))

    def checkpoint(self, *, timeout: float | None = None) -> str:
        """Saves all tables of the server, as they are at one moment. Inserts and samples go on meanwhile.

        Args:
          timeout: Seconds; None: until the checkpoint is on the server's disk. A save that nobody waits for any more
            goes on.

        Returns:
          The folder of the checkpoint, an absolute path on the server's machine.

        Raises:
          StorageError: The server could not write it: what was saved before is still there.
          DeadlineExceededError: It was not saved in time.
        """
        return self._client.checkpoint(_checks.as_timeout(timeout))

    def server_info(self, timeout: float | None = None) -> dict[str, TableInfo]:
        """Describes all tables of the server. Waits until the server can be reached.

        Args:
          timeout: Seconds; None, 0 and below: no limit.

        Returns:
          The infos by the tables' names.

        Raises:
          DeadlineExceededError: The server did not answer in time.
        """
        limit = None if timeout is None or timeout <= 0 else _checks.as_timeout(timeout)
        try:
            return self._table_infos(limit)
        except DeadlineExceededError:
            raise DeadlineExceededError(
                f"ServerInfo call did not complete within provided timeout of {timeout}s"
            ) from None

    def _table_infos(self, timeout: float | None) -> dict[str, TableInfo]:
        infos = starmap(TableInfo.from_serialized_proto, self._client.server_info(timeout))
        return {info.name: info for info in infos}

    def _check_table_exists(self, table: str, timeout: float | None) -> None:
        tables = self._table_infos(timeout)
        if table not in tables:
            raise ValueError(f'Could not find table "{table}". The following tables exists: {", ".join(tables)}.')

    def _packer(self, table: str, token: int) -> nests.Packer:
        """What puts columns into the structure of the signature to which `token` belongs, 0 being none."""
        known = self._packers.get(table)
        if known is None or known[0] != token:
            # The items have been drawn, so this must not fail for their deadline; nor may it wait for ever.
            info = self._table_infos(_LOOK_UP_SECONDS).get(table) if token else None
            pack = list if info is None or info.signature is None else nests.compile_packer(info.signature)
            known = self._packers[table] = token, pack
        return known[1]


def _check_priorities(priorities: object) -> None:
    if not priorities:
        raise ValueError("priorities must contain at least one item")


def _countdown(timeout: float | None) -> Callable[[], float | None]:
    """Says how many seconds of a timeout are left, from now on. Never less than none."""
    seconds = _checks.as_timeout(timeout)
    if seconds is None:
        return lambda: None
    deadline = time.monotonic() + seconds
    return lambda: max(0.0, deadline - time.monotonic())


def _as_priority(priority: object) -> float:
    """A number, or an array of one, of any library."""
    if isinstance(priority, (str, bytes)):
        raise TypeError(f"Priorities are numbers, got {priority!r}.")
    if isinstance(priority, np.ndarray) and priority.size == 1:
        return float(priority.item())
    return float(cast(SupportsFloat, priority))


def _as_keys(keys: ArrayLike) -> NDArray[np.uint64]:
    if not isinstance(keys, np.ndarray):
        array = np.asarray(keys)
        # Numpy reads ints of both halves of the range as floats.
        keys = array if array.dtype.kind in "ui" and array.ndim else _keys_of_list(keys)
    if keys.dtype != np.uint64:
        if keys.dtype.kind not in "ui":
            raise TypeError(f"Keys of items are integers, got {keys.dtype}.")
        if keys.dtype.kind == "i" and (keys < 0).any():
            raise ValueError("Keys of items are not negative.")
    return np.ascontiguousarray(keys, dtype=np.uint64).ravel()


def _keys_of_list(keys: Any) -> NDArray[np.uint64]:
    try:
        listed = list(keys)
    except TypeError:
        listed = [keys]
    return np.array([_checks.as_key(key) for key in listed], dtype=np.uint64)


def _broadcast(values: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    if values.size != 1:
        values = values.ravel()
        if values.shape != shape:
            raise ValueError(f"{shape[0]} keys, but {values.size} priorities.")
        return values
    return np.full(shape, values.item())
