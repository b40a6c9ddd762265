"""Where all loaders get their batches: draws that are begun ahead, and given back if nobody takes them."""

import collections
import os
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from reverb.client import Client
from reverb.errors import CancelledError, DeadlineExceededError, UnavailableError
from reverb.loaders.assembly import Assembly, Part
from reverb.loaders.batch import Batch
from reverb.loaders.mixture import Shares
from reverb.loaders.options import Options
from reverb.loaders.stats import LoaderStats, StatsClock

if TYPE_CHECKING:
    from reverb.pybind import Draw

__all__ = ["BatchSource", "Fetched"]

# How often a wait looks whether the loader was closed meanwhile.
_PERIOD_S = 0.2
# How long a server that went away is looked for, and how often.
_PATIENCE_S = 10.0
_PAUSE_S = 0.05

# Makes a named tuple without its constructor written in Python.
_new = tuple.__new__


class Fetched:
    """A batch that has come. Its samples are still undelivered."""

    __slots__ = ("_draws", "batch")

    def __init__(self, batch: Batch, draws: "list[Draw]") -> None:
        self.batch = batch
        self._draws = draws

    @property
    def samples(self) -> int:
        """Items of the batch."""
        return len(self.batch.info.key)

    def received(self) -> None:
        """The learner has it."""
        for draw in self._draws:
            draw.received()

    def give_back(self) -> None:
        """The learner will not have it: its samples go back to their tables."""
        for draw in reversed(self._draws):
            draw.give_back()


class _Request:
    """A batch that was asked for: a draw from each table that has a share in it."""

    __slots__ = ("parts",)

    def __init__(self, parts: "list[tuple[int, int, Draw]]") -> None:
        self.parts = parts

    @property
    def samples(self) -> int:
        return sum(count for _, count, _ in self.parts)

    def give_back(self) -> None:
        for _, _, draw in reversed(self.parts):
            draw.give_back()


