"""One client of `reverb bench`: a process of its own, so that clients do not wait for each other's interpreter.

Reads one line of JSON from stdin, says `ready`, begins at the next line, and prints one line of JSON at the end.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from reverb import _binding
from reverb._settings import with_environment
from reverb.data.endpoint import Endpoint
from reverb.data.tls import TLS

# Rows of one insert, and of one batch: few enough that a call is not one of many megabytes.
_CALL_BYTES = 1 << 20
_MOST_ROWS = 64
# Seconds before the measurement, in which connections and buffers reach their sizes.
_WARM_UP_S = 0.3
# Latencies that are kept.
_MOST_LATENCIES = 200_000


def rows_of(size: int) -> int:
    """The items of one call, whose data have this size each."""
    return max(1, min(_MOST_ROWS, _CALL_BYTES // size))


def main() -> None:
    """Runs until the time that the first line gives is over."""
    task = json.loads(sys.stdin.readline())
    endpoint = task["endpoint"]
    shown = Endpoint(**endpoint | {"tls": endpoint["tls"] and TLS(**endpoint["tls"])})
    # A token of the environment is not in the task.
    client = _binding.Client(with_environment(shown))
    call = _inserts(client, task) if task["operation"] == "insert" else _samples(client, task)
    call()
    print("ready", flush=True)
    if not sys.stdin.readline():
        # The command has ended.
        return
    measured = _measure(call, task["seconds"])
    print(json.dumps({**measured, "road": client.road}), flush=True)


def _inserts(client: _binding.Client, task: dict[str, Any]) -> Callable[[], object]:
    rows, size, table, timeout = rows_of(task["size"]), task["size"], task["table"], task["timeout"]
    # Random bytes, which no compression makes smaller.
    data = [np.random.default_rng(0).integers(0, 256, (rows, size), np.uint8)]
    priorities = {table: np.ones(rows)}
    return lambda: client.insert_batch(data, priorities, timeout)


def _samples(client: _binding.Client, task: dict[str, Any]) -> Callable[[], object]:
    rows, table, timeout = rows_of(task["size"]), task["table"], task["timeout"]

    def sample() -> None:
        _, draw = client.sample(table, rows, rows, 0, timeout, True)
        if draw is not None:
            draw.received()

    return sample


def _measure(call: Callable[[], object], seconds: float) -> dict[str, Any]:
    end = time.perf_counter() + _WARM_UP_S
    while time.perf_counter() < end:
        call()
    latencies: list[float] = []
    calls = 0
    begun = now = time.perf_counter()
    while now < begun + seconds:
        call()
        then, now = now, time.perf_counter()
        calls += 1
        if len(latencies) < _MOST_LATENCIES:
            latencies.append(now - then)
    return {"calls": calls, "seconds": now - begun, "latencies": latencies}
