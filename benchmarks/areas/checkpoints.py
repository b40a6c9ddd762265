"""Saving and loading a table of 1 GiB: seconds, memory, and how long others wait. Each step has its own process."""

import pathlib
import tempfile


def run(sides, quick):
    total = (32 if quick else 1024) * 2**20
    for size in (400, 400_000):
        count = total // size
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            # One content for both, which would take the reference minutes to insert.
            with sides.worker("ours") as worker:
                source = worker.call("checkpoint_make", root=str(root / "source"), size=size, count=count)
            for side in sides.here("ours", "reference"):
                yield from measure(sides, side, root / side, source, size, count)


def measure(sides, side, root, source, size, count):
    cell = {"side": side, "payload": f"{size / 1000:g} kB", "items": count, "mib": count * size / 2**20}
    for has_traffic in (False, True):
        with sides.worker(side) as worker:
            worker.call("checkpoint_load", root=str(root / f"{has_traffic}"), count=count, source=source)
            saved = worker.call("checkpoint_save", size=size, has_traffic=has_traffic)
        yield {**cell, "work": "save in traffic" if has_traffic else "save", **with_ratio(saved)}
    # What the side itself has written.
    with sides.worker(side) as worker:
        loaded = worker.call("checkpoint_load", root=str(root / "False"), count=count)
    yield {**cell, "work": "load", **with_ratio(loaded)}


def with_ratio(result):
    rounded = {name: round(value, 3) for name, value in result.items()}
    return {**rounded, "peak_to_rest": round(result["peak_mib"] / result["rest_mib"], 3)}
