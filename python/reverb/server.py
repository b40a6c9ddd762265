"""Tables, and the server that makes them reachable."""

import abc
import atexit
import logging
import operator
import os
import sys
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from reverb import _checks, _listening, pybind, rate_limiters, signatures
from reverb.client import Client
from reverb.item_selectors import Fifo, Lifo, Selector, selector_from_proto
from reverb.rate_limiters import RateLimiter
from reverb.reverb_types import SpecNest, TableInfo

if TYPE_CHECKING:
    from reverb.platform.default.checkpointers import CheckpointerBase

__all__ = ["Server", "Table", "TableExtensionBase"]

_logger = logging.getLogger("reverb")
# Servers that want to save once more when the interpreter ends.
_to_be_saved: "weakref.WeakSet[Server]" = weakref.WeakSet()


class TableExtensionBase(abc.ABC):
    """Something that is told what happens to a table's items. None exists yet: an extension must build no parts."""

    @abc.abstractmethod
    def build_internal_extensions(self, table_name: str) -> Sequence[Any]:
        """The parts of the extension for one table, called once as the table is made."""


class Table:
    """Items, a Selector for sampling, another one for removal, and a RateLimiter.

    Args:
      name: Its name on the server, not empty.
      sampler: Chooses the item that is drawn.
      remover: Chooses the item that is removed when an insert passes `max_size`; the new item is among the candidates.
      max_size: Items the table may hold, at least 1.
      rate_limiter: When inserts and samples may go.
      max_times_sampled: An item is removed once it has been sampled so often; below 1: never.
      extensions: See TableExtensionBase.
      signature: A nest of specs that items must fit; None or an empty nest: they may be anything.
      max_bytes: Bytes the items may take; None: no limit of the table's own.
      seed: Of the draws, which are then the same in each run; None: from the operating system.

    Raises:
      ValueError: `name` is empty, `max_size` is below 1, a leaf of `signature` is not a spec, or a selector or the
        limiter has another role already.
      TypeError: An argument has the wrong type, or a number does not fit 32 bits.
    """

    def __init__(
        self,
        name: str,
        sampler: Selector,
        remover: Selector,
        max_size: int,
        rate_limiter: RateLimiter,
        max_times_sampled: int = 0,
        extensions: Sequence[TableExtensionBase] = (),
        signature: SpecNest | None = None,
        *,
        max_bytes: int | None = None,
        seed: int | None = None,
    ) -> None:
        if not name:
            raise ValueError("name must be nonempty")
        if max_size <= 0:
            raise ValueError(f"max_size ({int(max_size)}) must be a positive integer")
        self._extensions = extensions
        for part in [part for extension in extensions for part in extension.build_internal_extensions(name)]:
            _checks.refuse("extensions", "extensions without parts", part)
        encoded = signatures.encode(signature)
        self._max_bytes = None if max_bytes is None else _checks.as_count("max_bytes", max_bytes)
        self._seed = _as_seed(seed)
        self._server: weakref.ref[Server] | None = None
        name = _as_name(name)
        limiter = rate_limiter.internal_limiter
        _check_free(name, sampler, remover, rate_limiter)
        self.internal_table = pybind.Table(
            name,
            sampler.options(),
            remover.options(),
            _checks.as_int32("max_size", max_size),
            _checks.as_int32("max_times_sampled", max_times_sampled),
            limiter,
            encoded,
            signatures.flat_specs(signature),
            self._max_bytes,
            self._seed,
        )
        for part in (sampler, remover, rate_limiter):
            part._owner = weakref.ref(self)

    @classmethod
    def queue(
        cls,
        name: str,
        max_size: int,
        extensions: Sequence[TableExtensionBase] = (),
        signature: SpecNest | None = None,
    ) -> "Table":
        """A table whose items are each sampled once, the oldest first; inserts wait while it is full.

        Args:
          name: As of Table.
          max_size: As of Table.
          extensions: As of Table.
          signature: As of Table.

        Returns:
          The table.

        Raises:
          ValueError, TypeError: As Table.
        """
        return cls(name, Fifo(), Fifo(), max_size, rate_limiters.Queue(max_size), 1, extensions, signature)

    @classmethod
    def stack(
        cls,
        name: str,
        max_size: int,
        extensions: Sequence[TableExtensionBase] = (),
        signature: SpecNest | None = None,
    ) -> "Table":
        """A table whose items are each sampled once, the newest first; inserts wait while it is full.

        Args:
          name: As of Table.
          max_size: As of Table.
          extensions: As of Table.
          signature: As of Table.

        Returns:
          The table.

        Raises:
          ValueError, TypeError: As Table.
        """
        return cls(name, Lifo(), Lifo(), max_size, rate_limiters.Stack(max_size), 1, extensions, signature)

    def replace(
        self,
        name: str | None = None,
        sampler: Selector | None = None,
        remover: Selector | None = None,
        max_size: int | None = None,
        rate_limiter: RateLimiter | None = None,
        max_times_sampled: int | None = None,
        extensions: Sequence[TableExtensionBase] | None = None,
        signature: SpecNest | None = None,
        *,
        max_bytes: int | None = None,
        seed: int | None = None,
    ) -> "Table":
        """An empty table like this one, but for the arguments that are not None.

        Selectors and limiter are fresh ones with the options of this table's. A signature cannot be taken away, only
        replaced.

        Args:
          name: As of Table.
          sampler: As of Table.
          remover: As of Table.
          max_size: As of Table.
          rate_limiter: As of Table.
          max_times_sampled: As of Table.
          extensions: As of Table.
          signature: As of Table.
          max_bytes: As of Table.
          seed: As of Table.

        Returns:
          A plain Table, whatever the class of this one.

        Raises:
          ValueError, TypeError: As Table.
        """
        info = self.info
        return Table(
            name=info.name if name is None else name,
            sampler=selector_from_proto(info.sampler_options) if sampler is None else sampler,
            remover=selector_from_proto(info.remover_options) if remover is None else remover,
            max_size=info.max_size if max_size is None else max_size,
            rate_limiter=_limiter_from_info(info) if rate_limiter is None else rate_limiter,
            max_times_sampled=info.max_times_sampled if max_times_sampled is None else max_times_sampled,
            extensions=self._extensions if extensions is None else extensions,
            signature=info.signature if signature is None else signature,
            max_bytes=self._max_bytes if max_bytes is None else max_bytes,
            seed=self._seed if seed is None else seed,
        )

    @property
    def name(self) -> str:
        """Its name on the server."""
        return self.internal_table.name

    @property
    def info(self) -> TableInfo:
        """The table's options and how it stands now, whether a server runs it or not."""
        return TableInfo.from_serialized_proto(self.internal_table.info(), self.internal_table.undelivered_samples())

    def can_sample(self, num_samples: int) -> bool:
        """Whether the limiter would let so many samples go at once.

        Raises:
          TypeError: Not an int.
          ValueError: Below 1.
        """
        return self.internal_table.can_sample(_checks.as_count("num_samples", num_samples))

    def can_insert(self, num_inserts: int) -> bool:
        """Whether the limiter would let so many inserts go at once.

        Raises:
          TypeError: Not an int.
          ValueError: Below 1.
        """
        return self.internal_table.can_insert(_checks.as_count("num_inserts", num_inserts))

    def __repr__(self) -> str:
        from reverb.cc import schema_pb2

        message = schema_pb2.TableInfo.FromString(self.internal_table.info())
        info = TableInfo.from_serialized_proto(self.internal_table.info())
        return (
            f"Table(sampler={selector_from_proto(info.sampler_options)}, "
            f"remover={selector_from_proto(info.remover_options)}, max_size={info.max_size}, "
            f"max_times_sampled={info.max_times_sampled}, name={info.name}, rate_limiter={_limiter_from_info(info)}, "
            f"signature={message.signature if message.HasField('signature') else 'nullptr'})"
        )


