"""What `reverb top` shows of one look at a server, in a given number of columns and lines."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from reverb.cli import output, top_head
from reverb.cli import top_parts as parts
from reverb.cli.cluster_observing import ClusterObservation
from reverb.cli.observing import KEPT, Observation
from reverb.logging.escaping import escaped

# How the keys sort tables: the name of the order, and a table's place in it.
ORDERS: tuple[tuple[str, Callable[[dict[str, Any]], Any]], ...] = (
    ("as on the server", lambda table: table["number"]),
    ("inserts/s", lambda table: -(table["inserts_per_second"] or 0)),
    ("samples/s", lambda table: -(table["samples_per_second"] or 0)),
    ("bytes", lambda table: -(table["bytes"] or 0)),
    (
        "waits",
        lambda table: -max(table[f"waiting_{what}s"]["longest_seconds"] or 0 for what in ("insert", "sample")),
    ),
    ("name", lambda table: table["name"]),
)
_CLIENTS = 10
_BAR = 8
# Cells of a spark line, and the number of rates in each: a minute in all.
_SPARK = 12
_EACH = KEPT // _SPARK
_HEAD, _FAINT = "bold", "dim"
# How clients left, as the middle of a line, and the number of those that are shown.
_LEFT = {"closed": "left", "lost": "was lost", "stopped": "stopped answering"}
_SHOWN_LEFT = 3


@dataclasses.dataclass
class _Column:
    """A column of a grid.

    Attributes:
      header: Text above it.
      cell: Its text for a row.
      importance: Columns of low importance go first if the terminal is narrow.
      is_left: Whether texts begin at the left.
      style: Style of its cells for a row.
    """

    header: str
    cell: Callable[[Any], str]
    importance: int = 9
    is_left: bool = False
    style: Callable[[Any], str] = lambda row: ""


@dataclasses.dataclass
class View:
    """One screen.

    Attributes:
      seen: What the server says, or the shards of a cluster.
      address: Address of the server, as the user gave it.
      order: Index into ORDERS.
      has_clients: Whether the busiest clients are shown.
      has_waits: Whether the longest waits are shown.
      note: A line about the state of the display; None outside of a terminal, where nothing is cut at the bottom.
    """

    seen: Observation | ClusterObservation
    address: str
    order: int = 0
    has_clients: bool = True
    has_waits: bool = True
    note: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Renders the lines, at most as many as the terminal has."""
        glyphs = parts.UNICODE if options.encoding.startswith("utf") else parts.ASCII
        width = options.max_width
        height = None if self.note is None else max(2, options.height or console.height)
        for line in self._lines(console, width, height, glyphs):
            line.no_wrap, line.overflow = True, "crop"
            line.truncate(width)
            yield line

    def _lines(self, console: Console, width: int, height: int | None, glyphs: parts.Glyphs) -> list[Text]:
        head = top_head.lines(self.seen, self.address, console, width, glyphs)
        tables = self._tables(width, glyphs)
        clients = self._clients(width, glyphs) if self.has_clients else []
        waits = self._waits(console, width) if self.has_waits else []
        if height is None:
            sections = [section for section in (head, tables, clients, waits) if section]
            return [line for number, section in enumerate(sections) for line in ([Text()] if number else []) + section]
        head = head[: max(1, height // 4)]
        room = height - 1 - len(head)
        # What waits is worth more lines than who is busy; both leave some to the tables, which take what is left.
        spare = room - 1 - min(len(tables), 4)
        waits_room = _share(len(waits), min(spare, max(5, room // 3)))
        clients_room = _share(len(clients), min(spare - waits_room, max(5, room // 4)))
        rows = "rows" if isinstance(self.seen, ClusterObservation) else "tables"
        tables = _fitted(tables, room - 1 - waits_room - clients_room, rows)
        spare = room - 1 - len(tables)
        waits = waits[: max(0, _share(len(waits), spare - clients_room) - 1)]
        spare -= len(waits) + 1 if waits else 0
        clients = clients[: max(0, _share(len(clients), spare) - 1)]
        lines = list(head)
        for section in (tables, clients, waits):
            lines += [Text(), *section] if section else []
        lines = lines[: height - 1]
        lines += [Text()] * (height - 1 - len(lines))
        return [*lines, Text(self.note or "", style="reverse")]

    def _tables(self, width: int, glyphs: parts.Glyphs) -> list[Text]:
        # What is stuck comes first in every order.
        levels = list(output.LEVELS)
        tables = sorted(self.seen.tables, key=ORDERS[self.order][1])
        tables.sort(key=lambda table: min(2, len(levels) - 1 - levels.index(table["progress"]["level"])))
        if not tables:
            return [Text("no tables")]
        columns = _table_columns(glyphs)
        if isinstance(self.seen, ClusterObservation):
            columns.insert(1, _Column("shard", lambda table: escaped(table["shard"]), 10))
            tables = [row for table in tables for row in (table, *table["shards"])]
        return list(_grid(columns, tables, width, glyphs))

    def _clients(self, width: int, glyphs: parts.Glyphs) -> list[Text]:
        def busy(client: dict[str, Any]) -> Any:
            items = (client["inserts_per_second"] or 0) + (client["samples_per_second"] or 0)
            return -items, -(client["receive_bytes"] + client["transmit_bytes"]), client["id"]

        clients = sorted(self.seen.clients, key=busy)
        lines = list(_grid(_CLIENT_COLUMNS, clients[:_CLIENTS], width, glyphs)) if clients else []
        if len(clients) > _CLIENTS:
            lines.append(Text(f"{len(clients) - _CLIENTS} more clients", style=_FAINT))
        for left in self.seen.left[:_SHOWN_LEFT]:
            ago = parts.seconds(max(0.0, self.seen.now - left["at"]))
            lines.append(Text(f"{escaped(left['name'])} {_LEFT[left['how']]} {ago} ago", style=_FAINT))
        return lines

    def _waits(self, console: Console, width: int) -> list[Text]:
        if not self.seen.waits:
            return []
        lines = [Text("waiting", style=_HEAD)]
        for wait in self.seen.waits:
            who = escaped(wait["client_name"] or wait["address"] or wait["transport"])
            # Of a cluster.
            if "at" in wait:
                who += escaped(f" at {parts.shards(wait['at'])}")
            text = Text(f"{parts.seconds(wait['seconds']):>9}  {who}: {escaped(wait['reason'])}")
            # A sentence is never cut: it goes on below its beginning.
            wrapped = text.wrap(console, max(24, width), overflow="fold")
            rest = Text(" ").join(wrapped[1:])
            lines.append(wrapped[0])
            if rest:
                lines += [
                    Text(" " * 11) + line for line in rest.wrap(console, max(13, width - 11), overflow="fold") if line
                ]
        for line in lines:
            line.rstrip()
        return lines


def _share(lines: int, room: int) -> int:
    """The lines that a section gets, the empty one before it included; none if it would be a header alone."""
    share = min(lines + 1, room)
    return share if lines and share >= 3 else 0


def _fitted(lines: list[Text], room: int, what: str) -> list[Text]:
    """The lines that fit. The last one says how many do not."""
    if len(lines) <= room:
        return lines
    if room < 2:
        return lines[: max(0, room)]
    return [*lines[: room - 1], Text(f"{len(lines) - room + 1} more {what}", style=_FAINT)]


def _grid(columns: list[_Column], rows: list[Any], width: int, glyphs: parts.Glyphs) -> Iterator[Text]:
    """Rows below their headers. Columns of low importance go first, and then the first column is cut."""
    kept = list(columns)
    while True:
        cells = [[column.cell(row) for column in kept] for row in rows]
        widths = [
            max(map(cell_len, [column.header, *(row[index] for row in cells)])) for index, column in enumerate(kept)
        ]
        if sum(widths) + 2 * (len(kept) - 1) <= width:
            break
        least = min(kept[1:], key=lambda column: column.importance, default=None)
        # A name may lose some of its length before a column of importance goes.
        first = width - sum(widths[1:]) - 2 * (len(kept) - 1)
        if least is None or (least.importance > 5 and first >= 12):
            widths[0] = max(1, first)
            break
        kept.remove(least)

    def line(texts: list[str], styles: list[str]) -> Text:
        joined = Text()
        for index, (text, style) in enumerate(zip(texts, styles, strict=True)):
            if index:
                joined.append("  ")
            joined.append(_cell(text, widths[index], kept[index].is_left or index == 0, glyphs), style=style)
        joined.rstrip()
        return joined

    yield line([column.header for column in kept], [_HEAD] * len(kept))
    for row, texts in zip(rows, cells, strict=True):
        yield line(texts, [column.style(row) for column in kept])


def _cell(text: str, width: int, is_left: bool, glyphs: parts.Glyphs) -> str:
    if cell_len(text) > width:
        cut = Text(text)
        cut.truncate(max(0, width - 1))
        text = cut.plain + glyphs.cut
    space = " " * (width - cell_len(text))
    return text + space if is_left else space + text


def _waiting(table: dict[str, Any]) -> str:
    shown = []
    for what in ("insert", "sample"):
        waiting = table[f"waiting_{what}s"]
        if waiting["count"]:
            plural = "s" if waiting["count"] > 1 else ""
            shown.append(f"{waiting['count']} {what}{plural} {parts.seconds(waiting['longest_seconds'])}")
    return ", ".join(shown)


def _table_columns(glyphs: parts.Glyphs) -> list[_Column]:
    def filled(part: str, whole: str) -> Callable[[dict[str, Any]], str]:
        return lambda table: (
            parts.bar(table[part] / table[whole], _BAR, glyphs) if table[part] is not None and table[whole] else ""
        )

    def history(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda table: parts.spark(table["history"][name], _EACH, _SPARK, glyphs)

    def speed(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda table: parts.rate(table[name])

    def limiter(table: dict[str, Any]) -> str:
        # The sums over shards have none.
        return parts.strip(table["limiter"], table["items"], glyphs) if table["limiter"] else ""

    def level(table: dict[str, Any]) -> str:
        return output.LEVELS[table["progress"]["level"]] if _waiting(table) else ""

    def data(table: dict[str, Any]) -> str:
        limit = "" if table["max_bytes"] is None else f"/{parts.size(table['max_bytes'])}"
        return parts.size(table["bytes"]) + limit

    columns = [
        _Column("table", lambda table: escaped(table["name"]), 10),
        _Column("", filled("items", "max_items"), 2),
        _Column("items", lambda table: f"{parts.count(table['items'])}/{parts.count(table['max_items'])}", 8),
        _Column("", filled("bytes", "max_bytes"), 1),
        _Column("bytes", data, 3),
    ]
    for name in ("inserts", "samples"):
        per_second = f"{name}_per_second"
        columns.append(_Column(f"{name}/s", speed(per_second), 9))
        columns.append(_Column("", history(per_second), 4, is_left=True, style=lambda table: "cyan"))
    return [
        *columns,
        _Column("limiter", limiter, 6, True, level),
        _Column("waits", _waiting, 7, True, level),
    ]


def _waited(client: dict[str, Any]) -> str:
    waits = client["waits"]
    return f"{waits[0]['operation']} {parts.seconds(waits[0]['seconds'])}" if waits else ""


_CLIENT_COLUMNS = [
    _Column("busiest clients", lambda client: escaped(client["name"] or client["address"] or "-"), 10),
    _Column("role", lambda client: client["role"], 8, is_left=True),
    _Column("address", lambda client: escaped(client["address"]), 2, is_left=True),
    _Column("road", lambda client: escaped(client["transport"]), 3, is_left=True),
    _Column("inserts/s", lambda client: parts.rate(client["inserts_per_second"]), 9),
    _Column("samples/s", lambda client: parts.rate(client["samples_per_second"]), 9),
    _Column("in", lambda client: parts.traffic(client["receive_bytes_per_second"]), 4),
    _Column("out", lambda client: parts.traffic(client["transmit_bytes_per_second"]), 4),
    _Column("waits", _waited, 7),
]
