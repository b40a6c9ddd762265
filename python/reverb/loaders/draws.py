"""The draws of a loader: begun ahead, waited for, and given back if nobody takes their batches.

What may wait is a generator of steps (`steps.py`), for threads and for event loops.
"""

import asyncio
import collections
import os
import time
from typing import NamedTuple

from reverb._binding import Draw, StatsClock
from reverb.client import Client
from reverb.errors import DeadlineExceededError, ReverbError, UnavailableError
from reverb.loaders.assembly import Part
from reverb.loaders.mixture import Shares
from reverb.loaders.options import Options
from reverb.loaders.outage import Outage
from reverb.loaders.steps import IN_THREAD, Steps, Ways, in_thread

# Batches that are drawn ahead by default.
_PREFETCH = 2
# How often a wait checks whether the loader was closed meanwhile.
_PERIOD_S = 0.2
# How long a loader tries to reach a server at first, or one of this process that was stopped; and how often.
_PATIENCE_S = 10.0
_PAUSE_S = 0.05
# How long a connection may take in any case. A loader with a timeout of 0 could never reach a server otherwise.
_CONNECT_S = 0.5
# How long a draw ahead may wait for a lost connection while the learner has batches left.
_CONNECT_AHEAD_S = 0.1


class _Request(NamedTuple):
    """A requested batch: the number, the share and the draw of each table that has a share in it."""

    parts: list[tuple[int, int, Draw]]

    @property
    def samples(self) -> int:
        return sum(count for _, count, _ in self.parts)

    @property
    def shares(self) -> list[tuple[int, int]]:
        return [(table, count) for table, count, _ in self.parts]

    def give_back(self) -> None:
        for _, _, draw in reversed(self.parts):
            draw.give_back()


