"""The small pictures and numbers of `reverb top`: bars, spark lines, the strip of a limiter, durations."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from reverb.cli import output

# What stands for a figure that the server does not tell.
UNKNOWN = "-"
# Cells of a limiter's strip before, within and after its band.
_OUTSIDE, _WITHIN = 3, 7


@dataclasses.dataclass(frozen=True)
class Glyphs:
    """The characters of pictures.

    Attributes:
      full: A full cell of a bar.
      parts: Cells of a bar that are filled in part, from the least.
      empty: An empty cell of a bar.
      levels: Cells of a spark line, from the lowest.
      dot: The mark in a strip.
      track: An empty cell of a strip.
      between: What stands between facts.
      cut: What stands in place of text that does not fit.
    """

    full: str
    parts: str
    empty: str
    levels: str
    dot: str
    track: str
    between: str
    cut: str


UNICODE = Glyphs("█", "▏▎▍▌▋▊▉", "░", "▁▂▃▄▅▆▇█", "●", "·", " · ", "…")
ASCII = Glyphs("#", "", "-", "_.-=+*%@", "o", ".", " | ", "~")


def bar(share: float, width: int, glyphs: Glyphs) -> str:
    """A bar of `width` cells, filled to a share from 0 to 1."""
    steps = len(glyphs.parts) + 1
    filled = round(min(max(share, 0.0), 1.0) * width * steps)
    if share > 0:
        filled = max(filled, 1)
    whole, part = divmod(filled, steps)
    cells = glyphs.full * whole + (glyphs.parts[part - 1] if part else "")
    return cells + glyphs.empty * (width - len(cells))


def spark(values: Sequence[float], each: int, width: int, glyphs: Glyphs) -> str:
    """A line of the last values, a cell for the mean of `each` of them. The highest cell is the greatest mean."""
    ends = range(len(values), 0, -each)
    groups = [values[max(0, end - each) : end] for end in ends][:width]
    means = [sum(group) / len(group) for group in reversed(groups)]
    top = max(means, default=0.0)
    last = len(glyphs.levels) - 1
    # What is not zero shows.
    levels = [math.ceil(mean / top * last) if mean > 0 else 0 for mean in means]
    return "".join(glyphs.levels[level] for level in levels).rjust(width)


def strip(limiter: dict[str, Any], items: int, glyphs: Glyphs) -> str:
    """Where a limiter's `diff` is: `[···|··●···|···]` between its lower and its upper bound.

    A limiter without bounds waits only for a number of items; its strip is a bar up to that number.
    """
    low, high, diff = limiter["min_diff"], limiter["max_diff"], limiter["diff"]
    if low is None and high is None:
        needed = limiter["min_size"]
        return f"[{bar(items / needed if needed else 1.0, 2 * _OUTSIDE + _WITHIN + 1, glyphs)}|"
    cells = [glyphs.track] * (2 * _OUTSIDE + _WITHIN)
    # With one bound, the band is as wide as that bound is far from zero.
    span = max(abs(low if high is None else high), 1.0)
    start = high - span if low is None else low
    width = span if low is None or high is None else high - low
    share = (diff - start) / width if width > 0 else (diff > start) - (diff < start) + 0.5
    # The upper bound itself is within the band.
    cell = _WITHIN - 1 if share == 1 else math.floor(share * _WITHIN)
    cells[min(max(_OUTSIDE + cell, 0), len(cells) - 1)] = glyphs.dot
    before, within, after = cells[:_OUTSIDE], cells[_OUTSIDE : _OUTSIDE + _WITHIN], cells[_OUTSIDE + _WITHIN :]
    bounds = [glyphs.track if bound is None else "|" for bound in (low, high)]
    return f"[{''.join(before)}{bounds[0]}{''.join(within)}{bounds[1]}{''.join(after)}]"


def rate(per_second: float | None) -> str:
    """A number of items a second, of at most seven characters; nothing in the first look."""
    if per_second is None:
        return ""
    if per_second < 10:
        return f"{per_second:.1f}"
    return f"{per_second:,.0f}" if per_second < 1e5 else count(per_second)


def count(number: float | None) -> str:
    """A number with a unit of thousands if it is long, such as `1.50M`; a dash for one that is unknown."""
    if number is None:
        return UNKNOWN
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 10 * size or (number >= size and size > 1e3):
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}"


def size(number: float | None) -> str:
    """A number of bytes in few characters, such as `1.5G`; a dash for one that is unknown."""
    if number is None:
        return UNKNOWN
    for unit in ("", "K", "M", "G"):
        if number < 1000 or unit == "G":
            return f"{number:.3g}{unit}" if number < 1000 else f"{number:,.0f}{unit}"
        number /= 1024
    raise AssertionError


def seconds(number: float | None) -> str:
    """A duration: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`, `5 d 3 h`; a dash for one that is unknown."""
    if number is None:
        return UNKNOWN
    if number < 10:
        return f"{number:.1f} s"
    whole = int(number)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"


def traffic(per_second: float | None) -> str:
    """A number of bytes a second."""
    return "" if per_second is None else f"{output.human_bytes(per_second)}/s"


def shards(labels: Sequence[str]) -> str:
    """Shards of a cluster, by their ids: `shard 2`, `shards 0, 3`."""
    return f"shard{'' if len(labels) == 1 else 's'} {', '.join(labels)}"
