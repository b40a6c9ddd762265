"""Runs the survey's rows under callgrind, a fixed number of calls each. Started by `instructions.py`."""

import ctypes
import gc
import sys

from areas import buffers, survey
from sides import buffering, ours_buffers

# Before counting; the first calls load modules and fill pools.
WARM_UP = 50


def main():
    calls = int(sys.argv[1])
    counter = ctypes.CDLL(None)
    gc.disable()
    for table, exponent in buffers.TABLES.items():
        ours_buffers.table_setup("transition", survey.SIZE, exponent)
        for work, count in survey.WORKS:
            call = buffering.call_of(work, count)
            repeat(call, WARM_UP)
            counter.start_counting()
            repeat(call, calls)
            counter.end_counting(f"survey {table}, {work} {count}".encode())


def repeat(call, times):
    for _ in range(times):
        call()


if __name__ == "__main__":
    main()
