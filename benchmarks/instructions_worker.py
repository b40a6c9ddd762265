"""Runs the survey's rows under callgrind, a fixed number of calls each. Started by `instructions.py`."""

import ctypes
import gc
import sys

from areas import survey
from sides import ours_side

# Before counting; the first calls load modules and fill pools.
WARM_UP = 50


def main():
    calls = int(sys.argv[1])
    counter = ctypes.CDLL(None)
    gc.disable()
    for table, exponent in (("uniform", None), ("prioritized", survey.EXPONENT)):
        ours_side.stop()
        ours_side.survey_setup(survey.SIZE, exponent)
        for work, count in [("add", count) for count in survey.ADDS] + [("sample", count) for count in survey.SAMPLES]:
            call = ours_side.survey_call(work, count, exponent is not None)
            repeat(call, WARM_UP)
            counter.start_counting()
            repeat(call, calls)
            counter.end_counting(f"survey {table}, {work} {count}".encode())
    ours_side.stop()


def repeat(call, times):
    for _ in range(times):
        call()


if __name__ == "__main__":
    main()
