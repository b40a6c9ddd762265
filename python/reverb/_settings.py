"""The settings of a server, and the only place of the package that reads the environment.

`SETTINGS` is the one table of them. The flags and the help of `reverb serve`, the keys of its file, the variables, the
defaults of `Server` and the table in `docs/operate.md` are made from it, or checked against it.

Everywhere else None stands for a setting that is not given: then the variable counts, else the default.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

from reverb.data import checks
from reverb.data.durability import MODES, Durability, as_durability
from reverb.data.endpoint import Endpoint
from reverb.data.shard import Shard
from reverb.data.tls import ROLES, TLS, ServerTLS
from reverb.data.tokens import Tokens

# Variables of the commands, for arguments that are no settings of a server.
ADDRESS, CONFIG = "REVERB_ADDRESS", "REVERB_CONFIG"
# Variables of clients of servers with TLS, and what they stand for.
_CA, _CERT, _KEY = "REVERB_CA", "REVERB_CERT", "REVERB_KEY"
# Variables of clients of servers with tokens: a token, or the path of a file with one.
_TOKEN, _TOKEN_FILE = "REVERB_TOKEN", "REVERB_TOKEN_FILE"
# Texts of a variable that mean false to the flags of `reverb serve`, too.
_FALSE = ("0", "f", "false", "n", "no", "off")

_PORTS = range(2**16)
# The last one stands for none.
_USER_NUMBERS = range(2**32 - 1)
_LONGEST_S = 1e9
# limit (Chunks and messages): decoded data of one insert, of one chunk of a writer, and of the compressed chunks of one
# message of a writer, which writers cut | {:bytes} | `MessageTooLargeError` | `Server(max_message_size=)`
# limit (Beside dm-reverb): memory of the chunks of one message of dm-reverb's clients, and decoded data of each
# | {:bytes} | `INVALID_ARGUMENT`; the stream ends | `Server(max_message_size=)`
_MAX_MESSAGE_SIZE = 256 << 20
# What switches HTTP off: a word, or the None that `Server` has taken ever since.
_OFF = {"http_port": "None", "REVERB_HTTP_PORT": "off"}
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")
# Loopback, in both address families.
_LOCAL = "localhost"


def _same(name: str, value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True)
class Kind:
    """The values that a setting takes.

    Attributes:
      flag: Type of a flag's value.
      in_file: Types of values in the file.
      words: What an error says that the value must be.
      texts: Texts that the file may have; empty means any.
      metavar: Placeholder of the value in the help; None means that of the type.
      of_text: Function that makes the value for `Server` from the name and the text of a variable.
    """

    flag: Any
    in_file: type | tuple[type, ...]
    words: str
    texts: tuple[str, ...] = ()
    metavar: str | None = None
    of_text: Callable[[str, str], Any] = _same

    def check_in_file(self, key: str, value: Any) -> None:
        """Raises a ValueError if the file must not have this value."""
        # To Python, true and false are numbers.
        is_kind = isinstance(value, self.in_file) and isinstance(value, bool) == (self.in_file is bool)
        if not is_kind or (self.texts and isinstance(value, str) and value not in self.texts):
            raise ValueError(f"{key} must be {self.words}, got {value!r}")


def _choice(*texts: str, of_text: Callable[[str, str], Any] = _same) -> Kind:
    flag = cast(Any, enum.Enum)("Choice", [(text, text) for text in texts])
    return Kind(flag, str, f"one of {', '.join(texts)}", texts, of_text=of_text)


def _number_of(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text!r}") from None


def _seconds_of(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number of seconds, got {text!r}") from None


def _port_of(name: str, text: str) -> int | Literal["off"]:
    if text == "off":
        return "off"
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} must be between 0 and 65535, or off, got {text!r}")
    return int(text)


def _is_on(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError(f"{name} must be on or off, got {text!r}")
    return text == "on"


def _names_of(name: str, text: str) -> list[str]:
    return [part for part in text.split(",") if part.strip()]


def _users_of(name: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{name} must be numbers of users with commas between them, got {text!r}")
    return [int(part) for part in parts]


NUMBER = Kind(int, int, "a number", of_text=_number_of)
TEXT = Kind(str, str, "a text")
_SECONDS = Kind(float, (int, float), "a number of seconds", of_text=_seconds_of)
TRUE_OR_FALSE = Kind(bool, bool, "true or false", of_text=lambda name, text: text == "1")
_ON_OR_OFF = _choice("on", "off", of_text=_is_on)
_PORT_OR_OFF = Kind(str, (int, str), 'a number or "off"', ("off",), "N|off", _port_of)
_NAMES = Kind(str, (list, str), "a list of texts", (), "NAME,...", _names_of)
_USERS = Kind(str, (list, str), "a list of numbers", (), "UID,...", _users_of)


def _truth(name: str, value: Any) -> bool:
    return bool(value)


def _checked_port(name: str, value: Any) -> int:
    number = checks.as_int32(name, value)
    if number not in _PORTS:
        raise ValueError(f"Failed to BuildAndStart gRPC server: port {number} is not between 0 and 65535")
    return number


def _checked_http_port(name: str, value: Any) -> int | Literal["off"]:
    if value == "off":
        return "off"
    number = checks.as_int32(name, value)
    if number not in _PORTS:
        raise ValueError(f"{name} must be between 0 and 65535, or {_OFF[name]}, got {number}")
    return number


def _checked_host(name: str, value: Any) -> str:
    if not isinstance(value, str):
        checks.refuse(name, "a str", value)
    return value


def _checked_host_names(name: str, value: Any) -> tuple[str, ...]:
    """The names without the spaces around them."""
    if isinstance(value, str):
        checks.refuse(name, "a sequence of host names", value)
    listed = []
    for host in value:
        if not isinstance(host, str):
            checks.refuse(name, "a sequence of host names", host)
        if not _HOST_NAME.fullmatch(host.strip()):
            raise ValueError(f"{name} must be host names without a scheme or a port, got {host!r}")
        listed.append(host.strip())
    return tuple(listed)


def _checked_tls(name: str, value: Any) -> ServerTLS | None:
    if value is not None and not isinstance(value, ServerTLS):
        checks.refuse(name, "a reverb.ServerTLS", value)
    return value


def _checked_tokens(name: str, value: Any) -> Tokens | None:
    if value is not None and not isinstance(value, Tokens):
        checks.refuse(name, "a reverb.Tokens", value)
    return value


def _checked_shard(name: str, value: Any) -> Shard | None:
    if value is not None and not isinstance(value, Shard):
        checks.refuse(name, "a reverb.cluster.Shard", value)
    return value


def _checked_users(name: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        checks.refuse(name, "numbers of users", value)
    users = sorted(checks.as_int(name, user) for user in value)
    for user in users:
        if user not in _USER_NUMBERS:
            raise ValueError(f"{name} must be numbers of users from 0 to {_USER_NUMBERS[-1]}, got {user}")
    return tuple(users)


def _checked_heartbeat(name: str, value: Any) -> float:
    seconds = checks.as_float(name, value)
    if not 0.001 <= seconds <= _LONGEST_S:
        raise ValueError(f"{name} must be a number of seconds from 0.001 to {_LONGEST_S:.0f}, got {seconds}")
    return seconds


def _checked_shared_bytes(name: str, value: Any) -> int | None:
    return None if value is None else checks.as_bytes(name, value)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A row of the table.

    Attributes:
      name: Name of the flag, with underscores; that of the variable is the same in capitals, after `REVERB_`.
      key: Key of the file, with its section.
      kind: Values that the setting takes.
      default: Value that holds if none is given.
      help: Description in the help of the flag, and in the docs.
      shown: What `--check` and the docs say of the default; empty means the default itself.
      check: Function that checks the value of an argument of `Server`, which is also given the name to complain of, and
        converts it. None means that `reverb serve` alone has the setting.
      argument: Name of the argument of `Server`; empty means that of the flag.
      is_in_library: Whether `Server` reads the variable in every program, and not only in `reverb serve`.
      flags: Declaration of the flag, if there is more to it than its name.
    """

    name: str
    key: str
    kind: Kind
    default: Any
    help: str
    shown: str = ""
    check: Callable[[str, Any], Any] | None = None
    argument: str = ""
    is_in_library: bool = True
    flags: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The flag of `reverb serve`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"REVERB_{self.name.upper()}"

    @property
    def default_text(self) -> str:
        """What people are told of the default."""
        return self.shown or str(self.default)

    def resolve(self, given: Any, reads_environment: bool) -> tuple[str, Any]:
        """The value for `Server`: the given one, else that of the variable, else the default; and how it was given.

        Raises:
          ValueError, TypeError: The value is invalid. The error names the argument or the variable.
        """
        assert self.check is not None
        name, value = self.argument or self.name, given
        if value is None:
            text = os.environ.get(self.variable) if reads_environment and self.is_in_library else None
            name, value = (self.variable, text) if text else (name, self.default)
            if isinstance(value, str):
                value = self.kind.of_text(name, value)
        return name, self.check(name, value)


