"""The options of loaders of all frameworks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from reverb.data import checks
from reverb.data.shown_options import shows_options
from reverb.data.timeouts import as_reconnect_timeout


@dataclasses.dataclass(frozen=True)
class LinearBeta:
    """An exponent that changes linearly from `start` to `end`, and then stays (Schaul et al. 2016, §3.4).

    Attributes:
      start: The exponent for the first batch.
      end: The exponent from batch `num_batches` on.
      num_batches: The number of batches until the exponent is `end`.
    """

    start: float
    end: float = 1.0
    num_batches: int = 100_000

    def __call__(self, batch: int) -> float:
        """The exponent for batch number `batch`, counted from 0."""
        return self.start + (self.end - self.start) * min(1.0, batch / max(1, self.num_batches))


class _RequiredArguments(TypedDict):
    batch_size: int


class LoaderArguments(_RequiredArguments, total=False):
    """The fields of Options as arguments, for type checkers. A test compares the two."""

    prefetch: int | None
    timeout: float | None
    reconnect_timeout: float
    on_timeout: Literal["raise", "stop"]
    drop_remainder: bool
    num_batches: int | None
    beta: float | Callable[[int], float] | None
    fields: Sequence[Any] | None
    pad_to: int | Sequence[int] | Literal["longest"] | None
    mask_per_column: bool
    squeeze_time: bool
    shares: Literal["exact", "random"]
    seed: int | None
    receipt: Literal["now", "next"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How a loader draws batches.

    Attributes:
      batch_size: The number of items in a batch.
      prefetch: The number of batches that are drawn ahead. They count as sampled, are `undelivered_samples` in the
        table's info, and go back to the table if the loader is closed first. With 0 a batch is drawn when it is
        requested. None: 2, which hides the latency of a server in another process and of copies to a device; but 0 if
        the server is in the same process and batches are not put on a device ahead, since the requesting thread then
        gets a batch soonest by drawing it.
      timeout: The number of seconds that a batch may take after it is requested, with the connection to the server,
        which may take half a second in any case; None: there is no limit for a batch, and one of 10 s for a connection.
      reconnect_timeout: The number of seconds for which the loader tries to reach a server in another process that it
        lost; 300 by default. The timeout of the batch applies as well.
      on_timeout: Whether a timeout that passes without any item is an error or the end of the data. A timeout that
        passes with some items gives a short batch, unless `drop_remainder` is set. A server that cannot be reached is
        an error in any case.
      drop_remainder: Whether short batches are given back to their table instead.
      num_batches: The number of batches after which the data end; None: the data do not end.
      beta: The exponent of the importance weights, a number or a function of the number of the batch such as
        LinearBeta; None: batches have no weights.
      fields: The parts of the data to keep, each a key (an index if the table has no signature) or a path of keys;
        None: all parts. Parts of mappings and named tuples are in dicts.
      pad_to: The number of rows to which all columns with a time axis are padded with zeros, with a mask. It may be a
        number; several numbers, of which the smallest that is sufficient for the batch is used, so that few shapes
        occur; or `longest`, the rows of the longest item of the batch. None: columns whose signature leaves the number
        of rows open are `reverb.Ragged`, and without a signature those whose items differ in length.
      mask_per_column: Whether padded batches have a mask for each column, since the columns of an item may differ in
        their numbers of rows. Otherwise they have one mask, and a batch with such an item is an error.
      squeeze_time: Whether columns of items of one step lose their time axis.
      shares: Whether each table of a mixture has exactly its share of every batch, or only on average. `exact`: where
        the weights do not divide the batch, shares are rounded, and later batches make up for it. `random`: the table
        of each item is drawn by weight.
      seed: The seed of random shares of a mixture; None: a seed from the operating system.
      receipt: When a batch counts as received, so that its samples do not go back to their tables: when the loader
        returns it (`now`), or when the following one is asked for or the loader is closed (`next`). With `next`, the
        samples of a learner that is killed during a step are drawn again. A server of this process ends with it in any
        case.

    Raises:
      TypeError, ValueError: An option has an invalid value.
    """

    batch_size: int
    prefetch: int | None = None
    timeout: float | None = None
    reconnect_timeout: float = 300.0
    on_timeout: Literal["raise", "stop"] = "raise"
    drop_remainder: bool = False
    num_batches: int | None = None
    beta: float | Callable[[int], float] | None = None
    fields: Sequence[Any] | None = None
    pad_to: int | Sequence[int] | Literal["longest"] | None = None
    mask_per_column: bool = False
    squeeze_time: bool = False
    shares: Literal["exact", "random"] = "exact"
    seed: int | None = None
    receipt: Literal["now", "next"] = "now"

    def __post_init__(self) -> None:
        checks.as_count("batch_size", self.batch_size)
        if self.prefetch is not None:
            _check_not_negative("prefetch", self.prefetch)
        checks.as_timeout(self.timeout)
        as_reconnect_timeout(self.reconnect_timeout)
        if self.on_timeout not in ("raise", "stop"):
            raise ValueError(f"`on_timeout` must be 'raise' or 'stop', got {self.on_timeout!r}.")
        if self.shares not in ("exact", "random"):
            raise ValueError(f"`shares` must be 'exact' or 'random', got {self.shares!r}.")
        if self.receipt not in ("now", "next"):
            raise ValueError(f"`receipt` must be 'now' or 'next', got {self.receipt!r}.")
        if self.num_batches is not None:
            _check_not_negative("num_batches", self.num_batches)
        if self.beta is not None and not callable(self.beta):
            _check_beta(self.beta)
        if self.fields is not None and (isinstance(self.fields, str) or not self.fields):
            raise ValueError(f"`fields` must be a list of keys or paths, or None for all, got {self.fields!r}.")
        self.lengths()
        if self.mask_per_column and self.pad_to is None:
            raise ValueError("`mask_per_column` is for padded batches: give `pad_to` as well.")
        if self.pad_to is not None and self.squeeze_time:
            raise ValueError("`squeeze_time` drops the time axis along which `pad_to` pads: give one of the two.")

    @classmethod
    def of(cls, loader: str, options: Mapping[str, Any], own: Sequence[str] = ()) -> Options:
        """The options that a loader was given by name.

        Args:
          loader: Name of the loader, for error messages.
          options: The arguments of its constructor that it does not know itself.
          own: Names of the options that only this loader has, for error messages.

        Raises:
          TypeError, ValueError: An option is unknown, missing or invalid.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [repr(name) for name in options if name not in known]
        if unknown:
            raise TypeError(f"{loader} has no option {', '.join(unknown)}; it has: {', '.join([*known, *own])}")
        if "batch_size" not in options:
            raise TypeError(f"{loader} needs `batch_size`, the number of items in a batch")
        return cls(**options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickles of earlier releases lack the options that were added since.
        self.__dict__.update({field.name: state.get(field.name, field.default) for field in dataclasses.fields(self)})

    def length(self) -> int:
        """The number of batches of a loader.

        Raises:
          TypeError: The data do not end.
        """
        if self.num_batches is None:
            raise TypeError("a loader without `num_batches` has no length: its data do not end.")
        return self.num_batches

    def lengths(self) -> list[int]:
        """The lengths that `pad_to` allows, ascending; empty if any is allowed."""
        if self.pad_to is None or self.pad_to == "longest":
            return []
        if isinstance(self.pad_to, str):
            raise ValueError(f"`pad_to` must be a length, a list of lengths, 'longest' or None, got {self.pad_to!r}.")
        lengths = self.pad_to if isinstance(self.pad_to, Sequence) else [self.pad_to]
        if not lengths:
            raise ValueError("`pad_to` is an empty list of lengths.")
        return sorted(checks.as_count("pad_to", length) for length in lengths)

    def beta_of(self, batch: int) -> float | None:
        """The exponent for batch number `batch`; None if batches have no weights."""
        return float(self.beta(batch)) if callable(self.beta) else self.beta


shows_loader_options = shows_options(Options, "Options")
"""Shows the options in the signature and help of loaders, which take them as `**options`."""


def _check_not_negative(name: str, value: int) -> None:
    if value != 0:
        checks.as_count(name, value)


def _check_beta(beta: object) -> None:
    if not checks.as_float("beta", beta) >= 0:
        raise ValueError(f"`beta` must not be negative, got {beta!r}.")
