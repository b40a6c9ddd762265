"""Tables, and the server that gives clients access to them."""

import abc
import logging
import os
import sys
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from reverb import _binding, rate_limiters
from reverb._announcement import announce
from reverb._settings import ARGUMENTS, ServerOptions, is_loopback, returns_by_default
from reverb._shutdown import SIGTERM_STATUS, ExitOnSigterm, Stage, at_exit
from reverb.client import Client
from reverb.data import checks, signatures, table_arguments
from reverb.data.durability import Durability
from reverb.data.shard import Shard
from reverb.data.spec_text import format_signature
from reverb.data.tls import ServerTLS
from reverb.data.tokens import Tokens
from reverb.item_selectors import Fifo, Lifo, Selector, selector_from_proto

# Log lines need it, also once the process may not open another file.
from reverb.logging import escaping  # noqa: F401
from reverb.rate_limiters import RateLimiter
from reverb.reverb_types import SpecNest, TableInfo, limiter_from_info, table_text

if TYPE_CHECKING:
    from reverb.platform.default.checkpointers import CheckpointerBase

__all__ = ["Server", "Table", "TableExtensionBase"]

_logger = logging.getLogger("reverb")
# Servers that save a last checkpoint at interpreter exit.
_saving_at_exit: "weakref.WeakSet[Server]" = weakref.WeakSet()


class TableExtensionBase(abc.ABC):
    """An observer of a table's items. There are no implementations yet, so extensions must not build any parts."""

    @abc.abstractmethod
    def build_internal_extensions(self, table_name: str) -> Sequence[Any]:
        """Builds the parts of the extension for one table. Called once, when the table is created."""


