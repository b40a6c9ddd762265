"""A record in short: the table of the README, with peers side by side, and the facts of the machine.

All cells of a table are of one record, so that no table mixes versions or machines. Rows and sides without a figure are
left out.
"""

import types
import typing

from workers import DISTRIBUTIONS

NAMES = {
    "ours": "ours",
    "reference": "dm-reverb",
    "cpprb": "cpprb",
    "numpy": "bare gather",
    "flashbax": "Flashbax",
    "torchrl": "TorchRL",
    "torch": "ours in TorchRL",
    "tensorflow": "ours in TensorFlow",
    "base": "ours, older",
}
# The columns of the table.
PEERS = ("ours", "reference", "cpprb", "torchrl", "flashbax")
# The areas that a record must have to be shown in short.
AREAS = {"survey", "network"}


def time(result):
    return time_of(result["median_us"] / 1e6)


def seconds(result):
    return time_of(result["seconds"])


def rate(result):
    return f"{short(result['items_per_s'])} items/s"


def steps(result):
    return f"{short(result['items_per_s'])} steps/s"


def size(result):
    return f"{result['mib']:.3g} MiB" if "mib" in result else f"{short(result['bytes_per_item'])} bytes"


class Row(typing.NamedTuple):
    work: str
    area: str
    # What tells the result from others of its area; `by_side` replaces some of it.
    labels: dict
    show: typing.Callable
    by_side: typing.Mapping = types.MappingProxyType({})


def over_tcp(work, payload="transition", theirs=None):
    by_side = {"reference": {"work": theirs}} if theirs else {}
    return "network", {"payload": payload, "work": work, "road": "tcp", "clients": 1}, rate, by_side


def survey(table, work):
    return "survey", {"table": table, "work": work}, time


def saved(payload, work):
    return "checkpoints", {"payload": payload, "work": work}, seconds


# Of the README. A transition has 280 bytes in 5 columns.
ROWS = (
    Row("same process: add 1 transition", *survey("uniform", "add 1")),
    Row("same process: add 101", *survey("uniform", "add 101")),
    Row("same process: draw 256", *survey("uniform", "sample 256")),
    Row(
        "same process: draw 256 by priority, with importance weights; dm-reverb: without",
        *survey("prioritized", "sample 256"),
    ),
    Row("same process: update 256 priorities", *survey("prioritized", "update 256")),
    Row("same process: draw 256 by priority, update them", *survey("prioritized", "learn 256")),
    Row("over TCP: `insert_batch` of 64; dm-reverb: `insert`", *over_tcp("insert_batch", theirs="insert")),
    Row("over TCP: `trajectory_writer`, one transition a step", *over_tcp("trajectory_writer")),
    Row(
        "over TCP: batches of 256 by `sample_batch`; dm-reverb: `TrajectoryDataset`",
        *over_tcp("sample_batch", theirs="TrajectoryDataset"),
    ),
    Row("over TCP: batches of 256 by `NumpyLoader`", *over_tcp("NumpyLoader", theirs="TrajectoryDataset")),
)
# Of README.md in this folder, below those.
MORE_ROWS = (
    Row("over TCP: `writer`, one transition a step", *over_tcp("writer")),
    Row("over TCP: `trajectory_writer`, 400 bytes a step", *over_tcp("trajectory_writer", "0.4 kB")),
    Row("over TCP: batches of 256 items of 400 bytes", *over_tcp("sample_batch", "0.4 kB", "TrajectoryDataset")),
    Row("over TCP: batches of 32 items of 400 kB", *over_tcp("sample_batch", "400 kB", "TrajectoryDataset")),
    *(
        Row(
            f"over TCP: draw 256 of {name} transitions",
            "scale",
            {"work": "sample_batch", "road": "tcp", "items": items},
            time,
        )
        for name, items in (("10⁴", 10**4), ("10⁷", 10**7))
    ),
    *(
        Row(
            f"`TrajectoryDataset` on both sides: {name}",
            "datasets",
            {"payload": payload},
            rate,
            {"ours": {"side": side}},
        )
        for name, payload, side in (
            ("transitions", "transition", "tensorflow"),
            ("400 kB", "400 kB", "tensorflow"),
        )
    ),
    Row("save 1 GiB of random bytes, items of 400 bytes", *saved("0.4 kB, random", "save")),
    Row("load it", *saved("0.4 kB, random", "load")),
    Row("save 1 GiB of random bytes, items of 400 kB", *saved("400 kB, random", "save")),
    Row("load it", *saved("400 kB, random", "load")),
    Row("memory of a transition that was inserted alone", "memory", {"work": "insert"}, size),
    Row("memory of an idle server", "memory", {"work": "idle server"}, size),
    Row("64 CartPoles of Gymnasium in one loop", "environments", {"work": "bare"}, steps),
    Row("the same, with 3-step transitions written over TCP", "environments", {"road": "tcp"}, steps),
)


def of(record, rows=ROWS):
    """Returns the header and the rows of the table of a record, as lists of strings."""
    found = [(row.work, [cell(record, row, side) for side in sides_of(record)]) for row in rows]
    header = ["work", *(f"{NAMES[side]} {record['versions'][side][DISTRIBUTIONS[side]]}" for side in sides_of(record))]
    return header, [[work, *cells] for work, cells in found if any(cells)]


def sides_of(record):
    """Returns the sides that the README's table has."""
    return [side for side in PEERS if any(cell(record, row, side) for row in ROWS)]


def cell(record, row, side):
    wanted = {"area": row.area, "side": side, **row.labels, **row.by_side.get(side, {})}
    for result in record["results"]:
        if all(result.get(label) == value for label, value in wanted.items()):
            return row.show(result)
    return ""


def facts(record, sides):
    """Returns the machine, the day, and the versions of some sides of a record."""
    machine = record["machine"]
    versions = "; ".join(
        f"{NAMES[side]}: {', '.join(f'{name} {version}' for name, version in record['versions'][side].items())}"
        for side in sides
    )
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:g} GB; memcpy "
        f"{machine['memcpy_gb_per_s']} GB/s, loopback {machine['loopback_gb_per_s']} GB/s; {record['date'][:10]}. "
        f"Versions: {versions}."
    )


def short(number):
    """Formats a number with three significant digits."""
    for limit, unit in ((1e6, " M"), (1e4, " k")):
        if number >= limit:
            return f"{number / (1e6 if unit == ' M' else 1e3):.3g}{unit}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def time_of(value):
    """Formats a time in seconds with three significant digits."""
    for limit, factor, unit in ((0.9995, 1, "s"), (0.9995e-3, 1e3, "ms")):
        if value >= limit:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def table_of(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
