"""The cost of a batch of 256 transitions as the table grows, and of gathering as many rows of plain arrays.

Tables are filled in three ways, which leave their rows in different places: by batches of 1000, by single inserts, and
by a writer. They are drawn from uniformly and by priority.
"""

import contextlib
import statistics

import machine
import timing

SIZES = (10**4, 10**5, 10**6, 10**7)
# Memory limits of our table and of the plain array: ten million items must not make the machine swap.
BYTES_PER_ITEM = 1000
ROADS = ("same_process", "unix", "tcp")
WAYS = ("insert_batch", "insert", "trajectory_writer")
SELECTORS = {"uniform": None, "prioritized": 0.6}
# The longest batch from ten million items, relative to one from ten thousand.
BARS = {"unix": 2.5, "tcp": 2.0}
# And relative to gathering the same columns of plain arrays of ten million rows, whatever the road.
GATHER_BAR = 3.0


def run(sides, quick):
    if "ours" not in sides:
        return
    rounds, seconds = (2, 0.1) if quick else (15, 0.25)
    sizes, columns = SIZES[: 2 if quick else None], {}
    with sides.worker("ours") as bare:
        for size in sizes:
            for work in ("gather", "gather_columns"):
                results = [bare.call(f"bare_{work}", count=size, seconds=seconds) for _ in range(rounds)]
                yield {"side": "numpy", "work": work, "items": size, **timing.summary(results, 280)}
                columns[size] = statistics.median(medians(results))
    with sides.worker("ours") as reader:
        for way in WAYS:
            for selector in SELECTORS:
                is_first = (way, selector) == (WAYS[0], "uniform")
                some = sizes if is_first else (sizes[0], sizes[-1])
                yield from filled(
                    sides, reader, way, selector, some, (rounds if is_first else min(rounds, 7), seconds, columns)
                )


def filled(sides, reader, way, selector, sizes, how):
    """Measures tables of all sizes that were filled in one way."""
    labels = {"side": "ours", "work": "sample_batch", "filled": way, "selector": selector}
    with contextlib.ExitStack() as open_workers:
        servers = {}
        for size in sizes:
            if size * BYTES_PER_ITEM / 1e9 > machine.available_gb():
                yield {**labels, "items": size, "note": "left out: too little memory"}
                continue
            server = open_workers.enter_context(sides.worker("ours"))
            addresses = server.call("serve_empty", max_size=size, exponent=SELECTORS[selector])
            server.call("fill", address=addresses["same_process"], count=size, way=way)
            servers[size] = server, addresses
        for result in measure(servers, reader, how):
            yield {**labels, **result}


def measure(servers, reader, how):
    """Measures all sizes in each round, so that disturbances affect neighbouring sizes equally."""
    rounds, seconds, columns = how
    arguments = {"work": "sample_batch", "payload": "transition", "seconds": seconds, "table": "in"}
    cells = {(size, road): [] for road in ROADS for size in servers}
    for _ in range(rounds):
        for (size, road), results in cells.items():
            server, addresses = servers[size]
            worker = server if road == "same_process" else reader
            results.append(worker.call("load", address=addresses[road], **arguments))
    smallest = min(servers)
    for (size, road), results in cells.items():
        pairs = zip(medians(results), medians(cells[smallest, road]), strict=True)
        result = {
            "road": road,
            "items": size,
            "items_per_call": 256,
            **timing.summary(results, 280),
            "times_smallest": round(statistics.median(one / other for one, other in pairs), 2),
            "times_gather": round(statistics.median(medians(results)) / columns[size], 2),
        }
        if size == SIZES[-1]:
            bar = BARS.get(road)
            result["holds"] = result["times_gather"] <= GATHER_BAR and (bar is None or result["times_smallest"] <= bar)
        yield result


def medians(results):
    return [statistics.median(result["times_us"]) for result in results]
