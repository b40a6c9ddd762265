"""The machine of a measurement: figures of different machines can be compared only through these values."""

import os
import platform
import socket
import threading
import time

import numpy as np


def describe():
    """Returns cores, processor, memory, and the speed of copies."""
    return {
        "system": platform.platform(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "memcpy_gb_per_s": round(memcpy_gb_per_s(), 2),
        "loopback_gb_per_s": round(loopback_gb_per_s(), 2),
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def memcpy_gb_per_s(size=256 << 20, repeats=7):
    """Returns the best rate of several copies between two large arrays that are in memory already."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    best = min(timed(lambda: np.copyto(target, source)) for _ in range(repeats))
    return size / best / 1e9


def loopback_gb_per_s(size=512 << 20, part=1 << 20):
    """Returns the rate of one TCP connection on 127.0.0.1, with sender and receiver on threads without the GIL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = threading.Thread(target=send, args=(listener.getsockname(), size, part))
        sender.start()
        connection, _ = listener.accept()
        buffer = bytearray(part)
        start = time.perf_counter()
        left = size
        while left:
            left -= connection.recv_into(buffer)
        seconds = time.perf_counter() - start
        sender.join()
        connection.close()
    return size / seconds / 1e9


def send(address, size, part):
    data = bytes(part)
    with socket.create_connection(address) as connection:
        for _ in range(size // part):
            connection.sendall(data)


def available_gb():
    """Returns the memory available without swapping; infinite if the system does not report it."""
    try:
        with open("/proc/meminfo") as file:
            [kb] = [int(line.split()[1]) for line in file if line.startswith("MemAvailable")]
    except (OSError, ValueError):
        return float("inf")
    return kb / 1e6


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