# In the order of the help.
SETTINGS = (
    Setting(
        "port", "port", NUMBER, 0, "Port; by default, a free one.", "a free port", _checked_port, is_in_library=False
    ),
    Setting("host", "host", TEXT, _LOCAL, "Host; by default, this machine only.", "127.0.0.1", _checked_host),
    Setting(
        *("allow_insecure", "allow_insecure", TRUE_OR_FALSE, False),
        shown="no",
        help="Allow access from other machines, unauthenticated.",
        check=_truth,
    ),
    Setting(
        *("tls_cert", "tls.cert", TEXT, None),
        shown="no TLS",
        help="File of the server's certificate, in PEM; switches TLS on.",
    ),
    Setting(
        *("tls_key", "tls.key", TEXT, None),
        shown="none",
        help="File of the certificate's private key, in PEM.",
    ),
    Setting(
        *("tls_client_ca", "tls.client_ca", TEXT, None),
        shown="clients need no certificate",
        help="File of the authorities, in PEM, one of which must have signed the certificate of each client.",
    ),
    Setting(
        *("tls_client_role", "tls.client_role", _choice(*ROLES), "use"),
        help="What clients with such a certificate may do, where there are no tokens.",
    ),
    Setting(
        *("tokens_file", "auth.tokens_file", TEXT, None),
        shown="nobody needs a token",
        help="File of tokens, with their roles; see `reverb token new`.",
    ),
    Setting(
        *("unix_peers", "auth.unix_peers", _USERS, ()),
        shown="none beside the server's own and root",
        help="Numbers of users whose programs may use the Unix socket, too; needs tokens.",
        check=_checked_users,
        is_in_library=False,
    ),
    Setting(
        *("audit_log", "auth.audit_log", TEXT, None),
        shown="none",
        help="File to which a line of JSON is added when somebody connects, resets, deletes, configures or is refused.",
    ),
    Setting(
        *("shard_id", "shard.id", NUMBER, None),
        shown="no shard",
        help="Number of the shard of a cluster that the server is, from 0 to 255; needs the cluster.",
    ),
    Setting(
        *("shard_cluster", "shard.cluster", TEXT, None),
        shown="none",
        help="Name of the cluster, the same for all of its shards; needs the number of the shard.",
    ),
    Setting(
        *("max_message_size", "max_message_size", NUMBER, _MAX_MESSAGE_SIZE),
        help="Maximum bytes of the data of one insert.",
        check=checks.as_count,
        is_in_library=False,
    ),
    Setting(
        *("http_port", "http.port", _PORT_OR_OFF, 0),
        shown="a free port",
        help="Port of the page, metrics and health; by default, a free one.",
        check=_checked_http_port,
    ),
    Setting(
        *("http_host", "http.host", TEXT, _LOCAL),
        shown="127.0.0.1",
        help="Host of that port; by default, this machine only.",
        check=_checked_host,
    ),
    Setting(
        *("http_allowed_hosts", "http.allowed_hosts", _NAMES, ""),
        shown="none beside the names of this machine",
        help="Further host names in the addresses that browsers open, such as that of a proxy.",
        check=_checked_host_names,
    ),
    Setting(
        *("metrics_per_table", "metrics.per_table", _ON_OR_OFF, "on"),
        help="Metrics of each table, or of their sum.",
        check=_truth,
    ),
    Setting(
        *("checkpoint_path", "checkpoint.path", TEXT, None),
        shown="a temporary folder, removed at the end",
        help="Folder to save to and load from.",
    ),
    Setting(
        *("interval", "checkpoint.interval", _SECONDS, None),
        shown="saves only when a client asks",
        help="Seconds between checkpoints.",
    ),
    Setting(
        *("save_on_stop", "checkpoint.save_on_stop", TRUE_OR_FALSE, None),
        shown="no",
        help="Save a last checkpoint on Ctrl-C or SIGTERM.",
    ),
    Setting("keep", "checkpoint.keep", NUMBER, None, "Number of undamaged checkpoints to keep.", "1"),
    Setting(
        *("durability", "durability.mode", _choice(*MODES), None),
        shown="changes between checkpoints are lost",
        help="What a confirmed change survives: any end of the process, or also a loss of power; needs a folder.",
    ),
    Setting(
        *("sync_interval", "durability.sync_interval", _SECONDS, None),
        shown="1",
        help="Seconds after which the log is synced to the disk at the latest; needs a durability.",
    ),
    Setting(
        *("max_log_bytes", "durability.max_log_bytes", NUMBER, None),
        shown="those of the tables, 1 GiB at least",
        help="Bytes of the log after which a checkpoint is saved; needs a durability.",
    ),
    Setting(
        *("accept_loss", "durability.accept_loss", TRUE_OR_FALSE, False),
        shown="no",
        help="Set aside a log that is damaged or would not be replayed, and start without it.",
        check=checks.as_flag,
        is_in_library=False,
    ),
    Setting(
        *("heartbeat", "heartbeat", _SECONDS, 15.0),
        help="Seconds between empty messages on waiting streams.",
        check=_checked_heartbeat,
        argument="heartbeat_interval",
    ),
    Setting(
        *("max_shared_bytes", "max_shared_bytes", NUMBER, None),
        shown="an eighth of the memory",
        help="Bytes of memory that clients of this host may share; 0 shares none.",
        check=_checked_shared_bytes,
    ),
    Setting(
        *("returns", "returns", TRUE_OR_FALSE, True),
        shown="yes",
        help="Clients wait for the server to come back after Ctrl-C or SIGTERM; not with `--no-return`.",
        flags=("--returns/--no-return", " /--no-returns"),
    ),
    Setting(
        *("log_format", "log.format", _choice("text", "json"), "text"),
        help="Log lines as text, or as JSON objects.",
    ),
    Setting(
        *("log_level", "log.level", _choice("debug", "info", "warning", "error", "critical"), "info"),
        help="Least level of log lines.",
    ),
)


