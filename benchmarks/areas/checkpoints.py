"""Saving and loading a table of 1 GiB: seconds, memory, and the waits of other calls. Each step has its own process."""

import pathlib
import statistics
import tempfile

SIZES = (400, 400_000)
# Seconds between two inserts and samples by another thread.
WORKS = {"save": None, "save in traffic": 0.01, "save in heavy traffic": 0.0}
LOADS = 3


def run(sides, quick):
    total = (8 if quick else 1024) * 2**20
    # Random bytes do not compress with zlib or Snappy.
    for content, works in (("random", WORKS), ("runs", {"save": None})):
        for size in SIZES:
            count = total // size
            cell = {"payload": f"{size / 1000:g} kB, {content}", "items": count, "mib": count * size / 2**20}
            for result in measure(sides, content, works, size, count):
                yield {**cell, **result}


def measure(sides, content, works, size, count):
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        # One checkpoint serves both sides, since inserting the items would take the reference minutes.
        with sides.worker("ours") as worker:
            source = worker.call("checkpoint_make", root=str(root / "source"), content=content, size=size, count=count)
        there = sides.here("ours", "reference")
        for work, pause in works.items():
            for side in there:
                with sides.worker(side) as worker:
                    worker.call("checkpoint_load", root=str(root / side / work), count=count, source=source)
                    found[side, work] = worker.call("checkpoint_save", content=content, size=size, pause=pause)
        # Each side loads the checkpoint that it has written, in turn.
        loads = {side: [] for side in there}
        for _ in range(LOADS):
            for side in there:
                with sides.worker(side) as worker:
                    loads[side].append(worker.call("checkpoint_load", root=str(root / side / "save"), count=count))
    for side, results in loads.items():
        middle = {name: statistics.median(result[name] for result in results) for name in results[0]}
        seconds = [result["seconds"] for result in results]
        found[side, "load"] = {**middle, "seconds_least": min(seconds), "seconds_most": max(seconds)}
    for (side, work), result in found.items():
        yield {"side": side, "work": work, **rounded(result)}
    if len(there) == 2:
        yield from ratios(found, [*works, "load"])


def rounded(result):
    result = {**result, "peak_to_rest": result["peak_mib"] / result["rest_mib"]}
    return {name: round(value, 3) for name, value in result.items()}


def ratios(found, works):
    """Returns the reference's cost divided by ours: above 1, ours is lower."""
    names = {"seconds": "speed", "cpu_seconds": "processor", "worst_call_ms": "stall", "peak_mib": "peak"}
    for work in works:
        ours, theirs = found["ours", work], found["reference", work]
        values = {f"times_{name}": theirs[field] / ours[field] for field, name in names.items() if field in ours}
        yield {"side": "reference / ours", "work": work, **{name: round(value, 2) for name, value in values.items()}}
