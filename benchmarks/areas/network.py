"""A server in one process, load from others: items and bytes per second, and the time of a call.

One client and four clients write and read each payload. Ours uses each road; within the server's process, clients are
threads. The reference uses TCP, and reads batches by tf.data with the best of a few settings.
"""

import payloads
import timing

CLIENTS = (1, 4)
ROADS = ("same_process", "unix", "tcp")
WORKS = ("insert", "insert_batch", "trajectory_writer", "writer", "sample", "sample_batch", "NumpyLoader")
# The operations that both sides have, with the items per call.
REFERENCE_WORKS = {"insert": 1, "trajectory_writer": 200, "writer": 200, "sample": 100}
# Samples in flight per worker, workers, prefetched batches: of a dozen tried, each was the best for some payload.
SETTINGS = ((100, 2, 2), (1000, 1, 2), (256, 4, 2))
LARGE_SETTINGS = ((8, 1, 1), (64, 1, 2), (256, 4, 2))


def run(sides, quick):
    names = ("0.4 kB", "400 kB", "transition") if quick else payloads.SENT
    rounds, seconds = (1, 0.1) if quick else (5, 0.4)
    present = sides.here("ours", "reference")
    servers = {side: sides.worker(side) for side in present}
    loads = {side: [sides.worker(side) for _ in range(max(CLIENTS))] for side in present}
    try:
        for payload in names:
            cells = []
            for side in present:
                addresses = servers[side].call("serve", payload=payload)
                make = our_cells if side == "ours" else reference_cells
                cells += make(servers[side], loads[side], addresses, payload, seconds)
            # The sides take turns: all cells of a round, then the next round.
            results = [[cell["measure"]() for cell in cells] for _ in range(rounds)]
            for index, cell in enumerate(cells):
                measured = [one[index] for one in results]
                labels = {name: value for name, value in cell.items() if name != "measure"}
                yield {"payload": payload, **labels, **timing.summary(measured, payloads.bytes_of(payload))}
            for server in servers.values():
                server.call("stop")
    finally:
        for worker in [*servers.values(), *(worker for group in loads.values() for worker in group)]:
            worker.end()


def our_cells(server, loads, addresses, payload, seconds):
    def measure(road, work, clients):
        arguments = {"address": addresses[road], "work": work, "payload": payload, "seconds": seconds}
        if road == "same_process":
            return server.call("load", threads=clients, **arguments)
        return at_once(loads[:clients], "load", **arguments)

    return [
        {
            "side": "ours",
            "work": work,
            "road": road,
            "clients": clients,
            "items_per_call": {**REFERENCE_WORKS, "insert_batch": 64}.get(work, payloads.batch_size(payload)),
            "measure": lambda road=road, work=work, clients=clients: measure(road, work, clients),
        }
        for work in WORKS
        for road in ROADS
        for clients in CLIENTS
    ]


def reference_cells(server, loads, addresses, payload, seconds):
    del server
    address = addresses["tcp"]
    setting = best_setting(loads[0], address, payload, seconds)
    note = "in flight {}, workers {}, prefetch {}".format(*setting)

    def measure(work, clients):
        return at_once(loads[:clients], "load", address=address, work=work, payload=payload, seconds=seconds)

    cells = [
        {
            "side": "reference",
            "work": work,
            "road": "tcp",
            "clients": clients,
            "items_per_call": REFERENCE_WORKS[work],
            "measure": lambda work=work, clients=clients: measure(work, clients),
        }
        for work in REFERENCE_WORKS
        for clients in CLIENTS
    ]
    cells += [
        {
            "side": "reference",
            "work": "TrajectoryDataset",
            "road": "tcp",
            "clients": clients,
            "items_per_call": payloads.batch_size(payload),
            "note": note,
            "measure": lambda clients=clients: dataset(loads[:clients], address, payload, 2 * seconds, setting),
        }
        for clients in CLIENTS
    ]
    return cells


def best_setting(load, address, payload, seconds):
    settings = LARGE_SETTINGS if payload == "400 kB" else SETTINGS
    rates = {setting: dataset([load], address, payload, seconds, setting)["items_per_s"] for setting in settings}
    return max(rates, key=rates.get)


def dataset(loads, address, payload, seconds, setting):
    in_flight, workers, prefetch = setting
    return at_once(
        loads,
        "load_dataset",
        address=address,
        payload=payload,
        seconds=seconds,
        in_flight=in_flight,
        workers=workers,
        prefetch=prefetch,
    )


def at_once(loads, function, **arguments):
    """Makes the same call in several processes at the same time, and combines the results."""
    for load in loads:
        load.start(function, **arguments)
    return timing.together([load.finish() for load in loads])
