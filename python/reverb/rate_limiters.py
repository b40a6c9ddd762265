"""Rate limiters decide when the inserts and samples of a table may proceed.

With I inserts and S samples so far, a sample may proceed if the table holds at least `min_size_to_sample` items and
`I * samples_per_insert - S` stays at or above `min_diff`. An insert may proceed if that difference stays at or below
`max_diff`, or if the table holds fewer than `min_size_to_sample` items.
"""

import logging
import math
import sys
import weakref
from typing import Any

from reverb.data import checks

__all__ = ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"]

_logger = logging.getLogger("reverb")
_UNBOUNDED = sys.float_info.max


class RateLimiter:
    """The general rate limiter. A rate limiter can belong to only one table.

    Args:
      samples_per_insert: Number of samples that each insert allows, above 0.
      min_size_to_sample: Number of items that the table must hold before a sample may proceed, at least 1.
      min_diff: Lowest value that `inserts * samples_per_insert - samples` may have after a sample.
      max_diff: Highest value that `inserts * samples_per_insert - samples` may have after an insert.

    Raises:
      TypeError: An argument is not a number, or `min_size_to_sample` is not an int that fits into 32 bits.
      ValueError: `samples_per_insert` or `min_size_to_sample` is not positive, or an argument is NaN.
    """

    def __init__(self, samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float) -> None:
        self._samples_per_insert = checks.as_float("samples_per_insert", samples_per_insert)
        self._min_size_to_sample = checks.as_int32("min_size_to_sample", min_size_to_sample)
        self._min_diff = checks.as_float("min_diff", min_diff)
        self._max_diff = checks.as_float("max_diff", max_diff)
        self._owner: weakref.ref[Any] | None = None
        if not self._samples_per_insert > 0:
            raise ValueError(f"samples_per_insert ({samples_per_insert}) must be > 0")
        _check_min_size(self._min_size_to_sample)
        if math.isnan(self._min_diff) or math.isnan(self._max_diff):
            raise ValueError(f"min_diff ({min_diff}) and max_diff ({max_diff}) must not be NaN")

    @property
    def internal_limiter(self) -> tuple[float, int, float, float]:
        """The four parameters, in the form that the extension expects."""
        return self._samples_per_insert, self._min_size_to_sample, self._min_diff, self._max_diff

    def __reduce__(self) -> tuple[Any, ...]:
        return RateLimiter, self.internal_limiter

    def __repr__(self) -> str:
        return (
            f"RateLimiter(samples_per_insert={self._samples_per_insert:g}, min_diff_={self._min_diff:g}, "
            f"max_diff={self._max_diff:g}, min_size_to_sample={self._min_size_to_sample})"
        )


class MinSize(RateLimiter):
    """Samples wait until the table holds `min_size_to_sample` items. Inserts never wait.

    Args:
      min_size_to_sample: Number of items that the table must hold before a sample may proceed, at least 1.

    Raises:
      TypeError: `min_size_to_sample` is not an int.
      ValueError: `min_size_to_sample` is below 1.
    """

    def __init__(self, min_size_to_sample: int) -> None:
        _check_min_size(min_size_to_sample)
        super().__init__(1.0, min_size_to_sample, -_UNBOUNDED, _UNBOUNDED)


class SampleToInsertRatio(RateLimiter):
    """Keeps the number of samples near `samples_per_insert` times the number of inserts.

    Args:
      samples_per_insert: Target ratio of samples to inserts, above 0.
      min_size_to_sample: Number of items that the table must hold before a sample may proceed, at least 1.
      error_buffer: Number of samples by which `inserts * samples_per_insert - samples` may deviate, in either
        direction, from `samples_per_insert * min_size_to_sample`; or the pair `(min_diff, max_diff)` of its bounds.

    Raises:
      TypeError: An argument is not a number.
      ValueError: A number is out of range, or the buffer is so small or so high that the table would block forever.
    """

    def __init__(
        self, samples_per_insert: float, min_size_to_sample: int, error_buffer: float | tuple[float, float]
    ) -> None:
        offset = samples_per_insert * min_size_to_sample
        if isinstance(error_buffer, (int, float)):
            min_diff, max_diff = offset - error_buffer, offset + error_buffer
        else:
            min_diff, max_diff = error_buffer
        if samples_per_insert <= 0:
            raise ValueError(f"samples_per_insert ({samples_per_insert}) must be > 0")
        if max_diff - min_diff < 2 * max(1.0, samples_per_insert):
            raise ValueError(
                "The size of error_buffer must be >= max(1.0, samples_per_insert) as smaller values could completely "
                "block samples and/or insert calls."
            )
        if max_diff < offset:
            _logger.warning(
                "The range covered by error_buffer is below samples_per_insert * min_size_to_sample. If the sampler "
                "cannot sample concurrently, this will result in a deadlock as soon as min_size_to_sample items have "
                "been inserted."
            )
        if min_diff > offset:
            raise ValueError(
                "The range covered by error_buffer is above samples_per_insert * min_size_to_sample. This will result "
                "in a deadlock as soon as min_size_to_sample items have been inserted."
            )
        _check_min_size(min_size_to_sample)
        super().__init__(samples_per_insert, min_size_to_sample, min_diff, max_diff)


class Queue(RateLimiter):
    """Each item is sampled exactly once, and inserts wait while the table holds `size` items. Used by `Table.queue`.

    Args:
      size: Maximum number of items that have not been sampled, at least 1.
    """

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, size)


class Stack(RateLimiter):
    """Each item is sampled exactly once, and inserts wait while the table holds `size` items. Used by `Table.stack`.

    Args:
      size: Maximum number of items that have not been sampled, at least 1.
    """

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, size)


def _check_min_size(min_size_to_sample: int) -> None:
    if min_size_to_sample < 1:
        raise ValueError(f"min_size_to_sample ({min_size_to_sample}) must be a positive integer")
