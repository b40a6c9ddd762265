"""Where does the time of a call go, on each road, for items of each size?

    python benchmarks/profile_roads.py --out profile.json      # Linux, with `perf`; symbols of the extension help

A server in a process of its own has a full table of float32 arrays. A client writes a batch of items (`insert_batch`),
or draws one (`sample_batch`), again and again, while `perf` samples both processes. A row has the time of a call, and
the processor time of it in both processes together, by what the processor does. Copies in user space are those of the C
library and of the gatherer. Where the kernel copies, faults or switches is told by the names of its functions. Time in
which both processes wait is not in the parts, and work of both at once counts twice. Beside each size stand what one
process takes to copy as many bytes at once, to gather as many random rows, and to send them through a socket of each
kind.

Within one process, the server's part of a call is in the client's thread.
"""

import argparse
import collections
import multiprocessing
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import records

import reverb

ROADS = ("same_process", "unix", "tcp")
# Bytes of an item, and items of a call: at most 13 MB.
SIZES = {400: 256, 4000: 256, 40_000: 64, 400_000: 32, 4_000_000: 3}
TABLE_BYTES = 200_000_000
PARTS = {
    "copies": ("memmove", "memcpy", "memset", "gather", "reverb_core::copy"),
    "kernel copies": ("copy_to_iter", "copy_from_iter", "copy_user", "rep_movs", "skb_copy"),
    "faults": ("clear_page", "page_fault", "anonymous_page", "handle_mm", "populate", "zap_", "unmap", "mincore"),
    "allocation": ("malloc", "_int_free", "cfree", "realloc", "calloc", "unlink_chunk", "alloc_pages", "free_unref"),
}
# What is left, by where it runs.
PLACES = (
    ("[kernel", "kernel"),
    ("[guest", "kernel"),
    ("_rust", "extension"),
    ("python", "Python"),
    ("numpy", "Python"),
)


