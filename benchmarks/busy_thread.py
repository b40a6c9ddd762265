"""What do calls of one thread cost while another thread of the program computes in Python?

    python benchmarks/busy_thread.py --reference PYTHON_WITH_DM_REVERB --out benchmarks/results/DATE-busy-thread.json

The server is in the program, as where actors and the learner are its threads; `another` has it in a process of its own.
Each kind of call is repeated alone, and beside a thread that counts in a loop, in turns. CPython makes a thread that
computes give the GIL away only after 5 ms, so a call that has let go of the GIL takes that long beside it. A row has
the medians of the rounds. `share` is the rate beside that thread relative to the rate alone: 0.5 would be fair.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import threading
import time

import payloads
from sides import writing

import reverb

HERE = pathlib.Path(__file__)
BATCH = 256


def serve():
    """Starts a server of transitions. Returns it, and its addresses."""
    selectors = reverb.selectors
    table = reverb.Table("table", selectors.Uniform(), selectors.Fifo(), 10_000, reverb.rate_limiters.MinSize(1))
    server = reverb.Server([table])
    client = reverb.Client(f"localhost:{server.port}")
    for step in payloads.steps_of("transition", 1000):
        client.insert(step, {"table": 1.0})
    return server, f"localhost:{server.port}"


def works_of(address):
    """The calls of a client, and the items of each."""
    client, steps = reverb.Client(address), payloads.steps_of("transition", 10)
    works = {
        "insert": (lambda: client.insert(steps[0], {"table": 1.0}), 1),
        "trajectory_writer": (writing.trajectory_writer(client, steps, "table"), writing.ITEMS),
    }
    if hasattr(client, "sample_batch"):
        batches = iter(reverb.loaders.NumpyLoader(client, "table", batch_size=BATCH))
        works["sample_batch"] = (lambda: client.sample_batch("table", BATCH), BATCH)
        works["NumpyLoader"] = (lambda: next(batches), BATCH)
    else:
        works["sample"] = (lambda: [None for _ in client.sample("table", BATCH, emit_timesteps=False)], BATCH)
    return works


def rate(call, items, seconds):
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        call()
        count += items
    return count / elapsed


def beside(call, items, seconds):
    """The rate beside a thread that computes."""
    is_over = False

    def compute():
        count = 0
        while not is_over:
            count += 1

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        return rate(call, items, seconds)
    finally:
        is_over = True
        thread.join()


def measured(road, address, options):
    rows = []
    for work, (call, items) in works_of(address).items():
        rate(call, items, options.seconds / 4)
        rounds = [
            (rate(call, items, options.seconds), beside(call, items, options.seconds)) for _ in range(options.rounds)
        ]
        alone, busy = (statistics.median(column) for column in zip(*rounds, strict=True))
        share = statistics.median(busy / alone for alone, busy in rounds)
        row = {"work": work, "road": road, "items_per_s": round(alone), "beside_items_per_s": round(busy)}
        rows.append(row | {"share": float(f"{share:.3g}")})
    return rows


def worker(options):
    """Measures this interpreter's package, and prints the rows."""
    if options.worker == "serve":
        _server, address = serve()
        print(address.replace("localhost:", "ipv4:127.0.0.1:"), flush=True)
        sys.stdin.read()
        return
    server, address = serve()
    rows = measured("same_process", address, options)
    other = subprocess.Popen(
        [sys.executable, HERE, "--worker", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    rows += measured("another", other.stdout.readline().strip(), options)
    other.stdin.close()
    other.wait()
    print(json.dumps(rows))
    del server


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", help="path of an interpreter that has dm-reverb 0.14")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", choices=("measure", "serve"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if options.worker:
        worker(options)
        return
    import records

    rows = []
    for side, python in (("ours", sys.executable), ("reference", options.reference)):
        if python is None:
            continue
        arguments = ["--worker", "measure", "--seconds", str(options.seconds), "--rounds", str(options.rounds)]
        done = subprocess.run([python, HERE, *arguments], check=True, stdout=subprocess.PIPE, text=True)
        for row in json.loads(done.stdout.splitlines()[-1]):
            print({"side": side} | row, flush=True)
            rows.append({"side": side} | row)
    records.write(options.out, "busy_thread", rows, options.rounds < 5)


if __name__ == "__main__":
    main()
