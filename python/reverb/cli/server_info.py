"""`reverb info`."""

import dataclasses
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

from reverb import _binding, _protos
from reverb.cli import output


@dataclasses.dataclass
class Look:
    """The state of a table at one time."""

    name: str
    size: int
    max_size: int
    inserts: int
    samples: int
    bytes: int
    max_bytes: int | None
    waiting_inserts: int
    waiting_samples: int
    waits: list[str]
    sampler: str
    remover: str
    inserts_per_second: float | None = None
    samples_per_second: float | None = None

    @property
    def ratio(self) -> float | None:
        """Samples per insert; None without inserts."""
        return self.samples / self.inserts if self.inserts else None


def show(address: str, watch: bool, interval: float, as_json: bool, timeout: float) -> None:
    """Prints a server's tables, once or repeatedly."""
    if not interval > 0:
        raise ValueError(f"--interval must be greater than 0, got {interval}")
    client = _binding.Client(address)
    looks = _look(client, timeout)
    if not watch:
        _print(looks, as_json)
        return
    then = time.monotonic()
    if as_json:
        while True:
            _print(looks, as_json)
            looks, then = _next(client, looks, then, interval, timeout)
    with Live(_grid(looks, address), auto_refresh=False) as live:
        while True:
            looks, then = _next(client, looks, then, interval, timeout)
            live.update(_grid(looks, address), refresh=True)


def _next(
    client: _binding.Client, before: list[Look], then: float, interval: float, timeout: float
) -> tuple[list[Look], float]:
    time.sleep(max(0.0, then + interval - time.monotonic()))
    looks, now = _look(client, timeout), time.monotonic()
    known = {look.name: look for look in before}
    for look in looks:
        if look.name in known:
            look.inserts_per_second = (look.inserts - known[look.name].inserts) / (now - then)
            look.samples_per_second = (look.samples - known[look.name].samples) / (now - then)
    return looks, now


def _look(client: _binding.Client, timeout: float) -> list[Look]:
    status_class = _protos.message_class("reverb.replay.v1.TableStatus")
    return [_from_status(status_class.FromString(status)) for status in client.table_statuses(timeout)]


def _from_status(status: Any) -> Look:
    info = status.info
    return Look(
        name=info.name,
        size=info.current_size,
        max_size=info.max_size,
        inserts=info.rate_limiter_info.insert_stats.completed,
        samples=info.rate_limiter_info.sample_stats.completed,
        bytes=status.size_bytes,
        max_bytes=status.max_bytes or None,
        waiting_inserts=status.waiting_inserts,
        waiting_samples=status.waiting_samples,
        waits=[text for text in (status.insert_wait, status.sample_wait) if text],
        sampler=output.selector_text(info.sampler_options),
        remover=output.selector_text(info.remover_options),
    )


def _print(looks: list[Look], as_json: bool) -> None:
    if as_json:
        output.print_json([{**dataclasses.asdict(look), "samples_per_insert": look.ratio} for look in looks])
    else:
        Console().print(_grid(looks, None))


def _grid(looks: list[Look], address: str | None) -> Grid:
    grid = Grid(title=address)
    for name in ("table", "selectors", "items", "of", "data", "inserts", "samples", "ratio"):
        grid.add_column(name, justify="left" if name in ("table", "selectors") else "right")
    has_rates = any(look.inserts_per_second is not None for look in looks)
    if has_rates:
        grid.add_column("inserts/s", justify="right")
        grid.add_column("samples/s", justify="right")
    grid.add_column("waits")
    for look in looks:
        cells = [
            look.name,
            f"{look.sampler}, {look.remover}",
            f"{look.size:,}",
            f"{look.max_size:,}",
            output.human_bytes(look.bytes),
            f"{look.inserts:,}",
            f"{look.samples:,}",
            "" if look.ratio is None else f"{look.ratio:.2f}",
        ]
        if has_rates:
            cells += [f"{look.inserts_per_second or 0:,.0f}", f"{look.samples_per_second or 0:,.0f}"]
        grid.add_row(*cells, _waits(look))
    return grid


def _waits(look: Look) -> str:
    counts = [(look.waiting_inserts, "insert"), (look.waiting_samples, "sample")]
    heads = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
    return "; ".join([", ".join(heads), *look.waits]) if heads else ""