def make_table(size):
    count = max(16, TABLE_BYTES // size)
    selectors = reverb.selectors
    return reverb.Table("table", selectors.Uniform(), selectors.Fifo(), count, reverb.rate_limiters.MinSize(1))


def serve(pipe, size):
    with reverb.Server([make_table(size)]) as server:
        pipe.send((server.port, server.unix_path, os.getpid()))
        pipe.recv()


def rows_of(size):
    return np.random.default_rng(0).random((SIZES[size], size // 4), np.float32)


def measure(call, seconds):
    """Repeats a call. Returns its mean time in microseconds."""
    calls, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        call()
        calls += 1
    return 1e6 * elapsed / calls


def processor_s(processes):
    ticks = 0
    for process in processes:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def part_of(place, symbol):
    for part, names in PARTS.items():
        if any(name in symbol for name in names):
            return part
    return next((name for text, name in PLACES if text in place), "other")


def profile(call, processes, seconds):
    """Repeats a call under `perf`. Returns the time of one, and the processor time of its parts, in microseconds."""
    with tempfile.NamedTemporaryFile() as data:
        pids = ",".join(map(str, processes))
        command = ["perf", "record", "-q", "-F", "4999", "-p", pids, "-o", data.name]
        perf = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        before = processor_s(processes)
        call_us = measure(call, seconds)
        used_us = (processor_s(processes) - before) * call_us / seconds
        perf.send_signal(2)
        perf.wait()
        command = ["perf", "script", "-i", data.name, "-F", "ip,sym,dso"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    counts = collections.Counter()
    for line in lines:
        _, _, rest = line.strip().partition(" ")
        symbol, _, place = rest.rpartition(" (")
        counts[part_of(place, symbol)] += 1
    total = sum(counts.values())
    parts = {part: round(used_us * count / total, 2) for part, count in counts.most_common()}
    return {"call_us": round(call_us, 1), "processor_us": round(used_us, 1), "parts_us": parts}


def bare(size, seconds):
    """What copying, gathering and sending as many bytes takes, in microseconds."""
    rows = rows_of(size)
    table = np.ones((max(16, TABLE_BYTES // size), size // 4), np.float32)
    target, random = np.empty_like(rows), np.random.default_rng(0)

    def gather():
        np.take(table, random.integers(0, len(table), len(rows)), axis=0, out=target, mode="clip")

    def write():
        first = int(random.integers(0, len(table) - len(rows) + 1))
        table[first : first + len(rows)] = rows

    result = {"write": measure(write, seconds), "gather": measure(gather, seconds)}
    for kind in ("unix", "tcp"):
        result[f"{kind} socket"] = through_socket(kind, rows, seconds)
    return {name: round(one, 1) for name, one in result.items()}


def through_socket(kind, rows, seconds):
    """The time to send bytes to a thread that reads them and answers with one. Neither holds the GIL meanwhile."""
    if kind == "unix":
        here, there = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            here = socket.create_connection(listener.getsockname())
            there, _ = listener.accept()
        here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read():
        buffer = memoryview(bytearray(rows.nbytes))
        while True:
            got = 0
            while got < len(buffer):
                count = there.recv_into(buffer[got:])
                if not count:
                    return
                got += count
            there.sendall(b"a")

    reader = threading.Thread(target=read)
    reader.start()

    def send():
        here.sendall(rows)
        here.recv(1)

    result = measure(send, seconds)
    here.close()
    reader.join()
    there.close()
    return result


def results_of(size, seconds):
    yield {"item_bytes": size, "items": SIZES[size], "work": "bare", "us": bare(size, seconds)}
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=serve, args=(there, size))
    process.start()
    port, path, pid = here.recv()
    own = reverb.Server([make_table(size)])
    places = {
        "same_process": (f"localhost:{own.port}", [os.getpid()]),
        "unix": (f"unix:{path}", [os.getpid(), pid]),
        "tcp": (f"ipv4:127.0.0.1:{port}", [os.getpid(), pid]),
    }
    rows = rows_of(size)
    for road, (address, processes) in places.items():
        client = reverb.Client(address)
        works = {
            "insert_batch": lambda client=client: client.insert_batch({"x": rows}, {"table": 1.0}),
            "sample_batch": lambda client=client: client.sample_batch("table", len(rows)),
        }
        for _ in range(2 * max(16, TABLE_BYTES // size) // len(rows) + 2):
            works["insert_batch"]()
        for work, call in works.items():
            measure(call, seconds / 4)
            labels = {"item_bytes": size, "items": len(rows), "road": road, "work": work}
            yield labels | profile(call, processes, seconds)
    own.stop()
    here.send(None)
    process.join()


def table_of(results):
    """The results as lines of a Markdown table."""
    parts = [*PARTS, *dict.fromkeys(name for _, name in PLACES), "other"]
    header = ["item", "call", "road", "a call, µs", "processors, µs", *parts]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for row in results:
        if row["work"] != "bare":
            times = [row["call_us"], row["processor_us"], *(row["parts_us"].get(part, 0) for part in parts)]
            head = [f"{row['item_bytes']:,}", f"{row['work']} of {row['items']}", row["road"].replace("_", " ")]
            lines.append(f"| {' | '.join([*head, *(f'{one:.0f}' for one in times)])} |")
    bare = next(row["us"] for row in results if row["work"] == "bare")
    lines += ["", "| item | items | " + " | ".join(bare) + " |", "|---" * (2 + len(bare)) + "|"]
    for row in results:
        if row["work"] == "bare":
            times = [f"{one:.0f}" for one in row["us"].values()]
            lines.append(f"| {row['item_bytes']:,} | {row['items']} | {' | '.join(times)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each cell is measured")
    parser.add_argument("--out", type=pathlib.Path, help="file for the record")
    options = parser.parse_args()
    results = []
    for size in SIZES:
        for row in results_of(size, options.seconds):
            print(row, flush=True)
            results.append(row)
    print(table_of(results))
    records.write(options.out, "profile", results, options.seconds < 2.0)


if __name__ == "__main__":
    sys.exit(main())
