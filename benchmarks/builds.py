"""Compares two builds of this package: is the newer one slower than the older one is beside itself?

    python benchmarks/builds.py --before .venv-before/bin/python --after .venv/bin/python

Three groups of processes run: the build before, the build before once more, and the build after. They take turns in
every round, so that other load on the machine hits all alike. The spread of the build before covers the rounds of
both its groups. A row holds if the median of the build after is at least the lowest round of that spread.
"""

import argparse
import itertools
import json
import statistics
import sys

import payloads
from areas import network
from workers import Worker

GROUPS = ("before", "before again", "after")


def main():
    options = parse()
    pythons = {group: options.after if group == "after" else options.before for group in GROUPS}
    rows = []
    for payload in options.payloads:
        for row in measure(pythons, payload, options):
            print(line(row), flush=True)
            rows.append(row)
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"command": "python " + " ".join(sys.argv), "rows": rows}, file, indent=1)
    slower = [row for row in rows if not row["holds"]]
    print(f"{len(rows) - len(slower)} of {len(rows)} rows hold")
    sys.exit(bool(slower))


def measure(pythons, payload, options):
    """The rows of one payload: work by road, with the median rate of each group."""
    groups = {group: [Worker(python, "ours") for _ in range(2)] for group, python in pythons.items()}
    try:
        addresses = {group: server.call("serve", payload=payload) for group, (server, _) in groups.items()}
        cells = list(itertools.product(network.WORKS, network.ROADS))
        rates = {cell: {group: [] for group in GROUPS} for cell in cells}
        for _, (work, road), group in itertools.product(range(options.rounds), cells, GROUPS):
            server, client = groups[group]
            arguments = {"address": addresses[group][road], "work": work, "payload": payload}
            if road == "same_process":
                result = server.call("load", threads=1, seconds=options.seconds, **arguments)
            else:
                result = client.call("load", seconds=options.seconds, **arguments)
            rates[work, road][group].append(result["items_per_s"])
        for (work, road), measured in rates.items():
            yield summary(payload, work, road, measured)
    finally:
        for worker in itertools.chain(*groups.values()):
            worker.end()


def summary(payload, work, road, rates):
    medians = {group: statistics.median(rates[group]) for group in GROUPS}
    before = rates["before"] + rates["before again"]
    reference = statistics.median(before)
    return {
        "payload": payload,
        "work": work,
        "road": road,
        **{f"{group} items/s": round(median, 1) for group, median in medians.items()},
        "after / before": round(medians["after"] / reference, 3),
        "before again / before": round(medians["before again"] / medians["before"], 3),
        "spread": [round(min(before) / reference, 3), round(max(before) / reference, 3)],
        "holds": medians["after"] >= min(before),
    }


def line(row):
    low, high = row["spread"]
    return (
        f"{row['payload']:>10} {row['work']:<18} {row['road']:<12} after / before {row['after / before']:.3f}, "
        f"before again {row['before again / before']:.3f}, rounds {low:.2f} to {high:.2f}"
        f"{'' if row['holds'] else '  SLOWER'}"
    )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True, help="an interpreter that has the older build")
    parser.add_argument("--after", default=sys.executable, help="an interpreter that has the newer build")
    parser.add_argument("--rounds", type=int, default=9, help="rounds in which each group measures each row")
    parser.add_argument(
        "--seconds", type=float, default=0.25, help="seconds that one group measures one row in a round"
    )
    parser.add_argument("--payloads", nargs="+", default=["transition", "0.4 kB", "400 kB"], choices=payloads.SENT)
    parser.add_argument("--out", help="a JSON file for all rows")
    return parser.parse_args()


if __name__ == "__main__":
    main()
