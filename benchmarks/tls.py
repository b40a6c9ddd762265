"""What do TLS and tokens cost a reader of another process over TCP on the loopback interface?

    python benchmarks/tls.py --out benchmarks/results/DATE-tls.json

Three servers in processes of their own have the same table of float32 arrays: one is plain, one has TLS, and one has
TLS and tokens. The clients of all take turns: in each round each draws batches of 256 items, and single items, for some
seconds. A row has the medians of the rounds, and the ratios to the plain server in the same round. A row of batches
holds if these ratios are at least 0.8 for items of 400 bytes, and 0.6 for items of 400 kB. It needs the command
`openssl`.
"""

import argparse
import hashlib
import multiprocessing
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import records

import reverb

SIDES = ("plain", "tls", "tokens")
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


def make_token(folder):
    """Makes a token, and the server's file of it."""
    token = f"rvb_{secrets.token_urlsafe(32)}"
    entry = f'[[token]]\nname = "reader"\nrole = "use"\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
    pathlib.Path(folder, "tokens.toml").write_text(entry)
    return token


def serve(pipe, size, folder, side):
    tls = None if side == "plain" else reverb.ServerTLS(f"{folder}/server.pem", f"{folder}/server.key")
    tokens = reverb.Tokens.from_file(f"{folder}/tokens.toml") if side == "tokens" else None
    table = reverb.Table(
        "table", reverb.selectors.Uniform(), reverb.selectors.Fifo(), 10**6, reverb.rate_limiters.MinSize(1)
    )
    with reverb.Server([table], tls=tls, tokens=tokens) as server:
        rows = np.random.default_rng(0).random((ITEMS[size], size // 4), np.float32)
        reverb.Client(f"localhost:{server.port}").insert_batch(rows, {"table": 1.0})
        pipe.send(f"grpcs://localhost:{server.port}" if tls else f"ipv4:127.0.0.1:{server.port}")
        pipe.recv()


def rate(client, batch, seconds):
    """The items a second that a client draws."""
    count, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        client.sample_batch("table", batch)
        count += batch
    return count / elapsed


def measure(options, size, folder, token):
    """The rows of one size."""
    spawn = multiprocessing.get_context("spawn")
    servers = []
    for side in SIDES:
        here, there = spawn.Pipe()
        process = spawn.Process(target=serve, args=(there, size, folder, side))
        process.start()
        servers.append((here, process))
    try:
        clients = []
        for side, (pipe, _) in zip(SIDES, servers, strict=True):
            tls = None if side == "plain" else reverb.TLS(ca=f"{folder}/ca.pem")
            clients.append(reverb.Client(pipe.recv(), tls=tls, token=token if side == "tokens" else None))
        for batch in (256, 1):
            for client in clients:
                rate(client, batch, options.seconds / 4)
            rounds = [[rate(client, batch, options.seconds) for client in clients] for _ in range(options.rounds)]
            row = {"item_bytes": size, "batch": batch}
            for side, rates in zip(SIDES, zip(*rounds, strict=True), strict=True):
                row[f"{side}_items_per_s"] = round(statistics.median(rates))
            for number, side in enumerate(SIDES[1:], 1):
                row[f"{side}_ratio"] = round(statistics.median(rates[number] / rates[0] for rates in rounds), 3)
            limit = LIMITS.get((size, batch))
            least = min(row[f"{side}_ratio"] for side in SIDES[1:])
            yield row | ({} if limit is None else {"limit": limit, "holds": least >= limit})
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
        token = make_token(folder)
        for size in ITEMS:
            for row in measure(options, size, folder, token):
                print(row, flush=True)
                results.append(row)
    records.write(options.out, "tls", results, options.rounds < 9)
    sys.exit(not all(row.get("holds", True) for row in results))


if __name__ == "__main__":
    main()
