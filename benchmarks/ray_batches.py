"""What does a batch cost a learner on Ray: over our sockets, from an actor by the object store, and the store alone?

    .venv-ray/bin/python benchmarks/ray_batches.py --out benchmarks/results/DATE-ray-batches.json

The same items lie in a shard of `reverb.ray` and in a plain actor, which gathers a batch of a NumPy array and returns
it, as buffers in actors of Ray do. One learner draws batches of 256 of them in turn, in rounds: over the Unix socket,
over TCP, and by `ray.get(actor.draw.remote())`. `store` is `ray.put` and `ray.get` of such a batch in the learner
itself, without any actor: what the object store alone costs. A row has the medians of the rounds, in microseconds a
batch.
"""

import argparse
import logging
import pathlib
import statistics
import time

import machine
import numpy as np
import ray
import records

import reverb

BATCH = 256
# Bytes of an item, and how many of them.
ITEMS = {400: 20_000, 4_000: 20_000, 40_000: 4_000}


def make_tables():
    selectors = reverb.selectors
    return [reverb.Table("table", selectors.Uniform(), selectors.Fifo(), 10**6, reverb.rate_limiters.MinSize(1))]


class Buffer:
    """A replay buffer in an actor: an array, of which it draws rows."""

    def __init__(self, rows):
        self._rows, self._random = np.array(rows), np.random.default_rng(0)

    def draw(self, count):
        return self._rows[self._random.integers(len(self._rows), size=count)]


def sides(size):
    """The ways to a batch of one size: functions that draw it, by name."""
    rows = np.random.default_rng(0).random((ITEMS[size], size // 4), np.float32)
    replay = reverb.ray.start(make_tables, shards=1, name="bench", detached=False)
    replay.insert_batch(rows, {"table": 1.0})
    [shard] = replay.shards()
    tcp = reverb.Client(f"ipv4:{shard.address.removeprefix('ipv4:')}")
    unix = reverb.Client(shard.address.removeprefix("ipv4:"))
    buffer = ray.remote(Buffer).remote(rows)
    batch = rows[:BATCH].copy()
    draws = {
        "unix": lambda: unix.sample_batch("table", BATCH),
        "tcp": lambda: tcp.sample_batch("table", BATCH),
        "actor": lambda: ray.get(buffer.draw.remote(BATCH)),
        "store": lambda: ray.get(ray.put(batch)),
    }
    for draw in draws.values():
        draw()
    assert (unix.road, tcp.road) == ("unix", "tcp")
    return draws, buffer


def microseconds(draw, seconds):
    """The mean time of a call."""
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        draw()
        count += 1
    return 1e6 * elapsed / count


def measure(size, options):
    """The row of one size."""
    draws, buffer = sides(size)
    try:
        rounds = [[microseconds(draw, options.seconds) for draw in draws.values()] for _ in range(options.rounds)]
    finally:
        ray.kill(buffer)
        reverb.ray.stop("bench", save=False)
    medians = map(statistics.median, zip(*rounds, strict=True))
    return {"item_bytes": size, "batch": BATCH} | {
        f"{name}_us": round(us) for name, us in zip(draws, medians, strict=True)
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    described = machine.describe()
    ray.init(num_cpus=4, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    results = []
    for size in ITEMS:
        row = measure(size, options)
        print(row, flush=True)
        results.append(row)
    ray.shutdown()
    records.write(options.out, "ray_batches", results, options.rounds < 9, described, ray=ray.__version__)


if __name__ == "__main__":
    main()
