"""What does durability cost?

    python benchmarks/durability.py --out benchmarks/results/DATE-durability.json

Three servers in processes of their own have the same tables: one is not durable, one has `durability="process"`, and
one has `"power"`. The callers of all take turns in rounds. A row has the medians of the rounds and the ratios to the
server that is not durable in the same round; a row with a limit holds or not. The disk's own times are measured in the
same rounds: a write of 4 KiB with fdatasync, and 64 MiB in pieces of 400 kB with one sync at the end.

`restart` fills a table, kills the server, and starts it from its log; then it saves, and starts it from the checkpoint.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

import numpy as np
import records

import reverb

SIDES = ("none", "process", "power")
TRANSITION = {"observation": (28, np.float64), "action": (6, np.float64), "reward": (1, np.float64)}
CALLERS = 64


def make_tables():
    def table(name, size):
        sampler = reverb.selectors.Prioritized(0.6) if name == "prioritized" else reverb.selectors.Uniform()
        return reverb.Table(name, sampler, reverb.selectors.Fifo(), size, reverb.rate_limiters.MinSize(1))

    names = {"small": 10**5, "large": 200, "million": 10**6, "prioritized": 10**5}
    return [table(name, size) for name, size in names.items()]


def serve(pipe, folder, side):
    """Serves until it is told to end. Measures calls of its own process when it is asked to."""
    durability = None if side == "none" else side
    checkpointer = reverb.checkpointers.DefaultCheckpointer(folder, keep=1)
    begun = time.perf_counter()
    server = reverb.Server(make_tables(), checkpointer=checkpointer, durability=durability)
    pipe.send((server.port, time.perf_counter() - begun))
    client = reverb.Client(f"localhost:{server.port}")
    row = {name: np.zeros((1, size), dtype) for name, (size, dtype) in TRANSITION.items()}
    while (seconds := pipe.recv()) is not None:
        pipe.send(per_second(lambda: client.insert_batch(row, {"small": 1.0}), seconds))
    server.stop()


def per_second(call, seconds, amount=1):
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        call()
        count += amount
    return count / elapsed


class Side:
    """A server, and the callers of it."""

    def __init__(self, folder, side):
        self.folder, self.side = folder, side
        self.start()
        transition = {name: np.zeros(size, dtype) for name, (size, dtype) in TRANSITION.items()}
        self._transition = transition | {"reward": np.float64(0)}

    def start(self):
        spawn = multiprocessing.get_context("spawn")
        self._pipe, there = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(there, self.folder, self.side), daemon=True)
        self._process.start()
        port, self.start_time = self._pipe.recv()
        self.address = f"ipv4:127.0.0.1:{port}"
        self.client = reverb.Client(self.address)

    def kill(self):
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()

    def stop(self):
        self._pipe.send(None)
        self._process.join()

    def here(self, seconds):
        """Inserts of one transition a second, in the process of the server."""
        self._pipe.send(seconds)
        return self._pipe.recv()

    def _write(self, table, step, seconds, flush_each=False):
        times = []
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:

            def write():
                writer.append(step)
                writer.create_item(table, 1.0, {name: column[-1:] for name, column in writer.history.items()})
                if flush_each:
                    begun = time.perf_counter()
                    writer.flush()
                    times.append(time.perf_counter() - begun)

            count, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < seconds:
                write()
                count += 1
            writer.flush()
            elapsed = time.perf_counter() - begun
        return times if flush_each else count / elapsed

    def small(self, seconds):
        return self._write("small", self._transition, seconds)

    def trajectories(self, seconds):
        return self._write("small", {"tokens": np.zeros(3000, np.uint8)}, seconds)

    def large(self, seconds):
        """Bytes a second of items of 400 kB that do not compress."""
        step = {"image": np.random.default_rng(0).integers(0, 256, 400_000, np.uint8)}
        return 400_000 * self._write("large", step, seconds)

    def flush_p99(self, seconds):
        return float(np.quantile(self._write("small", self._transition, seconds, flush_each=True), 0.99))

    def one_caller(self, seconds):
        return per_second(lambda: self.client.insert(self._transition, {"small": 1.0}), seconds)

    def callers(self, seconds):
        """Inserts a second of many callers, each with a client of its own."""
        clients = [reverb.Client(self.address) for _ in range(CALLERS)]

        def call(client):
            return per_second(lambda: client.insert(self._transition, {"small": 1.0}), seconds)

        with concurrent.futures.ThreadPoolExecutor(CALLERS) as threads:
            return sum(threads.map(call, clients))

    def learn(self, seconds):
        """Batches a second of 256 draws and 256 updates."""

        def step():
            batch = self.client.sample_batch("prioritized", 256)
            self.client.update_priorities("prioritized", batch.info.key, 1.0)

        return per_second(step, seconds)

    def fill(self, table, count):
        rows = {name: np.zeros((10_000, size), dtype) for name, (size, dtype) in TRANSITION.items()}
        for _ in range(count // 10_000):
            self.client.insert_batch(rows, {table: 1.0})


def sync_p99(folder, seconds):
    """The 99th percentile of the seconds of a write of 4 KiB with fdatasync, in a file of zeros."""
    path, times, block = pathlib.Path(folder, "probe"), [], b"x" * 4096
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(64 << 20))
        os.fsync(file.fileno())
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            before = time.perf_counter()
            os.pwrite(file.fileno(), block, len(times) * 4096 % (64 << 20))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - before)
    path.unlink()
    return float(np.quantile(times, 0.99))


def sequential(folder, seconds):
    """Bytes a second of a sequential write that is synced each 64 MiB."""
    piece = np.random.default_rng(0).bytes(400_000)

    def write():
        with open(pathlib.Path(folder, "probe"), "wb", buffering=0) as file:
            for _ in range((64 << 20) // len(piece)):
                file.write(piece)
            os.fdatasync(file.fileno())

    return per_second(write, seconds, 64 << 20)


def row_of(name, sides, measure, options, limits):
    for side in sides:
        measure(side, options.seconds / 4)
    rounds = [[measure(side, options.seconds) for side in sides] for _ in range(options.rounds)]
    row = {"row": name}
    for number, side in enumerate(SIDES):
        values = [values[number] for values in rounds]
        row[f"{side}_per_s"] = round(statistics.median(values), 1)
        if number:
            row[f"{side}_ratio"] = round(statistics.median(values[number] / values[0] for values in rounds), 3)
    for side, limit in limits.items():
        row[f"{side}_limit"], row[f"{side}_holds"] = limit, row[f"{side}_ratio"] >= limit
    return row


def measure(options, sides):
    yield row_of("in process, one transition", sides, Side.here, options, {})
    yield row_of("writer, 280 B", sides, Side.small, options, {"process": 0.7, "power": 0.5})
    yield row_of("writer, trajectories of 3 kB", sides, Side.trajectories, options, {})
    yield row_of("one caller", sides, Side.one_caller, options, {})
    yield row_of(f"{CALLERS} callers", sides, Side.callers, options, {"power": 0.7})
    for side in sides:
        side.fill("prioritized", 100_000)
    yield row_of("learner, 256 draws and updates", sides, Side.learn, options, {"power": 0.95})
    yield row_of("writer, 400 kB, bytes", sides, Side.large, options, {})
    power, folder = sides[2], sides[2].folder
    pairs = [(power.flush_p99(options.seconds), sync_p99(folder, options.seconds)) for _ in range(options.rounds)]
    ratio = statistics.median(flush / sync for flush, sync in pairs)
    yield {"row": "flush p99 by fdatasync p99", "power_ratio": round(ratio, 2), "limit": 2, "holds": ratio <= 2}
    pairs = [(power.large(options.seconds), sequential(folder, options.seconds)) for _ in range(options.rounds)]
    ratio = statistics.median(large / disk for large, disk in pairs)
    yield {"row": "writer, 400 kB, by the disk", "power_ratio": round(ratio, 3), "limit": 0.8, "holds": ratio >= 0.8}


def restart(options, folder):
    side = Side(folder, "process")
    side.fill("million", 10**4 if options.rounds < 9 else 10**6)
    side.kill()
    side.start()
    from_log = side.start_time
    side.client.checkpoint()
    side.kill()
    side.start()
    ratio = from_log / side.start_time
    side.stop()
    row = {"row": "restart from the log by one from a checkpoint", "s": round(from_log, 2), "ratio": round(ratio, 2)}
    return row | {"limit": 1.5, "holds": ratio <= 1.5}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", help="Where the logs lie; a temporary folder by default.")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        sides = [Side(f"{folder}/{side}", side) for side in SIDES]
        for row in measure(options, sides):
            print(row, flush=True)
            results.append(row)
        for side in sides:
            side.stop()
        results.append(restart(options, f"{folder}/restart"))
        print(results[-1], flush=True)
    records.write(options.out, "durability", results, options.rounds < 9)
    sys.exit(not all(value for row in results for key, value in row.items() if key.endswith("holds")))


if __name__ == "__main__":
    main()
