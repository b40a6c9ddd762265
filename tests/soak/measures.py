"""What a soak looks at: whether memory, threads and descriptors of its processes grow, and whether they work less."""

import dataclasses
import itertools
import json
import os
import statistics
import time
from pathlib import Path

# By how much the median of the last quarter after the warm-up may exceed that of the first quarter: a number, and a
# share of the first. A soak of an hour writes 14 million steps, so a leak of two bytes a step exceeds the bound.
BOUNDS = {"memory_mib": (8.0, 0.05), "shared_mib": (16.0, 0.1), "threads": (2, 0.0), "descriptors": (2, 0.0)}
WARM_UP_SHARE, WARM_UP_AT_MOST_S = 0.25, 600.0
# The share of the work in the first minute after the warm-up that must be done in the last one: medians over reports.
LEAST_WORK, MINUTE_S = 0.95, 60.0
# If all others use so many processors more in the last minute, that share tells nothing.
MOST_OTHERS = 0.2


@dataclasses.dataclass
class Process:
    """A process that is measured.

    Attributes:
      name: Name for the record.
      pid: Its process id.
      shares: Whether it shares memory with another process.
      reports: How often it has done each kind of work, and when.
    """

    name: str
    pid: int
    shares: bool
    samples: list = dataclasses.field(default_factory=list)
    reports: list = dataclasses.field(default_factory=list)

    def measure(self, at_s, record):
        """Measures the process at a time, and adds a line to the record."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        sample = {
            "at_s": round(at_s, 1),
            "process": self.name,
            "memory_mib": sum(int(status[own].split()[0]) for own in ("RssAnon", "RssFile")) / 1024,
            "shared_mib": int(status["RssShmem"].split()[0]) / 1024,
            "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{self.pid}/fd")),
            "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            "counts": self.reports[-1][1] if self.reports else {},
        }
        self.samples.append(sample)
        record.write(json.dumps(sample) + "\n")
        record.flush()

    def work(self, parts, others):
        """Returns lines for the reader, and those that name what is done less in the second of two parts of the time.

        Args:
          parts: Two parts of the time, each with its begin and its end.
          others: How many more processors all others used in the second one.
        """
        lines, failures = [], []
        for size in ("small", "large"):
            before, now = (statistics.median(self._rates(size, *part) or [0.0]) for part in parts)
            lines.append(f"{self.name}: {size} rounds a second {before:.2f} -> {now:.2f}, {now / (before or 1.0):.1%}")
            if now < LEAST_WORK * before and others <= MOST_OTHERS:
                failures.append(lines[-1])
        return lines, failures

    def _rates(self, size, begin, end):
        """Returns how many rounds with small or large rows were done a second, from each report to the next."""
        totals = [
            (at, sum(counts[kind] for kind in counts if kind.endswith("_large") == (size == "large")))
            for at, counts in self.reports
            if begin <= at <= end
        ]
        return [(now - before) / (at - since) for (since, before), (at, now) in itertools.pairwise(totals)]

    def verdict(self, seconds):
        """Returns lines for the reader, and those that name what has grown beyond its bound or has stood still."""
        after = [sample for sample in self.samples if sample["at_s"] >= warm_up_s(seconds)]
        quarter = max(1, len(after) // 4)
        first, last = after[:quarter], after[-quarter:]
        lines, failures = [], []
        for measure, (absolute, share) in BOUNDS.items():
            before, now = (statistics.median(sample[measure] for sample in part) for part in (first, last))
            bound = before * (1 + share) + absolute
            peak = max(sample[measure] for sample in self.samples)
            lines.append(f"{self.name}: {measure} {before:.1f} -> {now:.1f} (bound {bound:.1f}, peak {peak:.1f})")
            if now > bound:
                failures.append(lines[-1])
        for kind, count in last[-1]["counts"].items():
            if not kind.endswith("_cut") and count <= last[0]["counts"].get(kind, 0) and len(last) > 1:
                failures.append(f"{self.name}: {kind} stood still at {count}")
        if self.shares and not last[-1]["shared_mib"]:
            failures.append(f"{self.name}: shares no memory")
        lines.append(f"{self.name}: {last[-1]['cpu_s'] / last[-1]['at_s']:.3f} processors, {last[-1]['counts']}")
        return lines, failures


def warm_up_s(seconds):
    """Returns how long a soak of so many seconds lets its processes grow."""
    return min(WARM_UP_SHARE * seconds, WARM_UP_AT_MOST_S)


def minutes(begun, seconds):
    """Returns the first minute after the warm-up of a soak and its last one, or parts of them if it is short."""
    first, end = begun + warm_up_s(seconds), begun + seconds
    minute = min(MINUTE_S, (end - first) / 2)
    return (first, first + minute), (end - minute, end)


class Others:
    """How much all other processes of the machine work.

    Args:
      own: The processes that are measured.
    """

    def __init__(self, own):
        self._own = own
        self._used = []

    def measure(self):
        # All but idle time, and that of waiting for disks.
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy_s = (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
        self._used.append((time.monotonic(), busy_s - sum(one.samples[-1]["cpu_s"] for one in self._own)))

    def processors(self, begin, end):
        """Returns how many processors they used in a part of the time."""
        used = [sample for sample in self._used if begin <= sample[0] <= end]
        # A soak that ends early has none.
        return (used[-1][1] - used[0][1]) / (used[-1][0] - used[0][0]) if len(used) > 1 else 0.0
