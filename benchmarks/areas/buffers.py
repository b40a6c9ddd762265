"""In-process buffers compared: ours, cpprb's, Flashbax's and TorchRL's.

`survey` is cpprb's own survey. `image` is Flashbax's own benchmark: 500 000 frames of 32 x 32 x 3 bytes, with action,
reward and discount, in batches of 256. Flashbax's calls are compiled, its state is donated, and the benchmark waits for
results. `million` is a million transitions, in TorchRL's TensorDicts and in our buffer, which yields tensors here.
"""

import timing

CONFIGURATIONS = {
    "survey": {
        "payload": "transition",
        "capacity": 4096,
        "works": ("add 1", "add 101", "sample 32", "sample 256"),
        # Flashbax's prioritised buffers hold sequences or pairs instead of single frames.
        "sides": {"uniform": ("ours", "cpprb", "flashbax"), "prioritized": ("ours", "cpprb")},
    },
    "image": {
        "payload": "image",
        "capacity": 500_000,
        "works": ("add 1", "add 128", "sample 256"),
        "sides": {"uniform": ("ours", "cpprb", "flashbax"), "prioritized": ("ours", "cpprb")},
    },
    "million": {
        "payload": "transition",
        "capacity": 1_000_000,
        "works": ("add 1", "add 256", "sample 32", "sample 256"),
        "sides": {"uniform": ("ours", "torchrl"), "prioritized": ("ours", "torchrl")},
        "output": "torch",
    },
}


def run(sides, quick):
    rounds, seconds = (3, 0.1) if quick else (7, 0.3)
    for name, configuration in CONFIGURATIONS.items():
        capacity = configuration["capacity"] // (10 if quick and name != "survey" else 1)
        setup = {"payload": configuration["payload"], "capacity": capacity}
        if "output" in configuration:
            setup["output"] = configuration["output"]
        for table, exponent in (("uniform", None), ("prioritized", 0.4)):
            workers = {side: sides.worker(side) for side in sides.here(*configuration["sides"][table])}
            try:
                if len(workers) == 1 and "output" in setup:
                    # There is no TorchRL to compare with, and possibly no PyTorch.
                    continue
                for worker in workers.values():
                    worker.call("buffer_setup", exponent=exponent, **setup)
                for work in configuration["works"]:
                    kind, count = work.split()
                    cells = {side: [] for side in workers}
                    for _ in range(rounds):
                        for side, worker in workers.items():
                            cells[side].append(worker.call(f"buffer_{kind}", count=int(count), seconds=seconds))
                    for side, results in cells.items():
                        labels = {"side": side, "payload": name, "table": table, "work": work}
                        yield {**labels, **timing.summary(results)}
            finally:
                for worker in workers.values():
                    worker.end()
