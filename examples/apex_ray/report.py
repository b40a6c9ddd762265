"""Reports on a run: a picture of the return and of what each shard holds, and a table."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
import time

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt


@dataclasses.dataclass
class History:
    """The measurements of a run. Times are in seconds since the start."""

    started_at: float
    updates: int = 0
    steps: int = 0
    duration_s: float = 0.0
    episodes: list[tuple[float, float]] = dataclasses.field(default_factory=list)  # (time, return)
    shards: list[tuple[float, dict[int, int]]] = dataclasses.field(default_factory=list)  # (time, items by shard)
    killed: tuple[float, int] | None = None  # (time, shard)

    def look(self, items: dict[int, int]) -> None:
        """Notes how many items each shard has."""
        self.shards.append((time.time() - self.started_at, items))

    def finish(self, episodes: list[tuple[float, float]]) -> None:
        """Notes the episodes, whose times are those of the clock."""
        self.episodes = [(finished - self.started_at, value) for finished, value in episodes]

    def back_after_s(self) -> float | None:
        """The time from the death of the shard to the first look at which it had items again; None if it has not."""
        if self.killed is None:
            return None
        killed_at, shard = self.killed
        gone = [now for now, items in self.shards if now > killed_at and not items.get(shard)]
        back = [now for now, items in self.shards if now > (gone or [killed_at])[0] and items.get(shard)]
        return back[0] - killed_at if back else None

    def mean_return(self, begin: float, end: float) -> float:
        """The mean return of the episodes from one part of the run to another, each between 0 and 1."""
        values = [value for _, value in self.episodes]
        part = values[int(begin * len(values)) : max(1, int(end * len(values)))]
        return float(np.mean(part)) if part else 0.0


def save_picture(path: pathlib.Path, history: History) -> None:
    """Plots the learning curve, and below it the items of each shard."""
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 7), sharex=True, layout="constrained")
    times, returns = (np.asarray(column) for column in zip(*history.episodes, strict=True))
    top.plot(times, returns, ".", markersize=3, color="0.7", label="episode")
    if len(returns) >= 20:
        top.plot(times[19:], np.convolve(returns, np.ones(20) / 20, "valid"), color="C0", label="mean of 20 episodes")
    top.set(ylabel="return", ylim=(0, 520), title="CartPole-v1, Ape-X on Ray with two shards")
    for shard in sorted({shard for _, items in history.shards for shard in items}):
        bottom.plot(
            *zip(*((now, items.get(shard, 0)) for now, items in history.shards), strict=True), label=f"shard {shard}"
        )
    bottom.set(xlabel="seconds", ylabel="items")
    if history.killed:
        for axis in (top, bottom):
            axis.axvline(history.killed[0], color="C3", linestyle=":", label=f"shard {history.killed[1]} is killed")
    for axis in (top, bottom):
        axis.legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def print_summary(history: History) -> None:
    """Prints the table at the end."""
    back = history.back_after_s()
    rows = [
        ("learning took", f"{history.duration_s:.1f} s, {history.updates} updates"),
        ("played", f"{history.steps} steps, {len(history.episodes)} episodes"),
        ("killed shard", "did not come back" if back is None else f"had items again after {back:.1f} s"),
        ("return, first tenth", f"{history.mean_return(0.0, 0.1):.1f}"),
        ("return, last tenth", f"{history.mean_return(0.9, 1.0):.1f} as the actors played, with exploration"),
    ]
    print("\n" + "\n".join(f"  {name:<22} {value}" for name, value in rows) + "\n")


def verdict(history: History) -> int:
    """Returns the exit status: 0 if the agent learned and the killed shard came back."""
    learned = history.mean_return(0.9, 1.0) >= 2 * history.mean_return(0.0, 0.1)
    is_back = history.back_after_s() is not None
    if not learned:
        print("FAILED: the return has not doubled", file=sys.stderr)
    if not is_back:
        print("FAILED: the shard that was killed did not come back", file=sys.stderr)
    return 0 if learned and is_back else 1
