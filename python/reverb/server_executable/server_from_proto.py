"""Creates tables from the messages of a server's configuration."""

import logging
from collections.abc import Iterable
from typing import Any

from reverb import item_selectors, rate_limiters
from reverb.server import Table

__all__ = ["rate_limiter_from_proto", "selector_from_proto", "tables_from_proto"]

_logger = logging.getLogger("reverb")


def selector_from_proto(s: Any) -> item_selectors.Selector:
    """Creates a selector from a `KeyDistributionOptions` message.

    Raises:
      NotImplementedError: `distribution` is not set.
      ValueError: A selector is named, but its value is false.
    """
    kind = s.WhichOneof("distribution")
    if kind is None:
        raise NotImplementedError("distribution=None")
    if kind in ("fifo", "lifo", "uniform") and not getattr(s, kind):
        raise ValueError(f"distribution={kind} but the associated boolean value is false.")
    return item_selectors.selector_from_proto(s)


def rate_limiter_from_proto(proto: Any) -> rate_limiters.RateLimiter:
    """Creates a rate limiter from a `RateLimiterCheckpoint` message.

    Raises:
      ValueError: `samples_per_insert` or `min_size_to_sample` is not positive.
    """
    return rate_limiters.RateLimiter(proto.samples_per_insert, proto.min_size_to_sample, proto.min_diff, proto.max_diff)


def tables_from_proto(configs: Iterable[Any]) -> list[Table]:
    """Creates tables from `PriorityTableCheckpoint` messages, ignoring their items, counters and signatures.

    Raises:
      NotImplementedError, ValueError: A message does not describe a table. The error says which one, and why.
    """
    return [_table(position, message) for position, message in enumerate(configs)]


def _table(position: int, message: Any) -> Table:
    place = f"tables[{position}]" + (f" ({message.table_name!r})" if message.table_name else "")
    if message.HasField("rate_limiter") and message.rate_limiter.min_diff == message.rate_limiter.max_diff:
        _logger.warning(
            "%s: min_diff and max_diff are both %g, so inserts and samples will soon wait for each other forever",
            place,
            message.rate_limiter.max_diff,
        )
    try:
        if not message.HasField("rate_limiter"):
            raise ValueError("rate_limiter is missing")
        return Table(
            name=message.table_name,
            sampler=_selector("sampler", message.sampler),
            remover=_selector("remover", message.remover),
            max_size=message.max_size,
            max_times_sampled=message.max_times_sampled,
            rate_limiter=rate_limiter_from_proto(message.rate_limiter),
        )
    except (NotImplementedError, ValueError, TypeError) as error:
        raise type(error)(f"{place}: {error}") from None


def _selector(role: str, message: Any) -> item_selectors.Selector:
    try:
        return selector_from_proto(message)
    except (NotImplementedError, ValueError) as error:
        raise type(error)(f"{role}: {error}") from None
