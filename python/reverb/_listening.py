"""Where a server listens."""

import os

from reverb import _checks

_PORTS = range(2**16)


def as_port(port: object) -> int | None:
    """The number of a port; None for none.

    Raises:
      TypeError, ValueError: It is none.
    """
    if port is None:
        return None
    number = _checks.as_int32("port", port)
    if number not in _PORTS:
        raise ValueError(f"Failed to BuildAndStart gRPC server: port {number} is not between 0 and 65535")
    return number


def checked_host(host: object, allow_insecure: bool | None) -> str | None:
    """The host to listen at: as given, or by `REVERB_HOST`; None for the loopback.

    Raises:
      TypeError: It is no str.
      ValueError: Others than this machine could reach it, and neither the caller nor `REVERB_ALLOW_INSECURE` allows it.
    """
    if host is None:
        host = os.environ.get("REVERB_HOST")
        if not host:
            return None
    if not isinstance(host, str):
        _checks.refuse("host", "a str", host)
    if allow_insecure is None:
        allow_insecure = os.environ.get("REVERB_ALLOW_INSECURE") == "1"
    if not allow_insecure and not _is_loopback(host):
        raise ValueError(
            f"Listening at {host!r} lets everyone who reaches this machine read and write the tables, without a "
            f"password or encryption. If that is intended, say allow_insecure=True, or REVERB_ALLOW_INSECURE=1 in the "
            f"environment."
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
