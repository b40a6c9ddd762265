"""cpprb's own survey of replay buffers: one process, 4096 transitions, adds and draws, uniform and prioritized.

Our side adds with one `insert_batch` and draws with one `sample_batch`, whose result is a dict of stacked arrays with
keys and probabilities. Prioritized draws include `importance_weights`, since cpprb computes these too. The reference
has neither call: it inserts and draws one by one.
"""

import timing

SIZE = 4096
EXPONENT = 0.4
ADDS = (1, 11, 101)
SAMPLES = (32, 256)


def run(sides, quick):
    rounds, seconds = (3, 0.05) if quick else (7, 0.2)
    for table, exponent in (("uniform", None), ("prioritized", EXPONENT)):
        workers = {side: sides.worker(side) for side in sides.here("ours", "cpprb", "reference")}
        try:
            for worker in workers.values():
                worker.call("survey_setup", size=SIZE, exponent=exponent)
            for work, count in [("add", count) for count in ADDS] + [("sample", count) for count in SAMPLES]:
                arguments = {"count": count, "seconds": seconds}
                if work == "sample":
                    arguments["prioritized"] = exponent is not None
                cells = {side: [] for side in workers}
                for _ in range(rounds):
                    for side, worker in workers.items():
                        cells[side].append(worker.call(f"survey_{work}", **arguments))
                for side, results in cells.items():
                    yield {"side": side, "table": table, "work": f"{work} {count}", **timing.summary(results)}
        finally:
            for worker in workers.values():
                worker.end()
