"""What a batch of 256 transitions costs as the table grows, and what gathering as many rows of a plain array costs."""

import machine
import timing

SIZES = (10**4, 10**5, 10**6, 10**7)
# What a table of ours may take, and the plain array; ten million items must not drive the machine into swapping.
BYTES_PER_ITEM = 1000


def run(sides, quick):
    if "ours" not in sides:
        return
    rounds, seconds = (2, 0.1) if quick else (5, 0.4)
    for size in SIZES[: 2 if quick else None]:
        if size * BYTES_PER_ITEM / 1e9 > machine.available_gb():
            yield {"side": "ours", "work": "sample_batch", "items": size, "note": "left out: too little memory"}
            continue
        with sides.worker("ours") as server, sides.worker("ours") as reader:
            bare = [server.call("bare_gather", count=size, seconds=seconds) for _ in range(rounds)]
            yield {"side": "numpy", "work": "gather", "items": size, **timing.summary(bare, 280)}
            addresses = server.call("serve_empty", max_size=size)
            server.call("write", address=addresses["same_process"], count=size, batch=1000)
            arguments = {"work": "sample_batch", "payload": "transition", "seconds": seconds, "table": "in"}
            cells = {"same_process": [], "tcp": []}
            for _ in range(rounds):
                for road, results in cells.items():
                    worker = server if road == "same_process" else reader
                    results.append(worker.call("load", address=addresses[road], **arguments))
            for road, results in cells.items():
                labels = {"side": "ours", "work": "sample_batch", "road": road, "items": size, "items_per_call": 256}
                yield {**labels, **timing.summary(results, 280)}
