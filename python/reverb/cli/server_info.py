"""`reverb info`."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from reverb import _binding, _protos
from reverb.cli import output
from reverb.data.endpoint import Endpoint
from reverb.logging.escaping import escaped


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

    @property
    def wait_lines(self) -> list[str]:
        """A line for waiting inserts, and one for waiting samples."""
        counts = [(self.waiting_inserts, "insert"), (self.waiting_samples, "sample")]
        heads = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
        return [f"{head}: {reason}" for head, reason in zip(heads, self.waits, strict=False)]


def show(endpoint: Endpoint, watch: bool, interval: float, as_json: bool, timeout: float) -> None:
    """Prints a server's tables, once or repeatedly."""
    if not interval > 0:
        output.fail(f"--interval must be greater than 0, got {interval}", output.WRONG_USAGE)
    client = _binding.Client(endpoint)
    looks = _look(client, timeout)
    if not watch:
        _print(looks, as_json)
        return
    then = time.monotonic()
    if as_json:
        while True:
            _print(looks, as_json)
            looks, then = _next(client, looks, then, interval, timeout)
    console = Console()
    if not console.is_terminal:
        while True:
            console.print(View(looks, endpoint.address))
            looks, then = _next(client, looks, then, interval, timeout)
    with Live(View(looks, endpoint.address), console=console, auto_refresh=False) as live:
        while True:
            looks, then = _next(client, looks, then, interval, timeout)
            live.update(View(looks, endpoint.address), refresh=True)


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


def looker(endpoint: Endpoint) -> Callable[[float], list[Look]]:
    """A function that looks at the tables of a server, within a timeout."""
    client = _binding.Client(endpoint)
    return lambda timeout: _look(client, timeout)


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
        Console().print(View(looks))


@dataclasses.dataclass
class _Column:
    header: str
    cell: Callable[[Look], str]
    justify: Literal["left", "right"] = "right"


def _rate(per_second: float | None) -> str:
    return "" if per_second is None else f"{per_second:,.0f}"


_COLUMNS = (
    _Column("table", lambda look: escaped(look.name), "left"),
    _Column("items", lambda look: f"{look.size:,}"),
    _Column("of", lambda look: f"{look.max_size:,}"),
    _Column("data", lambda look: output.human_bytes(look.bytes)),
    _Column("inserts", lambda look: f"{look.inserts:,}"),
    _Column("samples", lambda look: f"{look.samples:,}"),
    _Column("ratio", lambda look: "" if look.ratio is None else f"{look.ratio:.2f}"),
    _Column("inserts/s", lambda look: _rate(look.inserts_per_second)),
    _Column("samples/s", lambda look: _rate(look.samples_per_second)),
    _Column("selectors", lambda look: f"{look.sampler}, {look.remover}", "left"),
)
# Columns that a narrow terminal does without, in this order. The name of the table and its size always stay.
_DISPENSABLE = ("selectors", "ratio", "of", "data", "samples", "inserts", "samples/s", "inserts/s")


@dataclasses.dataclass
class View:
    """Tables as lines of text that fit the width: a grid, and below it what waits.

    Attributes:
      looks: States of the tables.
      title: Address of a server that is watched, whose rates are shown; None without.
    """

    looks: list[Look]
    title: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Renders the widest grid that fits. Names and reasons that do not fit in one line go on in the next."""
        columns = [column for column in _COLUMNS if self.title is not None or not column.header.endswith("/s")]
        for header in _DISPENSABLE:
            if Measurement.get(console, options.update(width=10_000), self._grid(columns)).maximum <= options.max_width:
                break
            columns = [column for column in columns if column.header != header]
        yield self._grid(columns)
        reasons = [reason for look in self.looks for reason in look.wait_lines]
        if reasons:
            yield Text("waiting")
        for reason in reasons:
            for number, line in enumerate(
                Text(escaped(reason)).wrap(console, max(1, options.max_width - 4), overflow="fold")
            ):
                yield Text(f"{'    ' if number else '  '}{line.plain.rstrip()}", no_wrap=True)

    def _grid(self, columns: list[_Column]) -> Grid:
        # Texts, because names in plain strings could be read as markup.
        grid = Grid(title=None if self.title is None else Text(self.title))
        for column in columns:
            is_name = column.header == "table"
            grid.add_column(column.header, justify=column.justify, no_wrap=not is_name, overflow="fold")
        for look in self.looks:
            grid.add_row(*(Text(column.cell(look)) for column in columns))
        return grid
