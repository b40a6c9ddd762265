"""Clients of one package at servers of the other, over dm-reverb's protocol, beside dm-reverb with itself.

Three mixtures take turns in each round: dm-reverb's client at its own server and at ours, and our client at dm-reverb's
server. The client of dm-reverb fills both servers, so the data are the same. Each rate is divided by that of dm-reverb
with itself in the same round, with the same call, or with `TrajectoryDataset` where the call is `sample_batch`.
"""

import statistics

import payloads
import timing

from areas.network import at_once, best_setting, dataset

PAYLOADS = ("transition", "0.4 kB", "4 kB", "400 kB")
# Client and server.
BASE, AT_OURS, AT_THEIRS = ("reference", "reference"), ("reference", "ours"), ("ours", "reference")
WRITING = ("trajectory_writer", "writer")
READING = {"reference": ("sample", "TrajectoryDataset"), "ours": ("sample", "sample_batch")}
BASE_WORK = {"sample_batch": "TrajectoryDataset"}
ITEMS_A_CALL = {"trajectory_writer": 200, "writer": 200, "sample": 100}


def run(sides, quick):
    if len(sides.here("ours", "reference")) < 2:
        return
    names = ("transition",) if quick else PAYLOADS
    rounds, seconds = (2, 0.1) if quick else (4, 0.3)
    servers = {side: sides.worker(side) for side in ("ours", "reference")}
    loads = {side: [sides.worker(side) for _ in range(4)] for side in servers}
    try:
        for payload in names:
            addresses = {}
            for side, server in servers.items():
                addresses[side] = server.call("serve_plain", payload=payload)
                loads["reference"][0].call("fill", address=addresses[side], payload=payload)
            setting = best_setting(loads["reference"][0], addresses["reference"], payload, seconds)
            yield from compared(cells_of(loads, addresses, payload, seconds, setting), payload, rounds)
            for server in servers.values():
                server.call("stop_plain")
    finally:
        for worker in [*servers.values(), *(worker for group in loads.values() for worker in group)]:
            worker.end()


def cells_of(loads, addresses, payload, seconds, setting):
    """The calls to measure by client, server, work and number of clients."""

    def measure(client, server, work, clients):
        address, chosen = addresses[server], loads[client][:clients]
        if work == "TrajectoryDataset":
            return dataset(chosen, address, payload, seconds, setting)
        return at_once(chosen, "load", address=address, work=work, payload=payload, seconds=seconds)

    # Four writers of large arrays would take minutes.
    numbers = (1,) if payload == "400 kB" else (1, 4)
    works = dict.fromkeys(WRITING, numbers)
    return {
        (client, server, work, clients): lambda key=(client, server, work, clients): measure(*key)
        for client, server in (BASE, AT_OURS, AT_THEIRS)
        for work, counts in {**works, **dict.fromkeys(READING[client], (1,))}.items()
        for clients in counts
    }


def compared(cells, payload, rounds):
    """Measures all cells in each round, and yields a result for each."""
    measured = {key: [] for key in cells}
    for _ in range(rounds):
        for key, measure in cells.items():
            measured[key].append(measure())
    for (client, server, work, clients), found in measured.items():
        base = measured[(*BASE, BASE_WORK.get(work, work), clients)]
        pairs = zip(found, base, strict=True)
        ratios = sorted(one["items_per_s"] / other["items_per_s"] for one, other in pairs)
        yield {
            "side": client,
            "server": server,
            "work": work,
            "payload": payload,
            "clients": clients,
            "items_per_call": ITEMS_A_CALL.get(work, payloads.batch_size(payload)),
            "of_reference": round(statistics.median(ratios), 3),
            "of_reference_lowest": round(ratios[0], 3),
            "of_reference_highest": round(ratios[-1], 3),
            **timing.summary(found, payloads.bytes_of(payload)),
        }
