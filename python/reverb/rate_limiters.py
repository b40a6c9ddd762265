"""Rate limiters: when a table lets inserts and samples go.

With I inserts and S samples so far, a sample may go if the table holds `min_size_to_sample` items and
`I * samples_per_insert - S` stays at or above `min_diff`; an insert may go if that difference stays at or below
`max_diff`, or the table holds fewer than `min_size_to_sample` items.
"""

import logging
import math
import sys
import weakref
from typing import Any

from reverb import _checks

__all__ = ["MinSize", "Queue", "RateLimiter", "SampleToInsertRatio", "Stack"]

_logger = logging.getLogger("reverb")
_UNBOUNDED = sys.float_info.max


class RateLimiter:
    """The general limiter. A limiter belongs to one table.

    Args:
      samples_per_insert: Samples that each insert pays for.
      min_size_to_sample: Items the table must hold before a sample may go.
      min_diff: The lowest value that `inserts * samples_per_insert - samples` may have after a sample.
      max_diff: The highest value that it may have after an insert.

    Raises:
      TypeError: An argument is not a number, or `min_size_to_sample` is not an int of 32 bits.
      ValueError: `samples_per_insert` or `min_size_to_sample` is not positive, or an argument is NaN.
    """

    def __init__(self, samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float) -> None:
        self._samples_per_insert = _checks.as_float("samples_per_insert", samples_per_insert)
        self._min_size_to_sample = _checks.as_int32("min_size_to_sample", min_size_to_sample)
        self._min_diff = _checks.as_float("min_diff", min_diff)
        self._max_diff = _checks.as_float("max_diff", max_diff)
        self._owner: weakref.ref[Any] | None = None
        if not self._samples_per_insert > 0:
            raise ValueError(f"samples_per_insert ({samples_per_insert}) must be > 0")
        _check_min_size(self._min_size_to_sample)
        if math.isnan(self._min_diff) or math.isnan(self._max_diff):
            raise ValueError(f"min_diff ({min_diff}) and max_diff ({max_diff}) must not be NaN")

    @property
    def internal_limiter(self) -> tuple[float, int, float, float]:
        """The four parameters, as the extension takes them."""
        return self._samples_per_insert, self._min_size_to_sample, self._min_diff, self._max_diff

    def __reduce__(self) -> tuple[Any, ...]:
        return RateLimiter, self.internal_limiter

    def __repr__(self) -> str:
        return (
            f"RateLimiter(samples_per_insert={self._samples_per_insert:g}, min_diff_={self._min_diff:g}, "
            f"max_diff={self._max_diff:g}, min_size_to_sample={self._min_size_to_sample})"
        )


class MinSize(RateLimiter):
    """Samples wait until the table holds `min_size_to_sample` items; inserts never wait.

    Args:
      min_size_to_sample: At least 1.

    Raises:
      TypeError: Not an int.
      ValueError: Below 1.
    """

    def __init__(self, min_size_to_sample: int) -> None:
        _check_min_size(min_size_to_sample)
        super().__init__(1.0, min_size_to_sample, -_UNBOUNDED, _UNBOUNDED)


class SampleToInsertRatio(RateLimiter):
    """Keeps the number of samples near `samples_per_insert` times the number of inserts.

    Args:
      samples_per_insert: The ratio, above 0.
      min_size_to_sample: Items the table must hold before a sample may go, at least 1.
      error_buffer: How far samples may run ahead or behind, in samples, counted from
        `samples_per_insert * min_size_to_sample`; or `(min_diff, max_diff)` themselves.

    Raises:
      TypeError: An argument is not a number.
      ValueError: A number is out of range, or the buffer is so small or so high that the table would block for ever.
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
    """Each item is sampled once, and inserts wait while `size` items wait. For `Table.queue`.

    Args:
      size: Items that may wait.
    """

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, size)


class Stack(RateLimiter):
    """Likewise, for `Table.stack`.

    Args:
      size: Items that may wait.
    """

    def __init__(self, size: int) -> None:
        super().__init__(1.0, 1, 0.0, size)


def _check_min_size(min_size_to_sample: int) -> None:
    if min_size_to_sample < 1:
        raise ValueError(f"min_size_to_sample ({min_size_to_sample}) must be a positive integer")
