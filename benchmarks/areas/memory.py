"""Memory of a server: idle, and for each transition of 280 bytes in 5 columns. The server has a process of its own."""

import os
import subprocess
import time


def run(sides, quick):
    singles, batches = (4_000, 64_000) if quick else (40_000, 512_000)
    for side in sides.here("ours", "reference"):
        with sides.worker(side) as server, sides.worker(side) as writer:
            server.call("serve_empty", max_size=10_000_000)
            time.sleep(0.5)
            yield {"side": side, "work": "idle server", "mib": round(rss(server.pid) / 2**20, 1)}
            for work, count, batch in (("insert", singles, 1), ("insert_batch", batches, 64)):
                if side == "reference" and batch > 1:
                    continue
                address = server.call("serve_empty", max_size=10_000_000)["tcp"]
                writer.call("write", address=address, count=1000 if batch == 1 else 64, batch=batch)
                before = rss(server.pid)
                writer.call("write", address=address, count=count, batch=batch)
                grown = rss(server.pid) - before
                yield {
                    "side": side,
                    "work": work,
                    "payload": "transition",
                    "items": count,
                    "bytes_per_item": round(grown / count, 1),
                }


def rss(pid):
    """Returns the resident memory of a process in bytes."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 1024 * int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(pid)]))
