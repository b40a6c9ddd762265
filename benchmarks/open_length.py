"""What does it cost to insert a row whose length is open?

    python benchmarks/open_length.py --out benchmarks/results/open-length.json

A sequence of 1,000 int32 tokens is inserted as an item of one step: into a table whose signature leaves the length
open, and into one with rows of just this length. The two take turns in every round, in the process of the server and
over TCP. It fails if a row of open length takes more than 20 us in the same process, or over TCP more than 1.3 times as
long as the other.
"""

import argparse
import multiprocessing
import pathlib
import statistics
import sys

import numpy as np
import records
import timing

import reverb

TOKENS = 1_000
LIMIT_US, LIMIT_RATIO = 20.0, 1.3
SIGNATURES = {"fixed": TOKENS, "open": None}


def main():
    options = parse()
    with reverb.Server(tables(), port=None) as server:
        results = [measure("same process", server.localhost_client(), options)]
    connection, other = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(other,))
    process.start()
    try:
        results.append(measure("tcp", reverb.Client(f"ipv4:127.0.0.1:{connection.recv()}"), options))
    finally:
        process.kill()
        process.join()
    for result in results:
        print(line(result))
    rows = [{"tokens": TOKENS, **result} for result in results]
    records.write(options.out, "open_length", rows, options.rounds < 9 or options.seconds < 0.5)
    sys.exit(not all(result["holds"] for result in results))


def tables():
    return [
        reverb.Table(
            name=name,
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=1_000,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature={"tokens": reverb.TensorSpec([length], np.int32)},
        )
        for name, length in SIGNATURES.items()
    ]


def serve(connection):
    with reverb.Server(tables()) as server:
        connection.send(server.port)
        connection.recv()


def measure(road, client, options):
    """Inserts one row after another, into each table in turn."""
    step = {"tokens": np.arange(TOKENS, dtype=np.int32)}
    times = {name: [] for name in SIGNATURES}
    for _ in range(options.rounds):
        for name, rounds in times.items():
            measured = timing.measure(lambda name=name: client.insert(step, {name: 1.0}), options.seconds)
            rounds.append(statistics.median(measured["times_us"]))
    open_us = statistics.median(times["open"])
    ratio = statistics.median(each / base for each, base in zip(times["open"], times["fixed"], strict=True))
    return {
        "road": road,
        "open, median us": round(open_us, 2),
        "fixed, median us": round(statistics.median(times["fixed"]), 2),
        "open / fixed": round(ratio, 3),
        "holds": open_us <= LIMIT_US if road == "same process" else ratio <= LIMIT_RATIO,
    }


def line(result):
    return (
        f"{result['road']:>12}: open {result['open, median us']} us, fixed {result['fixed, median us']} us, ratio "
        f"{result['open / fixed']}{'' if result['holds'] else '  TOO LONG'}"
    )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="rounds in which each table has its turn")
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of a turn")
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file for the record")
    return parser.parse_args()


if __name__ == "__main__":
    main()
