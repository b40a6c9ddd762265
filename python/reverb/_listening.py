"""Checks of the host and port that a server listens on."""

import os

from reverb.data import checks

_PORTS = range(2**16)


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
    if not allow_insecure and not _is_loopback(host):
        raise ValueError(
            f"Listening on {host!r} lets anyone who can reach this machine read and write the tables, without a "
            f"password or encryption. If that is intended, pass allow_insecure=True, or set REVERB_ALLOW_INSECURE=1 in "
            f"the environment."
        )
    return host


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
