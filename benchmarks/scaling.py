"""How do a server and its clients scale with the cores of a machine, beside dm-reverb?

    python benchmarks/scaling.py --reference PYTHON_WITH_DM_REVERB --out benchmarks/results/DATE-scaling.json

One server, and 1 to 16 clients that make the same call at once, each in a process of its own. All cells take turns in
rounds, those of dm-reverb too. A row has the median rate of all its clients together, and `of_one`, that rate divided
by one client's. The server shares the cores with its clients.

`server_cores` confines the server to some of the cores, and eight clients to the rest: a server has a thread for every
two of its cores. Those rows are left out where there are not eight cores for the clients.
"""

import argparse
import os
import pathlib
import sys

import machine
import payloads
import records
import timing
import workers
from areas.network import REFERENCE_WORKS, at_once, best_setting, dataset

CLIENTS = (1, 2, 4, 8, 16)
PAYLOADS = ("0.4 kB", "4 kB")
WORKS = ("insert", "insert_batch", "trajectory_writer", "sample", "sample_batch")
WORKS_OF_CORES = ("insert", "trajectory_writer", "sample_batch")
SERVER_CORES = (1, 2, 4, 8)
CLIENTS_OF_CORES = 8


class Cells:
    """The cells of one payload: labels, and what measures them once.

    Args:
      sides: The sides that are here.
      payload: Name of the payload.
      seconds: Duration of a measurement.
    """

    def __init__(self, sides, payload, seconds):
        self._payload, self._seconds = payload, seconds
        self._workers = []
        self.cells = []
        for side in sides.here("ours", "reference"):
            server, *loads = (self._worker(sides, side) for _ in range(1 + max(CLIENTS)))
            addresses = server.call("serve", payload=payload)
            (self._add_ours if side == "ours" else self._add_reference)(loads, addresses)
        self._add_confined(sides)

    def _worker(self, sides, side, cores=None):
        worker = sides.worker(side)
        self._workers.append(worker)
        if cores is not None:
            # Before it has threads, which inherit it.
            os.sched_setaffinity(worker.pid, cores)
        return worker

    def _add(self, side, work, road, clients, measure, **labels):
        self.cells.append(({"side": side, "work": work, "road": road, "clients": clients, **labels}, measure))

    def _load(self, loads, address, work):
        return lambda: at_once(loads, "load", address=address, work=work, payload=self._payload, seconds=self._seconds)

    def _add_ours(self, loads, addresses):
        for road in ("tcp", "unix"):
            for work in WORKS:
                for clients in CLIENTS:
                    self._add("ours", work, road, clients, self._load(loads[:clients], addresses[road], work))

    def _add_reference(self, loads, addresses):
        address = addresses["tcp"]
        for work in REFERENCE_WORKS:
            for clients in CLIENTS:
                self._add("reference", work, "tcp", clients, self._load(loads[:clients], address, work))
        setting = best_setting(loads[0], address, self._payload, self._seconds)

        def reads(clients):
            return lambda: dataset(loads[:clients], address, self._payload, 2 * self._seconds, setting)

        for clients in CLIENTS:
            self._add("reference", "TrajectoryDataset", "tcp", clients, reads(clients))

    def _add_confined(self, sides):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < max(SERVER_CORES) + CLIENTS_OF_CORES:
            return
        loads = [self._worker(sides, "ours", cores[max(SERVER_CORES) :]) for _ in range(CLIENTS_OF_CORES)]
        for count in SERVER_CORES:
            addresses = self._worker(sides, "ours", cores[:count]).call("serve", payload=self._payload)
            for road in ("tcp", "unix"):
                for work in WORKS_OF_CORES:
                    measure = self._load(loads, addresses[road], work)
                    self._add("ours", work, road, CLIENTS_OF_CORES, measure, server_cores=count)

    def end(self):
        for worker in self._workers:
            worker.end()


def run(sides, options):
    for payload in PAYLOADS:
        cells = Cells(sides, payload, options.seconds)
        try:
            results = [[measure() for _, measure in cells.cells] for _ in range(options.rounds)]
        finally:
            cells.end()
        rows = [
            {"payload": payload, **labels, **timing.summary(list(rounds), payloads.bytes_of(payload))}
            for (labels, _), rounds in zip(cells.cells, zip(*results, strict=True), strict=True)
        ]
        on_all_cores = [row for row in rows if "server_cores" not in row]
        ones = {group_of(row): row["items_per_s"] for row in on_all_cores if row["clients"] == 1}
        for row in on_all_cores:
            row["of_one"] = round(row["items_per_s"] / ones[group_of(row)], 2)
        yield from rows


def group_of(row):
    return row["side"], row["work"], row["road"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", help="path of an interpreter that has dm-reverb 0.14")
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    described = machine.describe()
    sides = workers.Sides({"ours": sys.executable, "reference": options.reference})
    rows = []
    for row in run(sides, options):
        cores = f" server on {row['server_cores']}" if "server_cores" in row else f" x{row['of_one']}"
        labels = " ".join(str(row[name]) for name in ("side", "payload", "road", "work", "clients"))
        print(f"{labels}: {row['items_per_s'] / 1e3:.1f} k/s{cores}", flush=True)
        rows.append(row)
    records.write(options.out, "scaling", rows, options.rounds < 5, described, others=sides.versions)


if __name__ == "__main__":
    main()
