"""`reverb info --stat`: a line a second, for a look at the load and for grep."""

import time
from collections.abc import Iterable
from typing import Any

from reverb import errors
from reverb.cli import output, server_info
from reverb.cli.observing import Observer
from reverb.data.endpoint import Endpoint

# Lines between two headers.
_LINES = 20
_COLUMNS = (
    ("items", 12),
    ("bytes", 10),
    ("clients", 7),
    ("blocked", 7),
    ("inserts", 22),
    ("samples", 22),
    ("connections", 11),
)
_WAITING = ("waiting_inserts", "waiting_samples")


def run(endpoint: Endpoint, table: str | None, interval: float, as_json: bool, timeout: float) -> None:
    """Prints a line each `interval` seconds until Ctrl-C."""
    if not interval > 0:
        output.fail(f"--interval must be greater than 0, got {interval}", output.WRONG_USAGE)
    look = _looks(endpoint, table, timeout)
    before = None
    number = 0
    while True:
        began = time.monotonic()
        now = look()
        if as_json:
            output.print_json(now)
        else:
            if number % _LINES == 0:
                print(" ".join(name.rjust(width) for name, width in _COLUMNS))
            print(" ".join(_cell(name, now, before).rjust(width) for name, width in _COLUMNS), flush=True)
        before, number = now, number + 1
        time.sleep(max(0.0, began + interval - time.monotonic()))


def _cell(name: str, now: dict[str, Any], before: dict[str, Any] | None) -> str:
    value = now[name]
    if value is None:
        return "-"
    if name == "bytes":
        return output.human_bytes(value).replace(" ", "")
    if name in ("inserts", "samples") and before is not None:
        return f"{value} ({value - before[name]:+d})"
    return str(value)


class _Observed:
    """Asks a server that can be observed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._observer = Observer(endpoint)

    def __call__(self, table: str | None, timeout: float) -> dict[str, Any]:
        seen = self._observer.look(timeout)
        tables = _named([(each["name"], each) for each in seen.tables], table)
        # A client has a connection for calls and one for writers, both with its name.
        clients = {client["name"] or client["id"] for client in seen.clients}
        return {
            "items": sum(each["items"] for each in tables),
            "bytes": _total(each["bytes"] for each in tables),
            "clients": len(clients),
            "blocked": _total(each[waiting]["count"] for each in tables for waiting in _WAITING),
            "inserts": sum(each["inserts"] for each in tables),
            "samples": sum(each["samples"] for each in tables),
            "connections": seen.server["connections"],
        }


class _Described:
    """Asks a server of dm-reverb, of an earlier version, or several, which tell nothing of their clients."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._look = server_info.looker(endpoint)

    def __call__(self, table: str | None, timeout: float) -> dict[str, Any]:
        tables = _named([(each.info.name, each) for each in self._look(timeout)], table)
        return {
            "items": sum(each.info.current_size for each in tables),
            "bytes": _total(each.info.bytes for each in tables),
            "clients": None,
            "blocked": _total(getattr(each.info, waiting) for each in tables for waiting in _WAITING),
            "inserts": sum(each.inserts for each in tables),
            "samples": sum(each.samples for each in tables),
            "connections": None,
        }


def _total(figures: Iterable[int | None]) -> int | None:
    """The sum of a figure over tables; None if the server does not tell it."""
    known = list(figures)
    return None if None in known else sum(filter(None, known))


def _looks(endpoint: Endpoint, table: str | None, timeout: float) -> Any:
    """A function that returns the values of a line."""
    ask: _Observed | _Described = _Observed(endpoint)
    try:
        ask(table, timeout)
    except (errors.UnimplementedError, errors.InvalidArgumentError):
        ask = _Described(endpoint)
    return lambda: ask(table, timeout)


def _named(tables: list[tuple[str, Any]], name: str | None) -> list[Any]:
    """The tables, or the one with the name."""
    found = [table for known, table in tables if name in (None, known)]
    if name is not None and not found:
        raise ValueError(f"table {name} was not found; this server has: {', '.join(known for known, _ in tables)}")
    return found
