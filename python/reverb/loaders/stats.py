"""How a learner's time is spent."""

import dataclasses


@dataclasses.dataclass
class LoaderStats:
    """Counts since the loader was made. Times are seconds in the thread that asks for batches.

    The four times add up to the time from the first request for a batch to the last delivery. A large `limiter_s` means
    that actors are too slow, a large `network_s` that the connection is, and a large `convert_s` that padding or copies
    to a device are. A large `learner_s` means that the loader is not the bottleneck.

    Attributes:
      batches: Number of batches delivered to the learner.
      samples: Number of samples in these batches.
      limiter_s: Seconds of waiting while the rate limiter let no sample go.
      network_s: Seconds of waiting for a batch for any other reason, while it was gathered or on its way; with a server
        in the same process, seconds of drawing it.
      convert_s: Seconds spent on padding, joining the draws of a mixture and making the framework's arrays.
      learner_s: Seconds between the delivery of a batch and the request for the next one.
      undelivered: Number of samples that are drawn or requested, but not delivered to the learner yet.
    """

    batches: int = 0
    samples: int = 0
    limiter_s: float = 0.0
    network_s: float = 0.0
    convert_s: float = 0.0
    learner_s: float = 0.0
    undelivered: int = 0
