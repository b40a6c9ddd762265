"""Many clients at once: what a server still does for a thousand writers, and whether it serves all alike.

Each writer has a client of its own, so a connection of its own, except where the note says otherwise. A thousand
actors would have a thousand processes; a thousand threads here would measure how Python switches between them. So one
thread in each of five processes drives all writers of that process. A writer writes a turn of 20 steps, each an item,
and has its next turn once the server has confirmed these, while the turns of the others are on their way. Each process
has as many writers as any other, and ends with a flush of all, which counts. The time of a turn ends when that thread
sees that it is confirmed; with many writers most of it is spent behind the others, at the server and in that thread.

Samplers are spread over four processes, each with a thread and a client of its own. `sample_batch` waits without the
GIL, so four threads of a process take little from each other. They read a table that nobody writes to, and beside
writers the one that these write to. There they begin after all writers, and end before them: in a moment without
writers one of them draws as often as in a second beside them.

The share of the least served client is its rate relative to the mean of all clients of its cell; `of_best` is the rate
relative to that of the best number of writers on the same road. Both are medians of the rounds. On two processors each
of a thousand writers has a dozen turns in a round, so their least share is lower than it is over a longer time. The
load takes most of the time of few processors, so the processor time of the server is measured as well, where it has one
kind of work.
"""

import contextlib
import statistics
import time
import typing

import payloads
import timing

ROADS = ("unix", "tcp")
WRITERS, SAMPLERS = (1, 10, 100, 1000), (1, 4, 16)
QUICK_WRITERS, QUICK_SAMPLERS = (1, 10), (1, 4)
WRITER_PROCESSES, SAMPLER_PROCESSES = 5, 4
# Items of a writer's turn.
TURN = 20
# Samplers beside writers, and the part of the time before and after them.
BESIDE = 4
LEAD = 0.1
# Least rate of so many writers relative to their best number, and least share of any client.
BARS = {100: 0.8, 1000: 0.5}
LEAST_SHARE = 0.5
# A client has up to two connections; the rest of a process needs fewer files than this.
FILES_PER_CLIENT, OTHER_FILES = 2, 200


class Cell(typing.NamedTuple):
    payload: str
    road: str
    writers: int = 0
    samplers: int = 0
    # Whether the writers of a process have one client.
    is_shared: bool = False

    def note(self, work):
        """Says what is not as usual, or returns None."""
        if self.is_shared:
            return f"{WRITER_PROCESSES} clients in all"
        if not (self.writers and self.samplers):
            return None
        return f"beside {self.samplers} samplers" if work == "trajectory_writer" else f"beside {self.writers} writers"


def run(sides, quick):
    if "ours" not in sides:
        return
    with contextlib.ExitStack() as open_workers:
        server, *loads = (
            open_workers.enter_context(sides.worker("ours")) for _ in range(1 + WRITER_PROCESSES + SAMPLER_PROCESSES)
        )
        files = min(worker.call("clients_raise_open_files") for worker in (server, *loads))
        for payload in ("0.4 kB", "transition"):
            addresses = server.call("serve", payload=payload)
            cells = []
            for cell in cells_of(payload, quick):
                if FILES_PER_CLIENT * cell.writers + OTHER_FILES <= files:
                    cells.append(cell)
                else:
                    note = f"left out: a process may open {files} files"
                    yield {"side": "ours", "payload": payload, "road": cell.road, "clients": cell.writers, "note": note}
            found = {cell: [] for cell in cells}
            for _ in range(1 if quick else 3):
                for cell, results in found.items():
                    results.append(measured(cell, server, loads, addresses, quick))
            yield from results_of(found, quick)
            server.call("stop")


def cells_of(payload, quick):
    """The cells of a payload. Only items of 0.4 kB are written."""
    numbers, samplers = (QUICK_WRITERS, QUICK_SAMPLERS) if quick else (WRITERS, SAMPLERS)
    cells = []
    for road in ROADS:
        if payload == "0.4 kB":
            cells += [Cell(payload, road, writers=number) for number in numbers]
            cells.append(Cell(payload, road, writers=numbers[-1], is_shared=True))
            cells += [Cell(payload, road, writers=number, samplers=BESIDE) for number in numbers[2:] or numbers[1:]]
        cells += [Cell(payload, road, samplers=number) for number in samplers]
    return cells


