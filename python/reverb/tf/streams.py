"""Streams of whole batches behind the running iterators of TensorFlow datasets. Does not import TensorFlow.

TensorFlow refers to a stream by its number: functions in a graph are never freed, so they must not hold the stream
itself. A fetch returns what has arrived, and waits for a tenth of a second at most, because TensorFlow cannot interrupt
it and cannot delete the iterator meanwhile. A fetch that finds nothing returns a batch without items, which vanishes
when it is split.
"""

import contextlib
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from reverb.client import Client
from reverb.data.endpoint import Endpoint
from reverb.errors import DeadlineExceededError, ReverbError, UnavailableError
from reverb.reverb_types import table_infos
from reverb.tf.specs import LeafSpec, check_batch, check_request, of_signature

if TYPE_CHECKING:
    from reverb._binding import Draw, SampledBatch

_WAIT_S = 0.1
# Seconds for which a stream tries to reach its server: at first, and after it lost a server in another process.
_CONNECT_TIMEOUT_S = 10.0
# limit (Connections and calls): time for which a writer, a loader, `sample` and the iterator of a dataset try to
# reconnect | {:time} | `UnavailableError` | `reconnect_timeout=` of each writer, loader and call;
# `python/reverb/tf/streams.py`
_RECONNECT_TIMEOUT_S = 300.0

Arrays = list[NDArray[Any]]
# Makes the arrays that TensorFlow receives from a sampled batch.
ToArrays = Callable[["SampledBatch"], list[Arrays]]


class StreamOptions(NamedTuple):
    """The numeric options of a dataset's constructor."""

    max_in_flight_samples: int
    timeout_ms: int
    max_samples: int


class Stream:
    """The batches of one iterator.

    Args:
      server: What the graph contains of the server; see `in_graphs`.
      table: Name of the table to sample from.
      options: Numeric options of the dataset.
      specs: Specs of the leaves that the dataset requests.
      shape: Function from a sampled batch to lists of arrays; several lists where items do not fit into one.
      of_steps: Whether the leaves are single steps, which are checked without the time axis.
      draws_whole: Whether each draw is for all samples that may be in flight, so that none is drawn ahead.
    """

    def __init__(
        self,
        server: str,
        table: str,
        options: StreamOptions,
        specs: list[LeafSpec],
        shape: ToArrays,
        of_steps: bool,
        draws_whole: bool,
    ) -> None:
        self._client = client_of(server)
        self._client.engine.note_drawn(table)
        self._table = table
        self._options = options
        self._requested = specs
        self._specs: list[LeafSpec] | None = None
        self._signature = ""
        self._shape = shape
        self._of_steps = of_steps
        # Half of what may be in flight otherwise, so that the other half can be on its way while this half is used.
        most = options.max_in_flight_samples
        self._most = most if draws_whole else (most + 1) // 2
        self._draw: Draw | None = None
        # The draw of the batch that TensorFlow has, until it asks for the next one.
        self._handed: Draw | None = None
        self._left = options.max_samples if options.max_samples > 0 else None
        self._ready: list[Arrays] = []
        self._connect_timeout_s = _CONNECT_TIMEOUT_S
        self._connect_deadline: float | None = None
        self._closed = False
        self._lock = threading.Lock()

    def fetch(self) -> Arrays | None:
        """Returns the arrays of the next batch; an empty list if nothing has arrived yet; None at the end of the data.

        Raises:
          ReverbError: The draw failed.
        """
        with self._lock:
            if self._ready:
                return self._ready.pop(0)
            self._receive()
            if self._closed:
                return None
            if self._specs is None and not self._look_up():
                return []
            try:
                return self._next()
            except ReverbError as error:
                if not error.is_transient:
                    raise
                # The server went away, but may come back: the next fetch tries to reach it again.
                self._draw = None
                self._specs = None
                return None if self._closed else []

    def close(self) -> None:
        """Closes the stream, and returns samples in flight to their table."""
        self._closed = True
        with self._lock:
            self._receive()
            draw, self._draw = self._draw, None
            if draw is not None:
                draw.give_back()

    def _receive(self) -> None:
        """Acknowledges the batch that TensorFlow has."""
        handed, self._handed = self._handed, None
        if handed is not None:
            with contextlib.suppress(ReverbError):
                # The samples went back to their table, but TensorFlow has had them.
                handed.received()

    def _look_up(self) -> bool:
        """Compares the request with the table's signature; False while the server cannot be reached."""
        now = time.monotonic()
        if self._connect_deadline is None:
            self._connect_deadline = now + self._connect_timeout_s
        try:
            infos = table_infos(self._client.engine, _WAIT_S)
        except DeadlineExceededError:
            if now > self._connect_deadline:
                self._connect_deadline = None
                raise UnavailableError(f"no server could be reached at {self._client.server_address}") from None
            return False
        self._connect_deadline = None
        self._connect_timeout_s = _RECONNECT_TIMEOUT_S if self._client.engine.is_remote else _CONNECT_TIMEOUT_S
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
        # A timeout that passed while nobody was waiting does not end the data.
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
        if draw.is_lost():
            raise UnavailableError("the samples went back to their table")
        count = len(sampled)
        if self._left is not None:
            self._left -= count
        room = self._options.max_in_flight_samples - count
        if room > 0 and self._left != 0:
            self._begin_ahead(room)
        assert self._specs is not None
        check_batch(self._table, self._specs, sampled.columns, sampled.squeezed, sampled.has_open_rows, self._of_steps)
        self._ready = self._shape(sampled)
        # TensorFlow splits batches, and cannot tell which samples were used. It has used them when it asks for more.
        self._handed = draw
        return self._ready.pop(0) if self._ready else []

    def _begin(self, room: int) -> "Draw":
        count = min(room, self._most)
        if self._left is not None:
            count = min(count, self._left)
        timeout = None if self._options.timeout_ms < 0 else self._options.timeout_ms / 1000
        self._draw = self._client.engine.begin_sample(self._table, (1, count), timeout, False, _WAIT_S)
        return self._draw

    def _begin_ahead(self, room: int) -> None:
        """Begins the next draw while this one is used. If that fails, the next fetch raises the error."""
        try:
            self._begin(room)
        except ReverbError:
            self._draw = None


