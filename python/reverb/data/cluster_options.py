"""How a client uses several servers as one buffer."""

import dataclasses
import math

from reverb.data import checks

__all__ = ["SHARD_TIMEOUT", "ClusterOptions"]

_PLACEMENTS = ("episode", "writer")
_LOSSES = ("continue", "wait", "raise")
# limit (Connections and calls): time after which a shard of a cluster that does not answer is missing | {:time} | what
# `on_shard_loss=` says becomes of the call | `shard_timeout=` of `reverb.cluster.connect`
SHARD_TIMEOUT = 5.0
# A shard holds what it has raced for twice this time.
_MOST_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True)
class ClusterOptions:
    """How a client uses several servers, the shards of a cluster, as one buffer.

    Attributes:
      placement: When a writer chooses its shard: at each `"episode"`, or once for a `"writer"`.
      on_shard_loss: What becomes of calls while a shard is missing: `"continue"` with the others, `"wait"` for it, or
        `"raise"`.
      shard_timeout: Time in seconds after which a shard that does not answer is missing.

    Raises:
      TypeError: The timeout is not a number.
      ValueError: A value is none of these, or the timeout is not above 0 and at most an hour.
    """

    placement: str = "episode"
    on_shard_loss: str = "continue"
    shard_timeout: float = SHARD_TIMEOUT

    def __post_init__(self) -> None:
        for name, choices in (("placement", _PLACEMENTS), ("on_shard_loss", _LOSSES)):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        seconds = checks.as_float("shard_timeout", self.shard_timeout)
        if not (math.isfinite(seconds) and 0 < seconds <= _MOST_SECONDS):
            raise ValueError(f"shard_timeout must be above 0 and at most {_MOST_SECONDS:.0f} seconds, got {seconds}")
        object.__setattr__(self, "shard_timeout", seconds)
