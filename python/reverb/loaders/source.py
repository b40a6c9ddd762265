"""The source of batches that all loaders share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reverb import aio
from reverb._binding import LocalDraws, StatsClock
from reverb._receipts import SETTLE_SECONDS
from reverb.aio.waits import result
from reverb.client import Client, as_client
from reverb.data.arrays import as_array
from reverb.loaders.assembly import Assembly, Part
from reverb.loaders.batch import Batch
from reverb.loaders.conversion import Conversion
from reverb.loaders.draws import Draws
from reverb.loaders.mixture import Shares
from reverb.loaders.options import Options
from reverb.loaders.stats import LoaderStats
from reverb.loaders.steps import IN_EVENT_LOOP, IN_THREAD, in_event_loop, in_thread


class Fetched:
    """A batch that has arrived, but whose samples are still undelivered.

    Attributes:
      batch: The batch that the source's conversion made.
      samples: The number of items.
      draws: The draws that gave the items.
      shares: The number of each table and of its items.
    """

    __slots__ = ("batch", "draws", "samples", "shares")

    def __init__(self, batch: Any, parts: list[Part]) -> None:
        self.batch = batch
        self.samples = _samples(parts)
        self.draws = [part.draw for part in parts]
        self.shares = _shares(parts)

    def is_lost(self) -> bool:
        """Whether the samples went back to their tables, so that the learner must not have the batch."""
        return self.draws[0].is_lost()

    def give_back(self) -> None:
        """Gives the samples back to their tables: the learner will not get the batch."""
        for draw in reversed(self.draws):
            draw.give_back()


class BatchSource:
    """Batches of one table or of a mixture.

    All loaders use one. `next` returns a batch whose samples are undelivered until `deliver` is called with it. When
    the source is closed, undelivered samples go back to their tables, those drawn last first. After the server went
    away, the source tries to reach it again, as a Client does.

    Args:
      client: A Client, also of `reverb.aio`, or the address of a server.
      table: The table's name; or, for a mixture, weights by name.
      options: The options of the loader.
      conversion: The conversion of NumPy's arrays to those of a framework; None: there is no conversion.
      by_caller: Whether the thread that asks for batches also reads the connection, which saves small batches two
        wake-ups. The thread must then not use `is_ready`.

    Attributes:
      local: The draws to ask for a batch before `take` is called. They give one only if the server is in this process
        and has the batch without a wait. They begin to after the first `take`.
    """

    def __init__(
        self,
        client: Client | aio.Client | str,
        table: str | Mapping[str, float],
        options: Options,
        conversion: Conversion | None = None,
        by_caller: bool = False,
    ) -> None:
        self.client = client_of(client)
        self.options = options
        self.clock = StatsClock()
        conversion = Conversion() if conversion is None else conversion
        self._shares = Shares(table, options.shares, options.seed)
        self._assembly = Assembly(self.client, self._shares.tables, options, conversion)
        self.local = LocalDraws(
            client=self.client.engine,
            table=self.tables[0],
            batch_size=options.batch_size,
            squeeze_time=options.squeeze_time,
            takes_all=conversion.takes_all,
            clock=self.clock,
        )
        self._draws = Draws(self.client, self._shares, options, self.clock, by_caller)
        self._fetched: list[Fetched] = []
        # The batch that the learner works on, with `receipt="next"`.
        self._held: Fetched | None = None
        self._lock = threading.RLock()
        # What the lock is for threads. Tasks hold it while they wait.
        self._turn = asyncio.Lock()

    @property
    def tables(self) -> list[str]:
        """The names of the tables, indexed by the numbers in `Batch.table`."""
        return self._shares.tables

    def stats(self) -> LoaderStats:
        """Counts and times of the batches so far, and the number of samples that are undelivered now."""
        # A thread that waits for a batch holds the lock. This must work meanwhile, so it does not take the lock.
        stats = LoaderStats(*self.clock.stats())
        stats.undelivered = self._draws.samples + sum(fetched.samples for fetched in tuple(self._fetched))
        return stats

    def next(self) -> Fetched | None:
        """The next batch, undelivered; None at the end of the data.

        Raises:
          DeadlineExceededError: The timeout passed without any item, and `on_timeout` is `raise`.
          UnavailableError: The server cannot be reached.
          ReverbError: The draw failed.
        """
        with self._lock:
            parts = self._next_parts()
            if parts is None:
                return None
            # The next batch is on its way while this one is put together.
            in_thread(self._draws.begin_next(IN_THREAD))
            fetched = Fetched(self._assemble(parts), parts)
            self._fetched.append(fetched)
            return fetched

    def take(self) -> Any:
        """The next batch, delivered; None at the end of the data. Raises the errors of `next`.

        The receipt leaves with the request that the following call makes, because a learner that is killed before it
        has the batch must not take the samples with it.
        """
        if self.options.receipt == "next":
            self.receive_held()
            while (fetched := self.next()) is not None and not self.hand_over(fetched):
                pass
            return None if fetched is None else fetched.batch
        with self._lock:
            self._draws.go_on(*self.local.close())
            while True:
                parts = self._next_parts()
                if parts is None:
                    return None
                batch = self._assemble(parts)
                try:
                    self._draw_locally(parts)
                    in_thread(self._draws.begin_next(IN_THREAD))
                    if self._draws.receive([part.draw for part in parts]):
                        self.clock.given(_samples(parts))
                        return batch
                except BaseException:
                    self._refuse(parts)
                    raise
                self._draws.forget(_shares(parts))

    async def take_in_event_loop(self) -> Any:
        """The next batch, as `take` returns it. If it is cancelled, the samples of the batch go back to their tables.

        Tasks take turns. Nothing else is awaited between the receipt and the return.
        """
        async with self._turn:
            try:
                return await self._take_in_turn()
            finally:
                if self._draws.closed:
                    # What was begun since then, too, goes back.
                    self._give_up()

    async def _take_in_turn(self) -> Any:
        self._draws.leave_to_event_loop()
        if self.options.receipt == "next":
            self.receive_held()
        while True:
            self._leave_to_parent()
            parts = await in_event_loop(self._draws.next(IN_EVENT_LOOP))
            if parts is None:
                return None
            try:
                await self._assembly.look_up(parts)
                await in_event_loop(self._draws.begin_next(IN_EVENT_LOOP))
            except BaseException:
                self._refuse(parts)
                raise
            fetched = Fetched(self._assemble(parts), parts)
            self._fetched.append(fetched)
            if self.hand_over(fetched):
                return fetched.batch

    def is_ready(self) -> bool:
        """Whether `next` would return at once."""
        with self._lock:
            return self._draws.is_ready()

    def hand_over(self, fetched: Fetched) -> bool:
        """Marks a batch as delivered just before the learner gets it, or lets the option `receipt` delay that.

        Returns:
          Whether the learner may have the batch. False if its samples went back to their tables.
        """
        try:
            if self.options.receipt != "next":
                return self.deliver(fetched)
            if fetched.is_lost():
                self.refuse(fetched)
                return False
            self._held = fetched
            return True
        except BaseException:
            self.refuse(fetched)
            raise

    def receive_held(self) -> None:
        """Marks the batch as delivered that the learner has got last, if the option `receipt` has delayed that."""
        self._leave_to_parent()
        held, self._held = self._held, None
        if held is not None:
            self.deliver(held)

    def deliver(self, fetched: Fetched, waits: bool = False) -> bool:
        """Marks a batch as delivered; False if its samples went back to their tables. See `Draws.receive`."""
        delivered = self._draws.receive(fetched.draws, waits)
        with self._lock:
            self._forget(fetched)
            if delivered:
                self.clock.given(fetched.samples)
            else:
                self._draws.forget(fetched.shares)
        return delivered

    def refuse(self, fetched: Fetched) -> None:
        """Gives a batch back to its tables, which nobody has got."""
        fetched.give_back()
        with self._lock:
            self._forget(fetched)
            self._draws.forget(fetched.shares)

    def update_priorities(self, batch: Batch, priorities: ArrayLike, *, timeout: float | None = None) -> int | None:
        """Sets new priorities of a batch's items, in the tables from which they were drawn.

        Args:
          batch: A batch of this source.
          priorities: An array `[batch]`, or one number for all items.
          timeout: The number of seconds that the call may take; None: it waits until the server answers.

        Returns:
          How many of the items are still in their tables; None if a server of an earlier version does not say.

        Raises:
          TypeError, ValueError, ReverbError: See `Client.update_priorities`.
        """
        try:
            keys, tables = batch.info.key, batch.table
        except AttributeError:
            raise TypeError(
                f"batch: expected the Batch from this loader, got {_kind(batch)}; keys alone: client.update_priorities"
            ) from None
        if tables is None:
            return self.client.update_priorities(self.tables[0], keys, priorities, timeout=timeout)
        found: int | None = 0
        values = np.broadcast_to(as_array(priorities, np.float64), keys.shape)
        for number in np.unique(tables):
            of_table = tables == number
            of_keys, of_values = keys[of_table], values[of_table]
            changed = self.client.update_priorities(self.tables[number], of_keys, of_values, timeout=timeout)
            found = None if found is None or changed is None else found + changed
        return found

    def close(self) -> None:
        """Gives back all undelivered samples. After that, the data have ended for `next`."""
        self._draws.closed = True
        self._give_up()
        self.client.engine.settle(SETTLE_SECONDS)

    async def close_in_event_loop(self) -> None:
        """Closes the source as `close` does. A task that waits for a batch ends first."""
        self._draws.closed = True
        async with self._turn:
            self._give_up()
        await result(self.client.calls.settle(SETTLE_SECONDS))

    def _give_up(self) -> None:
        with self._lock:
            self.receive_held()
            self.local.close()
            for fetched in reversed(self._fetched):
                fetched.give_back()
            self._fetched.clear()
            self._draws.give_up()

    def __enter__(self) -> BatchSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget(self, fetched: Fetched) -> None:
        try:
            self._fetched.remove(fetched)
        except ValueError:
            # The batch was given back when the source was closed.
            pass

    def _leave_to_parent(self) -> None:
        if self._draws.leave_to_parent():
            self._fetched.clear()
            self._held = None

    def _next_parts(self) -> list[Part] | None:
        self._leave_to_parent()
        return in_thread(self._draws.next(IN_THREAD))

    def _assemble(self, parts: list[Part]) -> Any:
        """Makes a batch. If that fails, its samples go back to their tables."""
        try:
            batch = self._assembly.batch(parts, self.clock.batches + len(self._fetched))
        except BaseException:
            self._refuse(parts)
            raise
        self.clock.converted()
        return batch

    def _refuse(self, parts: list[Part]) -> None:
        for part in reversed(parts):
            part.draw.give_back()
        self._draws.forget(_shares(parts))

    def _draw_locally(self, parts: list[Part]) -> None:
        """Lets batches like this one be drawn without Python, if they can be."""
        if self._draws.are_ahead() or (maker := self._assembly.plain_maker(parts)) is None:
            return
        options = self.options
        left = None if options.num_batches is None else options.num_batches - self._draws.begun
        self.local.open(maker, beta=None if options.beta is None else options.beta_of, left=left)


def client_of(client: Client | aio.Client | str) -> Client:
    """The client with whose connections a loader draws.

    Args:
      client: A client, also one for asyncio, or the address of a server.
    """
    return as_client(client.ordinary if isinstance(client, aio.Client) else client)


def _kind(value: object) -> str:
    return "an array" if hasattr(value, "dtype") else type(value).__name__


def _samples(parts: list[Part]) -> int:
    return len(parts[0].sampled) if len(parts) == 1 else sum(len(part.sampled) for part in parts)


def _shares(parts: list[Part]) -> list[tuple[int, int]]:
    return [(part.table, len(part.sampled)) for part in parts]
