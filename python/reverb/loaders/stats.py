"""Where the time of a learner goes."""

import dataclasses
import time

__all__ = ["LoaderStats", "StatsClock"]


@dataclasses.dataclass
class LoaderStats:
    """Counts since the loader was made. Times are seconds of the thread that asks for batches.

    The four times add up to the time from the first batch asked for to the last one given: `limiter_s` large means that
    actors are too slow, `network_s` that the road is, `convert_s` that padding or copies to a device are, and
    `learner_s` that the loader is not what anybody waits for.

    Attributes:
      batches: Given to the learner.
      samples: In these.
      limiter_s: Waiting while the table let no sample go.
      network_s: Waiting while a batch was gathered or on its way, for whatever reason but the limiter; in the same
        process, drawing it.
      convert_s: Padding, stacking of mixtures, arrays of the framework.
      learner_s: Between a batch given and the next one asked for.
      undelivered: Samples that are drawn, or asked for, and not given to the learner.
    """

    batches: int = 0
    samples: int = 0
    limiter_s: float = 0.0
    network_s: float = 0.0
    convert_s: float = 0.0
    learner_s: float = 0.0
    undelivered: int = 0


class StatsClock:
    """Adds up the times of a LoaderStats."""

    def __init__(self) -> None:
        self.stats = LoaderStats()
        self._mark: float | None = None

    def asked(self) -> None:
        """The learner asks for a batch."""
        now = time.perf_counter()
        if self._mark is not None:
            self.stats.learner_s += now - self._mark
        self._mark = now

    def arrived(self, limiter_s: float, total_s: float) -> None:
        """A batch, or the news that there is none, has been waited for.

        Args:
          limiter_s: Of the draw's whole time, which may have begun before the batch was asked for.
          total_s: The draw's whole time.
        """
        waited = self._lap()
        # The draw waits for its table first. What of that was over when the learner asked has cost it nothing.
        before = max(0.0, total_s - waited)
        limiter = min(waited, max(0.0, limiter_s - before))
        self.stats.limiter_s += limiter
        self.stats.network_s += waited - limiter

    def converted(self) -> None:
        """A batch that had arrived has the form in which it is given."""
        self.stats.convert_s += self._lap()

    def at_once(self, asked: float, arrived: float, samples: int) -> None:
        """A batch was drawn without waiting, and goes to the learner now.

        Args:
          asked: When the learner asked for it, in seconds of `time.perf_counter`.
          arrived: When its columns were there.
          samples: Items of the batch.
        """
        stats, now = self.stats, time.perf_counter()
        if self._mark is not None:
            stats.learner_s += asked - self._mark
        stats.network_s += arrived - asked
        stats.convert_s += now - arrived
        stats.batches += 1
        stats.samples += samples
        self._mark = now

    def given(self, samples: int) -> None:
        """A batch goes to the learner."""
        self.stats.batches += 1
        self.stats.samples += samples

    def _lap(self) -> float:
        now = time.perf_counter()
        lap = 0.0 if self._mark is None else now - self._mark
        self._mark = now
        return lap
