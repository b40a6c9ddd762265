"""Kills readers at random moments (kill -9), and counts what they had and what their tables still give.

    python tests/kills/killed_readers.py                                    # 30 rounds of each combination
    python tests/kills/killed_readers.py --rounds 2 --readers sample_batch loader --record /tmp/record.json

A combination is a road, a table and a reader. In each round a reader takes batches from a table and notes each one once
it has it. After more than a second it is killed, in the middle of whatever it does. Then the table is emptied here. No
sample may be missing, and none may come twice that the reader had noted a second before it was killed.

The readers `data_loader` and `dataset` need PyTorch and TensorFlow. The record has the counts of each combination, and
when they were made. `tests/kills/record.json` is the last whole one; a run with `--add` replaces those of the
combinations that it has made.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

RECORD = pathlib.Path(__file__).parent / "record.json"
ROADS = ("tcp", "unix")
TABLES = {"queue": 1, "once": 1, "four_times": 4}
READERS = ("sample_batch", "loader", "loader_without_prefetch", "receipt_next", "data_loader", "dataset")
NUM_ITEMS = 1000
BATCH = 4
# Before the kill the reader takes this many batches, one each `PACE_S`, so that it has had some for more than a second.
NUM_SLOW = 14
PACE_S = 0.1
PATIENCE_S = 30.0


# The reader's side.


def batches_of(reader, address, table):
    """Yields what a reader gets, as lists of values."""
    import numpy as np

    import reverb

    if reader == "sample_batch":
        client = reverb.Client(address)
        while True:
            yield np.ravel(client.sample_batch(table, BATCH).data[0]).tolist()
    if reader == "dataset":
        import tensorflow as tf

        dataset = reverb.TrajectoryDataset(address, table, [tf.int64], [tf.TensorShape([None])], 2 * BATCH)
        for sample in dataset:
            yield np.ravel(sample.data[0].numpy()).tolist()
    if reader == "data_loader":
        from torch.utils.data import DataLoader

        loader = reverb.loaders.TorchLoader(address, table, batch_size=BATCH)
        for batch in DataLoader(loader, batch_size=None, num_workers=2):
            yield batch.data[0].ravel().tolist()
    options = {"loader_without_prefetch": {"prefetch": 0}, "receipt_next": {"receipt": "next"}}.get(reader, {})
    for batch in reverb.loaders.NumpyLoader(address, table, batch_size=BATCH, **options):
        yield np.ravel(batch.data[0]).tolist()


def read(reader, address, table, notes):
    """Takes batches until it is killed. Notes the time and the values of each in a file."""
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number, values in enumerate(batches_of(reader, address, table)):
        os.write(file, (json.dumps([time.monotonic(), values]) + "\n").encode())
        time.sleep(PACE_S if number < NUM_SLOW else random.uniform(0.0, 0.002))


def fork_readers(reader):
    """Forks a reader for each line of standard input, so that only the first one pays for imports."""
    import reverb  # noqa: F401

    if reader == "data_loader":
        import torch.utils.data  # noqa: F401
    if reader == "dataset":
        import tensorflow  # noqa: F401
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            read(reader, *json.loads(line))
        print(pid, flush=True)


# The side of the server.


def make_table(name):
    import reverb

    if name == "queue":
        return reverb.Table.queue(name, NUM_ITEMS)
    fifo, limiter = reverb.selectors.Fifo, reverb.rate_limiters.MinSize(1)
    return reverb.Table(name, fifo(), fifo(), NUM_ITEMS, limiter, max_times_sampled=TABLES[name])


class Forker:
    """A process that forks readers of one kind."""

    def __init__(self, reader):
        command = [sys.executable, __file__, "--fork", reader]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lock = threading.Lock()

    def start(self, *arguments):
        with self._lock:
            self._process.stdin.write(json.dumps(arguments) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, "the process that forks readers has ended"
        return int(line)

    def close(self):
        with self._process:
            self._process.stdin.close()


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def empty(client, table, counts, is_complete):
    """Draws all that a table still gives, and looks again until nothing is missing, or for some seconds."""
    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        info = client.server_info()[table]
        if info.current_size:
            with contextlib.suppress(TimeoutError):
                batch = client.sample_batch(table, info.current_size, timeout=0.1)
                counts.update(batch.data[0].ravel().tolist())
        elif is_complete() and not info.undelivered_samples:
            return
        else:
            time.sleep(0.005)


def run_round(forker, road, table):
    """Kills one reader. Returns the numbers of samples that it noted, that were lost, and that came again.

    The fourth number is that of samples which came again although they were noted a second before.
    """
    import numpy as np

    import reverb

    with reverb.Server([make_table(table)]) as server, tempfile.TemporaryDirectory() as folder:
        client = server.localhost_client()
        client.insert_batch([np.arange(NUM_ITEMS)], {table: 1.0})
        notes = pathlib.Path(folder, "notes")
        address = f"unix:{server.unix_path}" if road == "unix" else f"ipv4:127.0.0.1:{server.port}"
        pid = forker.start(address, table, str(notes))
        try:
            enough = NUM_SLOW + random.randrange(4)
            wait_until(lambda: notes.exists() and notes.read_bytes().count(b"\n") >= enough, "the reader gets nothing")
            time.sleep(random.uniform(0.0, 0.02))
        finally:
            killed_at = time.monotonic()
            os.killpg(pid, signal.SIGKILL)
        noted = [json.loads(line) for line in notes.read_text().splitlines() if line.endswith("]")]
        had = collections.Counter(value for _, values in noted for value in values)
        late = collections.Counter(value for at, values in noted for value in values if at > killed_at - 1.0)
        counts, times = collections.Counter(had), TABLES[table]
        empty(client, table, counts, lambda: all(counts[value] >= times for value in range(NUM_ITEMS)))
    lost = sum(max(0, times - counts[value]) for value in range(NUM_ITEMS))
    again = collections.Counter({value: count - times for value, count in counts.items() if count > times})
    return had.total(), lost, again.total(), (again - late).total()


def run(rounds, readers, roads=ROADS, tables=tuple(TABLES), parallel=3):
    """Runs all combinations in turn. Yields each with its number of rounds and the sums of `run_round`."""
    for reader in readers:
        forker = Forker(reader)
        try:
            with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
                for road, table in itertools.product(roads, tables):
                    results = list(pool.map(run_round, *zip(*[(forker, road, table)] * rounds, strict=True)))
                    yield f"{reader}, {table}, {road}", rounds, *map(sum, zip(*results, strict=True))
        finally:
            forker.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="rounds of each combination")
    parser.add_argument("--readers", nargs="+", default=READERS, choices=READERS, help="the readers that are killed")
    parser.add_argument("--parallel", type=int, default=3, help="rounds that run at the same time")
    parser.add_argument("--record", type=pathlib.Path, default=RECORD, help="the file of the counts")
    parser.add_argument("--add", action="store_true", help="keep the counts of other combinations in the file")
    parser.add_argument("--fork", choices=READERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fork:
        fork_readers(arguments.fork)
        return 0
    record = json.loads(arguments.record.read_text()) if arguments.add and arguments.record.exists() else {}
    names = ("rounds", "noted", "lost", "again", "again_after_a_second")
    for name, *counts in run(arguments.rounds, arguments.readers, parallel=arguments.parallel):
        record[name] = {"date": time.strftime("%Y-%m-%d"), **dict(zip(names, counts, strict=True))}
        print(name, record[name], flush=True)
        arguments.record.write_text(json.dumps(record, indent=1) + "\n")
    bad = [name for name, counts in record.items() if counts["lost"] or counts["again_after_a_second"]]
    print(f"{sum(counts['rounds'] for counts in record.values())} kills; wrong: {bad or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
