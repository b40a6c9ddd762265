"""cpprb's own survey of replay buffers, with updates of priorities: one process, 4096 transitions.

Our side adds with one `insert_batch` and draws with one `sample_batch`, whose result is a dict of stacked arrays with
keys and probabilities; prioritized draws include the importance weights on every side but dm-reverb's, which has none
and whose items are inserted and drawn one by one. Flashbax and TorchRL keep the same columns.
"""

import summary

from areas import buffers

SIZE = 4096
WORKS = (("add", 1), ("add", 11), ("add", 101), ("sample", 32), ("sample", 256))
# Those that have a server, which is in the same process here.
SERVED = ("ours", "reference")


def run(sides, quick):
    rounds, seconds = (2, 0.05) if quick else (7, 0.2)
    setups = {side: "table_setup" if side in SERVED else "buffer_setup" for side in summary.PEERS}
    for table, exponent in buffers.TABLES.items():
        setup = {"payload": "transition", "capacity": SIZE, "exponent": exponent}
        works = WORKS if exponent is None else WORKS + buffers.UPDATES
        for side, work, results in buffers.measured(sides, setups, setup, works, rounds, seconds):
            yield {"side": side, "table": table, "work": work, **results}
