"""How long does `reverb.aio` hold an event loop with many sessions, whose limiter shuts and opens again?

    python benchmarks/aio_loop.py --out benchmarks/results/aio-loop.json

A server of 30 tables runs in another process, or with `--roads same_process` in this one. Each of 1,000 sessions steps
an environment that takes 0.1 to 0.3 s, appends the step and creates an item in a queue of one item, with one item in
flight; each tenth draws instead, from a table that stays empty. In the phase `start` they all connect, and look up the
signature of their table. For some seconds nobody draws from the queue, so that all sessions wait. Then a learner
empties it. The same program runs with `asyncio.sleep` in place of each call.

Each step of the event loop is timed, by the clock and by the processor time of the thread: on a machine with other work
the clock also counts the time that others had the processor. Python's garbage collector is off, since its pauses are
those of the program. A ticker asks for 1 ms and reports by how much it is late.
A row holds if no step took more than 1 ms of processor time, the program has at most one Python thread more than the
other one, and the ticker's 99th percentile while the limiter is shut is at most 1.5 times that of the other program.
"""

import argparse
import asyncio
import contextlib
import gc
import multiprocessing
import pathlib
import random
import statistics
import sys
import threading
import time

import numpy as np
import records

import reverb
from reverb import aio

LIMIT_MS, LIMIT_RATIO = 1.0, 1.5
TICK_S = 0.001
THINK_S = (0.1, 0.3)


NUM_TABLES = 30
STEP = {"observation": np.zeros(8, np.float32), "action": np.int64(0), "reward": np.float32(0.0)}


def tables():
    signature = {name: reverb.TensorSpec((None, *np.shape(value)), value.dtype) for name, value in STEP.items()}
    names = ["queue", "empty", *(f"other_{number}" for number in range(NUM_TABLES - 2))]
    return [reverb.Table.queue(name, 1, signature=signature) for name in names]


def serve(pipe):
    with reverb.Server(tables()) as server:
        pipe.send({"unix": f"unix:{server.unix_path}", "tcp": f"ipv4:127.0.0.1:{server.port}"})
        pipe.recv()


@contextlib.contextmanager
def serving(road):
    """Runs a server, and yields its address."""
    if road == "same_process":
        with reverb.Server(tables()) as server:
            yield f"localhost:{server.port}"
        return
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=serve, args=(there,))
    process.start()
    try:
        yield here.recv()[road]
    finally:
        here.send(None)
        process.join()


class Steps:
    """Times the steps of the event loop while it is entered."""

    def __enter__(self):
        self.longest = self.longest_cpu = 0.0
        self._run = run = asyncio.Handle._run

        def timed(handle):
            clock, cpu = time.perf_counter(), time.thread_time()
            run(handle)
            self.longest_cpu = max(self.longest_cpu, time.thread_time() - cpu)
            self.longest = max(self.longest, time.perf_counter() - clock)

        asyncio.Handle._run = timed
        return self

    def __exit__(self, *_):
        asyncio.Handle._run = self._run


async def tick(late):
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append(time.perf_counter() - begun - TICK_S)


async def think():
    await asyncio.sleep(random.uniform(*THINK_S))


async def write(client):
    async with client.trajectory_writer(1, max_in_flight_items=1) as writer:
        while True:
            await think()
            await writer.append(STEP)
            await writer.create_item("queue", 1.0, {name: writer.history[name][-1:] for name in STEP})


async def read(client):
    await think()
    await client.sample_batch("empty", 1)


async def learn(client):
    while True:
        await client.sample_batch("queue", 1)


async def sleep_in_place(is_open):
    while True:
        await think()
        await asyncio.sleep(0)
        await is_open.wait()


async def learn_in_place():
    while True:
        await asyncio.sleep(0.0005)


async def measure(options, address):
    """Runs the program, or the one without us if there is no address. Returns what was measured in each phase."""
    phases, late, is_open = {}, [], asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        if address is None:
            sessions = [sleep_in_place(is_open) for _ in range(options.sessions)]
            learner = learn_in_place()
        else:
            client = await stack.enter_async_context(aio.Client(address))
            sessions = [read(client) if n % 10 == 0 else write(client) for n in range(options.sessions)]
            learner = learn(client)
        tasks = [asyncio.create_task(session) for session in (tick(late), *sessions)]
        # At the end of the start all sessions have come to their wait.
        for phase, seconds in (("start", 3 * THINK_S[1]), ("shut", options.seconds), ("open", options.seconds)):
            late.clear()
            if phase == "open":
                is_open.set()
                tasks.append(asyncio.create_task(learner))
            with Steps() as steps:
                await asyncio.sleep(seconds)
            phases[phase] = {
                "late_p99_ms": 1e3 * statistics.quantiles(late, n=100)[98],
                "longest_step_ms": 1e3 * steps.longest,
                "longest_step_cpu_ms": 1e3 * steps.longest_cpu,
                "threads": threading.active_count(),
                "native_threads": len(list(pathlib.Path("/proc/self/task").iterdir())),
            }
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return phases


def rounds(options, road):
    """The medians over all rounds, of both programs in turn."""
    found = {"ours": [], "sleep": []}
    with serving(road) as address:
        for _ in range(options.rounds):
            found["sleep"].append(asyncio.run(measure(options, None)))
            found["ours"].append(asyncio.run(measure(options, address)))
    for phase in ("start", "shut", "open"):
        row = {"phase": phase, "sessions": options.sessions, "road": road}
        for name, measured in found.items():
            for key in measured[0][phase]:
                row[f"{name}_{key}"] = round(statistics.median(one[phase][key] for one in measured), 3)
        row["ratio"] = round(row["ours_late_p99_ms"] / row["sleep_late_p99_ms"], 3)
        is_short = row["ours_longest_step_cpu_ms"] <= LIMIT_MS
        has_few_threads = row["ours_threads"] <= row["sleep_threads"] + 1
        row["holds"] = is_short and has_few_threads and (phase != "shut" or row["ratio"] <= LIMIT_RATIO)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--roads", nargs="+", default=["same_process", "unix", "tcp"])
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    results = []
    gc.disable()
    for road in options.roads:
        for row in rounds(options, road):
            print(row, flush=True)
            results.append(row)
    is_quick = options.rounds < 3 or options.sessions < 1000
    records.write(options.out, "aio_loop", results, is_quick)
    sys.exit(not all(row["holds"] for row in results))


if __name__ == "__main__":
    main()
