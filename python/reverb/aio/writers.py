"""The writers of `reverb.aio`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import _binding, batched_writer, trajectory_writer
from reverb.aio.tables import ServerTables, info_of
from reverb.aio.waits import result, waits
from reverb.data import checks
from reverb.data.keys import ItemPriority
from reverb.data.timeouts import countdown
from reverb.errors import CancelledError, ReverbError, TableNotFoundError
from reverb.trajectory_writer import TrajectoryColumn
from reverb.writing import closing
from reverb.writing.flushing import FlushingWriter
from reverb.writing.history import History
from reverb.writing.options import WriterOptions
from reverb.writing.patterns import writer as patterns

if TYPE_CHECKING:
    from typing_extensions import Self

W = TypeVar("W", bound=FlushingWriter)


class AsyncWriter(Generic[W]):
    """A writer of `reverb` whose waits are awaited.

    Whatever has to wait waits before it does anything, so a call that is cancelled has done nothing, and may be
    repeated. Items that are queued are sent in any case.

    Args:
      tables: The tables of the server.
      writer: The writer, which waits for nothing from now on.
    """

    def __init__(self, tables: ServerTables, writer: W) -> None:
        self._tables = tables
        self._writer = writer
        self._waits = _binding.WriterCalls(writer.sender)
        writer.pace_in_event_loop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Flushes without a time limit and closes; after an error closes as `leave` does."""
        try:
            if error is None and not self._writer.is_closed:
                await self.flush()
        finally:
            if error is None:
                await self.close()
            else:
                self.leave()

    async def flush(self, block_until_num_items: int = 0, *, timeout: float | None = None) -> None:
        """Waits until at most `block_until_num_items` items are unconfirmed. If it is cancelled, items stay queued.

        Args:
          block_until_num_items: Number of items that may stay unconfirmed, at least 0.
          timeout: Time limit in seconds; None waits as long as the tables' rate limiters block.

        Raises:
          ValueError: A number is negative, or the server rejected an earlier item, which is then dropped.
          DeadlineExceededError: Too many items were still unconfirmed at the timeout. They stay queued.
          UnavailableError: The server could not be reached within `reconnect_timeout`.
          CancelledError: The writer was closed.
        """
        self._check_open()
        but_last, seconds = self._writer.begin_flush(block_until_num_items), checks.as_timeout(timeout)
        await result(self._waits.flush(waits().wakeups, but_last, seconds))

    async def close(self) -> None:
        """Closes the writer. Waits up to 5 seconds; items that are still unconfirmed are then discarded and logged.

        If it is cancelled, the writer is closed as by `leave`. A second call does nothing.
        """
        if self._writer.is_closed:
            return
        try:
            await result(self._waits.drain(closing.CLOSE_TIMEOUT_SECONDS))
        finally:
            self.leave()

    def leave(self) -> None:
        """Closes the writer without a wait. In the background, its unconfirmed items have 5 seconds to be confirmed."""
        self._writer.leave_behind()

    async def _take_room(self, count: int, timeout: float | None) -> None:
        """Waits until there is room for items, and gives other tasks a turn in any case.

        Raises:
          DeadlineExceededError: There was no room within the timeout.
          ReverbError: The writer was closed, or has lost its server for good.
        """
        remaining = countdown(timeout)
        await asyncio.sleep(0)
        # Of several writers that were woken, others may have taken the room of the client.
        while not self._writer.has_room(count):
            await result(self._waits.take_room(waits().wakeups, count, remaining()))
        self._check_open()

    def _check_open(self) -> None:
        if self._writer.is_closed:
            raise CancelledError("this writer was closed; make another one for further items")


