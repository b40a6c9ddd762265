"""What a server costs those who only watch it: calls of our side."""

import time

import numpy as np

import reverb

ROWS = 1000
watched = {}


def operations_tables(tables, max_size):
    return [
        reverb.Table(
            f"table{number}",
            reverb.selectors.Uniform(),
            reverb.selectors.Fifo(),
            max_size,
            reverb.rate_limiters.MinSize(1),
        )
        for number in range(tables)
    ]


def operations_serve(tables, items):
    """Starts a server with that many items in its first table, and returns the port of its page."""
    watched["server"] = server = reverb.Server(operations_tables(tables, max(items, 1)))
    client = reverb.Client(f"localhost:{server.port}")
    for _ in range(0, items, ROWS):
        client.insert_batch({"x": np.zeros((ROWS, 4), np.float32)}, {"table0": 1.0})
    return server.http_port


def operations_processor_s():
    """Returns the processor time of this process in seconds."""
    return time.process_time()


def operations_start(count, options):
    """Starts and stops servers one after the other.

    Args:
      count: Number of servers.
      options: Arguments of a server.

    Returns:
      The durations of the starts in microseconds.
    """
    times = []
    for _ in range(count):
        tables = operations_tables(1, 1000)
        start = time.perf_counter()
        server = reverb.Server(tables, **options)
        times.append(1e6 * (time.perf_counter() - start))
        server.stop()
    return times