class Table:
    """Items, with a Selector for sampling, another Selector for removal, and a RateLimiter.

    Args:
      name: Name of the table on the server, not empty.
      sampler: Selector of the item that is drawn.
      remover: Selector of the item that is removed when an insert exceeds `max_size`. It may select the new item.
      max_size: Maximum number of items in the table, at least 1.
      rate_limiter: Limiter that decides when inserts and samples may proceed.
      max_times_sampled: Number of samples after which an item is removed; 0 and negative numbers mean no limit.
      extensions: Extensions of the table, none by default; they must not build any parts (see TableExtensionBase).
      signature: Nest of specs that items must fit; None or an empty nest accepts any items. In all ways in, a spec
        describes a column of an item either with its time axis, `[steps, ...]`, or as one step, `[...]`. Where data and
        signature are both mappings they have the same keys; other structures are matched by position.
      max_bytes: Maximum size of the items in bytes; None means that the table has no byte limit.
      seed: Seed of the random draws, which makes them reproducible; None takes a seed from the operating system.
      stall_after: Seconds for which a connected client may let others wait before the server calls the table stalled;
        None takes ten times the longest pause so far, and ten minutes at first. Nothing else depends on it.

    Raises:
      ValueError: `name` is empty, `max_size` is below 1 or below the rate limiter's `min_size_to_sample`, a leaf of
        `signature` is not a spec, `stall_after` is not above 0, or a selector or the rate limiter is already in use.
      TypeError: An argument has the wrong type, or a number does not fit into 32 bits.
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
        stall_after: float | None = None,
    ) -> None:
        if not name:
            raise ValueError("name must be nonempty")
        if max_size <= 0:
            raise ValueError(f"max_size ({int(max_size)}) must be a positive integer")
        self._extensions = extensions
        for part in [part for extension in extensions for part in extension.build_internal_extensions(name)]:
            checks.refuse("extensions", "extensions without parts", part)
        encoded = signatures.encode(signature)
        limit = None if max_bytes is None else checks.as_count("max_bytes", max_bytes)
        self._seed = table_arguments.as_seed(seed)
        self._stall_after = table_arguments.as_stall_after(stall_after)
        self._server: weakref.ref[Server] | None = None
        name = table_arguments.as_name(name)
        limiter = rate_limiter.internal_limiter
        _check_free(name, sampler, remover, rate_limiter)
        table_arguments.check_limiter(name, limiter, max_size)
        self.internal_table = _binding.Table(
            name,
            sampler.options(),
            remover.options(),
            checks.as_int32("max_size", max_size),
            checks.as_int32("max_times_sampled", max_times_sampled),
            limiter,
            encoded,
            signatures.flat_specs(signature),
            limit,
            self._seed,
            self._stall_after,
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
        """Creates a table whose items are sampled once each, oldest first. Inserts wait while the table is full.

        Args:
          name: Name of the table on the server, not empty.
          max_size: Maximum number of items in the table, at least 1.
          extensions: Extensions of the table, none by default; they must not build any parts.
          signature: Nest of specs that items must fit; None or an empty nest accepts any items.

        Returns:
          The new table.

        Raises:
          ValueError, TypeError: An argument is invalid; see Table.
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
        """Creates a table whose items are sampled once each, newest first. Inserts wait while the table is full.

        Args:
          name: Name of the table on the server, not empty.
          max_size: Maximum number of items in the table, at least 1.
          extensions: Extensions of the table, none by default; they must not build any parts.
          signature: Nest of specs that items must fit; None or an empty nest accepts any items.

        Returns:
          The new table.

        Raises:
          ValueError, TypeError: An argument is invalid; see Table.
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
        stall_after: float | None = None,
    ) -> "Table":
        """Creates an empty table with the options of this one, except for the arguments that are not None.

        The selectors and the rate limiter are new objects with the options of this table's. A signature can be replaced
        but not removed.

        Args:
          name: Name of the new table on the server; None keeps this table's name.
          sampler: Selector of the item that is drawn; None creates one like this table's.
          remover: Selector of the item that is removed when an insert exceeds `max_size`; None creates one like this
            table's.
          max_size: Maximum number of items in the table, at least 1; None keeps this table's.
          rate_limiter: Limiter that decides when inserts and samples may proceed; None creates one like this table's.
          max_times_sampled: Number of samples after which an item is removed, 0 or less for no limit; None keeps this
            table's.
          extensions: Extensions of the new table, which must not build any parts; None keeps this table's.
          signature: Nest of specs that items must fit; None keeps this table's signature.
          max_bytes: Maximum size of the items in bytes; None keeps this table's limit.
          seed: Seed of the random draws; None keeps this table's seed.
          stall_after: Seconds of a pause after which the table counts as stalled; None keeps this table's.

        Returns:
          An instance of Table, even if this table belongs to a subclass.

        Raises:
          ValueError, TypeError: An argument is invalid; see Table.
        """
        info = self.info
        return Table(
            name=info.name if name is None else name,
            sampler=selector_from_proto(info.sampler_options) if sampler is None else sampler,
            remover=selector_from_proto(info.remover_options) if remover is None else remover,
            max_size=info.max_size if max_size is None else max_size,
            rate_limiter=limiter_from_info(info) if rate_limiter is None else rate_limiter,
            max_times_sampled=info.max_times_sampled if max_times_sampled is None else max_times_sampled,
            extensions=self._extensions if extensions is None else extensions,
            signature=info.signature if signature is None else signature,
            max_bytes=info.max_bytes if max_bytes is None else max_bytes,
            seed=self._seed if seed is None else seed,
            stall_after=self._stall_after if stall_after is None else stall_after,
        )

    @property
    def name(self) -> str:
        """The name of the table on the server."""
        return self.internal_table.name

    @property
    def info(self) -> TableInfo:
        """The options and the current state of the table, even if it does not belong to a server."""
        return TableInfo.from_serialized_status(self.internal_table.status())

    def can_sample(self, num_samples: int) -> bool:
        """Whether the rate limiter would allow this many samples now.

        Raises:
          TypeError: `num_samples` is not an int.
          ValueError: `num_samples` is below 1.
        """
        return self.internal_table.can_sample(checks.as_count("num_samples", num_samples))

    def can_insert(self, num_inserts: int) -> bool:
        """Whether the rate limiter would allow this many inserts now.

        Raises:
          TypeError: `num_inserts` is not an int.
          ValueError: `num_inserts` is below 1.
        """
        return self.internal_table.can_insert(checks.as_count("num_inserts", num_inserts))

    def __repr__(self) -> str:
        info = self.info
        return table_text(info, "nullptr" if info.signature is None else format_signature(info.signature))

    def __str__(self) -> str:
        """The text of dm-reverb, where a signature takes a line for each field of its message."""
        from reverb.cc import schema_pb2

        message = schema_pb2.TableInfo.FromString(self.internal_table.info())
        return table_text(self.info, str(message.signature) if message.HasField("signature") else "nullptr")


def _check_free(name: str, sampler: object, remover: object, rate_limiter: RateLimiter) -> None:
    """Checks that both selectors are selectors, that they differ, and that no part belongs to another live table."""
    for role, selector in (("sampler", sampler), ("remover", remover)):
        if not isinstance(selector, Selector):
            checks.refuse(role, "one of reverb.selectors", selector)
    if sampler is remover:
        raise ValueError(
            f"One selector object, {sampler}, is both `sampler` and `remover` of table `{name}`. Create one for each."
        )
    parts = (("sampler", sampler), ("remover", remover), ("rate_limiter", rate_limiter))
    for role, part in parts:
        reference: weakref.ref[Table] | None = cast(Any, part)._owner
        owner = None if reference is None else reference()
        if owner is not None:
            raise ValueError(
                f"`{role}` of table `{name}`, {part}, already belongs to table `{owner.name}`. Create one for each."
            )


class Server:
    """Gives clients access to tables, until it is stopped or garbage-collected.

    An argument that is None is not given: then its environment variable counts, if it has one, else the default. (Only
    `http_port=None` means something else, as it always has.)

    Args:
      tables: Tables to serve, at least one, with distinct names. A table can belong to only one server, ever.
      port: Port to listen on; 0, the default, chooses a free one.
      checkpointer: Checkpointer that saves the tables, and from which the newest undamaged checkpoint is loaded first.
        None saves into a new temporary folder.
      host: Address to listen on; loopback by default, which only programs on this machine can reach. The variable is
        `REVERB_HOST`.
      allow_insecure: Whether to accept a `host` or `http_host` other than loopback, where anyone who can reach it can
        read and write the tables; False by default. With `tls` and `tokens`, neither needs it; a `host` does not need
        it with `tls` that has a `client_ca`. The variable `REVERB_ALLOW_INSECURE=1` accepts them.
      max_message_size: Maximum size in bytes of the data of one insert, 256 MiB by default. Batches are not limited.
      heartbeat_interval: Seconds after which the server, and its clients, send an empty message on a stream whose
        requests wait, so that balancers do not close it; 15 by default. The variable is `REVERB_HEARTBEAT`.
      max_shared_bytes: Limit in bytes on the memory that clients of this host, but of other processes, share with the
        server, to find the data of large batches there and to put that of large inserts there; by default an eighth of
        the memory that the process may use. One client may use half of it. 0 shares none. The variable is
        `REVERB_MAX_SHARED_BYTES`.
      http_port: Port of the live page, metrics and health; `"off"`, or None, switches HTTP off. 0, the default, means
        the variable `REVERB_HTTP_PORT`, a number or `off`, and without it a free port.
      http_host: Address of that port, which needs `allow_insecure` as `host` does; loopback by default. The variable is
        `REVERB_HTTP_HOST`.
      http_allowed_hosts: Further host names of that port in the addresses that browsers open, without ports, such as
        the name of a proxy; none by default. The variable is `REVERB_HTTP_ALLOWED_HOSTS`, a list with commas.
      metrics_per_table: Whether `/metrics` has the metrics of each table, which many tables make long, or those of all
        tables together; True by default. The variable is `REVERB_METRICS_PER_TABLE`, `on` or `off`.
      tls: Files of TLS, which the TCP port then speaks: its clients use addresses with `grpcs://`. None, the default,
        means no TLS. The Unix socket never has it.
      tokens: File of tokens with roles, such as `reverb.Tokens.from_file("tokens.toml")`. Then each call needs one, on
        every road but within this process. None, the default, lets in callers without one.
      unix_peers: Numbers of users whose programs may use the Unix socket, beside the server's own user and root, such
        as those of containers; none by default. It needs `tokens`. The socket then lies in a folder of its own in the
        system's folder for temporary files; see `unix_path`.
      shard: Place of the server in a cluster, such as `reverb.cluster.Shard(id=3, cluster="replay")`: its items then
        get keys that tell the shard. None, the default, means that the server is in no cluster.
      durability: What a confirmed change survives, beside what is in checkpoints: `"process"`, any end of the server's
        process; `"power"`, also a loss of power; or a `reverb.Durability` with further options. It needs a
        `checkpointer`, in whose folder the log lies, and which the next start has, too. None, the default, keeps
        nothing between checkpoints. docs/durability.md has the guarantees.
      accept_loss: Whether a log in that folder which cannot be trusted, or would not be replayed, is set aside: its
        files are renamed, and what they alone have is lost. False, the default, refuses to start and names the files.

    Raises:
      ValueError: There are no tables, names occur more than once, a table already belongs to a server, the port or the
        interval is invalid, a host is not loopback and `allow_insecure` is not set, a file of `tls` or `tokens` cannot
        be read or is wrong, there are `unix_peers` without `tokens`, or a `durability` without a `checkpointer` or with
        one of a temporary folder. Also raised if another server keeps its checkpoints in the same folder, or if the
        checkpoint has a table that is not in `tables`.
      SignatureMismatchError: A table in the checkpoint holds data with another signature.
      DataLossError: There are checkpoints, but all of them are damaged; or the log is damaged, or is not the one of the
        checkpoint.
      StorageError: The server has a `durability`, and its folder cannot be written to.
      TypeError: An argument has the wrong type.
      UnavailableError: A port is in use, or an address cannot be bound.
    """

    # Already there while the constructor runs, because `__del__` also runs if that raises.
    _server: _binding.Server | None = None
    _is_in_block = False

    def __init__(
        self,
        tables: Iterable[Table] | None = None,
        port: int | None = None,
        checkpointer: "CheckpointerBase | None" = None,
        *,
        host: str | None = None,
        allow_insecure: bool | None = None,
        max_message_size: int | None = None,
        heartbeat_interval: float | None = None,
        max_shared_bytes: int | None = None,
        http_port: int | Literal["off"] | None = 0,
        http_host: str | None = None,
        http_allowed_hosts: Sequence[str] | None = None,
        metrics_per_table: bool | None = None,
        tls: ServerTLS | None = None,
        tokens: Tokens | None = None,
        unix_peers: Iterable[int] | None = None,
        shard: Shard | None = None,
        durability: Literal["process", "power"] | Durability | None = None,
        accept_loss: bool | None = None,
    ) -> None:
        arguments = locals()
        # What stands for a value that is not given differs in this one.
        arguments["http_port"] = "off" if http_port is None else http_port or None
        checked = _checked_tables(tables)
        self._start(checked, ServerOptions.of({name: arguments[name] for name in ARGUMENTS}), checkpointer)

    @classmethod
    def of(
        cls, tables: Iterable[Table], options: ServerOptions, checkpointer: "CheckpointerBase | None" = None
    ) -> "Server":
        """Creates a server with options that are complete, so that the environment does not count.

        For other modules of this package. It is not part of the public interface.

        Args:
          tables: Tables to serve, at least one, with distinct names.
          options: All other arguments of the constructor, resolved and checked.
          checkpointer: Checkpointer that saves the tables; None saves into a new temporary folder.

        Raises:
          ValueError, TypeError, SignatureMismatchError, DataLossError, UnavailableError: See the constructor.
        """
        server = cls.__new__(cls)
        server._start(_checked_tables(tables), options, checkpointer)
        return server

    def _start(self, tables: list[Table], options: ServerOptions, checkpointer: "CheckpointerBase | None") -> None:
        self._pid = os.getpid()
        _binding.Server.set_last(not returns_by_default())
        self._tables = tables
        if options.durable.durability is not None:
            _check_returns_to_folder(checkpointer)
        self._checkpointer = _default_checkpointer() if checkpointer is None else checkpointer
        internal = _internal_checkpointer(self._checkpointer)
        self._server = _binding.Server([table.internal_table for table in tables], options, internal)
        self._port = self._server.port
        for table in self._tables:
            table._server = weakref.ref(self)
        if getattr(self._checkpointer, "save_on_stop", False):
            _saving_at_exit.add(self)
        announce(self.dashboard_url)
        hosts = (options.listen.host, options.observe.http_host)
        if options.security.sends_tokens_openly and not all(map(is_loopback, hosts)):
            _logger.warning("clients from other machines send their tokens without encryption; see `tls`")

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._port

    @property
    def host(self) -> str | None:
        """The address that the server listens on; None if it has never listened."""
        return None if self._server is None else self._server.host

    @property
    def unix_path(self) -> str | None:
        """The Unix socket that clients on this machine use automatically instead of the port; None if there is none."""
        return None if self._server is None else self._server.unix_path

    @property
    def http_port(self) -> int | None:
        """The port of the live page, metrics and health; None if HTTP is off."""
        return None if self._server is None else self._server.http_port

    @property
    def dashboard_url(self) -> str | None:
        """The address of the live page; None if HTTP is off."""
        return None if self._server is None else self._server.dashboard_url

    @property
    def restored_from(self) -> str | None:
        """The path of the checkpoint that was loaded when the server was created; None if there was none."""
        return None if self._server is None else self._server.restored_from

    def localhost_client(self) -> Client:
        """Creates a client of this server, for programs on this machine."""
        return Client(f"localhost:{self._port}")

    def reload(self) -> None:
        """Reads the files of `tls` and `tokens` again, if they have changed, without waiting the usual 5 s or less.

        Files that are wrong are refused with a warning, and what was read before stays in use.
        """
        if self._server is not None:
            self._server.reload()

    def stop(self, *, returns: bool = False) -> None:
        """Closes the tables for good, fails all waiting calls, and stops listening. May be called more than once.

        If the checkpointer has `save_on_stop`, the tables are then saved. Such a server also stops at interpreter exit,
        after the program's writers have been closed.

        Args:
          returns: Whether a server will be back at this address, so that clients in other processes go on waiting for
            it. By default they are told that the server was stopped for good, and raise ServerStoppedError.

        Raises:
          StorageError: The save failed, or the log could not be synced. The server has stopped nevertheless.
        """
        self._end("returns" if returns else "for good")

    def _end(self, end: Literal["for good", "returns", "with program", "collected"]) -> None:
        if self._server is not None:
            self._server.stop(end)
            _saving_at_exit.discard(self)

    def wait(self, timeout: float | None = None, *, returns: bool | None = None) -> bool:
        """Waits until the server is stopped.

        Args:
          timeout: Time limit in seconds; None means no limit.
          returns: Whether clients in other processes are told, if a signal ends the wait, that a server will be back at
            this address. None means True, but False in a `with` block of the server, or if the variable
            `REVERB_RETURNS` is 0.

        Returns:
          True if the server has stopped, immediately if it had stopped before; False if the timeout passed.

        Raises:
          KeyboardInterrupt: Ctrl-C was pressed. The server has then been stopped.
          SystemExit: The process received SIGTERM, and the exit status is 143. The server has then been stopped. Other
            threads than the main one leave SIGTERM as it was, and a handler that the program has installed stays. If
            that raises SystemExit, the server is stopped as well.
          StorageError: The server was stopped by Ctrl-C or SIGTERM, and the save failed.
          ValueError: `timeout` is negative.
        """
        if self._server is None:
            return True
        if returns is None:
            returns = not self._is_in_block and returns_by_default()
        sigterm = ExitOnSigterm()
        try:
            sigterm.begin()
            return self._server.wait(checks.as_timeout(timeout))
        except (KeyboardInterrupt, SystemExit) as error:
            reason = "Ctrl-C"
            if isinstance(error, SystemExit):
                reason = "SIGTERM" if error.code == SIGTERM_STATUS else "SystemExit"
            _logger.info("the server at %s, port %s stops because of %s", self.host, self.port, reason)
            self.stop(returns=returns)
            raise
        finally:
            # Not before the save, which a second SIGTERM must not interrupt.
            sigterm.end()

    def __enter__(self) -> "Server":
        self._is_in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __del__(self) -> None:
        # A forked child must not stop its parent's server. At interpreter exit, any module may already be gone.
        try:
            if self._pid == os.getpid():
                # Without a caller, it is the end of the program that has released the server.
                is_exiting = sys.is_finalizing() or sys._getframe().f_back is None
                self._end("with program" if is_exiting else "collected")
        except Exception:
            pass

    def __repr__(self) -> str:
        tables = ", ".join(table.name for table in self._tables)
        return f"Server(port={self._port}, tables=[{tables}], checkpointer={self._checkpointer})"

    def __str__(self) -> str:
        """The text of dm-reverb."""
        tables = ", ".join(map(str, self._tables))
        return (
            f"Server(port={self._port}, reverb_service=ReverbServiceAsync(tables=[{tables}], "
            f"checkpointer={self._checkpointer}))"
        )


def _unsaved() -> list[Server]:
    """The servers that have yet to save a last checkpoint. Servers of the parent of a forked child do not count."""
    return [server for server in _saving_at_exit if server._pid == os.getpid()]


def _save_all() -> None:
    """Stops the servers that have yet to save a last checkpoint."""
    for server in _unsaved():
        try:
            server._end("with program")
        except Exception as error:
            _logger.error("A server could not save its tables at interpreter exit: %s", error)


at_exit(Stage.SERVERS, _save_all, is_due=lambda: bool(_unsaved()))


def _default_checkpointer() -> "CheckpointerBase":
    from reverb.platform.default import checkpointers

    return checkpointers.default_checkpointer()


def _check_returns_to_folder(checkpointer: "CheckpointerBase | None") -> None:
    """Refuses a checkpointer whose folder no later start finds again."""
    if checkpointer is None or getattr(checkpointer, "_is_temporary", False):
        raise ValueError(
            "durability needs a folder that the next start finds again, and not a temporary one: pass "
            'checkpointer=reverb.checkpointers.DefaultCheckpointer("/path/of/a/folder")'
        )


def _internal_checkpointer(checkpointer: "CheckpointerBase") -> _binding.Checkpointer:
    make = getattr(checkpointer, "internal_checkpointer", None)
    if make is None:
        checks.refuse("checkpointer", "a checkpointer, such as reverb.checkpointers.DefaultCheckpointer", checkpointer)
    internal = make()
    if hasattr(internal, "internal_checkpointer"):
        # One of `reverb.pybind`, as checkpointers written for dm-reverb return it.
        internal = internal.internal_checkpointer()
    if not isinstance(internal, _binding.Checkpointer):
        checks.refuse(
            "checkpointer", "one whose internal_checkpointer() returns a reverb.pybind.Checkpointer", internal
        )
    return internal


def _checked_tables(tables: Iterable[Table] | None) -> list[Table]:
    """Checks the tables and returns them as a list, because an iterator can be read only once."""
    if isinstance(tables, Table):
        raise TypeError(f"tables: a list, Server([table]); got the table `{tables.name}` alone.")
    listed = [] if tables is None else list(tables)
    if not listed:
        raise ValueError("At least one table must be provided")
    for table in listed:
        if not isinstance(table, Table):
            checks.refuse("tables", "a sequence of tables", table)
    names = [table.name for table in listed]
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise ValueError(f"Multiple items in tables have the same name: {', '.join(repeated)}")
    for table in listed:
        if table._server is not None:
            raise ValueError(
                f"Table `{table.name}` already belongs to a server, possibly one that has stopped. Create a new table, "
                f"for instance with `replace()`."
            )
    return listed
