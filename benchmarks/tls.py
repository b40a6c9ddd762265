"""What does TLS cost a reader of another process over TCP on the loopback interface?

    python benchmarks/tls.py --out benchmarks/results/tls.json

Two servers in processes of their own have the same table of float32 arrays, one with TLS. The clients of both take
turns: in each round each draws batches of 256 items, and single items, for some seconds. A row has the median of the
rounds and the ratio to the server without TLS in the same round. A row of batches holds if that ratio is at least 0.8
for items of 400 bytes, and 0.6 for items of 400 kB. It needs the command `openssl`.
"""

import argparse
import json
import multiprocessing
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import machine
import numpy as np

import reverb

ITEMS = {400: 10_000, 400_000: 300}
LIMITS = {(400, 256): 0.8, (400_000, 256): 0.6}
_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]


def make_certificate(folder):
    """Makes an authority, and a certificate for this machine."""
    ca = ["-subj", "/CN=ca", "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem"]
    own = ["-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key", "-subj", "/CN=server"]
    own += ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    own += ["-keyout", f"{folder}/server.key", "-out", f"{folder}/server.pem"]
    for options in (ca, own):
        subprocess.run(["openssl", "req", "-x509", *_NEW_KEY, *options], check=True, capture_output=True)


def serve(pipe, size, folder):
    tls = folder and reverb.ServerTLS(f"{folder}/server.pem", f"{folder}/server.key")
    table = reverb.Table(
        "table", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 10**6, reverb.rate_limiters.MinSize(1)
    )
    with reverb.Server([table], tls=tls) as server:
        rows = np.random.default_rng(0).random((ITEMS[size], size // 4), np.float32)
        reverb.Client(f"localhost:{server.port}").insert_batch(rows, {"table": 1.0})
        pipe.send(f"grpcs://localhost:{server.port}" if folder else f"ipv4:127.0.0.1:{server.port}")
        pipe.recv()


def rate(client, batch, seconds):
    """The items a second that a client draws."""
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        client.sample_batch("table", batch)
        count += batch
    return count / elapsed


def measure(options, size, folder):
    """The rows of one size."""
    spawn = multiprocessing.get_context("spawn")
    servers = []
    for of_tls in (None, folder):
        here, there = spawn.Pipe()
        process = spawn.Process(target=serve, args=(there, size, of_tls))
        process.start()
        servers.append((here, process))
    try:
        plain, secure = (
            reverb.Client(pipe.recv(), tls=reverb.TLS(ca=f"{folder}/ca.pem") if number else None)
            for number, (pipe, _) in enumerate(servers)
        )
        for batch in (256, 1):
            rates = []
            for client in (plain, secure):
                rate(client, batch, options.seconds / 4)
            for _ in range(options.rounds):
                rates.append([rate(client, batch, options.seconds) for client in (plain, secure)])
            row = {"item_bytes": size, "batch": batch}
            row["plain_items_per_s"], row["tls_items_per_s"] = (
                round(statistics.median(side)) for side in zip(*rates, strict=True)
            )
            row["ratio"] = round(statistics.median(tls / plain for plain, tls in rates), 3)
            limit = LIMITS.get((size, batch))
            yield row | ({} if limit is None else {"limit": limit, "holds": row["ratio"] >= limit})
    finally:
        for pipe, process in servers:
            pipe.send(None)
            process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        make_certificate(folder)
        for size in ITEMS:
            for row in measure(options, size, folder):
                print(row, flush=True)
                results.append({"area": "tls", **row})
    if options.out:
        record = {
            "command": "python " + " ".join(sys.argv),
            "date": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "quick": options.rounds < 9,
            "machine": machine.describe(),
            "versions": {"ours": {"python": platform.python_version(), "reverb": reverb.__version__}},
            "results": results,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    sys.exit(not all(row.get("holds", True) for row in results))


if __name__ == "__main__":
    main()
