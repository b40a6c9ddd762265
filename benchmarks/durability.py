"""What does durability cost?

    python benchmarks/durability.py --out benchmarks/results/DATE-durability.json

Three servers in processes of their own have the same tables: one is not durable, one has `durability="process"`, and
one has `"power"`. The callers of all take turns in rounds. A row has the medians of the rounds and the ratios to the
server that is not durable in the same round; a row with a limit holds or not. The disk's own times are measured in the
same rounds: a write of 4 KiB with fdatasync after a pause, and 64 MB in pieces of 400 kB with one sync at the end.

`restart` fills a table, kills the server, and starts it from its log; then it saves, and starts it from the checkpoint.
"""

import argparse
import concurrent.futures
import contextlib
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
PROCESSES = 4


def make_tables():
    def table(name, size):
        sampler = reverb.selectors.Prioritized(0.6) if name == "prioritized" else reverb.selectors.Uniform()
        return reverb.Table(name, sampler, reverb.selectors.Fifo(), size, reverb.rate_limiters.MinSize(1))

    names = {"small": 10**5, "large": 200, "million": 10**6, "prioritized": 10**5}
    return [table(name, size) for name, size in names.items()]


def serve(pipe, folder, side):
    """Serves until it is told to end. Measures calls of its own process when it is asked to."""
    # No checkpoint begins by itself: how long it takes depends on what the tables have.
    durability = None if side == "none" else reverb.Durability(side, max_log_bytes=1 << 40)
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
        self.folder, self.side, self._callers = folder, side, []
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

    def flushes(self, seconds):
        """Seconds of each flush of one item."""
        return self._write("small", self._transition, seconds, flush_each=True)

    def one_caller(self, seconds):
        return per_second(lambda: self.client.insert(self._transition, {"small": 1.0}), seconds)

    def callers(self, seconds):
        """Inserts a second of many callers, each with a client of its own, in a few processes."""
        if not self._callers:
            spawn = multiprocessing.get_context("spawn")
            for _ in range(PROCESSES):
                here, there = spawn.Pipe()
                spawn.Process(target=call, args=(there, self.address, self._transition), daemon=True).start()
                self._callers.append(here)
        for pipe in self._callers:
            pipe.send(seconds)
        return sum(pipe.recv() for pipe in self._callers)

    def learn(self, seconds):
        """Batches a second of 256 draws and 256 updates."""

        def step():
            batch = self.client.sample_batch("prioritized", 256)
            self.client.update_priorities("prioritized", batch.info.key, 1.0)

        return per_second(step, seconds)

    def fill(self, table, count):
        """Inserts items, each with data of its own."""
        with self.client.trajectory_writer(num_keep_alive_refs=1) as writer:
            for _ in range(count):
                writer.append(self._transition)
                writer.create_item(table, 1.0, {name: column[-1:] for name, column in writer.history.items()})


