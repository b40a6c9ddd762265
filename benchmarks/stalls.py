"""How long does a large call of one client keep the calls of another waiting?

    python benchmarks/stalls.py --out benchmarks/results/stalls.json

Three processes run: a server, a client that makes one large call after another, and a client that makes small ones all
the time: it inserts a row into the table of the large calls, and draws a batch of 8 rows from a table of its own. For
each large call it reports its longest call. A row holds if the median over all rounds is at most 50 ms.

The rows `here: ...` are of large calls in the server's own process, by an event loop (`aio`) and by a loader that draws
ahead: these run on the threads that serve the other clients. `zstd` draws batches of 4 items of 60 MiB each.
"""

import argparse
import asyncio
import multiprocessing
import pathlib
import statistics
import sys
import time

import numpy as np
import records

import reverb

LIMIT_MS = 50.0
WORKS = ("nothing", "insert", "draw", "update", "delete", "write", "reset", "256 MiB", "zstd 200 MiB")
# Made by the process of the server.
HERE = ("here: aio insert", "here: aio draw", "here: loader", "here: aio zstd", "here: loader zstd")


def main():
    options = parse()
    spawn = multiprocessing.get_context("spawn")
    with Peer(spawn, serve, options.rows) as server:
        address = server.receive()[options.road]
        with Peer(spawn, make_small_calls, address) as small, Peer(spawn, make_large_calls, address) as large:
            times = {work: [] for work in WORKS + HERE}
            for _ in range(options.rounds):
                for work, measured in times.items():
                    caller = server if work in HERE else large
                    caller.call(("prepare", work, options.rows))
                    small.call("begin")
                    seconds = caller.call(("make", work, options.rows))
                    measured.append((1e3 * small.call("end"), seconds))
    results = [row(work, measured) for work, measured in times.items()]
    for result in results:
        print(line(result))
    rows = [{"road": options.road, "rows": options.rows, **result} for result in results]
    records.write(options.out, "stalls", rows, options.rounds < 9 or options.rows < 1_000_000)
    sys.exit(not all(result["holds"] for result in results))


class Peer:
    """A process that answers messages, and a context manager that ends it."""

    def __init__(self, spawn, work, *arguments):
        self._connection, connection = spawn.Pipe()
        self._process = spawn.Process(target=work, args=(connection, *arguments))
        self._process.start()
        connection.close()

    def receive(self):
        return self._connection.recv()

    def call(self, message):
        self._connection.send(message)
        return self.receive()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.join()


def serve(connection, rows):
    def table(name, max_size):
        return reverb.Table(
            name=name,
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=max_size,
            rate_limiter=reverb.rate_limiters.MinSize(1),
        )

    with reverb.Server([table("rows", 2 * rows), table("large", 1), table("small", 1000), table("zstd", 8)]) as server:
        port = server.port
        connection.send({"tcp": f"ipv4:127.0.0.1:{port}", "unix": f"localhost:{port}"})
        with server.localhost_client().trajectory_writer(num_keep_alive_refs=1, compression="zstd") as writer:
            for _ in range(8):
                writer.append(np.zeros(60 << 20, np.uint8))
                writer.create_item("zstd", 1.0, writer.history[-1:])
        make_calls_here(connection, f"localhost:{port}")


def make_calls_here(connection, address):
    """Makes large calls in the process of the server; answers with the seconds that each took."""
    client = reverb.Client(address)
    while True:
        step, work, rows = connection.recv()
        if step == "prepare":
            fill(client, rows)
            connection.send(None)
            continue
        start = time.perf_counter()
        table, size = ("zstd", 4) if work.endswith("zstd") else ("rows", rows)
        if "aio" in work:
            asyncio.run(await_call(address, work, table, size))
        else:
            with reverb.loaders.NumpyLoader(client, table, batch_size=size, num_batches=4, prefetch=2) as loader:
                for _ in loader:
                    pass
        connection.send(time.perf_counter() - start)


async def await_call(address, work, table, size):
    async with reverb.aio.Client(address) as client:
        if work.endswith("insert"):
            await client.insert_batch(np.arange(size), {table: 1.0})
        else:
            await client.sample_batch(table, size)


def fill(client, rows):
    missing = rows - client.server_info()["rows"].current_size
    if missing > 0:
        client.insert_batch(np.arange(missing), {"rows": 1.0})


def make_small_calls(connection, address):
    """Calls without a pause from `begin` to `end`, and answers with the seconds of the longest call."""
    client, row = reverb.Client(address), np.int64(1)
    client.insert_batch(np.arange(100), {"small": 1.0})
    while True:
        connection.recv()
        longest, calls = 0.0, 0
        # The large call begins when the first small ones have been made.
        while calls < 20 or not connection.poll():
            for call in (
                lambda: client.insert(row, {"rows": 1.0}),
                lambda: client.sample_batch("small", 8),
            ):
                start = time.perf_counter()
                call()
                longest = max(longest, time.perf_counter() - start)
            calls += 1
            if calls == 20:
                connection.send(None)
                longest = 0.0
        connection.recv()
        connection.send(longest)


def make_large_calls(connection, address):
    """Answers with the seconds that each call took."""
    client, keys = reverb.Client(address), None
    while True:
        step, work, rows = connection.recv()
        if step == "prepare":
            if work in ("draw", "update", "delete", "reset"):
                fill(client, rows)
            if work in ("update", "delete"):
                keys = client.sample_batch("rows", rows).info.key
            connection.send(None)
            continue
        start = time.perf_counter()
        if work == "nothing":
            time.sleep(1.0)
        elif work == "insert":
            client.insert_batch(np.arange(rows), {"rows": 1.0})
        elif work == "draw":
            client.sample_batch("rows", rows)
        elif work == "update":
            client.update_priorities("rows", keys, 2.0)
        elif work == "delete":
            client.mutate_priorities("rows", deletes=keys.tolist())
        elif work == "write":
            write(client, rows)
        elif work == "reset":
            client.reset("rows")
        elif work == "zstd 200 MiB":
            with client.trajectory_writer(num_keep_alive_refs=1, compression="zstd") as writer:
                writer.append(np.zeros(200 << 20, np.uint8))
                writer.create_item("large", 1.0, writer.history[-1:])
        else:
            client.insert(np.zeros(256 << 20, np.uint8), {"large": 1.0})
        connection.send(time.perf_counter() - start)


def write(client, rows):
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for number in range(rows):
            writer.append(np.int64(number))
            writer.create_item("rows", 1.0, writer.history[-1:])


def row(work, measured):
    longest = [milliseconds for milliseconds, _ in measured]
    median = statistics.median(longest)
    return {
        "work": work,
        "longest call, median ms": round(median, 1),
        "rounds ms": [round(one, 1) for one in longest],
        "large call, median s": round(statistics.median(seconds for _, seconds in measured), 3),
        "holds": median <= LIMIT_MS,
    }


def line(result):
    rounds = result["rounds ms"]
    return (
        f"{result['work']:>17}: longest other call {result['longest call, median ms']:6.1f} ms, rounds {min(rounds)} "
        f"to {max(rounds)}, in {result['large call, median s']} s{'' if result['holds'] else '  TOO LONG'}"
    )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="rounds in which each large call is made once")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each large call")
    parser.add_argument("--road", default="tcp", choices=("tcp", "unix"), help="how both clients reach the server")
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file for the record")
    return parser.parse_args()


if __name__ == "__main__":
    main()
