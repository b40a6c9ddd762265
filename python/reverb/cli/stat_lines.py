"""`reverb info --stat`: a line a second, for a look at the load and for grep."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reverb import _binding, errors
from reverb.cli import observing, output
from reverb.cli.server_info import Look
from reverb.data.endpoint import Endpoint
from reverb.reverb_types import TableInfo, table_infos

_Table = TypeVar("_Table")

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
    before = None
    for number, now in enumerate(observing.at_intervals(interval, _look(endpoint, table, timeout))):
        if as_json:
            output.print_json(now)
        else:
            if number % _LINES == 0:
                print(" ".join(name.rjust(width) for name, width in _COLUMNS))
            print(" ".join(_cell(name, now, before).rjust(width) for name, width in _COLUMNS), flush=True)
        before = now


def _cell(name: str, now: dict[str, Any], before: dict[str, Any] | None) -> str:
    value = now[name]
    if value is None:
        return "-"
    if name == "bytes":
        return output.human_bytes(value).replace(" ", "")
    if name in ("inserts", "samples") and before is not None:
        return f"{value} ({value - before[name]:+d})"
    return str(value)


def _look(endpoint: Endpoint, table: str | None, timeout: float) -> Callable[[], dict[str, Any]]:
    """A function that returns the values of a line."""
    observer = observing.Observer(endpoint)
    try:
        observer.look(timeout)
    except (errors.UnimplementedError, errors.InvalidArgumentError):
        client = _binding.Client(endpoint)
        return lambda: _described(table_infos(client, timeout), table)
    return lambda: _observed(observer.look(timeout), table)


def _observed(seen: observing.Observation, table: str | None) -> dict[str, Any]:
    """The values of a server that can be observed."""
    tables = _named({each["name"]: each for each in seen.tables}, table)
    # A client has a connection for calls and one for writers, both with its name.
    clients = {client["name"] or client["id"] for client in seen.clients}
    return {
        "items": sum(each["items"] for each in tables),
        "bytes": observing.total(each["bytes"] for each in tables),
        "clients": len(clients),
        "blocked": observing.total(each[waiting]["count"] for each in tables for waiting in _WAITING),
        "inserts": sum(each["inserts"] for each in tables),
        "samples": sum(each["samples"] for each in tables),
        "connections": seen.server["connections"],
    }


def _described(infos: Mapping[str, TableInfo], table: str | None) -> dict[str, Any]:
    """Those of a server of dm-reverb, of an earlier version, or of several, which tell nothing of their clients."""
    tables = [Look(info) for info in _named(infos, table)]
    return {
        "items": sum(each.info.current_size for each in tables),
        "bytes": observing.total(each.info.bytes for each in tables),
        "clients": None,
        "blocked": observing.total(getattr(each.info, waiting) for each in tables for waiting in _WAITING),
        "inserts": sum(each.inserts for each in tables),
        "samples": sum(each.samples for each in tables),
        "connections": None,
    }


def _named(tables: Mapping[str, _Table], name: str | None) -> list[_Table]:
    """The tables, or the one with the name."""
    if name is None:
        return list(tables.values())
    if name not in tables:
        raise ValueError(f"table {name} was not found; this server has: {', '.join(tables)}")
    return [tables[name]]