def measured(cell, server, loads, addresses, quick):
    """Measures a cell once. Returns what its writers and samplers did, by their work."""
    address = addresses[cell.road]
    seconds = 0.1 if quick else seconds_of(cell)
    writing = loads[: min(cell.writers, WRITER_PROCESSES)]
    sampling = loads[WRITER_PROCESSES:][: min(cell.samplers, SAMPLER_PROCESSES)]
    common = {"address": address, "payload": cell.payload}
    for load in writing:
        writers = cell.writers // len(writing)
        clients = 1 if cell.is_shared else writers
        load.start("clients_open_writers", **common, clients=clients, writers=writers, turn=TURN)
    finish(writing)
    for load in sampling:
        table = "in" if writing else "out"
        load.start("clients_open_samplers", **common, clients=cell.samplers // len(sampling), table=table)
    finish(sampling)
    before = server.call("operations_processor_s")
    for load in writing:
        load.start("clients_write", seconds=seconds)
    lead = seconds * LEAD if writing and sampling else 0.0
    time.sleep(lead)
    for load in sampling:
        load.start("clients_sample", payload=cell.payload, seconds=seconds - 2 * lead)
    works = {"trajectory_writer": writing, "sample_batch": sampling}
    results = {work: timing.together(finish(group)) for work, group in works.items() if group}
    if len(results) == 1:
        [(work, result)] = results.items()
        items = result["calls"] * items_per_call(work, cell)
        result["server_us_per_item"] = 1e6 * (server.call("operations_processor_s") - before) / items
    for load in (*writing, *sampling):
        load.start("clients_close")
    finish((*writing, *sampling))
    return results


def finish(loads):
    return [load.finish() for load in loads]


def seconds_of(cell):
    """Returns how long a cell is measured: long enough for shares of many turns."""
    if not cell.writers:
        return 0.5
    seconds = 3.0 if cell.writers >= 1000 else 1.5 if cell.writers >= 100 else 1.0
    # A call of a sampler waits for many turns of writers.
    return 2 * seconds if cell.samplers else seconds


def items_per_call(work, cell):
    return TURN if work == "trajectory_writer" else payloads.batch_size(cell.payload)


def results_of(found, quick):
    """Yields a result for the writers of each cell and one for its samplers.

    Args:
      found: What was measured in each round, by cell.
      quick: Whether the run is too short for bars.
    """
    for cell, rounds in found.items():
        # Of what is compared with the best, which is what has clients of its own and the server for itself.
        alone = [other for other in found if other.road == cell.road and other.writers and not other.samplers]
        for work in rounds[0]:
            clients = cell.writers if work == "trajectory_writer" else cell.samplers
            results = [one[work] for one in rounds]
            result = {
                "side": "ours",
                "work": work,
                "payload": cell.payload,
                "road": cell.road,
                "clients": clients,
                "items_per_call": items_per_call(work, cell),
                "note": cell.note(work),
                **summary_of(results, payloads.bytes_of(cell.payload)),
            }
            if cell in alone:
                best = max(rate_of(found[other]) for other in alone if not other.is_shared)
                result["of_best"] = round(rate_of(rounds) / best, 3)
            yield result if quick or clients == 1 else judged(result, cell)


def rate_of(rounds):
    return statistics.median(one["trajectory_writer"]["items_per_s"] for one in rounds)


def summary_of(results, size):
    """What `timing.summary` returns, with the slowest calls and the least served client."""
    summary = timing.summary(results, size)
    times = sorted(one for result in results for one in result["times_us"])
    summary["p999_us"] = round(timing.quantile(times, 0.999), 2)
    if len(results[0]["rates"]) > 1:
        shares = [min(result["rates"]) / statistics.mean(result["rates"]) for result in results]
        summary["least_share"] = round(statistics.median(shares), 3)
        summary["least_share_lowest"] = round(min(shares), 3)
    if "server_us_per_item" in results[0]:
        costs = [result["server_us_per_item"] for result in results]
        summary["server_us_per_item"] = round(statistics.median(costs), 3)
    return summary


def judged(result, cell):
    """A result with its bars, and whether they hold."""
    bars = {"least_share": LEAST_SHARE}
    if "of_best" in result and not cell.is_shared and cell.writers in BARS:
        bars["of_best"] = BARS[cell.writers]
    limits = {f"{name}_bar": bar for name, bar in bars.items()}
    return {**result, **limits, "holds": all(result[name] >= bar for name, bar in bars.items())}
