"""Loaders compared with the bare call: batches of one learner, from a server in another process and in the same.

`sample_batch` is the bare call; with `device_put` its data are put on JAX's default device. A framework that the
interpreter lacks is left out.
"""

import timing

WORKS = ("sample_batch", "NumpyLoader", "TorchLoader", "sample_batch + device_put", "JaxLoader")


def run(sides, quick):
    if "ours" not in sides:
        return
    rounds, seconds = (3, 0.1) if quick else (7, 0.4)
    with sides.worker("ours") as server, sides.worker("ours") as learner:
        works = [work for work in WORKS if learner.call("loader_can", work=work)]
        for payload in ("transition",) if quick else ("transition", "4 kB", "400 kB"):
            addresses = server.call("serve", payload=payload)
            for road in ("same_process", "unix", "tcp"):
                worker = server if road == "same_process" else learner
                results = {work: [] for work in works}
                for work in works:
                    worker.call("loader_setup", address=addresses[road], work=work, payload=payload)
                for _ in range(rounds):
                    for work in works:
                        results[work].append(worker.call("loader_load", work=work, payload=payload, seconds=seconds))
                worker.call("loader_end")
                for work in works:
                    labels = {"side": "ours", "work": work, "payload": payload, "road": road}
                    yield {**labels, **timing.summary(results[work])}
            server.call("stop")
