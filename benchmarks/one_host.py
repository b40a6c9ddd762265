"""Large rows between two processes of one host, beside copying them within one process, and beside dm-reverb.

    python benchmarks/one_host.py --reference PYTHON_WITH_DM_REVERB --out benchmarks/results/DATE-one-host.json

Our clients reach their server over the Unix socket, where large rows lie in shared memory; dm-reverb's over TCP. In
each round the calls that are compared take turns. A row has the medians of the rounds: items a second of our calls, and
of the best of the others in each round, and the ratio of the two. It fails if a ratio is below its bar.
"""

import argparse
import contextlib
import functools
import pathlib
import statistics
import sys

import machine
import numpy as np
import payloads
import records
import timing
from areas import network
from workers import Sides

WRITERS = 3


class Program:
    """A server in a process of its own, with tables of one payload, and processes of clients."""

    def __init__(self, sides, side, payload, clients, stack):
        self._payload = payload
        server = stack.enter_context(sides.worker(side))
        self._loads = [stack.enter_context(sides.worker(side)) for _ in range(clients)]
        self._address = server.call("serve", payload=payload)["unix" if side == "ours" else "tcp"]

    def rate(self, work, seconds):
        """Items a second of all clients together."""
        arguments = {"address": self._address, "work": work, "payload": self._payload, "seconds": seconds}
        return network.at_once(self._loads, "load", **arguments)["items_per_s"]

    @functools.cached_property
    def _setting(self):
        return network.best_setting(self._loads[0], self._address, self._payload, 0.4)

    def dataset_rate(self, seconds):
        """Items a second of a `TrajectoryDataset` with the best of a few settings."""
        return network.dataset(self._loads, self._address, self._payload, seconds, self._setting)["items_per_s"]


def gather(payload):
    """Copies random rows of an array into a warm batch."""
    count, size = payloads.table_sizes(payload)[1], payloads.batch_size(payload)
    [rows] = payloads.rows_of(payload, count).values()
    batch, random = rows[:size].copy(), np.random.default_rng(0)

    def call():
        np.take(rows, random.integers(0, count, size), axis=0, out=batch, mode="clip")

    return lambda seconds: timing.measure(call, seconds, size)["items_per_s"]


def write(payload):
    """Copies rows into a warm array, one after another."""
    count = payloads.table_sizes(payload)[0]
    [rows] = payloads.rows_of(payload, count).values()
    steps = rows[:10].copy()

    def call():
        for at in range(count):
            rows[at] = steps[at % len(steps)]

    return lambda seconds: timing.measure(call, seconds, count)["items_per_s"]


def comparisons(sides, stack):
    """What is compared: the labels of a row, our call, the others, and the bar."""
    large = Program(sides, "ours", "400 kB", 1, stack)
    for work, name, other, bar in (
        ("sample_batch", "gathering rows", gather, 0.5),
        ("trajectory_writer", "writing rows", write, 0.35),
    ):
        labels = {"payload": "400 kB", "work": work, "clients": 1, "other": name}
        yield labels, functools.partial(large.rate, work), [other("400 kB")], bar
    one, dm_reverb = (Program(sides, side, "4 kB", 1, stack) for side in ("ours", "reference"))
    labels = {"payload": "4 kB", "work": "NumpyLoader", "clients": 1, "other": "dm-reverb, TrajectoryDataset"}
    yield labels, functools.partial(one.rate, "NumpyLoader"), [dm_reverb.dataset_rate], 6.0
    several, of_dm_reverb = (Program(sides, side, "4 kB", WRITERS, stack) for side in ("ours", "reference"))
    theirs = [functools.partial(of_dm_reverb.rate, work) for work in ("trajectory_writer", "writer")]
    labels = {"payload": "4 kB", "work": "trajectory_writer", "clients": WRITERS, "other": "dm-reverb, its best writer"}
    yield labels, functools.partial(several.rate, "trajectory_writer"), theirs, 5.0


def measured(labels, ours, others, bar, options):
    """The row of one comparison."""
    calls = [ours, *others]
    for call in calls:
        call(options.seconds / 4)
    rounds = [[call(options.seconds) for call in calls] for _ in range(options.rounds)]
    pairs = [(of_ours, max(of_others)) for of_ours, *of_others in rounds]
    medians = [round(statistics.median(column)) for column in zip(*pairs, strict=True)]
    ratio = round(statistics.median(of_ours / best for of_ours, best in pairs), 2)
    rates = {"ours_items_per_s": medians[0], "other_items_per_s": medians[1]}
    return labels | rates | {"ratio": ratio, "limit": bar, "holds": ratio >= bar}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", required=True, help="an interpreter that has dm-reverb 0.14")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    described, sides, results = machine.describe(), Sides({"ours": sys.executable, "reference": options.reference}), []
    if "reference" not in sides:
        sys.exit(f"{options.reference} does not have dm-reverb: {sides.missing['reference']}")
    with contextlib.ExitStack() as stack:
        for comparison in comparisons(sides, stack):
            results.append(measured(*comparison, options))
            print(results[-1], flush=True)
    is_quick, theirs = options.rounds < 9 or options.seconds < 1, {"reference": sides.versions["reference"]}
    records.write(options.out, "one_host", results, is_quick, described, theirs)
    sys.exit(not all(row["holds"] for row in results))


if __name__ == "__main__":
    main()
