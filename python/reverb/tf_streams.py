"""What stands behind a running iterator of a TensorFlow dataset: a stream of whole batches. Imports no TensorFlow.

TensorFlow knows a stream by its number: functions that a graph holds are never freed, so they must hold nothing else.
A fetch gives what has come, and waits a tenth of a second at most: TensorFlow cannot interrupt it, and an iterator
could not be deleted meanwhile. A fetch that found nothing gives a batch of no items, which disappears when it is cut
up.
"""

import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from reverb.client import Client
from reverb.errors import CancelledError, DeadlineExceededError, ReverbError, UnavailableError
from reverb.tf_specs import LeafSpec, check_batch, check_request, of_signature

if TYPE_CHECKING:
    from reverb.pybind import Draw, Sampled

__all__ = [
    "Shape",
    "Stream",
    "StreamOptions",
    "client_of",
    "close",
    "end_all",
    "fetch",
    "open_stream",
    "wait_until_closed",
]

_WAIT_S = 0.1
# How long a server is looked for.
_PATIENCE_S = 10.0

Arrays = list[NDArray[Any]]
# From what was sampled to the arrays that TensorFlow gets.
Shape = Callable[["Sampled"], list[Arrays]]


class StreamOptions(NamedTuple):
    """The numbers of a dataset's constructor."""

    max_in_flight_samples: int
    timeout_ms: int
    max_samples: int


class Stream:
    """Batches for one iterator.

    Args:
      address: Of the server.
      table: Whose items.
      options: See there.
      specs: Of the leaves that the dataset was asked for.
      shape: Makes arrays of what was sampled; several lists of them where items do not fit into one.
      of_steps: Whether the leaves are steps, to be checked without the time axis.
    """

    def __init__(
        self, address: str, table: str, options: StreamOptions, specs: list[LeafSpec], shape: Shape, of_steps: bool
    ) -> None:
        self._client = client_of(address)
        self._table = table
        self._options = options
        self._requested = specs
        self._specs: list[LeafSpec] | None = None
        self._signature = ""
        self._shape = shape
        self._of_steps = of_steps
        self._draw: Draw | None = None
        self._left = options.max_samples if options.max_samples > 0 else None
        self._ready: list[Arrays] = []
        self._given_up: float | None = None
        self._closed = False
        self._lock = threading.Lock()

    def fetch(self) -> Arrays | None:
        """The arrays of the next batch; none of them if there is nothing yet; None at the end of the data.

        Raises:
          ReverbError: The draw failed.
        """
        with self._lock:
            if self._ready:
                return self._ready.pop(0)
            if self._closed:
                return None
            if self._specs is None and not self._look_up():
                return []
            try:
                return self._next()
            except (CancelledError, UnavailableError):
                # The server has gone, maybe to come again: it is looked for as at first.
                self._draw = None
                self._specs = None
                return None if self._closed else []

    def close(self) -> None:
        """Gives back what is on its way."""
        self._closed = True
        with self._lock:
            draw, self._draw = self._draw, None
            if draw is not None:
                draw.give_back()

    def _look_up(self) -> bool:
        """Compares the request with the table's signature; False while the server cannot be reached."""
        now = time.monotonic()
        if self._given_up is None:
            self._given_up = now + _PATIENCE_S
        try:
            infos = self._client._table_infos(_WAIT_S)
        except DeadlineExceededError:
            if now > self._given_up:
                self._given_up = None
                raise UnavailableError(f"no server could be reached at {self._client.server_address}") from None
            return False
        self._given_up = None
        info = infos.get(self._table)
        if info is None or info.signature is None:
            self._specs, self._signature = self._requested, ""
            return True
        specs = of_signature(info.signature)
        check_request(self._table, self._requested, specs)
        self._specs = specs
        return True

    def _next(self) -> Arrays | None:
        draw = self._draw
        # A timeout that passed while nobody was waiting ends nothing.
        waited_for = draw is not None and not draw.is_ready()
        if draw is None:
            if self._left == 0:
                return None
            try:
                draw, waited_for = self._begin(self._options.max_in_flight_samples), True
            except DeadlineExceededError as error:
                raise UnavailableError(str(error)) from None
        try:
            sampled = draw.result(_WAIT_S)
        except DeadlineExceededError:
            self._draw = None
            if waited_for and self._options.timeout_ms >= 0:
                return None
            return []
        if sampled is None:
            return []
        self._draw = None
        count = len(sampled[0][0])
        if self._left is not None:
            self._left -= count
        room = self._options.max_in_flight_samples - count
        if room > 0 and self._left != 0:
            self._begin_ahead(room)
        # From here on the samples are TensorFlow's, which cuts them up and cannot say which of them were used.
        draw.received()
        assert self._specs is not None
        check_batch(self._table, self._specs, sampled[1], sampled[3], self._of_steps)
        self._ready = self._shape(sampled)
        return self._ready.pop(0) if self._ready else []

    def _begin(self, room: int) -> "Draw":
        # Half of what may be in flight, so that the other half can be on its way while this is used.
        count = min(room, max(1, (self._options.max_in_flight_samples + 1) // 2))
        if self._left is not None:
            count = min(count, self._left)
        timeout = None if self._options.timeout_ms < 0 else self._options.timeout_ms / 1000
        self._draw = self._client._client.begin_sample(self._table, (1, count), timeout, False, _WAIT_S)
        return self._draw

    def _begin_ahead(self, room: int) -> None:
        """Begins the next draw while this one is used. If that fails, so will the next fetch, which says it."""
        try:
            self._begin(room)
        except ReverbError:
            self._draw = None


_streams: dict[int, Stream] = {}
_numbers = itertools.count(1)
_clients: "weakref.WeakValueDictionary[tuple[int, str], Client]" = weakref.WeakValueDictionary()


def client_of(address: str) -> Client:
    """A client of this process that all streams and TFClients of one address share."""
    key = (os.getpid(), address)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = Client(address)
    return client


def open_stream(stream: Stream) -> int:
    """Gives a stream its number."""
    number = next(_numbers)
    _streams[number] = stream
    return number


def fetch(number: int) -> Arrays | None:
    """As `Stream.fetch`; None for a stream that is closed, or belongs to the process that this one was forked from."""
    stream = _streams.get(number)
    return None if stream is None else stream.fetch()


def close(number: int) -> None:
    """Closes a stream and forgets it."""
    stream = _streams.pop(number, None)
    if stream is not None:
        stream.close()


def end_all() -> None:
    """Lets all streams be at their end; those who wait hear it."""
    for stream in list(_streams.values()):
        stream.close()


def wait_until_closed() -> None:
    """Waits until the iterators of all streams are gone, for two seconds at most."""
    limit = time.monotonic() + 2.0
    while _streams and time.monotonic() < limit:
        time.sleep(0.01)
