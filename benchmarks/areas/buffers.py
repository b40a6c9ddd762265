"""Buffers of one process: ours, cpprb's and Flashbax's, side by side.

`transition` is cpprb's survey. `image` is Flashbax's own benchmark: 500 000 frames of 32 x 32 x 3 bytes, with action,
reward and discount, batches of 256. Flashbax's calls are compiled, its state is donated, and results are waited for.
"""

import timing

CONFIGURATIONS = {
    "transition": {"capacity": 4096, "works": ("add 1", "add 101", "sample 32", "sample 256")},
    "image": {"capacity": 500_000, "works": ("add 1", "add 128", "sample 256")},
}


# Flashbax's prioritised buffers hold sequences or pairs, not frames.
SIDES = {"uniform": ("ours", "cpprb", "flashbax"), "prioritized": ("ours", "cpprb")}


def run(sides, quick):
    rounds, seconds = (3, 0.1) if quick else (7, 0.3)
    for payload, configuration in CONFIGURATIONS.items():
        capacity = configuration["capacity"] // (10 if quick and payload == "image" else 1)
        for table, exponent in (("uniform", None), ("prioritized", 0.4)):
            workers = {side: sides.worker(side) for side in sides.here(*SIDES[table])}
            try:
                for worker in workers.values():
                    worker.call("buffer_setup", payload=payload, capacity=capacity, exponent=exponent)
                for work in configuration["works"]:
                    kind, count = work.split()
                    cells = {side: [] for side in workers}
                    for _ in range(rounds):
                        for side, worker in workers.items():
                            cells[side].append(worker.call(f"buffer_{kind}", count=int(count), seconds=seconds))
                    for side, results in cells.items():
                        labels = {"side": side, "payload": payload, "table": table, "work": work}
                        yield {**labels, **timing.summary(results)}
            finally:
                for worker in workers.values():
                    worker.end()
