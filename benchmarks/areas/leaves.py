"""One step of one value, by what the value is: Python numbers, NumPy scalars as Gymnasium returns them, and arrays.

Each kind is divided by the 0-d array of the same run, whose bytes only have to be copied. Everything is in one process.
`insert` and the adder make an item of each step; the writers only append.
"""

import statistics

import timing

STEPS_A_CALL = 100


def run(sides, quick):
    if "ours" not in sides:
        return
    rounds, seconds = (3, 0.02) if quick else (9, 0.1)
    with sides.worker("ours") as worker:
        kinds, ways = worker.call("leaves_setup")
        for way in ways:
            cells = {kind: [] for kind in kinds}
            for _ in range(rounds):
                for kind in kinds:
                    cells[kind].append(
                        worker.call("leaves_write", way=way, kind=kind, count=STEPS_A_CALL, seconds=seconds)
                    )
            plain = [statistics.median(one["times_us"]) for one in cells["0-d array"]]
            for kind, results in cells.items():
                times = [statistics.median(one["times_us"]) for one in results]
                ratios = [time / base for time, base in zip(times, plain, strict=True)]
                of_array = round(statistics.median(ratios), 3)
                labels = {"side": "ours", "work": way, "payload": kind, "steps_per_call": STEPS_A_CALL}
                yield {**labels, "of_array": of_array, **timing.summary(results)}
