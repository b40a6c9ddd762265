"""`reverb bench`: what a server and the road to it carry. Its table is its own, and the server removes it."""

import dataclasses
import json
import re
import subprocess
import sys
from typing import Any

import numpy as np

from reverb import _binding, errors
from reverb.cli import output
from reverb.cli.bench_worker import rows_of
from reverb.data.endpoint import Endpoint

_DEFAULT_SIZES = ("400", "4k", "64k", "1m")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
# The table holds 256 MiB, and an insert must fit.
_LARGEST = 64 << 20
_WORKER = "from reverb.cli.bench_worker import main; main()"


@dataclasses.dataclass
class Result:
    """One measurement.

    Attributes:
      operation: `insert` or `sample`.
      size: Bytes of data of an item.
      rows: Items of a call.
      clients: Number of processes that made calls at the same time.
      items_per_second: Items of all clients.
      bytes_per_second: Bytes of data of all clients.
      p50_ms: Time of half of the calls, at most, in milliseconds.
      p99_ms: Time of 99 of 100 calls, at most.
      road: How the clients reached the server.
    """

    operation: str
    size: int
    rows: int
    clients: int
    items_per_second: float
    bytes_per_second: float
    p50_ms: float
    p99_ms: float
    road: str


def run(endpoint: Endpoint, sizes: list[str], clients: int, seconds: float, as_json: bool, timeout: float) -> None:
    """Measures inserts and then samples of each size, and prints a line for each."""
    parsed = [parse_size(size) for size in sizes or _DEFAULT_SIZES]
    if not seconds > 0:
        output.fail(f"--seconds must be greater than 0, got {seconds}", output.WRONG_USAGE)
    if not as_json:
        print(f"{'':7} {'size':>9} {'items/s':>10} {'MB/s':>8} {'p50 ms':>9} {'p99 ms':>9}  items a call, road")
    for size in parsed:
        table = _binding.BenchTable(endpoint, timeout)
        try:
            for operation in ("insert", "sample"):
                task = {
                    "endpoint": endpoint.shown() | {"tls": endpoint.tls and dataclasses.asdict(endpoint.tls)},
                    "table": table.name,
                    "operation": operation,
                    "size": size,
                    "seconds": seconds,
                    "timeout": timeout,
                }
                _print(_measure(task, clients), as_json)
        finally:
            table.close()


def parse_size(text: str) -> int:
    """A number of bytes, such as `400`, `4k` or `1m`.

    Raises:
      ValueError: The text is none, or the size is out of range.
    """
    match = re.fullmatch(r"(\d+)([km]?)(?:i?b)?", text.strip().lower())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= size <= _LARGEST:
        raise ValueError(f"a size must be a number of bytes from 1 to 64m, such as 400, 4k or 1m, got {text!r}")
    return size


def _measure(task: dict[str, Any], clients: int) -> Result:
    workers: list[subprocess.Popen[str]] = []
    try:
        for _ in range(clients):
            workers.append(
                subprocess.Popen(
                    [sys.executable, "-c", _WORKER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            _tell(workers[-1], json.dumps(task))
        for worker in workers:
            _hear(worker)
        for worker in workers:
            _tell(worker, "begin")
        return _sum(task, [json.loads(_hear(worker)) for worker in workers])
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _tell(worker: "subprocess.Popen[str]", line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line + "\n")
    worker.stdin.flush()


def _hear(worker: "subprocess.Popen[str]") -> str:
    """The next line of a worker.

    Raises:
      UnavailableError: The worker has ended, which it does when the server is lost.
    """
    assert worker.stdout is not None
    assert worker.stderr is not None
    line = worker.stdout.readline()
    if not line:
        last = worker.stderr.read().strip().splitlines()[-1:] or ["it ended without an error"]
        raise errors.UnavailableError(f"a client of the measurement failed: {last[0]}")
    return line


def _sum(task: dict[str, Any], measured: list[dict[str, Any]]) -> Result:
    rows = rows_of(task["size"])
    items = sum(one["calls"] * rows / one["seconds"] for one in measured)
    latencies = np.concatenate([np.asarray(one["latencies"]) for one in measured]) * 1e3
    return Result(
        task["operation"],
        task["size"],
        rows,
        len(measured),
        items,
        items * task["size"],
        float(np.percentile(latencies, 50)),
        float(np.percentile(latencies, 99)),
        ", ".join(sorted({one["road"] for one in measured})),
    )


def _print(result: Result, as_json: bool) -> None:
    if as_json:
        output.print_json(dataclasses.asdict(result))
        return
    print(
        f"{result.operation:7} {output.human_bytes(result.size):>9} {result.items_per_second:>10,.0f} "
        f"{result.bytes_per_second / 1e6:>8,.1f} {result.p50_ms:>9.3f} {result.p99_ms:>9.3f}  "
        f"{result.rows} items a call, {result.road}",
        flush=True,
    )