def _as_name(name: object) -> str:
    if isinstance(name, bytes):
        return name.decode()
    if not isinstance(name, str):
        _checks.refuse("name", "a str", name)
    return name


def _as_seed(seed: object) -> int | None:
    if seed is None:
        return None
    try:
        return operator.index(cast(Any, seed)) % 2**64
    except TypeError:
        _checks.refuse("seed", "an int or None", seed)


def _limiter_from_info(info: TableInfo) -> RateLimiter:
    limiter = info.rate_limiter_info
    return RateLimiter(limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff)


def _check_free(name: str, sampler: object, remover: object, rate_limiter: RateLimiter) -> None:
    """Refuses what is no selector, one selector in two roles, and what serves another living table."""
    for role, selector in (("sampler", sampler), ("remover", remover)):
        if not isinstance(selector, Selector):
            _checks.refuse(role, "one of reverb.selectors", selector)
    if sampler is remover:
        raise ValueError(
            f"One selector object, {sampler}, is both `sampler` and `remover` of table `{name}`. Make one for each."
        )
    parts = (("sampler", sampler), ("remover", remover), ("rate_limiter", rate_limiter))
    for role, part in parts:
        reference: weakref.ref[Table] | None = cast(Any, part)._owner
        owner = None if reference is None else reference()
        if owner is not None:
            raise ValueError(
                f"`{role}` of table `{name}`, {part}, already belongs to table `{owner.name}`. Make one for each."
            )