class TrajectoryWriter(AsyncWriter[trajectory_writer.TrajectoryWriter]):
    """Writes steps, and items that refer to them. Created by `Client.trajectory_writer`; see `reverb.TrajectoryWriter`.

        async with client.trajectory_writer(num_keep_alive_refs=3) as writer:
            for step in episode:
                await writer.append({"observation": ..., "action": ...})
                if writer.episode_steps >= 3:
                    await writer.create_item("replay", 1.0, {"observation": writer.history["observation"][-3:]})

    Only one task at a time may use a writer. A call that is cancelled has done nothing, and may be repeated.

    Args:
      client: Native client of the server.
      tables: The tables of the server.
      num_keep_alive_refs: Number of values of each column that items may refer to.
      options: Options of the writer.
      is_validated: Whether items are compared with the signatures of their tables.
    """

    def __init__(
        self,
        client: _binding.Client,
        tables: ServerTables,
        num_keep_alive_refs: int,
        options: WriterOptions,
        *,
        is_validated: bool,
    ) -> None:
        # No table is known yet: the first item for one asks for it.
        look_up = dict if is_validated else None
        super().__init__(
            tables, trajectory_writer.TrajectoryWriter(client, num_keep_alive_refs, options, signatures=look_up)
        )
        self._is_validated = is_validated

    async def append(self, data: Any, *, partial_step: bool = False) -> None:
        """Appends a step, or a part of one; see `reverb.TrajectoryWriter.append`.

        Args:
          data: Nest of arrays, or of values that numpy can convert into arrays. A leaf that is None has no value in
            this step.
          partial_step: Whether the step stays open, so that the next append adds other columns to it.
        """
        await asyncio.sleep(0)
        self._check_open()
        self._writer.append(data, partial_step=partial_step)

    async def create_item(
        self, table: str, priority: ItemPriority, trajectory: Any, *, timeout: float | None = None
    ) -> int:
        """Creates an item and queues it for its table; see `reverb.TrajectoryWriter.create_item`.

        Waits first, while as many items are unconfirmed as `max_in_flight_items` and `max_pending_bytes` allow.

        Args:
          table: Name of the table for the item.
          priority: Priority of the item, a number or "max".
          trajectory: Nest of TrajectoryColumns, which becomes the item's data.
          timeout: Time limit of that wait in seconds; None waits as long as the tables' rate limiters block.

        Returns:
          The key of the item.
        """
        remaining = countdown(timeout)
        await self._take_room(1, remaining())
        try:
            return self._writer.create_known(table, priority, trajectory)
        except TableNotFoundError as error:
            # The server may also have refused an earlier item; this one is queued then.
            if not self._is_validated or error.step_taken:
                raise
        self._writer.know_table(table, await self._tables.known())
        await self._take_room(1, remaining())
        return self._writer.create_known(table, priority, trajectory)

    @property
    def history(self) -> History[TrajectoryColumn]:
        """The columns, in the structure of the steps; see `reverb.TrajectoryWriter.history`."""
        return self._writer.history

    @property
    def episode_steps(self) -> int:
        """Number of complete steps in the episode so far."""
        return self._writer.episode_steps

    def configure(self, path: tuple[Any, ...], *, num_keep_alive_refs: int, max_chunk_length: int | None) -> None:
        """Sets how many values of one column are kept; see `reverb.TrajectoryWriter.configure`.

        Args:
          path: Path of the column as in dm-tree, such as `("a", 0)`, or `()` if a step is a single leaf.
          num_keep_alive_refs: Number of values that items may refer to, at least 1.
          max_chunk_length: Maximum number of steps in a chunk; None lets the writer choose.
        """
        self._writer.configure(path, num_keep_alive_refs=num_keep_alive_refs, max_chunk_length=max_chunk_length)

    async def end_episode(self, clear_buffers: bool = True, *, timeout: float | None = None) -> None:
        """Flushes, closes an open step, and restarts the step count at 0.

        If it is cancelled, the episode has not ended.

        Args:
          clear_buffers: Whether to drop the values kept so far.
          timeout: Time limit in seconds for the confirmations; None waits as long as the tables' rate limiters block.

        Raises:
          DeadlineExceededError: Not all items were confirmed within the timeout. They stay queued, and the episode has
            ended.
          ValueError: The server rejected an earlier item. The episode has ended (`step_taken`).
        """
        self._check_open()
        try:
            await self.flush(timeout=timeout)
        except CancelledError:
            raise
        except ReverbError as error:
            self._writer.finish_episode(clear_buffers)
            error.step_taken = True
            raise
        self._writer.finish_episode(clear_buffers)


class StructuredWriter(AsyncWriter[patterns.StructuredWriter]):
    """Writes steps, and creates the items that its configs describe. Created by `Client.structured_writer`.

    Only one task at a time may use a writer. An append that is cancelled has done nothing, and may be repeated.

    Args:
      client: Native client of the server.
      tables: The tables of the server.
      configs: Configs of the items.
      options: Options of the writer.
    """

    def __init__(
        self, client: _binding.Client, tables: ServerTables, configs: Sequence[Any], options: WriterOptions
    ) -> None:
        super().__init__(tables, patterns.StructuredWriter(client, configs, options))
        self._has_signatures = False

    async def append(self, data: Any, *, partial_step: bool = False, priority: ItemPriority | None = None) -> None:
        """Appends a step, or a part of one, and creates the items that are due, as that of `reverb.structured`.

        Waits first, until there is room for an item. The first call asks the server for the signatures.

        Args:
          data: Nest with the structure of the first step. Leaves without a value in this append are None.
          partial_step: Whether the step stays open, so that the next append adds other columns to it.
          priority: Priority of the items that this call creates, a number or "max"; None means that of their configs.
        """
        if not self._has_signatures:
            self._writer.signatures, self._has_signatures = await self._tables.known(), True
        await self._take_room(1, None)
        self._writer.append(data, partial_step=partial_step, priority=priority)

    @property
    def step_is_open(self) -> bool:
        """Whether the last append was partial."""
        return self._writer.step_is_open

    async def end_episode(
        self, clear_buffers: bool = True, *, timeout: float | None = None, priority: ItemPriority | None = None
    ) -> None:
        """Creates the items that are due at the end of an episode, restarts the step count at 0, and flushes.

        If it is cancelled while it waits for room, nothing was done; later the episode has ended, and `flush` waits for
        its items.

        Args:
          clear_buffers: Whether to drop the steps kept so far.
          timeout: Time limit in seconds for the room and the confirmations; None waits as long as the tables' rate
            limiters block.
          priority: Priority of the items that this call creates, a number or "max"; None means that of their configs.

        Raises:
          DeadlineExceededError: There was no room within the timeout, and nothing was done; or not all items were
            confirmed, and the episode has ended (`step_taken`).
          ValueError: As for `append`. If `step_taken` of the error is true, the episode has ended.
        """
        remaining = countdown(timeout)
        await self._take_room(1, remaining())
        self._writer.finish_episode(priority, clear_buffers)
        try:
            await self.flush(timeout=remaining())
        except ReverbError as error:
            error.step_taken = True
            raise


