"""`reverb info`."""

import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from reverb import _binding, errors
from reverb.cli import observing, output
from reverb.data.endpoint import Endpoint
from reverb.data.table_figures import TableFigures
from reverb.logging.escaping import escaped
from reverb.reverb_types import TableInfo, table_infos


@dataclasses.dataclass
class Look:
    """The state of a table at one time."""

    info: TableInfo
    inserts_per_second: float | None = None
    samples_per_second: float | None = None

    @property
    def inserts(self) -> int:
        """Number of inserts so far."""
        return int(self.info.rate_limiter_info.insert_stats.completed)

    @property
    def samples(self) -> int:
        """Number of samples so far."""
        return int(self.info.rate_limiter_info.sample_stats.completed)

    def measure(self, earlier: "Look", seconds: float) -> None:
        """Sets the rates since an earlier look, `seconds` ago. They are not known across a restart of the server.

        A table's totals jump where a checkpoint is restored and fall where samples go back, so what the server itself
        has counted comes first.
        """
        inserts = self._grown(earlier, "process_inserts", "inserts")
        samples = self._grown(earlier, "process_samples", "samples")
        self.inserts_per_second = None if inserts is None else inserts / seconds
        self.samples_per_second = None if samples is None else samples / seconds

    def _grown(self, earlier: "Look", figure: str, total: str) -> int | None:
        now, then = getattr(self.info, figure), getattr(earlier.info, figure)
        if now is None or then is None:
            # A server of dm-reverb tells only totals.
            now, then = getattr(self, total), getattr(earlier, total)
        return now - then if now >= then else None

    @property
    def ratio(self) -> float | None:
        """Samples per insert; None without inserts."""
        return self.samples / self.inserts if self.inserts else None

    @property
    def selectors(self) -> dict[str, str]:
        """The sampler and the remover."""
        info = self.info
        return {name: output.selector_text(getattr(info, f"{name}_options")) for name in ("sampler", "remover")}

    @property
    def wait_lines(self) -> list[str]:
        """A line for waiting inserts, and one for waiting samples."""
        counts = [(self.info.waiting_inserts, "insert"), (self.info.waiting_samples, "sample")]
        heads = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
        return [f"{head}: {reason}" for head, reason in zip(heads, self.info.waits, strict=False)]

    def as_json(self) -> dict[str, Any]:
        """The options, figures and rates. Figures that the server does not tell are None."""
        info = self.info
        return {
            "name": info.name,
            "size": info.current_size,
            "max_size": info.max_size,
            "max_bytes": info.max_bytes,
            "waits": info.waits,
            "inserts": self.inserts,
            "samples": self.samples,
            "samples_per_insert": self.ratio,
            "inserts_per_second": self.inserts_per_second,
            "samples_per_second": self.samples_per_second,
            **self.selectors,
            **{figure.name: getattr(info, figure.name) for figure in dataclasses.fields(TableFigures)},
        }


def show(endpoint: Endpoint, watch: bool, interval: float, as_json: bool, timeout: float) -> None:
    """Prints a server's tables, once or repeatedly."""
    client = _binding.Client(endpoint)
    looks = _looks(client, interval, timeout)
    title = endpoint.address if watch else None
    if not watch:
        looks = itertools.islice(looks, 1)
    console = Console()
    views = (View(each, title, _verdict(client, timeout)) for each in looks)
    if as_json:
        for view in views:
            if view.verdict is not None and view.verdict["level"] in ("warning", "alarm"):
                print(escaped(view.verdict["line"]), file=sys.stderr)
            output.print_json([look.as_json() for look in view.looks])
    elif watch and console.is_terminal:
        with Live(next(views), console=console, auto_refresh=False) as live:
            for view in views:
                live.update(view, refresh=True)
    else:
        for view in views:
            console.print(view)


def _verdict(client: _binding.Client, timeout: float) -> dict[str, Any] | None:
    """Whether the server works. Several servers, and those of dm-reverb, tell nothing."""
    try:
        verdict: dict[str, Any] = json.loads(client.observe(timeout))["verdict"]
    except (errors.UnimplementedError, errors.InvalidArgumentError):
        return None
    return verdict


