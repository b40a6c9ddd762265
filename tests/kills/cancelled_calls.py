"""Cancels calls of `reverb.aio` at random moments, and counts what became of each item.

    python tests/kills/cancelled_calls.py                                  # 10,000 cancellations of each combination
    python tests/kills/cancelled_calls.py --cancellations 500 --readers sample_batch --record /tmp/record.json

A combination is a road, a table and a reader. Two writers repeat each `append` and `create_item` until it is not
cancelled, and a third task inserts items and does not repeat an insert. A reader draws, and is cancelled as often. The
table is small, so that each side waits for the other. In the end each item of the writers and of an insert that was not
cancelled must have been read exactly once, that of a cancelled insert once at most, and nothing else.

`tests/kills/cancelled_record.json` has the counts of the last whole run.
"""

import argparse
import asyncio
import collections
import contextlib
import functools
import itertools
import pathlib
import random
import time

import kill_records
import numpy as np

import reverb
from reverb import aio, errors
from reverb.loaders import NumpyLoader

RECORD = pathlib.Path(__file__).parent / "cancelled_record.json"
ROADS = ("same_process", "unix", "tcp")
TABLES = ("queue", "once")
READERS = ("sample_batch", "loader")
PATIENCE_S = 20.0
# Longest time before a call is cancelled.
LONGEST_S = 0.002


def make_table(name):
    if name == "queue":
        return reverb.Table.queue("table", 8)
    fifo, limiter = reverb.selectors.Fifo, reverb.rate_limiters.MinSize(1)
    return reverb.Table("table", fifo(), fifo(), 1_000_000, limiter, max_times_sampled=1)


def address_of(server, road):
    tcp = f"127.0.0.1:{server.port}"
    return {"same_process": tcp, "unix": f"unix:{server.unix_path}", "tcp": f"ipv4:{tcp}"}[road]


class Cancelling:
    """Cancels calls at random moments.

    Args:
      seed: Seed of the moments.

    Attributes:
      count: Number of calls that were cancelled.
    """

    def __init__(self, seed):
        self.count = 0
        self._random = random.Random(seed)

    async def call(self, call):
        """Makes a call, and cancels it unless it ends before. Returns whether it has ended, and its result."""
        task = asyncio.ensure_future(call)
        if self._random.random() < 0.5:
            for _ in range(self._random.randrange(8)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._random.uniform(0.0, LONGEST_S))
        task.cancel()
        try:
            return True, await task
        except asyncio.CancelledError:
            self.count += 1
            return False, None

    async def repeat(self, make):
        """Makes a call until one is not cancelled."""
        while not (await self.call(make()))[0]:
            pass


async def write(client, cancelling, values, is_enough, done):
    """Writes values until it is enough; a call that was cancelled is repeated."""
    async with client.trajectory_writer(1, max_in_flight_items=2) as writer:
        while not is_enough():
            value = next(values)
            await cancelling.repeat(lambda value=value: writer.append([np.int64(value)]))
            await cancelling.repeat(lambda: writer.create_item("table", 1.0, [writer.history[0][-1:]]))
            done.append(value)
            if value % 16 == 0:
                await cancelling.call(writer.flush())


async def insert(client, cancelling, values, is_enough, done, unknown):
    """Inserts values until it is enough. Notes those of cancelled inserts."""
    while not is_enough():
        value = next(values)
        is_done, _ = await cancelling.call(client.insert([np.int64(value)], {"table": 1.0}))
        (done if is_done else unknown).append(value)


async def batches_of(client, address, reader, cancelling, is_over):
    """Yields the values of batches, some of whose draws are cancelled."""
    async with contextlib.AsyncExitStack() as stack:
        if reader == "loader":
            loader = await stack.enter_async_context(NumpyLoader(address, "table", batch_size=2))
            take = loader.__aiter__().__anext__
        else:
            take = functools.partial(client.sample_batch, "table", 2)
        while not is_over():
            is_done, batch = await cancelling.call(take())
            if is_done:
                yield np.ravel(batch.data[0]).tolist()


async def rest_of(client):
    """The values that the table still gives, once all samples that were given back are there."""
    values, end = [], time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        info = (await client.server_info())["table"]
        if info.current_size == 0 and info.undelivered_samples == 0 and not info.waiting_inserts:
            return values
        with contextlib.suppress(errors.DeadlineExceededError):
            batch = await client.sample_batch("table", 1, timeout=0.05)
            values += np.ravel(batch.data[0]).tolist()
    raise AssertionError(f"the table is not empty after {PATIENCE_S} s")


async def cancel_calls(address, reader, cancellations, seed):
    """Cancels so many calls at an empty table. Returns the counts of what became of the items."""
    cancelling, values = Cancelling(seed), itertools.count()
    done, unknown, read = [], [], []
    async with aio.Client(address) as client, aio.Client(address) as learner:

        def is_enough():
            return cancelling.count >= cancellations

        sides = [write(client, cancelling, values, is_enough, done) for _ in range(2)]
        sides.append(insert(client, cancelling, values, is_enough, done, unknown))
        writing = asyncio.gather(*sides)
        async for batch in batches_of(learner, address, reader, cancelling, writing.done):
            read += batch
        await writing
        read += await rest_of(client)
    times = collections.Counter(read)
    return {
        "cancellations": cancelling.count,
        "items": len(done),
        "of_cancelled_inserts": len(unknown),
        "of_these_inserted": sum(value in times for value in unknown),
        "lost": sum(value not in times for value in done),
        "doubled": sum(count > 1 for count in times.values()),
        "unknown": len(times.keys() - set(done) - set(unknown)),
    }


def run(road, table, reader, cancellations, seed):
    """Runs one combination with a server of its own."""
    with reverb.Server([make_table(table)]) as server:
        return asyncio.run(cancel_calls(address_of(server, road), reader, cancellations, seed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cancellations", type=int, default=10_000, help="of each combination")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=READERS)
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    arguments = parser.parse_args()
    counts = {}
    for number, combination in enumerate(itertools.product(ROADS, TABLES, arguments.readers)):
        counts[" ".join(combination)] = found = run(*combination, arguments.cancellations, number)
        print(*combination, found, flush=True)
    kill_records.write(arguments.record, "cancelled_calls.py", counts)
    bad = [name for name, found in counts.items() if found["lost"] or found["doubled"] or found["unknown"]]
    raise SystemExit(f"lost or doubled: {bad}" if bad else 0)


if __name__ == "__main__":
    main()