class BatchedWriter(AsyncWriter[batched_writer.BatchedWriter]):
    """Writes the steps of `num_envs` environments. Created by `Client.batched_writer`; see `reverb.BatchedWriter`.

    Only one task at a time may use a writer. A call that is cancelled has done nothing, and may be repeated.

    Args:
      client: Native client of the server.
      tables: The tables of the server.
      num_envs: Number of environments in the vector.
      num_keep_alive_refs: Number of steps of each environment that items may refer to.
      options: Options of the writer.
      configs: Configs of the items.
    """

    def __init__(
        self,
        client: _binding.Client,
        tables: ServerTables,
        num_envs: int,
        num_keep_alive_refs: int,
        options: WriterOptions,
        *,
        configs: Sequence[Any],
    ) -> None:
        writer = batched_writer.BatchedWriter(client, num_envs, num_keep_alive_refs, options, configs=configs)
        super().__init__(tables, writer)
        self._has_patterns = bool(configs)
        self._has_signatures = False

    @property
    def num_envs(self) -> int:
        """Number of environments in the vector."""
        return self._writer.num_envs

    async def append(
        self,
        data: Any,
        *,
        episode_end: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        priorities: ArrayLike | Literal["max"] | None = None,
    ) -> None:
        """Appends a step of every environment, and creates the items that the patterns describe.

        A writer with patterns waits first, until there is room for an item; its first call asks the server for the
        signatures. See `reverb.BatchedWriter.append`.

        Args:
          data: Nest of arrays `[num_envs, ...]`, one row per environment, or what `reverb.BatchedWriter` takes instead.
          episode_end: Bools `[num_envs]` that mark the environments whose episode ends with this step.
          mask: Bools `[num_envs]` that mark the environments that have a step; None marks all.
          priorities: Priorities of the items that the patterns create in this call: one number for all, an array
            `[num_envs]`, or "max"; None means those of the configs.
        """
        if not self._has_signatures:
            tables = await self._tables.known()
            self._writer.signatures, self._has_signatures = tables, True
            self._writer.table_infos = lambda: {name: info_of(tables, name) for name in tables.names()}
        await self._take_room(int(self._has_patterns), None)
        self._writer.append(data, episode_end=episode_end, mask=mask, priorities=priorities)

    @overload
    async def create_items(
        self,
        table: str,
        priorities: ArrayLike | Literal["max"],
        trajectory: Any,
        *,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
        return_keys: Literal[False] = False,
    ) -> NDArray[np.bool_]: ...
    @overload
    async def create_items(
        self,
        table: str,
        priorities: ArrayLike | Literal["max"],
        trajectory: Any,
        *,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
        return_keys: Literal[True],
    ) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]: ...
    async def create_items(
        self,
        table: str,
        priorities: ArrayLike | Literal["max"],
        trajectory: Any,
        *,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
        return_keys: bool = False,
    ) -> NDArray[np.bool_] | tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """Creates an item for every environment that has all the selected rows; see `reverb.BatchedWriter`.

        Waits first, until there is room for an item of each environment that `mask` marks.

        Args:
          table: Name of the table for the items.
          priorities: Priorities of the items: one number for all, an array `[num_envs]`, or "max".
          trajectory: Nest of BatchedColumns, which becomes the data of the items.
          mask: Bools `[num_envs]` that mark the environments to create items for; None marks all.
          timeout: Time limit of that wait in seconds; None waits as long as the tables' rate limiters block.
          return_keys: Whether to return the keys of the items, too.

        Returns:
          Bools `[num_envs]` that mark the environments that got an item. With `return_keys` also the keys of the items,
          uint64 `[num_envs]`, which are 0 for the other environments.
        """
        count = self.num_envs if mask is None else int(np.count_nonzero(mask))
        await self._take_room(count, timeout)
        made, keys = self._writer.create_items(table, priorities, trajectory, mask=mask, return_keys=True)
        return (made, keys) if return_keys else made

    @property
    def history(self) -> History[batched_writer.BatchedColumn]:
        """The columns in the structure of the steps; see `reverb.BatchedWriter.history`."""
        return self._writer.history

    @property
    def episode_steps(self) -> NDArray[np.int64]:
        """Number of steps in the current episode of each environment, int64 `[num_envs]`."""
        return self._writer.episode_steps
