"""Draws a record as SVG, with nothing but Python, so that the same record gives the same file on any machine.

Bars are logarithmic. Pictures have a white ground, so that they can be read on light and dark pages.
"""

import math
from html import escape

import summary

BLUE, ORANGE, GREEN, PINK, YELLOW = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"
COLOURS = dict(zip(summary.PEERS, (BLUE, ORANGE, GREEN, PINK, YELLOW), strict=True))
ROADS = {
    "same_process": ("ours, same process", "#56b4e9"),
    "unix": ("ours, Unix socket", BLUE),
    "tcp": ("ours, TCP", "#1f3b57"),
}
WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 960, 230, 120, 18, 16, 84

HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">
<rect width="{width}" height="{height}" fill="#ffffff"/>"""
RECT = '<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>'
TEXT = '<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">{text}</text>'
GRID = '<path d="M{x} {y1} L{x} {y2}" stroke="#d5dce3" stroke-width="1"/>'


def of(record):
    """Returns the pictures of a record, by the names of their files."""
    return {
        "benchmarks-buffers.svg": buffers(record),
        "benchmarks-reading.svg": roads(
            record, "Reading batches, one client: items a second", "sample_batch", "TrajectoryDataset"
        ),
        "benchmarks-writing.svg": roads(
            record, "Writing one item a step, one client: items a second", "trajectory_writer", "trajectory_writer"
        ),
    }


def buffers(record):
    """Peers in one process, by what a call does."""
    works = {
        "add 1 transition": ("uniform", "add 1"),
        "add 101": ("uniform", "add 101"),
        "draw 256": ("uniform", "sample 256"),
        "draw 256 by priority": ("prioritized", "sample 256"),
        "draw 256, update them": ("prioritized", "learn 256"),
    }
    found = {(one["table"], one["work"], one["side"]): one for one in record["results"] if one["area"] == "survey"}
    groups = {
        name: [(side, found[(*work, side)]["median_us"] / 1e6) for side in summary.PEERS if (*work, side) in found]
        for name, work in works.items()
    }
    names = {side: (summary.NAMES[side], COLOURS[side]) for side in summary.PEERS}
    return bars("In one process: time of a call, shorter is better (logarithmic)", groups, names, summary.time_of)


def roads(record, title, work, theirs):
    """Our roads beside dm-reverb, by the payload."""
    groups = {}
    for one in record["results"]:
        if one["area"] != "network" or one["clients"] != 1:
            continue
        if (one["side"], one["work"]) == ("ours", work):
            groups.setdefault(one["payload"], []).append((one["road"], one["items_per_s"]))
        elif (one["side"], one["work"]) == ("reference", theirs):
            groups.setdefault(one["payload"], []).append(("reference", one["items_per_s"]))
    same = "" if work == theirs else f", {theirs}"
    names = {**ROADS, "reference": (f"dm-reverb{same}, TCP", ORANGE)}
    return bars(f"{title}, longer is better (logarithmic)", groups, names, summary.short)


def bars(title, groups, names, spelled):
    """Draws bars in groups.

    Args:
      title: Title of the picture.
      groups: Pairs of a series and its value, by the group's name.
      names: Name and colour of each series.
      spelled: The text of a value.
    """
    groups = {name: cells for name, cells in groups.items() if cells}
    values = [value for cells in groups.values() for _, value in cells]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    step = (WIDTH - LEFT - RIGHT) / max(high - low, 1)
    height = TOP + sum(len(cells) * BAR + GAP for cells in groups.values()) + 30
    parts = [HEAD.format(width=WIDTH, height=height), text(20, 32, title, 17, "#1f3b57"), *legend(groups, names)]
    for power in range(low, high + 1):
        x = round(LEFT + step * (power - low))
        parts.append(GRID.format(x=x, y1=TOP - 8, y2=height - 30))
        parts.append(text(x, height - 12, spelled(10.0**power), 12, "#55636f", "middle"))
    y = TOP
    for name, cells in groups.items():
        parts.append(text(LEFT - 12, y + len(cells) * BAR // 2 + 5, name, 14, "#000000", "end"))
        for series, value in cells:
            length = max(round(step * (math.log10(value) - low)), 2)
            parts.append(RECT.format(x=LEFT, y=y + 1, width=length, height=BAR - 2, fill=names[series][1]))
            parts.append(text(LEFT + length + 6, y + 13, spelled(value), 12, "#000000"))
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>", ""])


def legend(groups, names):
    """The names of the series that are there, in one line, each behind its colour."""
    present = {series for cells in groups.values() for series, _ in cells}
    x = 20
    for series, (name, colour) in names.items():
        if series in present:
            yield RECT.format(x=x, y=48, width=12, height=12, fill=colour)
            yield text(x + 18, 59, name, 13, "#000000")
            x += 48 + 7 * len(name)


def text(x, y, words, font_size, fill, anchor="start"):
    return TEXT.format(x=x, y=y, size=font_size, fill=fill, anchor=anchor, text=escape(words))
