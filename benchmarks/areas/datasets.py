"""`TrajectoryDataset` of both sides, batched, over TCP: the same program on the same data, in TensorFlow 2.15.

Each side uses the best of a few settings, which are tried for each payload.
"""

import payloads
import timing

from areas.network import LARGE_SETTINGS, SETTINGS

# Our addresses select the shortest road automatically; the reference has one road.
ADDRESS = {"tensorflow": "ipv4:127.0.0.1:{}", "reference": "localhost:{}"}


def run(sides, quick):
    present = sides.here("tensorflow", "reference")
    names = ("transition",) if quick else payloads.SENT
    rounds, seconds = (2, 0.2) if quick else (5, 0.5)
    servers = {side: sides.worker(side) for side in present}
    learners = {side: sides.worker(side) for side in present}
    try:
        for payload in names:
            addresses = {}
            for side in present:
                port = servers[side].call("serve", payload=payload)["tcp"].rsplit(":", 1)[1]
                addresses[side] = ADDRESS[side].format(port)

            def measure(side, setting, payload=payload, addresses=addresses):
                in_flight, workers, prefetch = setting
                return learners[side].call(
                    "load_dataset",
                    address=addresses[side],
                    payload=payload,
                    seconds=seconds,
                    in_flight=in_flight,
                    workers=workers,
                    prefetch=prefetch,
                )

            settings = SETTINGS if payloads.bytes_of(payload) < 100_000 else LARGE_SETTINGS
            best = {
                side: max(settings, key=lambda setting, side=side: measure(side, setting)["items_per_s"])
                for side in present
            }
            cells = {side: [] for side in present}
            for _ in range(rounds):
                for side in present:
                    cells[side].append(measure(side, best[side]))
            for side in present:
                note = "in flight {}, workers {}, prefetch {}".format(*best[side])
                result = timing.summary(cells[side], payloads.bytes_of(payload))
                yield {"side": side, "payload": payload, "work": "TrajectoryDataset", "note": note, **result}
            for server in servers.values():
                server.call("stop")
    finally:
        for worker in [*servers.values(), *learners.values()]:
            worker.end()
