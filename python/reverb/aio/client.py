"""The client of `reverb.aio`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import _binding
from reverb import client as ordinary
from reverb._receipts import SETTLE_SECONDS
from reverb.aio.tables import ServerTables, info_of
from reverb.aio.waits import persistent_result, result
from reverb.aio.writers import BatchedWriter, StructuredWriter, TrajectoryWriter
from reverb.client import LOOK_UP_SECONDS
from reverb.data import checks
from reverb.data.batch_dims import as_rows
from reverb.data.chosen import Chosen, as_columns
from reverb.data.endpoint import Endpoint
from reverb.data.items import chosen_maker
from reverb.data.joining import join_parts
from reverb.data.keys import ItemPriority, as_arrays, as_deletes, as_keys, as_updates
from reverb.data.timeouts import Losses, as_reconnect_timeout, countdown
from reverb.data.tls import TLS
from reverb.errors import UnavailableError
from reverb.replay_sample import BatchInfo, ItemInfo, ReplaySample
from reverb.reverb_types import TableInfo
from reverb.trajectory_writer import check_chunk_length, check_keep_alive
from reverb.writing.options import MAX_PENDING_BYTES, WriterArguments, WriterOptions, shows_writer_options
from reverb.writing.unconfirmed import add_unconfirmed

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

# Begins an insert of data with priorities: the timeout, and the tables of the server if they were asked for.
_Insert = Callable[[Any, Mapping[str, Any], float | None, _binding.Tables | None], _binding.Call | None]


class Client:
    """A client of one server, or of several, for asyncio. The constructor contacts none, and needs no event loop.

        async with reverb.aio.Client("localhost:8000") as client:
            await client.insert({"reward": 1.0}, {"replay": 1.0})
            batch = await client.sample_batch("replay", 256)

    Arguments, results and errors of each coroutine are those of the method of `reverb.Client`. The calls run on threads
    that the package has anyway, so any number of them may wait at the same time; each gives the other tasks of the loop
    a turn. One client serves all tasks of a program, also those of several loops.

    A call that is cancelled is withdrawn. A batch goes back to its table unless the coroutine has returned it. Of an
    insert, an update or a delete that is cancelled, nobody knows whether it was done, as after a lost connection.

    Args:
      server_address: Address of the server, as for `reverb.Client`.
      max_pending_bytes: Limit in bytes on the unconfirmed items of all writers of this client; 64 MiB by default.
      tls: Files for a server with TLS, whose address begins with `grpcs://`, as for `reverb.Client`.
      token: Token for a server with tokens, as for `reverb.Client`.
      allow_insecure: Whether the token may be sent over TCP without TLS, as for `reverb.Client`.
      unix_peers: Numbers of the users whose servers are trusted at Unix sockets, as for `reverb.Client`.
      max_shared_bytes: Limit in bytes on the memory shared with a server of this host, as for `reverb.Client`.

    Attributes:
      ordinary: Client of the same connections whose calls wait. For loaders; it is not part of the public interface.

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
        self.ordinary = ordinary.Client(
            server_address,
            max_pending_bytes=max_pending_bytes,
            tls=tls,
            token=token,
            allow_insecure=allow_insecure,
            unix_peers=unix_peers,
            max_shared_bytes=max_shared_bytes,
        )
        self.ordinary.endpoint.check_for_event_loops()
        self._calls = self.ordinary.calls
        self._tables = ServerTables(self._calls)

    @property
    def server_address(self) -> str:
        """The address of the server, as passed to the constructor."""
        return self.ordinary.server_address

    @property
    def road(self) -> str:
        """The transport of the last call; see `reverb.Client.road`."""
        return self.ordinary.road

    def __repr__(self) -> str:
        return f"reverb.aio.Client, {self.ordinary.described()}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the client, as the end of an `async with` block does. A second call does nothing.

        Waits up to a second until the servers know which batches the program has, and closes the connections, also if
        that wait is cancelled. Calls of other tasks that wait are withdrawn and raise CancelledError, as later calls
        do. Writers and loaders have a `close` of their own: writers that are open go on.
        """
        try:
            await result(self._calls.settle(SETTLE_SECONDS))
        finally:
            self.ordinary.engine.disconnect()

    def __reduce__(self) -> tuple[Callable[[str | Endpoint], Client], tuple[str | Endpoint]]:
        return self.ordinary.reduced(self.__class__)

    async def insert(self, data: Any, priorities: Mapping[str, ItemPriority], *, timeout: float | None = None) -> int:
        """Inserts one item of one step into one or more tables; see `reverb.Client.insert`.

        If it is cancelled, nobody knows whether the item was inserted.

        Args:
          data: Nest of arrays, or of values that numpy can convert into arrays. A `Ragged` of one item is its rows.
          priorities: Mapping from the name of each table that gets the item to the item's priority in that table: a
            number, or "max" for the largest priority that the table has seen since it was reset.
          timeout: Time limit in seconds; None waits as long as the tables' rate limiters block.

        Returns:
          The key of the item, which is the same in all of its tables.
        """
        key: int = await self._insert(self._calls.insert, data, priorities, timeout)
        return key

    async def insert_batch(
        self,
        data: Any,
        priorities: Mapping[str, ArrayLike],
        *,
        batch_dims: int | None = None,
        timeout: float | None = None,
    ) -> NDArray[np.uint64]:
        """Inserts many items of one step each in one call; see `reverb.Client.insert_batch`.

        If it is cancelled, nobody knows which of the items were inserted.

        Args:
          data: Nest of arrays `[n, ...]`, or a TensorDict. Row i of all leaves becomes item i. Rows that differ in the
            length of their first axis are given as a `Ragged` of n items or, where the signature has one array of open
            length, as a list of n arrays.
          priorities: Mapping from the name of each table that gets the items to one priority for all items, to an
            array `[n]` of priorities, or to "max" for the largest that the table has seen since it was reset.
          batch_dims: Number of leading axes that count items; None means one. A TensorDict that has several batch
            dimensions needs it.
          timeout: Time limit in seconds; None waits as long as the tables' rate limiters block.

        Returns:
          The keys of the items, uint64 `[n]`. An item has the same key in all of its tables.
        """
        data = as_rows(data, batch_dims)
        keys: NDArray[np.uint64] = await self._insert(self._calls.insert_batch, data, priorities, timeout)
        return keys

    async def _insert(self, begin: _Insert, data: Any, priorities: Mapping[str, Any], timeout: float | None) -> Any:
        remaining = countdown(timeout)
        call = begin(data, priorities, remaining(), None)
        if call is None:
            # The nest is new, and is compared with the signatures first.
            tables = await result(self._calls.tables(remaining()))
            call = begin(data, priorities, remaining(), tables)
            assert call is not None
        return await result(call)

    async def sample_batch(
        self, table: str, batch_size: int, timeout: float | None = None, *, squeeze_time: bool = False
    ) -> ReplaySample[BatchInfo]:
        """Draws items with replacement and stacks them; see `reverb.Client.sample_batch`.

        If it is cancelled, also after the items have arrived, they go back to their table.

        Args:
          table: Name of the table to draw from.
          batch_size: Number of items to draw, at least 1.
          timeout: Time limit in seconds, after which the items drawn so far are returned; None means no limit.
          squeeze_time: Whether to drop the time axis of columns whose items all have one step.

        Returns:
          `info`, whose fields are arrays `[batch]`, and `data`, arrays `[batch, time, ...]` in the structure of the
          table's signature, as `reverb.Client.sample_batch` returns them.
        """
        size, left = checks.as_count("batch_size", batch_size), countdown(timeout)
        sampled, draw = await result(self._calls.sample(table, size, left(), squeeze_time))
        try:
            maker = self.ordinary.known_maker(table, sampled.signature_token)
            if maker is None:
                maker = await self._new_maker(table, sampled.signature_token)
            sample = maker.sample(sampled)
            # No other task runs between this and the end of the caller's `await`.
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
        # As in the ordinary client, the next draw learns how the server ends.
        return await self.sample_batch(table, batch_size, left(), squeeze_time=squeeze_time)

    async def get(
        self, table: str, keys: ArrayLike, columns: Sequence[Any] | None = None, *, timeout: float | None = None
    ) -> tuple[ReplaySample[BatchInfo], NDArray[np.bool_]]:
        """Reads items by their keys, without a draw; see `reverb.Client.get`.

        Args:
          table: Name of the table that holds the items.
          keys: Keys of the items, integers `[n]` of 64 bits as in `info.key`, or Python ints.
          columns: Columns to read, as keys of the table's signature, or tuples of keys as paths into it; numbers where
            the table has none. None, the default, reads all.
          timeout: Time limit in seconds; None waits until the server answers.

        Returns:
          The items that are in the table, in the order of the keys; and bools `[n]`, which are False for keys that the
          table does not have. If it has none of them, `data` is None.
        """
        remaining, wanted, chosen = countdown(timeout), as_keys(keys), as_columns(columns)
        known = self.ordinary.chosen.known(table, chosen)
        if known is not None:
            parts = await result(self._calls.get(table, wanted, known.numbers, remaining()))
            if known.fits(parts):
                return join_parts(parts, known.maker, len(wanted))
        info = info_of(await self._tables.known(remaining()), table)
        numbers, maker = chosen_maker(info.signature, chosen)
        if chosen is not None:
            parts = await result(self._calls.get(table, wanted, numbers, remaining()))
        if parts:
            self.ordinary.chosen.keep(table, chosen, Chosen(parts[0][1].signature_token, numbers, maker))
        return join_parts(parts, maker, len(wanted))

    async def wait_newer(
        self,
        table: str,
        after: int | None = None,
        *,
        timeout: float | None = None,
        reconnect_timeout: float = 300.0,
    ) -> ReplaySample[ItemInfo]:
        """Waits until the newest item of a table is another one than the one seen; see `reverb.Client.wait_newer`.

            parameters = await client.wait_newer("parameters")
            while True:
                await act(parameters.data)
                parameters = await client.wait_newer("parameters", after=parameters.info.key)

        It is not a draw, so nothing goes back if it is cancelled: the next call returns the same item.

        Args:
          table: Name of the table, mostly one of one item. It needs a Fifo or Lifo selector, to know its newest item.
          after: Key of the item that was seen, `info.key`; None, the default, returns any item, once there is one.
          timeout: Time limit in seconds; None waits without a limit.
          reconnect_timeout: Time in seconds to wait for a lost server in another process to return; 0 raises at once.

        Returns:
          The newest item. Arrays of `data` are `[time, ...]`, or `[...]` if the item has one step.
        """
        key = None if after is None else checks.as_key(after)
        remaining, patience = countdown(timeout), as_reconnect_timeout(reconnect_timeout)
        losses = Losses(remaining, patience, lambda: self.ordinary.engine.is_remote)
        newer = await persistent_result(lambda: self._calls.newer(table, key, remaining()), self._calls.tables, losses)
        token = newer.signature_token
        known = self.ordinary.chosen.known(table, None)
        if known is None or known.token != token:
            info = info_of(await self._tables.known(LOOK_UP_SECONDS), table) if token else None
            known = Chosen(token, *chosen_maker(None if info is None else info.signature, None))
            self.ordinary.chosen.keep(table, None, known)
        item: ReplaySample[ItemInfo] = next(_binding.ItemIterator(newer, known.maker, of_steps=False))
        return item

    async def delete(self, table: str, keys: ArrayLike, *, timeout: float | None = None) -> int | None:
        """Deletes items by their keys; see `reverb.Client.delete`.

        If it is cancelled, nobody knows whether it was done.

        Args:
          table: Name of the table that holds the items.
          keys: Keys of the items, integers `[n]` of 64 bits as in `info.key`, or Python ints.
          timeout: Time limit in seconds; None waits until the server answers.

        Returns:
          How many items were deleted. None if a server of dm-reverb, or of an earlier version, does not say.
        """
        call = self._calls.mutate_priorities(table, [], as_keys(keys).tolist(), checks.as_timeout(timeout))
        deleted: int | None = await result(call)
        return deleted

    async def mutate_priorities(
        self,
        table: str,
        updates: Mapping[int, float] | None = None,
        deletes: Iterable[int] | None = None,
        *,
        timeout: float | None = None,
    ) -> int | None:
        """Deletes items, then changes priorities; see `reverb.Client.mutate_priorities`.

        If it is cancelled, nobody knows whether it was done.

        Args:
          table: Name of the table that holds the items.
          updates: Mapping from item keys to new priorities; None changes none.
          deletes: Keys of the items to delete; None deletes none.
          timeout: Time limit in seconds; None waits until the server answers.

        Returns:
          How many deletes and updates found their item. None if a server of an earlier version does not say.
        """
        changes = as_updates(updates), as_deletes(deletes)
        changed: int | None = await result(self._calls.mutate_priorities(table, *changes, checks.as_timeout(timeout)))
        return changed

    async def update_priorities(
        self, table: str, keys: ArrayLike, priorities: ArrayLike, *, timeout: float | None = None
    ) -> int | None:
        """Changes the priorities of many items; see `reverb.Client.update_priorities`.

        If it is cancelled, nobody knows whether it was done.

        Args:
          table: Name of the table that holds the items.
          keys: Keys of the items, integers `[n]` of 64 bits as in `info.key`, or Python ints.
          priorities: New priorities, an array `[n]` or one number for all items.
          timeout: Time limit in seconds; None waits until the server answers.

        Returns:
          How many of the keys are in the table, each counted as often as it is given. None if a server of an earlier
          version does not say.
        """
        call = self._calls.update_priorities(table, *as_arrays(keys, priorities), checks.as_timeout(timeout))
        changed: int | None = await result(call)
        return changed

    async def server_info(self, timeout: float | None = None) -> dict[str, TableInfo]:
        """Describes all tables of the server; see `reverb.Client.server_info`.

        Args:
          timeout: Time limit in seconds; None, 0 and negative numbers mean no limit.

        Returns:
          A mapping from table names to their infos. See `reverb.reverb_types.TableInfo`.

        Raises:
          DeadlineExceededError: The server did not answer within the timeout.
        """
        limit = None if timeout is None or timeout <= 0 else checks.as_timeout(timeout)
        # A question that another task has asked before could miss what this one has done meanwhile.
        tables: _binding.Tables = await result(self._calls.tables(limit))
        infos = {}
        for name in tables.names():
            infos[name] = info_of(tables, name)
            await asyncio.sleep(0)
        add_unconfirmed(infos.values(), self.server_address)
        return infos

    async def _new_maker(self, table: str, signature_token: int) -> _binding.BatchMaker:
        """Makes what makes samples of a table, in a step of its own unless another task has done it meanwhile."""
        if not signature_token:
            return self.ordinary.keep_maker(table, 0, None)
        tables = await self._tables.known(LOOK_UP_SECONDS)
        maker = self.ordinary.known_maker(table, signature_token)
        if maker is None:
            maker = self.ordinary.keep_maker(table, signature_token, info_of(tables, table))
            await asyncio.sleep(0)
        return maker

    @shows_writer_options
    def trajectory_writer(
        self,
        num_keep_alive_refs: int,
        *,
        validate_items: bool = True,
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> TrajectoryWriter:
        """Creates a writer whose items may refer to any of the last values of each column. Does not contact the server.

        Args:
          num_keep_alive_refs: Number of values of each column that items may refer to, at least 1.
          validate_items: Whether to check, when an item is created, that it fits the signature of its table. The first
            item then asks the server for the signatures.
          options: Options of the writer, for all that is not given by name; None means their defaults.
          **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

        Raises:
          ValueError: A number is out of range.
          TypeError: A number is not an integer.
        """
        check_keep_alive(num_keep_alive_refs)
        options = WriterOptions.of("Client.trajectory_writer", options, writer_options)
        check_chunk_length(options.max_chunk_length, num_keep_alive_refs)
        engine, tables = self.ordinary.engine, self._tables
        return TrajectoryWriter(engine, tables, num_keep_alive_refs, options, is_validated=validate_items)

    @shows_writer_options
    def structured_writer(
        self,
        configs: Sequence[Any],
        *,
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> StructuredWriter:
        """Creates a writer that makes items from patterns; see `reverb.structured`. Does not contact the server.

        Args:
          configs: Configs (`reverb.structured.Config`) of the items to create, at least one.
          options: Options of the writer, for all that is not given by name; None means their defaults.
          **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

        Raises:
          ValueError: There is no config, or a config is invalid. The message says which one, and why.
        """
        options = WriterOptions.of("Client.structured_writer", options, writer_options)
        return StructuredWriter(self.ordinary.engine, self._tables, configs, options)

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
        """Creates a writer for a vector of environments; see `reverb.BatchedWriter`. Does not contact the server.

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
        keep = checks.as_count("num_keep_alive_refs", num_keep_alive_refs)
        options = WriterOptions.of("Client.batched_writer", options, writer_options)
        if not configs:
            check_chunk_length(options.max_chunk_length, keep)
        envs = checks.as_count("num_envs", num_envs)
        return BatchedWriter(self.ordinary.engine, self._tables, envs, keep, options, configs=configs)