class Server:
    """Makes tables reachable, until it is stopped or collected.

    Args:
      tables: At least one, of different names, none of which another server has had.
      port: Where to listen; None or 0: at a free port.
      checkpointer: Where checkpoints are kept; the newest good one there is loaded first. None: a new temporary folder.
      host: The address to listen at. Unless given, the environment's `REVERB_HOST`; if that is not set either,
        loopback, which only programs on this machine can reach.
      allow_insecure: Whether a `host` other than loopback is taken, though everyone who reaches it can then read and
        write the tables. Unless given, whether the environment has `REVERB_ALLOW_INSECURE=1`.
      max_message_size: Bytes of data that one insert may carry. Batches out are sent in pieces, and not limited.

    Raises:
      ValueError: There are no tables, names occur twice, a table belongs to a server already, the port is no port, or
        the host is not loopback and `allow_insecure` is not set; another server keeps its checkpoints in the same
        folder, or the checkpoint has a table that is not among `tables`.
      SignatureMismatchError: The checkpoint has a table with data of another signature.
      DataLossError: There are checkpoints, and all are damaged.
      TypeError: An argument has the wrong type.
      UnavailableError: The port is taken, or the address cannot be bound.
    """

    def __init__(
        self,
        tables: Iterable[Table] | None = None,
        port: int | None = None,
        checkpointer: "CheckpointerBase | None" = None,
        *,
        host: str | None = None,
        allow_insecure: bool | None = None,
        max_message_size: int = 256 * 1024 * 1024,
    ) -> None:
        # Before anything can fail, since `__del__` runs for half-made servers too.
        self._server: pybind.Server | None = None
        self._pid = os.getpid()
        self._tables = _checked_tables(tables)
        port = _listening.as_port(port)
        host = _listening.checked_host(host, allow_insecure)
        size = _checks.as_count("max_message_size", max_message_size)
        self._checkpointer = _default_checkpointer() if checkpointer is None else checkpointer
        keeper = _internal_checkpointer(self._checkpointer)
        self._server = pybind.Server([table.internal_table for table in self._tables], host, port, size, keeper)
        self._port = self._server.port
        for table in self._tables:
            table._server = weakref.ref(self)
        if getattr(self._checkpointer, "save_on_stop", False):
            _to_be_saved.add(self)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    @property
    def host(self) -> str | None:
        """The address it listens at; None if it never did."""
        return None if self._server is None else self._server.host

    @property
    def unix_path(self) -> str | None:
        """The Unix socket beside the port, which clients on this machine take by themselves; None if there is none."""
        return None if self._server is None else self._server.unix_path

    @property
    def restored_from(self) -> str | None:
        """The checkpoint that was loaded when the server was made; None if there was none."""
        return None if self._server is None else self._server.restored_from

    def localhost_client(self) -> Client:
        """A client of this server, for programs on this machine."""
        return Client(f"localhost:{self._port}")

    def stop(self) -> None:
        """Closes the tables for good, fails all who wait, and stops listening. May be called again.

        With a checkpointer that has `save_on_stop`, the tables are saved last. Such a server stops by itself when the
        interpreter ends, after the writers of the program were closed.

        Raises:
          StorageError: That save failed. The server has stopped all the same.
        """
        if self._server is not None:
            self._server.stop()
            _to_be_saved.discard(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the server is stopped.

        Args:
          timeout: Seconds; None: no limit.

        Returns:
          True if the server has stopped, at once if it had before; False if the time is over.

        Raises:
          KeyboardInterrupt: On Ctrl-C. The server is stopped then.
          ValueError: `timeout` is negative.
        """
        if self._server is None:
            return True
        try:
            return self._server.wait(_checks.as_timeout(timeout))
        except KeyboardInterrupt:
            self.stop()
            raise

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __del__(self) -> None:
        # A forked child must not stop its parent's server; and at the interpreter's exit anything may be gone.
        try:
            if self._pid == os.getpid():
                self.stop()
        except Exception:
            pass

    def __repr__(self) -> str:
        tables = ", ".join(map(repr, self._tables))
        return (
            f"Server(port={self._port}, reverb_service=ReverbServiceAsync(tables=[{tables}], "
            f"checkpointer={self._checkpointer}))"
        )


@atexit.register
def _save_all() -> None:
    """Stops the servers that want to save, once the writers of this program have said their last."""
    servers = [server for server in _to_be_saved if server._pid == os.getpid()]
    endings = sys.modules.get("reverb._endings")
    if servers and endings is not None:
        endings.end_all()
    for server in servers:
        try:
            server.stop()
        except Exception as error:
            _logger.error("A server could not save when the program ended: %s", error)


def _default_checkpointer() -> "CheckpointerBase":
    from reverb.platform.default import checkpointers

    return checkpointers.default_checkpointer()


def _internal_checkpointer(checkpointer: "CheckpointerBase") -> pybind.Checkpointer:
    make = getattr(checkpointer, "internal_checkpointer", None)
    if make is None:
        _checks.refuse("checkpointer", "a checkpointer, such as reverb.checkpointers.DefaultCheckpointer", checkpointer)
    internal = make()
    if not isinstance(internal, pybind.Checkpointer):
        _checks.refuse("checkpointer", "one whose internal_checkpointer() is a reverb.pybind.Checkpointer", internal)
    return internal


def _checked_tables(tables: Iterable[Table] | None) -> list[Table]:
    """The tables as a list: iterators can be read only once."""
    listed = [] if tables is None else list(tables)
    if not listed:
        raise ValueError("At least one table must be provided")
    for table in listed:
        if not isinstance(table, Table):
            _checks.refuse("tables", "a sequence of tables", table)
    names = [table.name for table in listed]
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise ValueError(f"Multiple items in tables have the same name: {', '.join(repeated)}")
    for table in listed:
        if table._server is not None:
            raise ValueError(
                f"Table `{table.name}` belongs to a server already, or did until that stopped. Make a new one, for "
                f"instance with `replace()`."
            )
    return listed
