"""Where the time of a learner goes."""

import dataclasses

__all__ = ["LoaderStats"]


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
