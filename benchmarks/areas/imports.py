"""The duration of `import reverb` after `import numpy`, in a fresh interpreter each time.

Our names are loaded at first use, so the import alone says little. Users wait for the import together with the first
use of the names that every program needs.
"""

import statistics
import subprocess

SOURCE = """
import time, numpy
start = time.perf_counter()
import reverb
imported = time.perf_counter()
reverb.Client, reverb.Server, reverb.Table, reverb.selectors.Uniform, reverb.rate_limiters.MinSize
print(imported - start, time.perf_counter() - start)
"""
WORKS = ("import", "import and first use")


def run(sides, quick):
    times = {side: [] for side in sides.here("ours", "reference")}
    for _ in range(3 if quick else 11):
        for side, taken in times.items():
            done = subprocess.run(
                [sides.pythons[side], "-c", SOURCE],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            taken.append([float(seconds) for seconds in done.stdout.split()])
    for side, taken in times.items():
        for work, seconds in zip(WORKS, zip(*taken, strict=True), strict=True):
            low, middle, high = statistics.quantiles(seconds, n=4)
            yield {"side": side, "work": work, "median_s": middle, "q1_s": low, "q3_s": high}
