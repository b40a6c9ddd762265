"""In-process buffers compared, larger than in `survey`: ours, cpprb's, Flashbax's and TorchRL's.

`image` is Flashbax's own benchmark: 500 000 frames of 32 x 32 x 3 bytes, with action, reward and discount, in batches
of 256. `million` is a million transitions. `frames` are those that TorchRL's collector makes of CartPole, in 12 nested
columns, as TensorDicts: in TorchRL's buffer, and in ours that has TorchRL's methods.
"""

import machine
import payloads
import timing

# Exponents of priorities.
TABLES = {"uniform": None, "prioritized": 0.4}
# What only those with priorities can do.
UPDATES = (("update", 256), ("learn", 256))
CONFIGURATIONS = {
    "image": {
        "payload": "image",
        "capacity": 500_000,
        "works": (("add", 1), ("add", 128), ("sample", 256)),
        "sides": ("ours", "cpprb", "torchrl", "flashbax"),
    },
    "million": {
        "payload": "transition",
        "capacity": 1_000_000,
        "works": (("add", 1), ("add", 256), ("sample", 32), ("sample", 256)),
        "sides": ("ours", "cpprb", "torchrl", "flashbax"),
    },
    "frames": {
        "payload": "frames",
        "capacity": 100_000,
        "works": (("add", 1), ("add", 400), ("sample", 256)),
        "sides": ("torch", "torchrl"),
        # A learner's step in our buffer is at least so many times as fast as in TorchRL's.
        "bar": ("learn 256", 2.5),
    },
}


def run(sides, quick):
    rounds, seconds = (2, 0.05) if quick else (7, 0.3)
    for name, configuration in CONFIGURATIONS.items():
        if quick and name == "million":  # Not more than `survey` then.
            continue
        payload, capacity = configuration["payload"], configuration["capacity"] // (100 if quick else 1)
        setups = dict.fromkeys(configuration["sides"], "buffer_setup")
        needed_gb = len(sides.here(*setups)) * capacity * payloads.bytes_of(payload) / 1e9
        for table, exponent in TABLES.items():
            labels = {"payload": name, "table": table}
            # Some sides have twice their data in memory while they are made.
            if 2 * needed_gb > machine.available_gb():
                yield {"side": "ours", **labels, "work": "all", "note": "left out: too little memory"}
                continue
            setup = {"payload": payload, "capacity": capacity, "exponent": exponent}
            works = configuration["works"] + (() if exponent is None else UPDATES)
            medians = {}
            for side, work, results in measured(sides, setups, setup, works, rounds, seconds):
                medians[work, side] = results["median_us"]
                yield {"side": side, **labels, "work": work, **results}
            bar, least = configuration.get("bar", (None, None))
            if (bar, "torch") in medians and (bar, "torchrl") in medians and not quick:
                ratio = medians[bar, "torchrl"] / medians[bar, "torch"]
                compared = {"side": "torch", **labels, "work": f"{bar}, times as fast as TorchRL's"}
                yield {**compared, "ratio": round(ratio, 2), "limit": least, "holds": ratio >= least}


def measured(sides, setups, setup, works, rounds, seconds):
    """Yields a side, a work such as `add 1`, and its figures. The sides take turns in every round.

    Args:
      sides: Those that can run.
      setups: The call that makes its buffer, by side.
      setup: The arguments of these calls.
      works: Kinds of work, each with its number of items.
      rounds: Rounds of each work.
      seconds: Seconds of each measurement.
    """
    workers = {side: sides.worker(side) for side in sides.here(*setups)}
    try:
        for side, worker in workers.items():
            worker.call(setups[side], **setup)
        for work, count in works:
            cells = {side: [] for side in workers}
            for _ in range(rounds):
                for side, worker in workers.items():
                    cells[side].append(worker.call("buffer_work", work=work, count=count, seconds=seconds))
            for side, results in cells.items():
                yield side, f"{work} {count}", timing.summary(results)
    finally:
        for worker in workers.values():
            worker.end()
