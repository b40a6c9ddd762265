"""Reports on a run: a line every few seconds, and a picture and a table at the end."""

from __future__ import annotations

import csv
import pathlib

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import config as cfg
from learner import History


def samples_per_insert(inserts: int, samples: int, config: cfg.Config) -> float:
    """The samples for each insert after the first `min_size_to_sample`, as the limiter counts them."""
    return samples / max(1, inserts - config.min_size_to_sample)


def items_ahead(inserts: float, samples: float, config: cfg.Config) -> float:
    """The items by which the actors are ahead of the ratio that was asked for; the learner is ahead where negative."""
    return inserts - config.min_size_to_sample - samples / config.samples_per_insert


def most_ahead(config: cfg.Config) -> float:
    """The items by which the limiter lets either side be ahead; then it must wait for the other."""
    return config.error_buffer / config.samples_per_insert


def print_progress(history: History, config: cfg.Config, current_size: int) -> None:
    """Prints one line. It ends in a newline, so that a log stays readable."""
    now, inserts, samples = history.ratio[-1]
    earlier = [look for look in history.ratio if look[0] <= now - config.report_every_s]
    before, inserts_before, samples_before = earlier[-1] if earlier else (0.0, 0, 0)
    interval = max(now - before, 1e-9)
    returns = history.last_returns()
    print(
        f"{now:5.0f} s  update {history.updates:6d}/{config.num_updates}"
        f"  return {np.mean(returns) if returns else 0.0:5.1f}  items {current_size:6d}"
        f"  samples per insert {samples_per_insert(inserts, samples, config):5.2f}"
        f"  {(inserts - inserts_before) / interval:6.0f} items/s in"
        f"  {(samples - samples_before) / interval:7.0f} items/s out",
        flush=True,
    )


def ratio_held(history: History, config: cfg.Config) -> bool:
    """Whether neither side was further ahead than the limiter allows, at every measurement after the first sample."""
    ahead = [items_ahead(inserts, samples, config) for _, inserts, samples in history.ratio if samples]
    return bool(ahead) and all(abs(items) <= most_ahead(config) for items in ahead)


def save_picture(path: pathlib.Path, history: History, config: cfg.Config) -> None:
    """Plots the learning curve, and below it which side is ahead, in the band that the limiter allows."""
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 7), sharex=True, layout="constrained")
    times, returns = (np.asarray(column) for column in zip(*history.episodes, strict=True))
    top.plot(times, returns, ".", markersize=3, color="0.7", label="episode")
    window = np.ones(20) / 20
    if len(returns) >= 20:
        top.plot(times[19:], np.convolve(returns, window, "valid"), color="C0", label="mean of 20 episodes")
    top.axhline(500, color="0.5", linewidth=0.8, linestyle=":")
    top.set(ylabel="return", ylim=(0, 520), title=f"CartPole-v1, {config.num_actors} actors, seed {config.seed}")
    top.legend(loc="lower right", frameon=False)

    now, inserts, samples = (np.asarray(column, float) for column in zip(*history.ratio, strict=True))
    band = most_ahead(config)
    bottom.axhspan(-band, band, color="C1", alpha=0.2)
    bottom.axhline(0, color="C1", linewidth=0.8, label=f"{config.samples_per_insert:g} samples per insert")
    begun = samples > 0
    bottom.plot(now[begun], items_ahead(inserts, samples, config)[begun], color="C0", label="measured")
    for edge, words, side in (
        (band, "actors wait for the learner", "bottom"),
        (-band, "the learner waits for actors", "top"),
    ):
        bottom.annotate(words, (0.02, edge), xycoords=("axes fraction", "data"), ha="left", va=side, color="0.4")
    bottom.set(xlabel="seconds", ylabel="items  (learner ahead  \N{LEFT RIGHT ARROW}  actors ahead)")
    bottom.set(ylim=(-1.3 * band, 1.3 * band))
    bottom.legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def save_episodes(path: pathlib.Path, history: History) -> None:
    """Writes the learning curve as numbers."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "return"])
        writer.writerows((f"{time:.3f}", f"{value:.0f}") for time, value in history.episodes)


def print_summary(history: History, greedy: list[float], config: cfg.Config) -> None:
    """Prints the table at the end."""
    _, inserts, samples = history.ratio[-1]
    ahead = items_ahead(inserts, samples, config)
    rows = [
        ("learning took", f"{history.duration_s:.1f} s, {history.updates} updates of {config.batch_size}"),
        ("episodes", f"{len(history.episodes)} by {config.num_actors} actors"),
        ("items inserted", f"{inserts} ({inserts / history.duration_s:.0f}/s)"),
        ("items sampled", f"{samples} ({samples / history.duration_s:.0f}/s)"),
        (
            "samples per insert",
            f"{samples_per_insert(inserts, samples, config):.2f}, asked for {config.samples_per_insert:g}",
        ),
        (
            "limiter",
            f"{'actors' if ahead >= 0 else 'learner'} {abs(ahead):.0f} items ahead, allowed {most_ahead(config):.0f}"
            f" ({'held' if ratio_held(history, config) else 'NOT held'} at {len(history.ratio)} looks)",
        ),
        ("return, first 20 episodes", f"{np.mean([value for _, value in history.episodes[:20]]):.1f}"),
        (
            "return, last 20 episodes",
            f"{np.mean(history.last_returns()):.1f} as the actors played them, epsilon {config.epsilon_end}",
        ),
        ("return, final parameters", f"{np.mean(greedy):.1f} over {len(greedy)} greedy episodes afterwards"),
    ]
    print("\n" + "\n".join(f"  {name:<26} {value}" for name, value in rows) + "\n")