def _looks(client: _binding.Client, interval: float, timeout: float) -> Iterator[list[Look]]:
    """Yields the tables each `interval` seconds, from the second time on with their rates."""
    before: dict[str, Look] = {}
    then = 0.0
    for infos in observing.at_intervals(interval, lambda: table_infos(client, timeout)):
        now = time.monotonic()
        looks = {name: Look(info) for name, info in infos.items()}
        for name in looks.keys() & before.keys():
            looks[name].measure(before[name], now - then)
        before, then = looks, now
        yield list(looks.values())


@dataclasses.dataclass
class _Column:
    header: str
    cell: Callable[[Look], str]
    justify: Literal["left", "right"] = "right"


def _rate(per_second: float | None) -> str:
    return "" if per_second is None else f"{per_second:,.0f}"


_COLUMNS = (
    _Column("table", lambda look: escaped(look.info.name), "left"),
    _Column("items", lambda look: f"{look.info.current_size:,}"),
    _Column("of", lambda look: f"{look.info.max_size:,}"),
    _Column("data", lambda look: "-" if look.info.bytes is None else output.human_bytes(look.info.bytes)),
    _Column("inserts", lambda look: f"{look.inserts:,}"),
    _Column("samples", lambda look: f"{look.samples:,}"),
    _Column("ratio", lambda look: "" if look.ratio is None else f"{look.ratio:.2f}"),
    _Column("inserts/s", lambda look: _rate(look.inserts_per_second)),
    _Column("samples/s", lambda look: _rate(look.samples_per_second)),
    _Column("selectors", lambda look: ", ".join(look.selectors.values()), "left"),
)
# Columns that a narrow terminal does without, in this order. The name of the table and its size always stay.
_DISPENSABLE = ("selectors", "ratio", "of", "data", "samples", "inserts", "samples/s", "inserts/s")


def _lines(text: Text, console: Console, width: int) -> Iterator[Text]:
    """The lines of a text that fit a width. None of them is wrapped again."""
    for line in text.wrap(console, max(1, width), overflow="fold"):
        line.rstrip()
        line.no_wrap = True
        yield line


@dataclasses.dataclass
class View:
    """Tables as lines of text that fit the width: a grid, and below it what waits.

    Attributes:
      looks: States of the tables.
      title: Address of a server that is watched, whose rates are shown; None without.
      verdict: Whether the server works, as a line above them; None without.
    """

    looks: list[Look]
    title: str | None = None
    verdict: dict[str, Any] | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Renders the widest grid that fits. Names and reasons that do not fit in one line go on in the next."""
        columns = [column for column in _COLUMNS if self.title is not None or not column.header.endswith("/s")]
        for header in _DISPENSABLE:
            if Measurement.get(console, options.update(width=10_000), self._grid(columns)).maximum <= options.max_width:
                break
            columns = [column for column in columns if column.header != header]
        if self.title is not None:
            yield Text(self.title, no_wrap=True, overflow="crop")
        if self.verdict is not None:
            text = Text(escaped(self.verdict["line"]), style=output.LEVELS[self.verdict["level"]])
            yield from _lines(text, console, options.max_width)
        yield self._grid(columns)
        reasons = [reason for look in self.looks for reason in look.wait_lines]
        if reasons:
            yield Text("waiting")
        for reason in reasons:
            for number, line in enumerate(_lines(Text(escaped(reason)), console, options.max_width - 4)):
                yield Text(f"{'    ' if number else '  '}{line.plain}", no_wrap=True)

    def _grid(self, columns: list[_Column]) -> Grid:
        # Texts, because names in plain strings could be read as markup.
        grid = Grid()
        for column in columns:
            is_name = column.header == "table"
            grid.add_column(column.header, justify=column.justify, no_wrap=not is_name, overflow="fold")
        for look in self.looks:
            grid.add_row(*(Text(column.cell(look)) for column in columns))
        return grid
