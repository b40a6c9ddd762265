"""The cost of a batch of 256 transitions as the table grows, and of gathering as many rows of a plain array."""

import contextlib
import statistics

import machine
import timing

SIZES = (10**4, 10**5, 10**6, 10**7)
# Memory limits of our table and of the plain array: ten million items must not make the machine swap.
BYTES_PER_ITEM = 1000
ROADS = ("same_process", "tcp")


def run(sides, quick):
    if "ours" not in sides:
        return
    rounds, seconds = (2, 0.1) if quick else (15, 0.25)
    with contextlib.ExitStack() as open_workers:
        servers, reader = {}, open_workers.enter_context(sides.worker("ours"))
        for size in SIZES[: 2 if quick else None]:
            if size * BYTES_PER_ITEM / 1e9 > machine.available_gb():
                yield {"side": "ours", "work": "sample_batch", "items": size, "note": "left out: too little memory"}
                continue
            server = open_workers.enter_context(sides.worker("ours"))
            bare = [server.call("bare_gather", count=size, seconds=seconds) for _ in range(rounds)]
            yield {"side": "numpy", "work": "gather", "items": size, **timing.summary(bare, 280)}
            addresses = server.call("serve_empty", max_size=size)
            server.call("write", address=addresses["same_process"], count=size, batch=1000)
            servers[size] = server, addresses
        yield from measure(servers, reader, rounds, seconds)


def measure(servers, reader, rounds, seconds):
    """Measures all sizes in each round, so that disturbances affect neighbouring sizes equally."""
    arguments = {"work": "sample_batch", "payload": "transition", "seconds": seconds, "table": "in"}
    cells = {(size, road): [] for road in ROADS for size in servers}
    for _ in range(rounds):
        for (size, road), results in cells.items():
            server, addresses = servers[size]
            worker = server if road == "same_process" else reader
            results.append(worker.call("load", address=addresses[road], **arguments))
    smallest = min(servers)
    for (size, road), results in cells.items():
        labels = {"side": "ours", "work": "sample_batch", "road": road, "items": size, "items_per_call": 256}
        pairs = zip(medians(results), medians(cells[smallest, road]), strict=True)
        ratio = statistics.median(one / other for one, other in pairs)
        yield {**labels, **timing.summary(results, 280), "times_smallest": round(ratio, 2)}


def medians(results):
    return [statistics.median(result["times_us"]) for result in results]
