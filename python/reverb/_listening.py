"""Where a server listens for gRPC and HTTP, how its streams show that they are alive, and who is told its page."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterable

from reverb.data import checks

__all__ = ["announce", "as_port", "checked_heartbeat", "checked_host", "checked_http", "host_names"]

_logger = logging.getLogger("reverb")
_PORTS = range(2**16)
# Balancers close streams on which nothing is sent, often after 50 or 60 seconds.
_HEARTBEAT_S = 15.0
_LONGEST_S = 1e9
# How each of them switches HTTP off.
_OFF = {"http_port": "None", "REVERB_HTTP_PORT": "off"}
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")


def as_port(port: object) -> int | None:
    """Converts a port number; None stays None.

    Raises:
      TypeError, ValueError: The value is not a valid port number.
    """
    if port is None:
        return None
    number = checks.as_int32("port", port)
    if number not in _PORTS:
        raise ValueError(f"Failed to BuildAndStart gRPC server: port {number} is not between 0 and 65535")
    return number


def checked_host(host: object, allow_insecure: bool | None) -> str | None:
    """The host to listen on: the given one, else that of `REVERB_HOST`, else None for loopback.

    Raises:
      TypeError: The host is not a str.
      ValueError: The host is not loopback, and neither the caller nor `REVERB_ALLOW_INSECURE` allows that.
    """
    if host is None:
        host = os.environ.get("REVERB_HOST")
        if not host:
            return None
    if not isinstance(host, str):
        checks.refuse("host", "a str", host)
    _check_open(f"Listening on {host!r}", "read and write the tables", host, allow_insecure)
    return host


def checked_http(
    port: object,
    host: object,
    allowed_hosts: Iterable[str] | None,
    metrics_per_table: bool | None,
    allow_insecure: bool | None,
) -> tuple[str | None, int, list[str], bool] | None:
    """The host of the HTTP port, its number, its further names, and whether metrics are by table.

    What is not given is that of the environment.

    Returns:
      None if HTTP is off.

    Raises:
      TypeError: An argument has the wrong type.
      ValueError: The port or a name is invalid, or the host is not loopback, and neither the caller nor
        `REVERB_ALLOW_INSECURE` allows that.
    """
    number = _http_port(port)
    if number is None:
        return None
    name = "http_host"
    if host is None:
        name, host = "REVERB_HTTP_HOST", os.environ.get("REVERB_HTTP_HOST") or None
    if host is not None:
        if not isinstance(host, str):
            checks.refuse(name, "a str", host)
        _check_open(f"{name}={host!r}", "read the tables and see who uses them", host, allow_insecure)
    return host, number, _allowed_hosts(allowed_hosts), _metrics_per_table(metrics_per_table)


def _http_port(port: object) -> int | None:
    if port is None:
        return None
    name, number = "http_port", checks.as_int32("http_port", port)
    text = os.environ.get("REVERB_HTTP_PORT")
    if number == 0 and text:
        if text == "off":
            return None
        name = "REVERB_HTTP_PORT"
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"{name} must be between 0 and 65535, or off, got {text!r}")
        number = int(text)
    if number not in _PORTS:
        raise ValueError(f"{name} must be between 0 and 65535, or {_OFF[name]}, got {number}")
    return number


def _metrics_per_table(given: bool | None) -> bool:
    if given is not None:
        return bool(given)
    text = os.environ.get("REVERB_METRICS_PER_TABLE") or "on"
    if text not in ("on", "off"):
        raise ValueError(f"REVERB_METRICS_PER_TABLE must be on or off, got {text!r}")
    return text == "on"


def _allowed_hosts(names: Iterable[str] | None) -> list[str]:
    if names is None:
        option = "REVERB_HTTP_ALLOWED_HOSTS"
        text = os.environ.get(option)
        return host_names(option, text.split(",")) if text else []
    if isinstance(names, str):
        checks.refuse("http_allowed_hosts", "a sequence of host names", names)
    return host_names("http_allowed_hosts", names)


def host_names(option: str, names: Iterable[str]) -> list[str]:
    """The names without the spaces around them.

    Raises:
      TypeError: A name is not a str.
      ValueError: A name is not that of a host.
    """
    listed = []
    for name in names:
        if not isinstance(name, str):
            checks.refuse(option, "a sequence of host names", name)
        if not _HOST_NAME.fullmatch(name.strip()):
            raise ValueError(f"{option} must be host names without a scheme or a port, got {name!r}")
        listed.append(name.strip())
    return listed


def announce(url: str | None) -> None:
    """Tells the address of the live page where a person looks: at a prompt, in a terminal, or in a notebook.

    Elsewhere it is logged, so that programs that read the output of others do not find it there. None says nothing.
    """
    if url is None:
        return
    # A server works without a line, whatever the program has put in place of its output.
    with contextlib.suppress(Exception):
        if _is_read_by_a_person():
            print(f"[Reverb] Live dashboard: {url}", flush=True)
        else:
            _logger.info("Live dashboard: %s", url)


def _is_read_by_a_person() -> bool:
    if sys.stdout.isatty() or _is_notebook():
        return True
    if not hasattr(sys, "ps1"):
        return False
    try:
        sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        # A console inside a program with windows. Other output than to a terminal is a pipe or a file.
        return True
    return False


def _is_notebook() -> bool:
    """Whether the program runs in a kernel of IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def _check_open(what: str, means: str, host: str, allow_insecure: bool | None) -> None:
    if allow_insecure is None:
        allow_insecure = os.environ.get("REVERB_ALLOW_INSECURE") == "1"
    if not allow_insecure and not is_loopback(host):
        raise ValueError(
            f"{what} lets anyone who can reach this machine {means}, without a password or encryption. If that is "
            f"intended, pass allow_insecure=True, or set REVERB_ALLOW_INSECURE=1 in the environment."
        )


def checked_heartbeat(interval: object) -> float:
    """The seconds between heartbeats: the given ones, else those of `REVERB_HEARTBEAT`, else 15.

    Raises:
      TypeError: The interval is not a number.
      ValueError: The interval is below a millisecond, or not a number of seconds.
    """
    name, value = "heartbeat_interval", interval
    if interval is None:
        name, value = "REVERB_HEARTBEAT", os.environ.get("REVERB_HEARTBEAT") or _HEARTBEAT_S
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{name} must be a number of seconds, got {value!r}") from None
    seconds = checks.as_float(name, value)
    if not 0.001 <= seconds <= _LONGEST_S:
        raise ValueError(f"{name} must be a number of seconds from 0.001 to {_LONGEST_S:.0f}, got {seconds}")
    return seconds


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach the host."""
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