class Draws:
    """Draws batches from one table or from a mixture.

    One thread at a time may use it, except where a method says otherwise.

    Args:
      client: A client of the server.
      shares: The tables and their shares of a batch.
      options: The options of the loader.
      clock: The clock that gets the times of all draws.
      by_caller: Whether the thread that asks for batches also reads the connection; see `BatchSource`.

    Attributes:
      begun: The number of batches that were requested and not given up.
      closed: Whether the data have ended for `next`. Any thread may set it.
    """

    def __init__(self, client: Client, shares: Shares, options: Options, clock: StatsClock, by_caller: bool) -> None:
        self.begun = 0
        self.closed = False
        self._client = client
        self._shares = shares
        self._options = options
        self._clock = clock
        self._by_caller = by_caller
        self._ways = IN_THREAD
        # The extension drops the time axis by draw, but in a mixture not all draws might lose it.
        self._squeeze_time = options.squeeze_time and len(shares.tables) == 1
        self._requests: collections.deque[_Request] = collections.deque()
        self._outage = Outage(client.engine.address, shares.tables)
        self._pid = os.getpid()
        # When the timeout of the batch that was asked for last is over.
        self._limit: float | None = None

    @property
    def samples(self) -> int:
        """The number of items that were requested and have not arrived. Any thread may read it."""
        return sum(request.samples for request in tuple(self._requests))

    def are_ahead(self) -> bool:
        """Whether draws begin before their batches are requested.

        That hides the latency of a server in another process. With a server in the same process the requesting thread
        does the work fastest, since no other thread has to be woken for it; unless it also puts batches on a device
        ahead.
        """
        return self._depth() > 0

    def is_ready(self) -> bool:
        """Whether `next` would return at once. Begins to draw ahead."""
        self._ways = IN_THREAD
        in_thread(self._begin_ahead(self._depth(), _CONNECT_AHEAD_S))
        return bool(self._requests) and all(draw.is_ready() for _, _, draw in self._requests[0].parts)

    def next(self, ways: Ways) -> Steps[list[Part] | None]:
        """The parts of the next batch; None at the end of the data. Tries to reach a server that went away."""
        self._ways = ways
        self._clock.asked()
        timeout = self._options.timeout
        limit = self._limit = None if timeout is None else time.monotonic() + timeout
        give_up = None
        while True:
            try:
                return (yield from self._wait_for_parts(limit))
            except ReverbError as error:
                if not error.is_transient:
                    raise
                # The server has gone, and with it all requests. It may come back.
                self.give_up()
                self._outage.goes_on(error)
                now = time.monotonic()
                give_up = now + self._patience() if give_up is None else give_up
                if now > min(give_up, give_up if limit is None else limit):
                    raise
                # Connections may take no longer either.
                self._limit = give_up if limit is None else min(give_up, limit)
            if self.closed:
                return None
            pause = ways.pause(_PAUSE_S)
            if ways.are_awaited:
                yield pause

    def begin_next(self, ways: Ways) -> Steps[None]:
        """Begins to draw ahead. An error concerns the next batch, and is raised when that is requested."""
        self._ways = ways
        try:
            yield from self._begin_ahead(self._depth(), _CONNECT_AHEAD_S)
        except ReverbError:
            pass

    def leave_to_event_loop(self) -> None:
        """Lets an event loop do the steps from now on. Draws that threads read are given up."""
        if self._by_caller:
            self.give_up()
            self._by_caller = False

    def receive(self, draws: list[Draw], waits: bool = False) -> bool:
        """Acknowledges the draws of one batch before the learner gets it. Any thread may call it.

        Args:
          draws: The draws of the batch.
          waits: Whether the receipts do not leave with the next draw, because the learner may not have the batch then.

        Returns:
          Whether the learner may have the batch. False if the connection was lost or the server was stopped, so that
          the samples went back to their tables, from which somebody may draw them again; the caller then calls
          `forget`. A batch of which a part was acknowledged before is delivered all the same, so that no sample is
          lost.
        """
        for number, draw in enumerate(draws):
            try:
                draw.received(waits)
            except ReverbError:
                if number == 0:
                    for other in reversed(draws[1:]):
                        other.give_back()
                    return False
        return True

    def forget(self, shares: list[tuple[int, int]]) -> None:
        """Stops counting a batch that nobody gets, given its number of items of each table."""
        self.begun -= 1
        self._shares.take_back(shares)

    def go_on(self, begun: int, pending: Draw | None) -> None:
        """Continues after batches of the one table that were drawn without this object.

        Args:
          begun: The number of those batches.
          pending: A draw in progress, which becomes the next batch; None: no draw is in progress.
        """
        self.begun += begun
        if pending is not None:
            self._requests.append(_Request([(0, self._options.batch_size, pending)]))
            self.begun += 1

    def give_up(self) -> None:
        """Gives back all draws that were begun."""
        while self._requests:
            self._drop(self._requests.pop())

    def leave_to_parent(self) -> bool:
        """In a forked child process, forgets the draws of the parent and returns True."""
        if self._pid == os.getpid():
            return False
        self._pid = os.getpid()
        self.begun -= len(self._requests)
        self._requests.clear()
        return True

    def _drop(self, request: _Request) -> None:
        self.forget(request.shares)
        request.give_back()

    def _patience(self) -> float:
        """Seconds for which to try to reach a server, at first or after it was lost."""
        return self._options.reconnect_timeout if self._client.engine.is_remote else _PATIENCE_S

    def _depth(self) -> int:
        if self._options.prefetch is not None:
            return self._options.prefetch
        # In the process of the server the caller would only draw earlier, unless it puts batches on a device meanwhile.
        return 0 if self._by_caller and not self._client.engine.is_remote else _PREFETCH

    def _begin_ahead(self, depth: int, connect: float | None, is_ahead: bool = True) -> Steps[None]:
        while len(self._requests) < depth and self.begun != self._options.num_batches:
            shares = self._shares.draw(self._options.batch_size)
            try:
                request = yield from self._begin(shares, None, connect, is_ahead)
            except BaseException:
                self._shares.take_back(shares)
                raise
            self._requests.append(request)
            self.begun += 1

    def _begin(
        self, shares: list[tuple[int, int]], timeout: float | None, connect: float | None, is_ahead: bool = False
    ) -> Steps[_Request]:
        parts: list[tuple[int, int, Draw]] = []
        how = (self._squeeze_time, connect, self._by_caller, not (is_ahead or self.are_ahead()), is_ahead)
        try:
            for table, count in shares:
                draw = self._ways.begin(self._client, self._shares.tables[table], count, timeout, *how)
                if self._ways.are_awaited:
                    draw = yield draw
                parts.append((table, count, draw))
        except DeadlineExceededError as error:
            # Without a timeout of the batch, it is the reconnect timeout that passed.
            if self._options.timeout is not None:
                raise
            raise UnavailableError(str(error)) from None
        return _Request(parts)

    def _wait_for_parts(self, limit: float | None) -> Steps[list[Part] | None]:
        if self.closed:
            return None
        if not self._requests:
            left = self._patience() if self._limit is None else self._limit - time.monotonic()
            yield from self._begin_ahead(1, max(_CONNECT_S, left), is_ahead=False)
            if not self._requests:
                return None
            # By now the road to the server is known.
            yield from self._begin_ahead(self._depth(), _CONNECT_AHEAD_S)
        try:
            parts = yield from self._wait(self._requests[0], limit)
        except (Exception, asyncio.CancelledError):
            self._drop(self._requests.popleft())
            raise
        if parts is not None:
            self._requests.popleft()
            # The batch is full.
            return parts
        parts = [] if self.closed else (yield from self._flush())
        size = sum(len(part.sampled) for part in parts)
        if not size or (size < self._options.batch_size and self._options.drop_remainder):
            for part in reversed(parts):
                part.draw.give_back()
            self.begun -= bool(parts)
            self._check_end()
            return None
        return parts

    def _wait(self, request: _Request, limit: float | None) -> Steps[list[Part] | None]:
        """The parts of a request; None after the timeout, or if the source was closed."""
        parts: list[Part] = []
        for table, _, draw in request.parts:
            while True:
                sampled = self._ways.arrival(draw, _PERIOD_S if limit is None else _slice(limit))
                if self._ways.are_awaited:
                    sampled = yield sampled
                # A request may still enter the connection of a server that has just stopped. This one was not refused.
                if self._outage.since is not None:
                    self._outage.is_over()
                if sampled is not None:
                    break
                if self.closed or (limit is not None and time.monotonic() >= limit):
                    self._clock.arrived(float("inf"), 0.0)
                    # The draws of other tables are given back with the request.
                    return None
            self._clock.arrived(*draw.times())
            parts.append(Part(table, sampled, draw))
        return parts

    def _flush(self) -> Steps[list[Part]]:
        """The items that tables give without a wait, after the timeout of a whole batch."""
        shares = self._requests[0].shares
        # All waiting draws are withdrawn. Their items go back to the tables, and are drawn again here.
        self.give_up()
        parts: list[Part] = []
        for table, _, draw in (yield from self._begin(shares, 0.0, _CONNECT_S)).parts:
            try:
                sampled = self._ways.arrival(draw, None)
                if self._ways.are_awaited:
                    sampled = yield sampled
            except DeadlineExceededError:
                continue
            if sampled is not None:
                parts.append(Part(table, sampled, draw))
        self.begun += bool(parts)
        self._clock.arrived(float("inf"), 0.0)
        return parts

    def _check_end(self) -> None:
        """Raises an error unless the data may end here."""
        if self.closed or self._options.on_timeout == "stop":
            return
        tables = ", ".join(f"`{table}`" for table in self._shares.tables)
        few = "" if not self._options.drop_remainder else f" full batch of {self._options.batch_size}"
        raise DeadlineExceededError(
            f"no{few or ' sample'} of {tables} could be had within {self._options.timeout} s, the loader's timeout"
        )


def _slice(limit: float) -> float:
    return max(0.0, min(_PERIOD_S, limit - time.monotonic()))
