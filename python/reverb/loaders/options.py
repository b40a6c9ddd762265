"""What can be asked of a loader, whatever the framework."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from reverb import _checks

__all__ = ["LinearBeta", "Options"]


@dataclasses.dataclass(frozen=True)
class LinearBeta:
    """An exponent that goes in a straight line from `start` to `end`, and stays there (Schaul et al. 2016, §3.4).

    Attributes:
      start: For the first batch.
      end: From batch `num_batches` on.
      num_batches: How many batches it takes.
    """

    start: float
    end: float = 1.0
    num_batches: int = 100_000

    def __call__(self, batch: int) -> float:
        """The exponent for batch number `batch`, counted from 0."""
        return self.start + (self.end - self.start) * min(1.0, batch / max(1, self.num_batches))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How batches are drawn.

    Attributes:
      batch_size: Items of a batch.
      prefetch: Batches that are drawn ahead. They count as sampled, are `undelivered_samples` in the table's info, and
        go back to the table if the loader is closed first. With 0 a batch is drawn when it is asked for. None: 2, which
        hides the way to a server elsewhere, and the copy to a device; but 0 where the server is in the same process and
        no device gets batches ahead: there a batch is had soonest if the thread that asks for it draws it.
      timeout: Seconds that a batch may take once it is asked for; None: as long as it must.
      on_timeout: Whether a timeout that passes without any item is an error or the end of the data. A timeout that
        passes with some gives a short batch, unless `drop_remainder`.
      drop_remainder: Whether short batches are given back to their table instead.
      num_batches: The data end after so many; None: never.
      beta: Exponent of the importance weights, a number or a function of the number of the batch such as LinearBeta;
        None: no weights.
      fields: The parts of the data to keep, each a key (or an index, where the table has no signature) or a path of
        them; None: all. Parts of mappings and named tuples come in dicts.
      pad_to: Rows to which all columns with a time axis are padded with zeros, with a mask: a number; several, of
        which the smallest that is enough for the batch is taken, so that few shapes occur; or `longest`, the longest
        item of the batch. None: columns whose items differ in length come as `reverb.Ragged`.
      squeeze_time: Whether columns of items of one step lose their time axis.
      seed: Of the shares of a mixture in each batch; None: from the operating system.

    Raises:
      TypeError, ValueError: An option has no meaning.
    """

    batch_size: int
    prefetch: int | None = None
    timeout: float | None = None
    on_timeout: Literal["raise", "stop"] = "raise"
    drop_remainder: bool = False
    num_batches: int | None = None
    beta: float | Callable[[int], float] | None = None
    fields: Sequence[Any] | None = None
    pad_to: int | Sequence[int] | Literal["longest"] | None = None
    squeeze_time: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        _checks.as_count("batch_size", self.batch_size)
        if self.prefetch is not None:
            _check_not_negative("prefetch", self.prefetch)
        _checks.as_timeout(self.timeout)
        if self.on_timeout not in ("raise", "stop"):
            raise ValueError(f"`on_timeout` must be 'raise' or 'stop', got {self.on_timeout!r}.")
        if self.num_batches is not None:
            _check_not_negative("num_batches", self.num_batches)
        if self.beta is not None and not callable(self.beta):
            _check_beta(self.beta)
        if self.fields is not None and (isinstance(self.fields, str) or not self.fields):
            raise ValueError(f"`fields` must be a list of keys or paths, or None for all, got {self.fields!r}.")
        self.lengths()
        if self.pad_to is not None and self.squeeze_time:
            raise ValueError("`squeeze_time` drops the time axis along which `pad_to` pads: give one of the two.")

    def lengths(self) -> list[int]:
        """The lengths that `pad_to` allows, ascending; empty if any is allowed."""
        if self.pad_to is None or self.pad_to == "longest":
            return []
        if isinstance(self.pad_to, str):
            raise ValueError(f"`pad_to` must be a length, a list of lengths, 'longest' or None, got {self.pad_to!r}.")
        lengths = self.pad_to if isinstance(self.pad_to, Sequence) else [self.pad_to]
        if not lengths:
            raise ValueError("`pad_to` is an empty list of lengths.")
        return sorted(_checks.as_count("pad_to", length) for length in lengths)

    def beta_of(self, batch: int) -> float | None:
        """The exponent for batch number `batch`; None where there are to be no weights."""
        return float(self.beta(batch)) if callable(self.beta) else self.beta


def _check_not_negative(name: str, value: int) -> None:
    if value != 0:
        _checks.as_count(name, value)


def _check_beta(beta: object) -> None:
    if not _checks.as_float("beta", beta) >= 0:
        raise ValueError(f"`beta` must not be negative, got {beta!r}.")
