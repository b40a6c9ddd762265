"""What a soak looks at: memory, threads and descriptors of its processes, and whether they grow."""

import dataclasses
import json
import os
import statistics
from pathlib import Path

# By how much the median of the last quarter after the warm-up may exceed that of the first quarter: a number, and a
# share of the first. A soak of an hour writes 14 million steps, so a leak of two bytes a step exceeds the bound.
BOUNDS = {"memory_mib": (8.0, 0.05), "threads": (2, 0.0), "descriptors": (2, 0.0)}
WARM_UP_SHARE, WARM_UP_AT_MOST_S = 0.25, 600.0


@dataclasses.dataclass
class Process:
    """A process that is measured.

    Attributes:
      name: Name for the record.
      pid: Its process id.
    """

    name: str
    pid: int
    samples: list = dataclasses.field(default_factory=list)

    def measure(self, at_s, counts, record):
        """Measures the process at a time, and adds a line to the record."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        sample = {
            "at_s": round(at_s, 1),
            "process": self.name,
            "memory_mib": int(status["VmRSS"].split()[0]) / 1024,
            "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{self.pid}/fd")),
            "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            "counts": dict(counts),
        }
        self.samples.append(sample)
        record.write(json.dumps(sample) + "\n")
        record.flush()

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
        lines.append(f"{self.name}: {last[-1]['cpu_s'] / last[-1]['at_s']:.3f} processors, {last[-1]['counts']}")
        return lines, failures


def warm_up_s(seconds):
    """Returns how long a soak of so many seconds lets its processes grow."""
    return min(WARM_UP_SHARE * seconds, WARM_UP_AT_MOST_S)
