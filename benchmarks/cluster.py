"""What do shards cost a learner: draws from a cluster, beside a plain client of one server; and a cluster on Ray.

    .venv-ray/bin/python benchmarks/cluster.py --out benchmarks/results/DATE-cluster.json

One learner draws batches over TCP loopback from 1, 2, 4 ... shards, each a process of its own, all with the same items
together; `plain` is a `reverb.Client` of one server. In rounds, each number of shards in turn. A row has the medians of
the rounds: batches a second; the processor time of the client for a batch, of its own and of the kernel's; rounds and
spare arrivals of a batch. `per_shard` has the slopes of the least squares over the numbers of shards: what one more
costs the client. All processes share the cores of one machine, so this shows overhead, and no scaling.

On Ray, if it is installed: seconds from `reverb.ray.start` of four shards until it returns, and from the kill of one
until all four answer again, with its items from a checkpoint.
"""

import argparse
import importlib.metadata
import importlib.util
import logging
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import numpy as np
import payloads
import records

import reverb

PAYLOAD = "transition"
ITEMS = 64_000
SHARDS = (1, 2, 4, 8, 16)
BATCHES = (32, 256)
SHARD = """
import sys, reverb
selectors = reverb.selectors
table = reverb.Table("table", selectors.Prioritized(0.6), selectors.Fifo(), 10**6, reverb.rate_limiters.MinSize(1))
shard = reverb.cluster.Shard(int(sys.argv[1]), "bench") if sys.argv[1:] else None
server = reverb.Server([table], shard=shard)
print(server.port, flush=True)
sys.stdin.read()
"""


class Servers:
    """Processes that serve the same items together: as shards, or one that is none."""

    def __init__(self, shards):
        ids = [[str(number)] for number in range(shards)] if shards else [[]]
        self._processes = [
            subprocess.Popen([sys.executable, "-c", SHARD, *each], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for each in ids
        ]
        addresses = [f"127.0.0.1:{int(process.stdout.readline())}" for process in self._processes]
        rows = payloads.rows_of(PAYLOAD, ITEMS // len(addresses))
        for address in addresses:
            reverb.Client(address).insert_batch(rows, {"table": 1.0})
        text = f"ipv4:{','.join(addresses)}"
        self.client = reverb.cluster.connect(text) if shards else reverb.Client(text)

    def close(self):
        self.client.close()
        for process in self._processes:
            process.stdin.close()
            process.wait()


def draw(client, batch, seconds):
    """Draws for some time.

    Returns the number of batches, their number a second, and the processor time of the client for a batch in
    microseconds: its own, and that of the kernel.
    """
    begun, before, count = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF), 0
    while (elapsed := time.perf_counter() - begun) < seconds:
        client.sample_batch("table", batch)
        count += 1
    after = resource.getrusage(resource.RUSAGE_SELF)
    times = (1e6 * (getattr(after, kind) - getattr(before, kind)) / count for kind in ("ru_utime", "ru_stime"))
    return count, count / elapsed, *times


def measure(servers, batch, options):
    """The rows of one size of a batch."""
    rounds = {shards: [] for shards in servers}
    for each in servers.values():
        draw(each.client, batch, options.seconds / 4)
    before = {shards: each.client.stats() for shards, each in servers.items() if shards}
    for _ in range(options.rounds):
        for shards, each in servers.items():
            rounds[shards].append(draw(each.client, batch, options.seconds))
    rows = []
    for shards, each in servers.items():
        rate, user, system = map(statistics.median, zip(*(figures[1:] for figures in rounds[shards]), strict=True))
        row = {"shards": shards or "plain", "batch": batch, "batches_per_s": round(rate)}
        row |= {"client_user_us": round(user, 1), "client_system_us": round(system, 1)}
        if shards:
            stats, batches = each.client.stats(), sum(figures[0] for figures in rounds[shards])
            row["rounds_per_batch"] = round((stats.rounds - before[shards].rounds) / batches, 3)
            spare = stats.spare_arrivals - before[shards].spare_arrivals
            row["spare_per_item"] = round(spare / batches / batch, 3)
        rows.append(row)
    return rows


def slopes(rows):
    """What one more shard costs the client for a batch, of each size."""
    for batch in BATCHES:
        points = [row for row in rows if row["batch"] == batch and row["shards"] != "plain"]
        shards = [row["shards"] for row in points]
        row = {"shards": "per_shard", "batch": batch}
        for name in ("client_user_us", "client_system_us"):
            row[name] = round(float(np.polyfit(shards, [point[name] for point in points], 1)[0]), 1)
        yield row


def make_tables():
    selectors = reverb.selectors
    return [reverb.Table("table", selectors.Uniform(), selectors.Fifo(), 10**6, reverb.rate_limiters.MinSize(1))]


def on_ray(starts=5):
    """The row of a cluster on Ray: medians of several starts, and of as many kills."""
    import ray

    ray.init(num_cpus=8, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    started, returned = [], []
    for _ in range(starts):
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            replay = reverb.ray.start(make_tables, shards=4, name="bench", checkpoint=folder, detached=False)
            started.append(time.perf_counter() - begun)
            replay.insert_batch(payloads.rows_of(PAYLOAD, 10_000), {"table": 1.0})
            replay.checkpoint()
            lost = max(replay.shards(), key=lambda shard: shard.items)
            begun = time.perf_counter()
            os.kill(lost.pid, signal.SIGKILL)
            while not is_back(replay, lost):
                time.sleep(0.02)
            returned.append(time.perf_counter() - begun)
            reverb.ray.stop("bench", save=False)
    ray.shutdown()
    medians = {"start_s": round(statistics.median(started), 2), "back_s": round(statistics.median(returned), 2)}
    return {"shards": "4 on Ray", **medians}


def is_back(replay, lost):
    """Whether a shard that was killed answers again, with its items."""
    shard = replay.shards()[lost.id]
    return shard.alive and shard.pid != lost.pid and shard.items == lost.items


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    described, rows = machine.describe(), []
    servers = {shards: Servers(shards) for shards in (None, *SHARDS)}
    for batch in BATCHES:
        rows += measure(servers, batch, options)
    for each in servers.values():
        each.close()
    rows += slopes(rows)
    versions = {}
    if importlib.util.find_spec("ray"):
        rows.append(on_ray())
        versions["ray"] = importlib.metadata.version("ray")
    for row in rows:
        print(row)
    records.write(options.out, "cluster", rows, options.rounds < 9, described, **versions)


if __name__ == "__main__":
    main()