class BatchSource:
    """Batches of one table or of a mixture, as NumPy arrays.

    Loaders stand on it. `next` gives a batch whose samples are undelivered until `deliver` takes it; what is
    undelivered when the source is closed goes back, last drawn first. A server that went away is looked for as a
    Client does.

    Args:
      client: A Client, or the address of a server.
      table: The table's name; or, for a mixture, weights by name.
      options: What is wanted.
      leaf: From a column and its name to what is in the batch instead; None: the column.
      by_caller: As of the extension's `begin_sample`: for who only takes batches, and never asks `is_ready`.
    """

    def __init__(
        self,
        client: Client | str,
        table: str | Mapping[str, float],
        options: Options,
        leaf: Callable[[Any, str], Any] | None = None,
        by_caller: bool = False,
    ) -> None:
        self.client = Client(client) if isinstance(client, str) else client
        self.options = options
        self._by_caller = by_caller
        self.clock = StatsClock()
        self._shares = Shares(table, options.seed)
        self._assembly = Assembly(self.client, self._shares.tables, options, leaf)
        self._requests: collections.deque[_Request] = collections.deque()
        self._fetched: list[Fetched] = []
        self._begun = 0
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.RLock()

    @property
    def tables(self) -> list[str]:
        """The names to which the numbers in `Batch.table` belong."""
        return self._shares.tables

    def stats(self) -> LoaderStats:
        """What was given so far, where the time went, and how much is undelivered now."""
        # Without the lock, which a thread that waits for a batch holds: this is asked when things wait.
        requested = sum(request.samples for request in tuple(self._requests))
        stats = LoaderStats(**vars(self.clock.stats))
        stats.undelivered = requested + sum(fetched.samples for fetched in tuple(self._fetched))
        return stats

    def next(self) -> Fetched | None:
        """The next batch, undelivered; None at the end of the data.

        Raises:
          DeadlineExceededError: The timeout passed without any item, and is no end of the data.
          UnavailableError: The server cannot be reached.
          ReverbError: The draw failed.
        """
        with self._lock:
            parts = self._next_parts()
            if parts is None:
                return None
            # The next one is on its way while this one is put together.
            self._begin_next()
            fetched = Fetched(self._assemble(parts), [part.draw for part in parts])
            self._fetched.append(fetched)
            return fetched

    def take(self) -> Batch | None:
        """The next batch, delivered; None at the end of the data. Raises as `next`.

        That this batch is received and what is asked for next travel together, which saves a server and the background
        threads of this process half of their wake-ups.
        """
        with self._lock:
            parts = self._next_parts()
            if parts is None:
                return None
            batch = self._assemble(parts)
            for part in parts:
                part.draw.received()
            self.clock.given(len(batch.info.key))
            self._begin_next()
            return batch

    def is_ready(self) -> bool:
        """Whether `next` would not wait."""
        with self._lock:
            self._begin_ahead(self.options.prefetch)
            return bool(self._requests) and all(draw.is_ready() for _, _, draw in self._requests[0].parts)

    def deliver(self, fetched: Fetched) -> Batch:
        """The learner takes a batch."""
        fetched.received()
        with self._lock:
            self._forget(fetched)
            self.clock.given(fetched.samples)
        return fetched.batch

    def refuse(self, fetched: Fetched) -> None:
        """The learner cannot have a batch: it goes back."""
        fetched.give_back()
        with self._lock:
            self._forget(fetched)

    def update_priorities(self, batch: Batch, priorities: ArrayLike, *, timeout: float | None = None) -> None:
        """Sets new priorities of a batch's items, in the tables from which they came.

        Args:
          batch: From this source.
          priorities: `[batch]`, or one for all.
          timeout: Seconds; None: until the server answers.

        Raises:
          As `Client.update_priorities`.
        """
        keys = batch.info.key
        if batch.table is None:
            self.client.update_priorities(self.tables[0], keys, priorities, timeout=timeout)
            return
        values = np.broadcast_to(np.asarray(priorities, np.float64), keys.shape)
        for number in np.unique(batch.table):
            of_table = batch.table == number
            self.client.update_priorities(self.tables[number], keys[of_table], values[of_table], timeout=timeout)

    def close(self) -> None:
        """Gives back all that is undelivered. Later calls of `next` find the end of the data."""
        self._closed = True
        with self._lock:
            if self._pid != os.getpid():
                self._forget_parent()
            for fetched in reversed(self._fetched):
                fetched.give_back()
            self._fetched.clear()
            self._give_up()

    def __enter__(self) -> "BatchSource":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget(self, fetched: Fetched) -> None:
        try:
            self._fetched.remove(fetched)
        except ValueError:
            # It was given back when the source was closed.
            pass

    def _next_parts(self) -> list[Part] | None:
        """What the next batch is made of; None at the end of the data. A server that went away is looked for."""
        if self._pid != os.getpid():
            self._forget_parent()
        self.clock.asked()
        timeout = self.options.timeout
        limit = None if timeout is None else time.monotonic() + timeout
        give_up = None
        while True:
            try:
                return self._wait_for_parts(limit)
            except (CancelledError, UnavailableError):
                # The server has gone with all that was asked of it, maybe to come again.
                self._give_up()
                now = time.monotonic()
                give_up = now + _PATIENCE_S if give_up is None else give_up
                if now > min(give_up, give_up if limit is None else limit):
                    raise
            if self._closed:
                return None
            time.sleep(_PAUSE_S)

    def _wait_for_parts(self, limit: float | None) -> list[Part] | None:
        if self._closed:
            return None
        if not self._requests:
            self._begin_ahead(max(1, self.options.prefetch))
            if not self._requests:
                return None
        try:
            parts = self._wait(self._requests[0], limit)
        except Exception:
            self._requests.popleft().give_back()
            self._begun -= 1
            raise
        if parts is not None:
            self._requests.popleft()
            # That many were asked for.
            return parts
        parts = [] if self._closed else self._flush()
        size = sum(len(part.infos[0]) for part in parts)
        if not size or (size < self.options.batch_size and self.options.drop_remainder):
            for part in reversed(parts):
                part.draw.give_back()
            self._check_end()
            return None
        return parts

    def _assemble(self, parts: list[Part]) -> Batch:
        """A batch; one that cannot be made goes back."""
        try:
            batch = self._assembly.batch(parts, self.clock.stats.batches + len(self._fetched))
        except Exception:
            for part in reversed(parts):
                part.draw.give_back()
            raise
        self.clock.converted()
        return batch

    def _begin_next(self) -> None:
        """Begins to draw ahead. What goes wrong concerns the next batch, and is met again when that is asked for."""
        try:
            self._begin_ahead(self.options.prefetch)
        except (CancelledError, UnavailableError):
            pass

    def _check_end(self) -> None:
        """Raises, unless the data may end here."""
        if self._closed or self.options.on_timeout == "stop":
            return
        tables = ", ".join(f"`{table}`" for table in self.tables)
        few = "" if not self.options.drop_remainder else f" full batch of {self.options.batch_size}"
        raise DeadlineExceededError(
            f"no{few or ' sample'} of {tables} could be had within {self.options.timeout} s, the loader's timeout"
        )

    def _begin_ahead(self, depth: int) -> None:
        while len(self._requests) < depth and self._begun != self.options.num_batches:
            self._requests.append(self._begin(self._shares.draw(self.options.batch_size), None))
            self._begun += 1

    def _begin(self, shares: list[tuple[int, int]], timeout: float | None) -> _Request:
        begin, tables = self.client._client.begin_sample, self._shares.tables
        by_caller = self._by_caller
        parts = [
            (table, count, begin(tables[table], (count, count), timeout, False, None, by_caller))
            for table, count in shares
        ]
        return _Request(parts)

    def _wait(self, request: _Request, limit: float | None) -> list[Part] | None:
        """The parts of a request; None when the time is over or the source was closed."""
        parts: list[Part] = []
        for table, _, draw in request.parts:
            while (result := draw.result(_PERIOD_S if limit is None else _slice(limit))) is None:
                if self._closed or (limit is not None and time.monotonic() >= limit):
                    self.clock.arrived(float("inf"), 0.0)
                    # What came of other tables is given back with the request.
                    return None
            self.clock.arrived(*draw.times())
            parts.append(_new(Part, (table, result, draw)))
        return parts

    def _flush(self) -> list[Part]:
        """What the tables let go at once, when the time for a whole batch is over."""
        first = self._requests[0]
        shares = [(table, count) for table, count, _ in first.parts]
        # All that is waiting is withdrawn: what was drawn for it goes back, and is drawn again here.
        self._give_up()
        parts: list[Part] = []
        for table, _, draw in self._begin(shares, 0.0).parts:
            try:
                result = draw.result(None)
            except DeadlineExceededError:
                continue
            if result is not None:
                parts.append(Part(table, result, draw))
        self._begun += bool(parts)
        self.clock.arrived(float("inf"), 0.0)
        return parts

    def _give_up(self) -> None:
        self._begun -= len(self._requests)
        while self._requests:
            self._requests.pop().give_back()

    def _forget_parent(self) -> None:
        """In a forked child: what the parent had begun is the parent's."""
        self._pid = os.getpid()
        self._begun -= len(self._requests)
        self._requests.clear()
        self._fetched.clear()


def _slice(limit: float) -> float:
    return max(0.0, min(_PERIOD_S, limit - time.monotonic()))
