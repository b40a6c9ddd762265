"""Measures us, dm-reverb 0.14 and cpprb 11 in one run, each in an interpreter of its own.

    python benchmarks/run.py --reference .venv-reference/bin/python --cpprb .venv-cpprb/bin/python

The sides take turns within each cell, so that other load on the machine affects all equally. The result, the machine
and the command make one record, `results/<date>-<name>.json`. A side whose interpreter is not given, or lacks the
side's package, is left out, and the record says so.
"""

import argparse
import datetime
import json
import pathlib
import shlex
import sys
import time

import machine
from areas import (
    buffers,
    checkpoints,
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

SIDES = ("ours", "reference", "cpprb", "flashbax", "torchrl", "torch", "tensorflow", "base")


def main():
    options = parse()
    sides = Sides({side: getattr(options, side) for side in SIDES})
    for side, reason in sides.missing.items():
        print(f"without {side}: {reason}", file=sys.stderr)
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": "python " + shlex.join(sys.argv),
        "quick": options.quick,
        "machine": machine.describe(),
        "versions": sides.versions,
        "missing": sides.missing,
        "results": [],
    }
    path = options.out / f"{record['date'][:10]}-{options.name or ('quick' if options.quick else 'full')}.json"
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        start = time.monotonic()
        for result in AREAS[name].run(sides, options.quick):
            result = {"area": name, **result}
            record["results"].append(result)
            print(line(result), flush=True)
        print(f"-- {name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
        # Saved after each area, so that a run that breaks off keeps its results.
        path.write_text(json.dumps(record, indent=1) + "\n")
    print(path)


def parse():
    here = pathlib.Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", default=sys.executable, help="an interpreter that has this package")
    parser.add_argument("--reference", help="one that has dm-reverb 0.14")
    parser.add_argument("--cpprb", help="one that has cpprb 11")
    parser.add_argument("--flashbax", help="one that has flashbax, and JAX for CPUs")
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
