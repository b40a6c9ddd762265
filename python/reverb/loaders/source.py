"""Where all loaders get their batches."""

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reverb.client import Client
from reverb.loaders.assembly import Assembly, Part
from reverb.loaders.batch import Batch
from reverb.loaders.conversion import Conversion
from reverb.loaders.draws import Draws
from reverb.loaders.here import Plan
from reverb.loaders.mixture import Shares
from reverb.loaders.options import Options
from reverb.loaders.stats import LoaderStats
from reverb.pybind import Draw, DrawsHere, StatsClock

__all__ = ["BatchSource", "Fetched"]


class Fetched:
    """A batch that has come. Its samples are still undelivered.

    Attributes:
      batch: As the source's conversion makes it.
      samples: Items of the batch.
    """

    __slots__ = ("_draws", "batch", "samples")

    def __init__(self, batch: Any, samples: int, draws: list[Draw]) -> None:
        self.batch = batch
        self.samples = samples
        self._draws = draws

    def received(self) -> None:
        """The learner has it."""
        for draw in self._draws:
            draw.received()

    def give_back(self) -> None:
        """The learner will not have it: its samples go back to their tables."""
        for draw in reversed(self._draws):
            draw.give_back()


class BatchSource:
    """Batches of one table or of a mixture.

    Loaders stand on it. `next` gives a batch whose samples are undelivered until `deliver` takes it; what is
    undelivered when the source is closed goes back, last drawn first. A server that went away is looked for as a
    Client does.

    Args:
      client: A Client, or the address of a server.
      table: The table's name; or, for a mixture, weights by name.
      options: What is wanted.
      conversion: From NumPy to another framework.
      by_caller: As of the extension's `begin_sample`: for who only takes batches, and never asks `is_ready`.

    Attributes:
      here: What batches are to be asked of before `take` is. It gives None unless the server is in this process and has
        one at once; `take` makes it ready.
    """

    def __init__(
        self,
        client: Client | str,
        table: str | Mapping[str, float],
        options: Options,
        conversion: Conversion | None = None,
        by_caller: bool = False,
    ) -> None:
        self.client = Client(client) if isinstance(client, str) else client
        self.options = options
        self.clock = StatsClock()
        self.here = DrawsHere(self.clock)
        self._conversion = Conversion() if conversion is None else conversion
        self._shares = Shares(table, options.seed)
        self._assembly = Assembly(self.client, self._shares.tables, options, self._conversion.columns)
        self._draws = Draws(self.client, self._shares, options, self.clock, by_caller)
        self._fetched: list[Fetched] = []
        self._lock = threading.RLock()

    @property
    def tables(self) -> list[str]:
        """The names to which the numbers in `Batch.table` belong."""
        return self._shares.tables

    def stats(self) -> LoaderStats:
        """What was given so far, where the time went, and how much is undelivered now."""
        # Without the lock, which a thread that waits for a batch holds: this is asked when things wait.
        stats = LoaderStats(*self.clock.stats())
        stats.undelivered = self._draws.samples + sum(fetched.samples for fetched in tuple(self._fetched))
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
            self._draws.begin_next()
            fetched = Fetched(self._assemble(parts), _samples(parts), [part.draw for part in parts])
            self._fetched.append(fetched)
            return fetched

    def take(self) -> Any:
        """The next batch, delivered; None at the end of the data. Raises as `next`.

        That this batch is received and what is asked for next travel together, which saves a server and the background
        threads of this process half of their wake-ups.
        """
        with self._lock:
            self._draws.go_on(*self.here.close())
            parts = self._next_parts()
            if parts is None:
                return None
            batch = self._assemble(parts)
            for part in parts:
                part.draw.received()
            self.clock.given(_samples(parts))
            self._draw_here(parts)
            self._draws.begin_next()
            return batch

    def is_ready(self) -> bool:
        """Whether `next` would not wait."""
        with self._lock:
            return self._draws.is_ready()

    def deliver(self, fetched: Fetched) -> Any:
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
        self._draws.closed = True
        with self._lock:
            self.here.close()
            self._leave_to_parent()
            for fetched in reversed(self._fetched):
                fetched.give_back()
            self._fetched.clear()
            self._draws.give_up()

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

    def _leave_to_parent(self) -> None:
        if self._draws.leave_to_parent():
            self._fetched.clear()

    def _next_parts(self) -> list[Part] | None:
        self._leave_to_parent()
        return self._draws.next()

    def _assemble(self, parts: list[Part]) -> Any:
        """A batch; one that cannot be made goes back."""
        try:
            batch = self._assembly.batch(parts, self.clock.batches + len(self._fetched))
            if self._conversion.batch is not None:
                batch = self._conversion.batch(batch)
        except Exception:
            for part in reversed(parts):
                part.draw.give_back()
            raise
        self.clock.converted()
        return batch

    def _draw_here(self, parts: list[Part]) -> None:
        """Takes the short way to batches like this one, if there is one."""
        selection = self._assembly.plain_selection(parts)
        if selection is None or self._draws.are_ahead():
            return
        token, options, conversion = parts[0].sampled[2], self.options, self._conversion
        # Without a signature the next items may have other columns, of which some may not be there.
        if not (token or selection.is_all):
            return
        plan = Plan(
            client=self.client._client,
            table=self.tables[0],
            batch_size=options.batch_size,
            token=token,
            squeeze_time=options.squeeze_time,
            columns=None if selection.is_all else selection.columns,
            names=selection.names,
            keys=selection.keys if token else None,
            pack=selection.pack if token else None,
            beta=None if options.beta is None else options.beta_of,
            takes_all=conversion.takes_all,
            maker=conversion.maker,
            to_leaves=conversion.columns,
            convert=conversion.batch,
        )
        self.here.open(plan, None if options.num_batches is None else options.num_batches - self._draws.begun)


def _samples(parts: list[Part]) -> int:
    return sum(len(part.infos[0]) for part in parts)
