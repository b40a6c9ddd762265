"""The client, with which programs write to and read from a server's tables."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import _binding
from reverb._receipts import SETTLE_SECONDS, settle_at_exit
from reverb._settings import with_environment
from reverb.data import checks, signatures, table_arguments
from reverb.data.batch_dims import as_rows
from reverb.data.chosen import Chosen, ChosenColumns, as_columns, flat_maker
from reverb.data.endpoint import Endpoint
from reverb.data.items import chosen_maker, sample_maker
from reverb.data.joining import join_parts
from reverb.data.keys import ItemPriority, as_arrays, as_deletes, as_keys, as_updates
from reverb.data.timeouts import Losses, as_reconnect_timeout, countdown, persistently
from reverb.data.tls import TLS
from reverb.errors import DeadlineExceededError, ReverbError, UnavailableError
from reverb.rate_limiters import RateLimiter
from reverb.replay_sample import BatchInfo, ItemInfo, ReplaySample
from reverb.reverb_types import TableInfo, table_infos
from reverb.writer import Writer
from reverb.writing.options import MAX_PENDING_BYTES, WriterArguments, WriterOptions, shows_writer_options
from reverb.writing.unconfirmed import add_unconfirmed

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from reverb.batched_writer import BatchedWriter
    from reverb.structured_writer import StructuredWriter
    from reverb.trajectory_writer import TrajectoryWriter

__all__ = ["Client", "Writer"]

# Number of items that `sample` draws ahead of the one it returns, from tables that do not count samples.
_AHEAD = 63
# How long to wait for the signature of a table whose items have already arrived.
LOOK_UP_SECONDS = 10.0

_Made = TypeVar("_Made")


class Client:
    """A client of one server, or of several. The constructor contacts none. Pickling keeps only the arguments.

    A timeout is in seconds and covers the whole call. With None a call waits without a limit.

    Args:
      server_address: Address of the server, `host:port`; or of several servers, `ipv4:host:port,host:port` or
        `dns:///name:port`. Inserts, draws and writers take these in turn; all other calls go to all of them.
      max_pending_bytes: Limit in bytes on the unconfirmed items of all writers of this client, with their data; 64 MiB
        by default. Half is shared on demand, half divided equally. Once the first half is used, a writer above its
        equal share waits. Each writer may have one unconfirmed item in any case; a lone writer may use all.
      tls: Files for a server with TLS, whose address begins with `grpcs://`. None takes those that the environment
        names, and else trusts the authorities of the operating system.
      token: Token for a server with tokens. None takes that of the environment, `REVERB_TOKEN`, or of the file that
        `REVERB_TOKEN_FILE` names, which is read for each connection. A client that was given one here does not pickle.
      allow_insecure: Whether the token may be sent over TCP without TLS, where others may read it, also on loopback.
        None, the default, means no, unless `REVERB_ALLOW_INSECURE` is 1.
      unix_peers: Numbers of the users whose servers the client trusts at Unix sockets, such as those of other
        containers. By default, it trusts only its own user and root.
      max_shared_bytes: Limit in bytes on the memory in which a server of this host, but another process, puts the data
        of large batches, so that no socket copies them; 1 GiB by default. The data of large inserts may take as much
        again. 0 shares none. Arrays that the program keeps count; beyond the limit, and where memory cannot be shared,
        data travels over the socket, as `road` then says.

    Attributes:
      endpoint: What another client of the same server is made of, for other modules of this package.
      engine: The native client, for other modules of this package.
      calls: The native client of event loops, for other modules of this package.
      chosen: Columns that were read by keys, for other modules of this package. None of the four is part of the public
        interface.

    Raises:
      TypeError: The address is not a str, the limit is not an integer, or another argument has the wrong type.
      ValueError: The limit is below 1, `tls` is given for an address without `grpcs://`, or the environment has two
        tokens.
    """

    def __init__(
        self,
        server_address: str | Endpoint,
        *,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        tls: TLS | None = None,
        token: str | None = None,
        allow_insecure: bool | None = None,
        unix_peers: Iterable[int] | None = None,
        max_shared_bytes: int | None = None,
    ) -> None:
        if not isinstance(server_address, (str, Endpoint)):
            _refuse("server_address", "a str", server_address)
        self.endpoint = Endpoint.of(server_address).given(tls, token, allow_insecure, unix_peers, max_shared_bytes)
        self._max_pending_bytes = checks.as_count("max_pending_bytes", max_pending_bytes)
        endpoint = with_environment(self.endpoint)
        self._has_token = endpoint.has_token
        self.engine = _binding.Client(endpoint, self._max_pending_bytes)
        self.calls = _binding.Calls(self.engine)
        # Maps each table to the maker of samples that fits the signature which the table had last.
        self._makers: dict[str, _binding.BatchMaker] = {}
        # For reading items, since those above note that the program draws.
        self.chosen = ChosenColumns()
        settle_at_exit(self)

    @property
    def server_address(self) -> str:
        """The address of the server, as passed to the constructor."""
        return self.endpoint.address

    @property
    def road(self) -> str:
        """The transport of the last call: `same_process`, `unix`, `tcp`, or `unconnected` before the first call.

        With several servers also their number, such as `tcp (2 servers)`, or `tcp (1 of 2 servers)` if one is down.
        ` (dm-reverb)` follows it if the server is one of dm-reverb, whose protocol the client then uses.
        """
        return self.engine.road

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the client, as the end of a `with` block does. A second call does nothing.

        Waits up to a second until the servers know which batches the program has, and closes the connections. Calls of
        other threads that wait are withdrawn and raise CancelledError, as later calls do; of an insert, an update or a
        delete that is withdrawn, nobody knows whether it was done. Writers and loaders have a `close` of their own:
        writers that are open go on.
        """
        self.engine.close(SETTLE_SECONDS)

    def __reduce__(self) -> tuple[Callable[[str | Endpoint], Client], tuple[str | Endpoint]]:
        return self.reduced(self.__class__)

    def reduced(self, make: Callable[..., _Made]) -> tuple[Callable[[str | Endpoint], _Made], tuple[str | Endpoint]]:
        """What a pickle of a client contains. For `reverb.aio`; it is not part of the public interface.

        Args:
          make: Class of the client that the pickle makes.
        """
        limit = self._max_pending_bytes
        limited = make if limit == MAX_PENDING_BYTES else functools.partial(make, max_pending_bytes=limit)
        return limited, (self.endpoint.in_pickles(),)

    def __repr__(self) -> str:
        return f"Client, {self.described()}"

    def described(self) -> str:
        """The arguments of the client without secrets, for other modules of this package."""
        return f"server_address={self.server_address}" + (", token=***" if self._has_token else "")

    def insert(self, data: Any, priorities: Mapping[str, ItemPriority], *, timeout: float | None = None) -> int:
        """Inserts one item of one step into one or more tables.

        Args:
          data: Nest of arrays, or of values that numpy can convert into arrays. A `Ragged` of one item is its rows.
          priorities: Mapping from the name of each table that gets the item to the item's priority in that table: a
            number, or "max" for the largest priority that the table has seen since it was reset.
          timeout: Time limit in seconds; None waits as long as the tables' rate limiters block.

        Returns:
          The key of the item, which is the same in all of its tables.

        Raises:
          ValueError: `priorities` is empty, or the data does not fit a table's signature (SignatureMismatchError).
          TypeError: A leaf is None, or another value that cannot be stored.
          TableNotFoundError: A table does not exist.
          DeadlineExceededError: Not all tables had accepted the item within the timeout.
        """
        return self.engine.insert(data, priorities, checks.as_timeout(timeout))

    def insert_batch(
        self,
        data: Any,
        priorities: Mapping[str, ArrayLike],
        *,
        batch_dims: int | None = None,
        timeout: float | None = None,
    ) -> NDArray[np.uint64]:
        """Inserts many items of one step each in one call, like one call of `insert` per row.

        Args:
          data: Nest of arrays `[n, ...]`, or a TensorDict. Row i of all leaves becomes item i. Rows that differ in the
            length of their first axis are given as a `Ragged` of n items or, where the signature has one array of open
            length, as a list of n arrays.
          priorities: Mapping from the name of each table that gets the items to one priority for all items, to an
            array `[n]` of priorities, or to "max" for the largest that the table has seen since it was reset.
          batch_dims: Number of leading axes that count items; None means one. Data `[4, 100, ...]` are 400 items with
            2, and with 1 they are 4 items whose arrays are `[100, ...]`. A TensorDict that has several batch dimensions
            needs it.
          timeout: Time limit in seconds; None waits as long as the tables' rate limiters block.

        Returns:
          The keys of the items, uint64 `[n]`. An item has the same key in all of its tables.

        Raises:
          ValueError: `priorities` is empty, the leaves differ in n, they do not fit a table's signature, or a
            TensorDict has several batch dimensions and `batch_dims` does not say how many of them count items.
          TypeError: A leaf cannot be stored.
          TableNotFoundError: A table does not exist.
          DeadlineExceededError: Not all items were in their tables within the timeout.
        """
        # A dict, the most frequent data, is no TensorDict, and to look for a missing attribute takes long.
        if batch_dims is not None or (type(data) is not dict and hasattr(data, "batch_dims")):
            data = as_rows(data, batch_dims)
        return self.engine.insert_batch(data, priorities, checks.as_timeout(timeout))

    def writer(
        self,
        max_sequence_length: int,
        delta_encoded: bool = False,
        chunk_length: int | None = None,
        # limit (Writers): number of a writer's unconfirmed items, of `Client.writer` | {} | the call that makes items
        # waits | `max_in_flight_items=` of each writer
        max_in_flight_items: int | None = 25,
        *,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        reconnect_timeout: float = 300.0,
    ) -> Writer:
        """Creates a writer whose items consist of the last steps, with all their columns.

        Args:
          max_sequence_length: Maximum number of steps in an item, at least 1.
          delta_encoded: Whether to compress chunks, with integers as differences between steps, if that saves space.
          chunk_length: Number of steps in a chunk, at most `max_sequence_length`; None means the smaller of
            `max_sequence_length` and 10.
          max_in_flight_items: Maximum number of unconfirmed items, beyond which the writer waits; 25 by default, and
            None means 1,000,000.
          max_pending_bytes: Limit in bytes on unconfirmed items of this writer and their data, above which the writer
            also waits; 64 MiB by default. The limit of the client applies as well.
          reconnect_timeout: Time in seconds to try to reach a lost server before unconfirmed items are discarded; 300
            by default.

        Raises:
          ValueError: A number is out of range.
          TypeError: A number is not an integer.
          UnavailableError: The server cannot be reached.
        """
        max_length = checks.as_int("max_sequence_length", max_sequence_length)
        if max_length < 1:
            raise ValueError(f"max_sequence_length ({max_sequence_length}) must be a positive integer")
        length = min(10, max_length) if chunk_length is None else checks.as_int("chunk_length", chunk_length)
        if not 1 <= length <= max_length:
            raise ValueError(
                f"chunk_length ({chunk_length}) must be a positive integer le to max_sequence_length ({max_length})"
            )
        in_flight = 1_000_000 if max_in_flight_items is None else max_in_flight_items
        if checks.as_int("max_in_flight_items", in_flight) < 1:
            raise ValueError(f"max_in_flight_items ({max_in_flight_items}) must be a positive integer")
        options = WriterOptions(
            max_chunk_length=length,
            # The codec finds out by trial whether differences save space.
            compression="auto" if delta_encoded else "none",
            max_pending_bytes=max_pending_bytes,
            max_in_flight_items=in_flight,
            reconnect_timeout=reconnect_timeout,
        )
        return Writer(self.engine, max_length, options, signatures=self._signatures)

    @shows_writer_options
    def trajectory_writer(
        self,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        get_signature_timeout_ms: int | None = -1,
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> TrajectoryWriter:
        """Creates a writer whose items may refer to any of the last values of each column.

        Args:
          num_keep_alive_refs: Number of values of each column that items may refer to, at least 1.
          validate_items: Whether to check, when an item is created, that it fits the signature of its table. The
            writer then asks the server for the signatures and waits for them. Tables accept unchecked items, but
            reading a misfit by the table's signature raises an error.
          get_signature_timeout_ms: Time limit in milliseconds for fetching the signatures. A negative number, the
            default, means no limit. None means `validate_items=False`. (Programs written for dm-reverb before 0.8 pass
            this argument.)
          options: Options of the writer, for all that is not given by name; None means their defaults.
          **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

        Raises:
          ValueError: A number is out of range.
          TypeError: A number is not an integer.
          UnavailableError: The server cannot be reached, and `validate_items` is set.
          DeadlineExceededError: The server did not send the signatures within the timeout.
        """
        from reverb.trajectory_writer import TrajectoryWriter, check_chunk_length, check_keep_alive

        check_keep_alive(num_keep_alive_refs)
        options = WriterOptions.of("Client.trajectory_writer", options, writer_options)
        check_chunk_length(options.max_chunk_length, num_keep_alive_refs)
        is_validated = validate_items and get_signature_timeout_ms is not None
        timeout_s = checks.as_int("get_signature_timeout_ms", get_signature_timeout_ms) / 1000 if is_validated else -1.0
        look_up = functools.partial(self._signatures, timeout_s) if is_validated else None
        return TrajectoryWriter(self.engine, num_keep_alive_refs, options, signatures=look_up)

    @shows_writer_options
    def structured_writer(
        self,
        configs: Sequence[Any],
        *,
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> StructuredWriter:
        """Creates a writer that makes items from patterns; see `reverb.structured_writer`. Does not contact the server.

        Args:
          configs: Configs (`reverb.structured.Config`) of the items to create, at least one.
          options: Options of the writer, for all that is not given by name; None means their defaults.
          **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

        Raises:
          ValueError: There is no config, or a config is invalid. The message says which one, and why.
        """
        from reverb.structured_writer import StructuredWriter

        options = WriterOptions.of("Client.structured_writer", options, writer_options)
        return StructuredWriter(self.engine, configs, options)

    @shows_writer_options
    def batched_writer(
        self,
        num_envs: int,
        num_keep_alive_refs: int = 1,
        *,
        configs: Sequence[Any] = (),
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> BatchedWriter:
        """Creates a writer for a vector of environments; see `reverb.batched_writer`. Does not contact the server.

        Args:
          num_envs: Number of environments in the vector, at least 1.
          num_keep_alive_refs: Number of steps of each environment that items may refer to, at least 1.
          configs: Configs of the items to create, evaluated separately for each environment. Without configs, the
            default, items are created with `create_items`.
          options: Options of the writer, for all that is not given by name; None means their defaults.
          **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

        Raises:
          ValueError: A number is out of range, or a config is invalid.
          TypeError: A number is not an integer.
        """
        from reverb.batched_writer import BatchedWriter
        from reverb.trajectory_writer import check_chunk_length

        keep = checks.as_count("num_keep_alive_refs", num_keep_alive_refs)
        options = WriterOptions.of("Client.batched_writer", options, writer_options)
        if not configs:
            check_chunk_length(options.max_chunk_length, keep)
        return BatchedWriter(self.engine, checks.as_count("num_envs", num_envs), keep, options, configs=configs)

    @overload
    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: Literal[True] = True,
        unpack_as_table_signature: bool = False,
        timeout: float | None = None,
        reconnect_timeout: float = 300.0,
    ) -> Iterator[list[ReplaySample[ItemInfo]]]: ...
    @overload
    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: Literal[False],
        unpack_as_table_signature: bool = False,
        timeout: float | None = None,
        reconnect_timeout: float = 300.0,
    ) -> Iterator[ReplaySample[ItemInfo]]: ...
    @overload
    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool,
        unpack_as_table_signature: bool = False,
        timeout: float | None = None,
        reconnect_timeout: float = 300.0,
    ) -> Iterator[Any]: ...
    def sample(
        self,
        table: str,
        num_samples: int = 1,
        *,
        emit_timesteps: bool = True,
        unpack_as_table_signature: bool = False,
        timeout: float | None = None,
        reconnect_timeout: float = 300.0,
    ) -> Iterator[Any]:
        """Draws items one by one. Drawing starts with the first `next`.

        If the table does not count samples (no `max_times_sampled`, and a rate limiter without a ratio), up to 64 items
        are fetched together. Their arrays are views into one buffer, which stays alive until the last view is gone.

        Args:
          table: Name of the table to draw from.
          num_samples: Number of items to draw; -1 yields nothing.
          emit_timesteps: Whether to yield each item as a list of its steps.
          unpack_as_table_signature: Whether to give the data the structure of the table's signature. If False, or if
            the table has no signature, the data is a flat list of columns.
          timeout: Time limit in seconds for all items together, counted from the first `next`; None means no limit.
          reconnect_timeout: Time in seconds to wait for a lost server in another process to return; 0 raises at once.

        Yields:
          With `emit_timesteps`, a list of ReplaySample, one per step, which share their info; their arrays are `[...]`.
          Otherwise one ReplaySample whose arrays are `[time, ...]`, or `[...]` for columns without a time axis.
          Scalars are 0-d arrays, strings are object arrays of bytes, and the fields of the info are Python numbers.

        Raises:
          ValueError: `num_samples` is 0 or below -1; the table does not exist, with `unpack_as_table_signature`; or the
            columns of an item differ in length or lack the time axis, with `emit_timesteps`.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: Not all items were drawn within the timeout.
          UnavailableError: The server cannot be reached, or did not come back within `reconnect_timeout`.
          CancelledError: The server of this process stopped. Over a network, a stop is an UnavailableError, or a
            ServerStoppedError if it was for good.
        """
        if num_samples == 0 or num_samples < -1:
            raise ValueError(f"max_samples ({num_samples}) must be -1 or >= 1")
        left = 0 if num_samples == -1 else checks.as_count("num_samples", num_samples)
        remaining, patience = countdown(timeout), as_reconnect_timeout(reconnect_timeout)
        self.engine.note_drawn(table)
        infos = None
        if left and unpack_as_table_signature and table not in self._makers:
            infos = self._infos_with(table, remaining())
        while left > 0:
            sampled, draw = self.engine.sample(table, 1, 1, min(_AHEAD, left - 1), remaining(), False, patience)
            try:
                maker = self.maker(table, sampled.signature_token, infos) if unpack_as_table_signature else flat_maker
                items = iter(_binding.ItemIterator(sampled, maker, of_steps=emit_timesteps))
                first = next(items)
                if draw is not None:
                    draw.received()
            except BaseException as error:
                if draw is None:
                    raise
                is_lost = draw.is_lost()
                draw.give_back()
                if is_lost and isinstance(error, ReverbError):
                    # The samples are back in their table, since the server was lost. The next draw waits for it.
                    continue
                raise
            left -= len(sampled)
            yield first
            yield from items

    def sample_batch(
        self, table: str, batch_size: int, timeout: float | None = None, *, squeeze_time: bool = False
    ) -> ReplaySample[BatchInfo]:
        """Draws items with replacement and stacks them.

        Never draws more items than it returns.

        Args:
          table: Name of the table to draw from.
          batch_size: Number of items to draw, at least 1.
          timeout: Time limit in seconds, after which the items drawn so far are returned; None means no limit.
          squeeze_time: Whether to drop the time axis of columns whose items all have one step.

        Returns:
          `info`, whose fields are arrays `[batch]`, and `data` in the structure of the table's signature, or as a flat
          list of columns if the table has none. Arrays are `[batch, time, ...]`, or `[batch, ...]` for columns without
          a time axis. A column whose signature leaves the number of rows open is always a `Ragged`; without a
          signature, one whose items differ in length. `batch` is `batch_size`, or less if the timeout passed.

        Raises:
          ValueError: `batch_size` is below 1.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: No item was drawn within the timeout.
          UnavailableError: The server cannot be reached, was lost or was stopped. The samples are back in their table.
          ServerStoppedError: The server in another process was stopped for good.
          CancelledError: The server of this process stopped.
        """
        # Calls the checks only if they are needed: a small batch takes only a few microseconds in total.
        size = batch_size if type(batch_size) is int and batch_size > 0 else checks.as_count("batch_size", batch_size)
        seconds = None if timeout is None else checks.as_timeout(timeout)
        deadline = None if seconds is None else time.monotonic() + seconds
        maker = self._makers.get(table)
        sampled, draw = self.engine.sample(table, size, size, 0, seconds, squeeze_time)
        try:
            if maker is None or maker.signature_token != sampled.signature_token:
                maker = self.maker(table, sampled.signature_token)
            sample = maker.sample(sampled)
            # A program that is killed before this, or meets an error, leaves the samples in the table.
            if draw is not None:
                draw.received()
            return sample
        except BaseException as error:
            if draw is None:
                raise
            is_lost = draw.is_lost()
            draw.give_back()
            if not is_lost or not isinstance(error, UnavailableError):
                raise
        # The server stops, and the samples are back in their table. The next draw learns how the server ends, or finds
        # the one that comes back.
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return self.sample_batch(table, batch_size, left, squeeze_time=squeeze_time)

    def get(
        self, table: str, keys: ArrayLike, columns: Sequence[Any] | None = None, *, timeout: float | None = None
    ) -> tuple[ReplaySample[BatchInfo], NDArray[np.bool_]]:
        """Reads items by their keys. Nothing is drawn: no sample is counted, no limiter is asked, and no item leaves.

        Items of more than 64 MiB in all are read in several steps, between which others may change the table. A client
        of several servers asks all of them; one that is down is an error only if the others lack one of the keys.

        Args:
          table: Name of the table that holds the items.
          keys: Keys of the items, integers `[n]` of 64 bits as in `info.key`, or Python ints.
          columns: Columns to read, as keys of the table's signature, or tuples of keys as paths into it; numbers where
            the table has none. The data has these columns alone. None, the default, reads all.
          timeout: Time limit in seconds; None waits until the server answers.

        Returns:
          The items that are in the table, in the order of the keys; and bools `[n]`, which are False for keys that the
          table does not have. `info` and `data` are as from `sample_batch`, but `info.probability` is 1. If the table
          has none of the keys, `data` is None.

        Raises:
          ValueError: A column does not exist, or items differ so that they cannot be stacked.
          TypeError: A key is not an integer, or has less than 64 bits, as after `jax.device_put`.
          TableNotFoundError: The table does not exist.
          ResourceExhaustedError: An item has more than 1 GiB of data.
          UnimplementedError: The server is one of dm-reverb, or has an earlier version of this package.
          DeadlineExceededError: The server did not answer within the timeout.
        """
        remaining, wanted = countdown(timeout), as_keys(keys)
        chosen = as_columns(columns)
        known = self.chosen.known(table, chosen)
        if known is not None:
            parts = self.engine.get(table, wanted, known.numbers, remaining())
            if known.fits(parts):
                return join_parts(parts, known.maker, len(wanted))
        info = table_infos(self.engine, remaining()).get(table)
        numbers, maker = ([], flat_maker) if info is None else chosen_maker(info.signature, chosen)
        if chosen is not None:
            # Without an info this raises that there is no such table.
            parts = self.engine.get(table, wanted, numbers, remaining())
        if parts:
            self.chosen.keep(table, chosen, Chosen(parts[0][1].signature_token, numbers, maker))
        return join_parts(parts, maker, len(wanted))

    def wait_newer(
        self,
        table: str,
        after: int | None = None,
        *,
        timeout: float | None = None,
        reconnect_timeout: float = 300.0,
    ) -> ReplaySample[ItemInfo]:
        """Waits until the newest item of a table is another one than a program has seen, such as newer parameters.

            parameters = client.wait_newer("parameters")
            while True:
                act(parameters.data)
                parameters = client.wait_newer("parameters", after=parameters.info.key)

        Newer means another item, by its key: one from a restored checkpoint, or inserted after a reset, ends the wait
        whatever it contains. The call waits in the server. It is not a draw: no sample is counted, no limiter is asked,
        and no item leaves. An item that is replaced before the call looks is never seen.

        Args:
          table: Name of the table, mostly one of one item. It needs a Fifo or Lifo selector, to know its newest item.
          after: Key of the item that was seen, `info.key`; None, the default, returns any item, once there is one.
          timeout: Time limit in seconds; None waits without a limit.
          reconnect_timeout: Time in seconds to wait for a lost server in another process to return; 0 raises at once.

        Returns:
          The newest item. The fields of `info` are Python numbers, and `probability` is 1. `data` has the structure of
          the table's signature, or is a flat list of columns if the table has none. Arrays are `[time, ...]`, or
          `[...]` if the item has one step, as those of `insert`.

        Raises:
          ValueError: The table does not know its newest item, or the client has several servers.
          TypeError: `after` is not an integer in [0, 2**64), or has less than 64 bits.
          TableNotFoundError: The table does not exist.
          ResourceExhaustedError: The item has more than 1 GiB of data.
          DeadlineExceededError: There was no other item within the timeout.
          UnavailableError: The server cannot be reached, or did not come back within `reconnect_timeout`.
          ServerStoppedError: The server in another process was stopped for good.
          CancelledError: The server of this process stopped.
          UnimplementedError: The server is one of dm-reverb, or has an earlier version of this package.
        """
        key = None if after is None else checks.as_key(after)
        remaining, patience = countdown(timeout), as_reconnect_timeout(reconnect_timeout)
        losses = Losses(remaining, patience, lambda: self.engine.is_remote)
        newer = persistently(lambda: self.engine.newer(table, key, remaining()), self.engine.table_statuses, losses)
        token = newer.signature_token
        known = self.chosen.known(table, None)
        if known is None or known.token != token:
            info = table_infos(self.engine, LOOK_UP_SECONDS).get(table) if token else None
            known = Chosen(token, *chosen_maker(None if info is None else info.signature, None))
            self.chosen.keep(table, None, known)
        item: ReplaySample[ItemInfo] = next(_binding.ItemIterator(newer, known.maker, of_steps=False))
        return item

    def delete(self, table: str, keys: ArrayLike, *, timeout: float | None = None) -> int | None:
        """Deletes items by their keys. Keys that are not in the table are ignored; see `mutate_priorities`.

        Args:
          table: Name of the table that holds the items.
          keys: Keys of the items, integers `[n]` of 64 bits as in `info.key`, or Python ints.
          timeout: Time limit in seconds; None waits until the server answers.

        Returns:
          How many items were deleted. None if a server of dm-reverb, or of an earlier version, does not say.

        Raises:
          TypeError: A key is not an integer, or has less than 64 bits, as after `jax.device_put`.
          ValueError: A key is negative.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: The server did not answer within the timeout.
        """
        return self.engine.mutate_priorities(table, [], as_keys(keys).tolist(), checks.as_timeout(timeout))

    def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Iterable[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> int | None:
        """Deletes items, then changes priorities. Keys that are not in the table are ignored.

        All priorities are checked before anything is changed. Of more than 16384 changes, other callers may see a part
        until the call returns. An item that has left with its last sample, which is still on its way, comes back with
        its new priority if that sample goes back, and after a delete it does not come back.

        Args:
          table: Name of the table that holds the items.
          updates: Mapping from item keys to new priorities; None changes none.
          deletes: Keys of the items to delete; None deletes none.
          timeout: Time limit in seconds; None waits until the server answers.

        Returns:
          How many deletes and updates found their item. None if a server of an earlier version does not say.

        Raises:
          TypeError: `updates` is not a mapping, a key is not an integer in [0, 2**64) or has less than 64 bits, or a
            priority is not a number.
          InvalidPriorityError: The table's selectors do not accept a priority. The table is unchanged.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: The server did not answer within the timeout.
        """
        changes = as_updates(updates), as_deletes(deletes)
        return self.engine.mutate_priorities(table, *changes, checks.as_timeout(timeout))

    def update_priorities(
        self, table: str, keys: ArrayLike, priorities: ArrayLike, *, timeout: float | None = None
    ) -> int | None:
        """Changes the priorities of many items. Keys that are not in the table are ignored.

        All priorities are checked before the first is changed. Of more than 16384 changes, other callers may see a part
        until the call returns.

        Args:
          table: Name of the table that holds the items.
          keys: Keys of the items, integers `[n]` of 64 bits as in `info.key`, or Python ints.
          priorities: New priorities, an array `[n]` or one number for all items.
          timeout: Time limit in seconds; None waits until the server answers.

        Returns:
          How many of the keys are in the table, each counted as often as it is given. None if a server of an earlier
          version does not say.

        Raises:
          TypeError: A key is not an integer, or has less than 64 bits, as after `jax.device_put`.
          ValueError: A key is negative, or the numbers of keys and priorities differ.
          InvalidPriorityError: The table's selectors do not accept a priority. The table is unchanged.
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: The server did not answer within the timeout.
        """
        return self.engine.update_priorities(table, *as_arrays(keys, priorities), checks.as_timeout(timeout))

    def configure_table(
        self,
        name: str,
        *,
        max_size: int | None = None,
        max_bytes: float | None = None,
        max_times_sampled: int | None = None,
        rate_limiter: RateLimiter | None = None,
        timeout: float | None = None,
    ) -> None:
        """Changes options of a table while it is in use. All options are checked before one is changed.

        Waiting inserts and samples proceed at once if the new options allow it. Before the call returns, items leave
        that no longer fit: the remover chooses them until the table is within `max_size` and `max_bytes`, and those go
        that were sampled `max_times_sampled` times. An item whose samples have not reached their callers comes back if
        enough of them go back to the table. The next checkpoint has the new options. A server that loads it
        uses them unless its checkpointer has `override_definitions=True`. Where the checkpoint has no `max_bytes`, that
        of the server's table counts.

        Args:
          name: Name of the table.
          max_size: New maximum number of items, at least 1; None keeps it. The rate limiter of a queue or stack has a
            size of its own: pass `rate_limiter=reverb.rate_limiters.Queue(max_size)` as well.
          max_bytes: New maximum size of the items in bytes, at least 1; `float("inf")` removes the limit, and None
            keeps it.
          max_times_sampled: New number of samples after which an item is removed, 0 or less for no limit; None keeps
            it.
          rate_limiter: New limiter, which decides by the numbers of inserts and samples that the table has counted so
            far; None keeps the limiter. Only its numbers are taken, so it may be used again.
          timeout: Time limit in seconds; None waits until the server answers.

        Raises:
          ValueError: Nothing is to change, a number is below 1, or `max_size` is below the rate limiter's
            `min_size_to_sample`. The table is unchanged.
          TypeError: An argument has the wrong type, or does not fit into 32 bits.
          TableNotFoundError: The table does not exist.
          UnimplementedError: The server is one of dm-reverb, or has an earlier version of this package.
          DeadlineExceededError: The server did not answer within the timeout.
        """
        if rate_limiter is not None and not isinstance(rate_limiter, RateLimiter):
            raise TypeError(
                f"`rate_limiter` must be one of reverb.rate_limiters, got {rate_limiter!r} "
                f"({type(rate_limiter).__name__})."
            )
        limiter = None if rate_limiter is None else rate_limiter.internal_limiter
        changes = table_arguments.as_changes(max_size, max_bytes, max_times_sampled)
        if limiter is None and changes == (None, None, None):
            raise ValueError(
                f"Nothing of table `{name}` is to change: give `max_size`, `max_bytes`, `max_times_sampled` or "
                "`rate_limiter`."
            )
        self.engine.configure_table(name, *changes, limiter, checks.as_timeout(timeout))

    def reset(self, table: str, *, timeout: float | None = None) -> None:
        """Removes all items of a table and resets its counters, including those of its rate limiter.

        Args:
          table: Name of the table to reset.
          timeout: Time limit in seconds; None waits until the server answers.

        Raises:
          TableNotFoundError: The table does not exist.
          DeadlineExceededError: The server did not answer within the timeout.
        """
        self.engine.reset(table, checks.as_timeout(timeout))

    def checkpoint(self, *, timeout: float | None = None) -> str:
        """Saves a consistent snapshot of all tables of the server. Inserts and samples continue during the save.

        Args:
          timeout: Time limit in seconds; None waits until the checkpoint is on the server's disk. The server continues
            to save after the timeout.

        Returns:
          The folder of the checkpoint, an absolute path on the server's machine. Of several servers, one path a line.

        Raises:
          StorageError: The server could not write the checkpoint. Earlier checkpoints are unchanged.
          DeadlineExceededError: The checkpoint was not saved within the timeout.
        """
        return self.engine.checkpoint(checks.as_timeout(timeout))

    def server_info(self, timeout: float | None = None) -> dict[str, TableInfo]:
        """Describes all tables of the server. Waits until the server can be reached.

        Args:
          timeout: Time limit in seconds; None, 0 and negative numbers mean no limit.

        Returns:
          A mapping from table names to their infos: options, counts, bytes, what waits at the table, what the writers
            of this process have not confirmed, and the log of a durable server. See `reverb.reverb_types.TableInfo`.

        Raises:
          DeadlineExceededError: The server did not answer within the timeout. If none could be reached, says why.
        """
        limit = None if timeout is None or timeout <= 0 else checks.as_timeout(timeout)
        try:
            infos = table_infos(self.engine, limit)
        except DeadlineExceededError as error:
            text = f"ServerInfo call did not complete within provided timeout of {timeout}s"
            raise DeadlineExceededError(text if error.was_reached else f"{error}\n{text}") from None
        add_unconfirmed(infos.values(), self.endpoint.address)
        return infos

    def _signatures(self, timeout_s: float = -1.0) -> dict[str, signatures.FlatSignature | None]:
        """The signatures of all tables. Waits at most `timeout_s` seconds; without a limit if negative."""
        infos = table_infos(self.engine, None if timeout_s < 0 else timeout_s)
        return {name: signatures.flatten(info.signature) for name, info in infos.items()}

    def _infos_with(self, table: str, timeout: float | None) -> dict[str, TableInfo]:
        tables = table_infos(self.engine, timeout)
        if table not in tables:
            raise ValueError(f'Could not find table "{table}". The following tables exists: {", ".join(tables)}.')
        return tables

    def maker(
        self, table: str, signature_token: int, infos: Mapping[str, TableInfo] | None = None
    ) -> _binding.BatchMaker:
        """A maker of samples whose data have the structure of a table's signature.

        For other modules of this package. It is not part of the public interface.

        Args:
          table: Name of the table that the columns came from.
          signature_token: Token that identifies the signature, as returned with the samples; 0 if the table has no
            signature.
          infos: All tables, if they were looked up before the first draw from this one; None: looks them up.
        """
        maker = self._makers.get(table)
        if maker is None or maker.signature_token != signature_token:
            if signature_token and (infos is None or maker is not None):
                # The items are drawn already, so the deadline must not fail this call; nor may it wait forever.
                infos = table_infos(self.engine, LOOK_UP_SECONDS)
            maker = self.keep_maker(table, signature_token, infos.get(table) if signature_token and infos else None)
        return maker

    def known_maker(self, table: str, signature_token: int) -> _binding.BatchMaker | None:
        """What `maker` returns, if it need not ask the server. For other modules of this package, as `maker`.

        Args:
          table: Name of the table that the columns came from.
          signature_token: Token that identifies the signature.
        """
        maker = self._makers.get(table)
        return maker if maker is not None and maker.signature_token == signature_token else None

    def keep_maker(self, table: str, signature_token: int, info: TableInfo | None) -> _binding.BatchMaker:
        """Makes and keeps a maker of samples. For other modules of this package, as `maker`.

        Args:
          table: Name of the table that the columns came from.
          signature_token: Token that identifies the signature; 0 if the table has no signature.
          info: Info of the table; None if it has no signature.
        """
        self.engine.note_drawn(table)
        maker = self._makers[table] = sample_maker(None if info is None else info.signature, signature_token)
        return maker


def as_client(client: Client | str) -> Client:
    """The client itself, or a new one for an address.

    Raises:
      TypeError: It is neither.
    """
    if isinstance(client, Client):
        return client
    if hasattr(client, "ordinary"):
        raise TypeError(
            "client: expected a reverb.Client or an address, since its calls wait in the calling thread; got a "
            "reverb.aio.Client: pass its server_address."
        )
    if not isinstance(client, (str, Endpoint)):
        _refuse("client", "a Client or the address of a server", client)
    return Client(client)


def _refuse(name: str, expected: str, value: object) -> NoReturn:
    # A server's own text has many lines.
    if hasattr(value, "localhost_client"):
        raise TypeError(f"{name}: {expected}; server.localhost_client() makes the client of a Server.")
    checks.refuse(name, expected, value)