_streams: dict[int, Stream] = {}
_numbers = itertools.count(1)
_clients: "weakref.WeakValueDictionary[tuple[int, Endpoint], Client]" = weakref.WeakValueDictionary()
# What graphs contain of a client begins so. No address does.
_NAME = "client "
_named: "weakref.WeakValueDictionary[str, Client]" = weakref.WeakValueDictionary()


def in_graphs(server: Any) -> Any:
    """What graphs contain of a server: its address, or the name of a client that is to outlive them."""
    if not isinstance(server, Client):
        return server
    name = f"{_NAME}{next(_numbers)}"
    _named[name] = server
    return name


def client_of(server: str | Client) -> Client:
    """Returns a client that is given or named, or the one that all users of one address share in this process.

    Graphs contain only the address. The process that runs them adds what it needs to be let in.

    Raises:
      ValueError: It is the name of a client that this process does not have.
    """
    if isinstance(server, Client):
        return server
    if server.startswith(_NAME):
        named = _named.get(server)
        if named is None:
            raise ValueError(
                "this graph has a client of another process, or one that was collected: keep a reference to the "
                "client, or make the graph with an address"
            )
        return named
    key = (os.getpid(), Endpoint.of(server))
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = Client(key[1])
    return client


def open_stream(stream: Stream) -> int:
    """Registers a stream, and returns its number."""
    number = next(_numbers)
    _streams[number] = stream
    return number


def fetch(number: int) -> Arrays | None:
    """Calls `Stream.fetch`. Returns None if the stream is closed, or belongs to the parent of a forked process."""
    stream = _streams.get(number)
    return None if stream is None else stream.fetch()


def close(number: int) -> None:
    """Closes a stream and removes it."""
    stream = _streams.pop(number, None)
    if stream is not None:
        stream.close()


def end_all() -> None:
    """Ends all streams, and so the fetches that wait for them."""
    for stream in list(_streams.values()):
        stream.close()


def wait_until_closed() -> None:
    """Waits until the iterators of all streams have been deleted, for two seconds at most."""
    limit = time.monotonic() + 2.0
    while _streams and time.monotonic() < limit:
        time.sleep(0.01)
