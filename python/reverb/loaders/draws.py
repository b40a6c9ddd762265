"""The draws of a loader: begun ahead, waited for, and given back if nobody takes them."""

import collections
import os
import time
from typing import NamedTuple

from reverb.client import Client
from reverb.errors import CancelledError, DeadlineExceededError, UnavailableError
from reverb.loaders.assembly import Part
from reverb.loaders.mixture import Shares
from reverb.loaders.options import Options
from reverb.pybind import Draw, StatsClock

__all__ = ["Draws"]

# Batches that are drawn ahead where the options do not say.
_PREFETCH = 2
# How often a wait looks whether the loader was closed meanwhile.
_PERIOD_S = 0.2
# How long a server that went away is looked for, and how often.
_PATIENCE_S = 10.0
_PAUSE_S = 0.05

# Makes a named tuple without its constructor written in Python.
_new = tuple.__new__


class _Request(NamedTuple):
    """A batch that was asked for: for each table that has a share in it its number, the share and the draw."""

    parts: list[tuple[int, int, Draw]]

    @property
    def samples(self) -> int:
        return sum(count for _, count, _ in self.parts)

    def give_back(self) -> None:
        for _, _, draw in reversed(self.parts):
            draw.give_back()


class Draws:
    """Draws batches from one table or from a mixture. One thread at a time uses it, but for what says otherwise.

    Args:
      client: A client of the server.
      shares: The tables.
      options: What is wanted.
      clock: Gets the times.
      by_caller: As of BatchSource.

    Attributes:
      begun: Batches that were asked for and not given up.
      closed: Whether `next` is at the end of the data. Any thread may set it.
    """

    def __init__(self, client: Client, shares: Shares, options: Options, clock: StatsClock, by_caller: bool) -> None:
        self.begun = 0
        self.closed = False
        self._client = client
        self._shares = shares
        self._options = options
        self._clock = clock
        self._by_caller = by_caller
        # The library drops a time axis of all items of a draw; of a mixture it may not be in all draws.
        self._squeeze_time = options.squeeze_time and len(shares.tables) == 1
        self._requests: collections.deque[_Request] = collections.deque()
        self._pid = os.getpid()

    @property
    def samples(self) -> int:
        """Items that were asked for and have not come. Any thread may ask."""
        return sum(request.samples for request in tuple(self._requests))

    def are_ahead(self) -> bool:
        """Whether batches are begun before they are asked for.

        That hides what the road to a server costs. In the same process there is none: there the thread that asks does
        the work fastest, since nobody has to be woken for it; unless it puts batches on a device ahead.
        """
        return self._depth() > 0

    def is_ready(self) -> bool:
        """Whether `next` would not wait. Begins to draw ahead."""
        self._begin_ahead(self._depth())
        return bool(self._requests) and all(draw.is_ready() for _, _, draw in self._requests[0].parts)

    def next(self) -> list[Part] | None:
        """What the next batch is made of; None at the end of the data. A server that went away is looked for."""
        self.leave_to_parent()
        self._clock.asked()
        timeout = self._options.timeout
        limit = None if timeout is None else time.monotonic() + timeout
        give_up = None
        while True:
            try:
                return self._wait_for_parts(limit)
            except (CancelledError, UnavailableError):
                # The server has gone with all that was asked of it, maybe to come again.
                self.give_up()
                now = time.monotonic()
                give_up = now + _PATIENCE_S if give_up is None else give_up
                if now > min(give_up, give_up if limit is None else limit):
                    raise
            if self.closed:
                return None
            time.sleep(_PAUSE_S)

    def begin_next(self) -> None:
        """Begins to draw ahead. What goes wrong concerns the next batch, and is met again when that is asked for."""
        try:
            self._begin_ahead(self._depth())
        except (CancelledError, UnavailableError):
            pass

    def go_on(self, begun: int, pending: Draw | None) -> None:
        """Continues where another way of drawing whole batches from the one table ended.

        Args:
          begun: Batches that were given there.
          pending: A draw that is the next batch; None: there is none.
        """
        self.begun += begun
        if pending is not None:
            self._requests.append(_Request([(0, self._options.batch_size, pending)]))
            self.begun += 1

    def give_up(self) -> None:
        """Gives back what was begun."""
        self.begun -= len(self._requests)
        while self._requests:
            self._requests.pop().give_back()

    def leave_to_parent(self) -> bool:
        """In a forked child forgets what the parent had begun, and returns True."""
        if self._pid == os.getpid():
            return False
        self._pid = os.getpid()
        self.begun -= len(self._requests)
        self._requests.clear()
        return True

    def _depth(self) -> int:
        if self._options.prefetch is not None:
            return self._options.prefetch
        # Who does not wait itself puts what has come on a device ahead.
        is_here = self._client.road in ("same_process", "unconnected")
        return 0 if is_here and self._by_caller else _PREFETCH

    def _begin_ahead(self, depth: int) -> None:
        while len(self._requests) < depth and self.begun != self._options.num_batches:
            self._requests.append(self._begin(self._shares.draw(self._options.batch_size), None))
            self.begun += 1

    def _begin(self, shares: list[tuple[int, int]], timeout: float | None) -> _Request:
        begin, tables = self._client._client.begin_sample, self._shares.tables
        squeeze_time, by_caller, at_once = self._squeeze_time, self._by_caller, not self.are_ahead()
        parts = [
            (table, count, begin(tables[table], (count, count), timeout, squeeze_time, None, by_caller, at_once))
            for table, count in shares
        ]
        return _Request(parts)

    def _wait_for_parts(self, limit: float | None) -> list[Part] | None:
        if self.closed:
            return None
        if not self._requests:
            self._begin_ahead(1)
            if not self._requests:
                return None
            # By now it is known where the server is.
            self._begin_ahead(self._depth())
        try:
            parts = self._wait(self._requests[0], limit)
        except Exception:
            self._requests.popleft().give_back()
            self.begun -= 1
            raise
        if parts is not None:
            self._requests.popleft()
            # That many were asked for.
            return parts
        parts = [] if self.closed else self._flush()
        size = sum(len(part.infos[0]) for part in parts)
        if not size or (size < self._options.batch_size and self._options.drop_remainder):
            for part in reversed(parts):
                part.draw.give_back()
            self._check_end()
            return None
        return parts

    def _wait(self, request: _Request, limit: float | None) -> list[Part] | None:
        """The parts of a request; None when the time is over or the source was closed."""
        parts: list[Part] = []
        for table, _, draw in request.parts:
            while (result := draw.result(_PERIOD_S if limit is None else _slice(limit))) is None:
                if self.closed or (limit is not None and time.monotonic() >= limit):
                    self._clock.arrived(float("inf"), 0.0)
                    # What came of other tables is given back with the request.
                    return None
            self._clock.arrived(*draw.times())
            parts.append(_new(Part, (table, result, draw)))
        return parts

    def _flush(self) -> list[Part]:
        """What the tables let go at once, when the time for a whole batch is over."""
        first = self._requests[0]
        shares = [(table, count) for table, count, _ in first.parts]
        # All that is waiting is withdrawn: what was drawn for it goes back, and is drawn again here.
        self.give_up()
        parts: list[Part] = []
        for table, _, draw in self._begin(shares, 0.0).parts:
            try:
                result = draw.result(None)
            except DeadlineExceededError:
                continue
            if result is not None:
                parts.append(Part(table, result, draw))
        self.begun += bool(parts)
        self._clock.arrived(float("inf"), 0.0)
        return parts

    def _check_end(self) -> None:
        """Raises, unless the data may end here."""
        if self.closed or self._options.on_timeout == "stop":
            return
        tables = ", ".join(f"`{table}`" for table in self._shares.tables)
        few = "" if not self._options.drop_remainder else f" full batch of {self._options.batch_size}"
        raise DeadlineExceededError(
            f"no{few or ' sample'} of {tables} could be had within {self._options.timeout} s, the loader's timeout"
        )


def _slice(limit: float) -> float:
    return max(0.0, min(_PERIOD_S, limit - time.monotonic()))