# An argument of `Server` that stands for several settings of `reverb serve`.
_TLS = Setting("tls", "tls", TEXT, None, "Files of TLS.", check=_checked_tls, is_in_library=False)
_TOKENS = Setting("tokens", "auth.tokens_file", TEXT, None, "Tokens.", check=_checked_tokens, is_in_library=False)
_DURABILITY = Setting(
    "durability", "durability", TEXT, None, "Log of changes.", check=as_durability, is_in_library=False
)
_SHARD = Setting("shard", "shard", TEXT, None, "Shard of a cluster.", check=_checked_shard, is_in_library=False)
# Those that are arguments of `Server`, by their names there.
ARGUMENTS = {
    setting.argument or setting.name: setting
    for setting in (*SETTINGS, _TLS, _TOKENS, _SHARD, _DURABILITY)
    if setting.check is not None
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """Where a server listens for clients, what it takes from them, and which shard it is.

    The extension reads the fields by name.

    Attributes:
      port: Port to listen on; 0 chooses a free one.
      host: Address to listen on; `localhost` means loopback in both address families.
      max_message_size: Maximum size in bytes of the data of one insert.
      heartbeat_interval: Seconds after which an empty message is sent on a stream whose requests wait.
      max_shared_bytes: Bytes of memory that clients of this host may share; None means the default of the extension.
      shard: Its place in a cluster, read by the names of its fields; None if it is in none.
    """

    port: int
    host: str
    max_message_size: int
    heartbeat_interval: float
    max_shared_bytes: int | None
    shard: Shard | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecurityOptions:
    """Who may use a server.

    Attributes:
      allow_insecure: Whether hosts other than loopback are accepted, where anyone who can reach them gets in.
      tls: Files of TLS; None means none. The extension reads it by the names of its fields.
      tokens: File of tokens, which it reads in the same way; None lets in callers without one.
      unix_peers: Numbers of users whose programs may use the Unix socket, beside the server's own and root.
      audit_log: File to which a line is added for what is audited; None means that only the log has them.
    """

    allow_insecure: bool
    tls: ServerTLS | None
    tokens: Tokens | None
    unix_peers: tuple[int, ...]
    audit_log: str | None = None

    @property
    def sends_tokens_openly(self) -> bool:
        """Whether tokens travel without encryption where callers come over TCP."""
        return self.tokens is not None and self.tls is None

    def check(self, what: str, means: str, host: str, *, needs_certificate: bool = False) -> None:
        """Raises a ValueError if listening at the host lets in more than is allowed, with what that means.

        Args:
          what: Subject of the error's sentence.
          means: What everyone could do who reaches the host.
          host: Address to listen on.
          needs_certificate: Whether the port lets in only clients with a certificate.
        """
        is_closed = self.tls is not None and (self.tokens is not None or needs_certificate)
        if is_closed or self.allow_insecure or is_loopback(host):
            return
        if self.sends_tokens_openly:
            danger = "lets everyone on the way to this machine read data and tokens, without encryption"
        else:
            without = "a password or encryption" if self.tls is None else "a password"
            danger = f"lets anyone who can reach this machine {means}, without {without}"
        raise ValueError(
            f"{what} {danger}. If that is intended, pass allow_insecure=True, or set REVERB_ALLOW_INSECURE=1 in the "
            f"environment."
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObserveOptions:
    """What a server shows of itself, and where. The extension reads the fields by name.

    Attributes:
      http_port: Port of the live page, metrics and health; 0 chooses a free one, and `off` switches HTTP off.
      http_host: Address of that port; `localhost` means loopback in both address families.
      http_allowed_hosts: Further host names in the addresses that browsers open.
      metrics_per_table: Whether metrics are by table.
    """

    http_port: int | Literal["off"]
    http_host: str
    http_allowed_hosts: tuple[str, ...]
    metrics_per_table: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class DurableOptions:
    """What a server keeps between its checkpoints. The extension reads the fields by name.

    Attributes:
      durability: Log of all changes; None means that there is none.
      accept_loss: Whether a log that cannot be trusted, or that would not be replayed, is set aside.
    """

    durability: Durability | None
    accept_loss: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """All that a server is told beside its tables and where it keeps checkpoints. All values are set and checked.

    Attributes:
      listen: Where it listens for clients.
      security: Who may use it.
      observe: What it shows of itself.
      durable: What it keeps between its checkpoints.
    """

    listen: ListenOptions
    security: SecurityOptions
    observe: ObserveOptions
    durable: DurableOptions

    def with_audit_log(self, path: str | None) -> ServerOptions:
        """These options with a file for the audit, which commands alone have."""
        return dataclasses.replace(self, security=dataclasses.replace(self.security, audit_log=path or None))

    @classmethod
    def of(cls, given: Mapping[str, Any], *, reads_environment: bool = True) -> ServerOptions:
        """The options of a server that was given these arguments.

        Args:
          given: Values by the names of Server's arguments. One that is None or missing is that of the environment, else
            the default.
          reads_environment: Whether the environment counts. `reverb serve` has read it already.

        Raises:
          TypeError: An argument has the wrong type.
          ValueError: An argument or a variable is invalid, or a host is not loopback, and neither the caller nor
            `REVERB_ALLOW_INSECURE` allows that.
        """
        names: dict[str, str] = {}
        values: dict[str, Any] = {}
        # What HTTP would need is not even checked where it is off.
        without = {field.name for field in dataclasses.fields(ObserveOptions)} - {"http_port"}
        for argument, setting in ARGUMENTS.items():
            is_off = argument in without and values["http_port"] == "off"
            value, reads = (None, False) if is_off else (given.get(argument), reads_environment)
            names[argument], values[argument] = setting.resolve(value, reads)
        host = values["http_host"]
        if host != _LOCAL and _HOST_NAME.fullmatch(host):
            # Browsers send the host as it is named to them, and not its address.
            values["http_allowed_hosts"] += (host,)

        def part(kind: type) -> Any:
            return kind(**{field.name: values[field.name] for field in dataclasses.fields(kind)})

        tls = values["tls"]
        # Only commands have one.
        values["audit_log"] = None
        options = cls(
            listen=part(ListenOptions),
            security=part(SecurityOptions),
            observe=part(ObserveOptions),
            durable=part(DurableOptions),
        )
        if options.security.unix_peers and options.security.tokens is None:
            raise ValueError(
                f"{names['unix_peers']} needs tokens: who else is at the Unix socket has to prove who it is"
            )
        options.security.check(
            f"Listening on {values['host']!r}",
            "read and write the tables",
            values["host"],
            needs_certificate=tls is not None and tls.client_ca is not None,
        )
        options.security.check(f"{names['http_host']}={host!r}", "read the tables and see who uses them", host)
        return options


def tls_of(values: Mapping[str, Any]) -> ServerTLS | None:
    """The files of TLS, by the names of their settings; None without a certificate.

    Raises:
      ValueError: A certificate lacks its key, or there are other files without one.
    """
    cert, key, client_ca = (values.get(name) or None for name in ("tls_cert", "tls_key", "tls_client_ca"))
    if (cert is None) != (key is None):
        raise ValueError("TLS needs both tls_cert and tls_key")
    if cert is None or key is None:
        if client_ca is not None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key")
        return None
    return ServerTLS(cert, key, client_ca, values.get("tls_client_role") or "use")


def tokens_of(values: Mapping[str, Any]) -> Tokens | None:
    """The file of tokens, by the name of its setting; None if nobody needs one."""
    path = values.get("tokens_file")
    return Tokens(path) if path else None


def shard_of(values: Mapping[str, Any]) -> Shard | None:
    """The shard that a server is, by the names of its settings; None if it is none.

    Raises:
      ValueError: One of the number and the cluster is missing, or invalid.
    """
    number, cluster = values.get("shard_id"), values.get("shard_cluster") or None
    if number in (None, "") and cluster is None:
        return None
    if number in (None, "") or cluster is None:
        raise ValueError("a shard needs both shard_id and shard_cluster")
    try:
        return Shard(int(number), cluster)
    except ValueError as error:
        raise ValueError(f"shard_id={number!r}, shard_cluster={cluster!r}: {error}") from None


def durability_of(values: Mapping[str, Any]) -> Durability | None:
    """The log of changes, by the names of its settings; None without one.

    Raises:
      ValueError: A value is out of range, or there are others without a mode.
    """
    given = {name: values[name] for name in ("sync_interval", "max_log_bytes") if values.get(name) is not None}
    mode = values.get("durability") or None
    if mode is None:
        if given:
            raise ValueError(f"{' and '.join(given)} needs durability, which is one of {', '.join(MODES)}")
        return None
    return Durability(mode, **given)


def options_of_environment(given: Mapping[str, Any]) -> ServerOptions:
    """The options of a server of the command `reverb_server`.

    The environment also names files of TLS and of tokens, and the shard that the server is.

    Args:
      given: Values by the names of Server's arguments.

    Raises:
      ValueError, TypeError: Those of `ServerOptions.of`, of `tls_of` and of `shard_of`.
    """
    values = {setting.name: os.environ.get(setting.variable) for setting in SETTINGS}
    users = _users_of("REVERB_UNIX_PEERS", values["unix_peers"] or "")
    made = {"tls": tls_of(values), "tokens": tokens_of(values), "unix_peers": users, "shard": shard_of(values)}
    return ServerOptions.of({**given, **made}).with_audit_log(values["audit_log"])


def with_environment(endpoint: Endpoint) -> Endpoint:
    """The endpoint with what the environment adds to it: a token, and files for an address with `grpcs://`.

    Raises:
      ValueError: There are files for an address without it, the environment names only one of certificate and key, or
        it has two tokens.
    """
    _, allow_insecure = ARGUMENTS["allow_insecure"].resolve(endpoint.allow_insecure, True)
    endpoint = dataclasses.replace(endpoint, allow_insecure=allow_insecure)
    if not endpoint.has_token:
        token, token_file = (os.environ.get(name) or None for name in (_TOKEN, _TOKEN_FILE))
        if token is not None and token_file is not None:
            raise ValueError(f"the environment has both {_TOKEN} and {_TOKEN_FILE}: set one of them")
        endpoint = dataclasses.replace(endpoint, token=token, token_file=token_file)
    if not endpoint.is_tls:
        if endpoint.tls is not None:
            raise ValueError(f"tls needs an address with grpcs://, got {endpoint.address!r}")
        return endpoint
    given = endpoint.tls or TLS()
    ca, cert, key = (os.environ.get(name) or None for name in (_CA, _CERT, _KEY))
    if given.cert is not None:
        cert, key = given.cert, given.key
    if (cert is None) != (key is None):
        raise ValueError(f"TLS needs both {_CERT} and {_KEY} in the environment, or neither")
    return dataclasses.replace(endpoint, tls=TLS(given.ca or ca, cert, key, given.server_name))


def returns_by_default() -> bool:
    """Whether servers of this process will be back after a signal or an error, unless the program says otherwise."""
    return os.environ.get("REVERB_RETURNS", "").strip().lower() not in _FALSE


def variables_set() -> list[str]:
    """The names of the variables of this package that the environment sets, without their values."""
    return sorted(name for name in os.environ if name.startswith("REVERB_"))


def without_values(text: str) -> str:
    """The text with the names of these variables, such as `$REVERB_CA`, in place of their values."""
    for name in variables_set():
        if os.environ[name]:
            text = re.sub(rf"(?<!\w){re.escape(os.environ[name])}(?!\w)", f"${name}", text)
    return text


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach the host."""
    import ipaddress

    if host == _LOCAL:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