def call(pipe, address, transition):
    """Inserts from threads, each with a client of its own, when it is asked to."""
    clients = [reverb.Client(address) for _ in range(CALLERS // PROCESSES)]

    def insert(client, seconds):
        return per_second(lambda: client.insert(transition, {"small": 1.0}), seconds)

    # Until the benchmark ends.
    with contextlib.suppress(EOFError), concurrent.futures.ThreadPoolExecutor(len(clients)) as threads:
        while True:
            seconds = pipe.recv()
            pipe.send(sum(threads.map(insert, clients, [seconds] * len(clients))))


def syncs(folder, seconds, pause):
    """Seconds of each write of 4 KiB with fdatasync, in a file of zeros, with a pause after each.

    A disk of a virtual machine that has just been idle answers later than one that always has something to do.
    """
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
            time.sleep(pause)
    path.unlink()
    return times


def p99(seconds):
    return float(np.quantile(seconds, 0.99))


def sequential(folder, seconds):
    """Bytes a second of a sequential write over a file of zeros, which is synced each 64 MB."""
    path, piece, count = pathlib.Path(folder, "probe"), np.random.default_rng(0).bytes(400_000), 160
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(count * len(piece)))
        os.fsync(file.fileno())

        def write():
            for number in range(count):
                os.pwrite(file.fileno(), piece, number * len(piece))
            os.fdatasync(file.fileno())

        rate = per_second(write, seconds, count * len(piece))
    path.unlink()
    return rate


def row_of(name, sides, measure, options, **limits):
    """A row. `limits` are the least values of its columns."""
    for side in sides:
        measure(side, options.seconds / 4)
    rounds = [[measure(side, options.seconds) for side in sides] for _ in range(options.rounds)]
    row = {"row": name}
    for number, side in enumerate(SIDES):
        values = [values[number] for values in rounds]
        row[f"{side}_per_s"] = round(statistics.median(values), 1)
        if number:
            row[f"{side}_ratio"] = round(statistics.median(values[number] / values[0] for values in rounds), 3)
    for key, limit in limits.items():
        row[f"{key}_limit"], row[f"{key}_holds"] = limit, row[key] >= limit
    return row


def measure(options, sides):
    # 5 µs each.
    yield row_of("in process, one transition", sides, Side.here, options, process_per_s=200_000)
    yield row_of("writer, 280 B", sides, Side.small, options, process_ratio=0.7, power_ratio=0.5)
    yield row_of("writer, trajectories of 3 kB", sides, Side.trajectories, options, process_per_s=29_000)
    one = row_of("one caller", sides, Side.one_caller, options)
    yield one
    many = row_of(f"{CALLERS} callers", sides, Side.callers, options)
    holds = many["power_ratio"] >= 0.7 or many["power_per_s"] >= 20 * one["power_per_s"]
    yield many | {"limit": "power: 0.7, or 20 times one caller", "holds": holds}
    for side in sides:
        side.fill("prioritized", 50_000)
    yield row_of("learner, 256 draws and updates", sides, Side.learn, options, power_ratio=0.95)
    power, folder = sides[2], sides[2].folder
    # The disk pauses for as long as a flush takes without it.
    pause = statistics.median(sides[0].flushes(options.seconds))
    pairs = [
        (p99(power.flushes(options.seconds)), p99(syncs(folder, options.seconds, pause))) for _ in range(options.rounds)
    ]
    ratio = statistics.median(flush / sync for flush, sync in pairs)
    yield {
        "row": "flush p99 by fdatasync p99",
        "flush_ms": round(1e3 * statistics.median(flush for flush, _ in pairs), 3),
        "fdatasync_ms": round(1e3 * statistics.median(sync for _, sync in pairs), 3),
        "power_ratio": round(ratio, 2),
        "limit": 2,
        "holds": ratio <= 2,
    }
    for side in sides[1:]:
        pairs = [(side.large(options.seconds), sequential(folder, options.seconds)) for _ in range(options.rounds)]
        ratio = statistics.median(large / disk for large, disk in pairs)
        yield {"row": f"writer, 400 kB, {side.side}, by the disk", "ratio": round(ratio, 3)} | (
            {"limit": 0.8, "holds": ratio >= 0.8}
        )


def restart(options, folder):
    is_quick = options.rounds < 9
    pairs = []
    for number in range(1 if is_quick else 3):
        side = Side(f"{folder}/{number}", "process")
        side.fill("million", 10**4 if is_quick else 10**6)
        side.kill()
        side.start()
        from_log = side.start_time
        side.client.checkpoint()
        side.kill()
        side.start()
        pairs.append((from_log, side.start_time))
        side.stop()
    ratio = statistics.median(log / checkpoint for log, checkpoint in pairs)
    seconds = round(statistics.median(log for log, _ in pairs), 2)
    row = {"row": "restart from the log by one from a checkpoint", "log_s": seconds, "ratio": round(ratio, 2)}
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
