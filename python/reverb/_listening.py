"""Checks of the host and port that a server listens on, and of how its streams show that they are alive."""

import os

from reverb.data import checks

_PORTS = range(2**16)
# Balancers close streams on which nothing is sent, often after 50 or 60 seconds.
_HEARTBEAT_S = 15.0
_LONGEST_S = 1e9


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
    if allow_insecure is None:
        allow_insecure = os.environ.get("REVERB_ALLOW_INSECURE") == "1"
    if not allow_insecure and not is_loopback(host):
        raise ValueError(
            f"Listening on {host!r} lets anyone who can reach this machine read and write the tables, without a "
            f"password or encryption. If that is intended, pass allow_insecure=True, or set REVERB_ALLOW_INSECURE=1 in "
            f"the environment."
        )
    return host


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
