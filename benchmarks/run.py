"""Measures us and other replay buffers in one run, each in an interpreter of its own: `make bench`.

    python benchmarks/run.py --only survey,network --name survey

The sides take turns within each cell, so that other load on the machine affects all equally. The result, the machine
and the command make one record, `results/<date>-<name>.json`. Interpreters that are not given are those that `make
bench-peers` and the other targets make. A side that is not installed is left out, and the record says so. At the end
stand the table of the README and the facts of the machine.
"""

import argparse
import datetime
import json
import pathlib
import shlex
import sys
import time
import traceback

import machine
import summary
from areas import (
    buffers,
    checkpoints,
    clients,
    datasets,
    environments,
    imports,
    leaves,
    loaders,
    memory,
    network,
    operations,
    protocols,
    scale,
    survey,
)
from workers import Sides

AREAS = {
    "survey": survey,
    "network": network,
    "clients": clients,
    "leaves": leaves,
    "memory": memory,
    "scale": scale,
    "imports": imports,
    "checkpoints": checkpoints,
    "loaders": loaders,
    "buffers": buffers,
    "environments": environments,
    "datasets": datasets,
    "protocols": protocols,
    "operations": operations,
}

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Sides, each with its environment beside the tree, and how to get it.
SIDES = {
    "ours": (None, None),
    "reference": (".venv-reference", "`make bench` installs it where python3.11 is on PATH"),
    "cpprb": (".venv-cpprb", "`make bench-peers` installs it where python3.11 is on PATH"),
    "torchrl": (".venv-torchrl", "`make bench-peers` installs it"),
    "torch": (".venv-torchrl", "`make bench-peers` installs it"),
    "flashbax": (".venv-flashbax", "`make bench-peers` installs it"),
    "tensorflow": (".venv-tensorflow", "`make test-tensorflow` installs it where python3.11 is on PATH"),
    "base": (None, None),
}


def main():
    options = parse()
    sides = Sides({side: getattr(options, side) or installed(side) for side in SIDES})
    if "ours" not in sides:
        sys.exit(f"{options.ours or sys.executable} does not have this package: {sides.missing['ours']}")
    for side, (_, remedy) in SIDES.items():
        if side in sides.missing and remedy:
            print(f"SKIPPED {summary.NAMES[side]}: {sides.missing[side]}; {remedy}", file=sys.stderr)
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": "python " + shlex.join(sys.argv),
        "quick": options.quick,
        "machine": machine.describe(),
        "versions": sides.versions,
        "missing": sides.missing,
        "failed": [],
        "results": [],
    }
    path = options.out / f"{record['date'][:10]}-{options.name or ('quick' if options.quick else 'full')}.json"
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        start = time.monotonic()
        try:
            measure(name, sides, options.quick, record)
        except Exception:
            # The other areas stand on their own; the status tells.
            record["failed"].append(name)
            traceback.print_exc()
        print(f"-- {name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
        # Saved after each area, so that a run that breaks off keeps its results.
        record["summary"] = summary.of(record)
        path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{summary.facts(record, sides.versions)}\n\n{summary.table_of(*record['summary'])}\n\n{path}")
    missed = [line(result) for result in record["results"] if not result.get("holds", True)]
    if record["failed"] or missed:
        sys.exit(
            "\n".join([*(f"failed: {name}" for name in record["failed"]), *(f"below its bar: {one}" for one in missed)])
        )


def installed(side):
    """Returns the interpreter of a side that a target has installed, or None."""
    if side == "ours":
        return sys.executable
    folder = SIDES[side][0]
    python = ROOT / folder / "bin/python" if folder else None
    return str(python) if python and python.exists() else None


def measure(name, sides, quick, record):
    """Adds the results of an area to a record as they come."""
    for result in AREAS[name].run(sides, quick):
        result = {"area": name, **result}
        record["results"].append(result)
        print(line(result), flush=True)


def parse():
    here = pathlib.Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", help="an interpreter that has this package; this one unless given")
    parser.add_argument("--reference", help="one that has dm-reverb 0.14")
    parser.add_argument("--cpprb", help="one that has cpprb 11")
    parser.add_argument("--flashbax", help="one that has Flashbax, and JAX for CPUs")
    parser.add_argument("--tensorflow", help="one that has this package and TensorFlow 2.15")
    parser.add_argument("--torchrl", help="one that has TorchRL")
    parser.add_argument("--torch", help="one that has this package and TensorDict")
    parser.add_argument("--base", help="one that has an older version of this package, for `operations`")
    parser.add_argument("--out", type=pathlib.Path, default=here / "results")
    parser.add_argument("--name", help="of the record; `full` or `quick` unless given")
    parser.add_argument("--quick", action="store_true", help="fewer cells and shorter: shows that all runs")
    parser.add_argument("--only", type=areas, default=list(AREAS), help=f"some of {','.join(AREAS)}")
    return parser.parse_args()


def areas(text):
    names = text.split(",")
    for name in names:
        if name not in AREAS:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(AREAS)}")
    return names


def line(result):
    """Formats a result as one line."""
    labels = (
        "area",
        "side",
        "server",
        "work",
        "table",
        "payload",
        "road",
        "clients",
        "tables",
        "items",
        "items_per_call",
        "note",
    )
    shown = [str(result[label]) for label in labels if result.get(label) is not None]
    values = [
        f"{name} {value:,.1f}" if value >= 10 else f"{name} {value:.3g}"
        for name, value in result.items()
        if name not in labels and isinstance(value, (int, float)) and value is not None
    ]
    return f"{' '.join(shown)}: {', '.join(values)}"


if __name__ == "__main__":
    main()
