"""What keeps the changes of a server between its checkpoints."""

from __future__ import annotations

import dataclasses
from typing import Literal, cast

from reverb.data import checks

__all__ = ["MODES", "Durability", "as_durability"]

MODES = ("process", "power")
_SHORTEST_S, _LONGEST_S = 0.001, 1e9
# Two segments of the log, so that one is whole while the next one is written.
_SMALLEST_LOG = 128 << 20
_LARGEST_LOG = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Durability:
    """A log of all changes between checkpoints: what was confirmed is there after a crash.

    The log lies in the folder of the checkpoints. A server that starts again loads its newest checkpoint, and replays
    the log from there. docs/durability.md has the guarantees.

    Attributes:
      mode: What a confirmed change survives. `"process"`: any end of the server's process. `"power"`: also a loss of
        power, except that priority updates may then be older by `sync_interval`.
      sync_interval: Seconds after which what was written to the log is synced to the disk at the latest, from 0.001 to
        1e9; 1 by default. In mode `"process"`, a loss of power costs about what was confirmed in this time.
      max_log_bytes: Size of the log in bytes after which a checkpoint is saved and the log begins anew, 128 MiB at
        least. None, the default, means the size of the tables' data, or 1 GiB if that is larger.

    Raises:
      TypeError: The mode is not a str, the interval is not a number, or the size is not an int.
      ValueError: The mode is neither of the two, or a number is out of range.
    """

    mode: Literal["process", "power"]
    sync_interval: float = 1.0
    max_log_bytes: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str):
            checks.refuse("mode", "a str", self.mode)
        _check_mode("`mode`", self.mode)
        seconds = checks.as_float("sync_interval", self.sync_interval)
        if not _SHORTEST_S <= seconds <= _LONGEST_S:
            raise ValueError(
                f"`sync_interval` must be a number of seconds from {_SHORTEST_S} to {_LONGEST_S:.0f}, got {seconds}"
            )
        object.__setattr__(self, "sync_interval", seconds)
        if self.max_log_bytes is None:
            return
        size = checks.as_int("max_log_bytes", self.max_log_bytes)
        if not _SMALLEST_LOG <= size <= _LARGEST_LOG:
            raise ValueError(
                f"`max_log_bytes` must be None or at least {_SMALLEST_LOG} bytes, two segments of the log, and at most "
                f"{_LARGEST_LOG}, got {size}"
            )
        object.__setattr__(self, "max_log_bytes", size)


def as_durability(name: str, value: object) -> Durability | None:
    """Makes a Durability of its mode, and takes one as it is. None stays None.

    Raises:
      TypeError: The value is none of these.
      ValueError: There is no such mode.
    """
    if value is None or isinstance(value, Durability):
        return value
    if not isinstance(value, str):
        checks.refuse(name, '"process", "power" or a reverb.Durability', value)
    _check_mode(name, value)
    return Durability(cast(Literal["process", "power"], value))


def _check_mode(name: str, mode: str) -> None:
    if mode not in MODES:
        raise ValueError(
            f'{name} must be "process", which survives any end of the process, or "power", which also survives a loss '
            f"of power; got {mode!r}"
        )
