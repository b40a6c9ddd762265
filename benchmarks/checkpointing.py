"""Saving and loading checkpoints. Both sides import this module, each with its own `reverb`."""

import os
import threading
import time

import numpy as np

import reverb
from reverb import rate_limiters, selectors

_state = {}


def _serve(root, count, source=None):
    table = reverb.Table("table", selectors.Uniform(), selectors.Fifo(), count, rate_limiters.MinSize(1))
    keeper = reverb.checkpointers.DefaultCheckpointer(root, fallback_checkpoint_path=source)
    server = _state["server"] = reverb.Server(tables=[table], checkpointer=keeper)
    _state["client"] = server.localhost_client()
    found = _state["client"].server_info()["table"].current_size
    assert found in (0, count), f"{found} of {count} items were loaded"


def _bytes(content, count, seed):
    """Makes bytes: `random` ones do not compress; `runs` of 16 equal ones compress to less than a third with Snappy."""
    run = {"random": 1, "runs": 16}[content]
    return np.repeat(np.random.default_rng(seed).integers(0, 256, -(-count // run), np.uint8), run)[:count]


def checkpoint_make(root, content, size, count):
    """Makes a checkpoint of items of `size` bytes, each in its own chunk, and returns its path."""
    _serve(root, count)
    # More than the window of a compressor, so that no repetition lies within it.
    pool = _bytes(content, 64 << 20, 0)
    for index in range(count):
        start = index * size % (len(pool) - size)
        _state["client"].insert([pool[start : start + size]], {"table": 1.0})
    return _state["client"].checkpoint()


def checkpoint_load(root, count, source=None):
    """Starts a server from a checkpoint. Returns seconds, and mebibytes once loaded and at the peak."""
    # Imports at first use must not count as loading.
    _serve(f"{root}-none", count)
    _state.pop("client")
    _state.pop("server").stop()
    start, cpu = time.perf_counter(), time.process_time()
    _serve(root, count, source)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    rest, peak = _memory()
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "rest_mib": rest, "peak_mib": peak}


def checkpoint_save(content, size, pause=None):
    """Saves a checkpoint and measures it.

    Args:
      content: Kind of the items' bytes, `random` or `runs`.
      size: Size of an item in bytes.
      pause: Seconds between two inserts and samples by another thread during the save; None starts no such thread.

    Returns:
      Seconds, mebibytes before and at the peak, and the longest insert and sample during the save in milliseconds.
    """
    worst, stop = [0.0, 0], threading.Event()
    traffic = threading.Thread(target=_insert_and_sample, args=(_bytes(content, size, 1), pause, worst, stop))
    has_traffic = pause is not None
    if has_traffic:
        traffic.start()
        time.sleep(0.5)
        worst[:] = [0.0, 0]
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    rest, _ = _memory()
    start, cpu = time.perf_counter(), time.process_time()
    path = _state["client"].checkpoint()
    result = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu, "rest_mib": rest}
    if has_traffic:
        count = worst[1]
        stop.set()
        traffic.join()
        result["worst_call_ms"] = 1e3 * worst[0]
        result["traffic_mib_per_s"] = count * size / 2**20 / result["seconds"]
    result["peak_mib"] = _memory()[1]
    result["disk_mib"] = sum(entry.stat().st_size for entry in os.scandir(path)) / 2**20
    return result


def _insert_and_sample(row, pause, worst, stop):
    client = _state["client"]
    while not stop.is_set():
        start = time.perf_counter()
        client.insert([row], {"table": 1.0})
        list(client.sample("table", 1))
        worst[:] = max(worst[0], time.perf_counter() - start), worst[1] + 1
        time.sleep(pause)


def _memory():
    """Returns the mebibytes in memory now, and at the peak since the last reset."""
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return tuple(int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
