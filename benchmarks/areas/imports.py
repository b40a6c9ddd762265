"""How long `import reverb` takes after `import numpy`, in a fresh interpreter each time."""

import statistics
import subprocess

SOURCE = "import time, numpy; start = time.perf_counter(); import reverb; print(time.perf_counter() - start)"


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
            taken.append(float(done.stdout))
    for side, taken in times.items():
        low, middle, high = statistics.quantiles(taken, n=4)
        yield {"side": side, "work": "import", "median_s": middle, "q1_s": low, "q3_s": high}
