"""Output and exit statuses of the commands."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from reverb import _binding
from reverb.logging.escaping import escaped_lines

FAILED = 1
WRONG_USAGE = 2
DAMAGED = 3
NO_SERVER = 4


_report: Callable[[str], object] | None = None


def report_to(log: Callable[[str], object]) -> None:
    """Makes `fail` log errors with this function, in place of printing them."""
    global _report
    _report = log


def fail(error: BaseException | str, status: int) -> NoReturn:
    """Prints the error and exits with the status."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        error = f"{error.filename}: {error.strerror}"
    if _report is not None:
        _report(str(error))
    else:
        # The text may contain names that users chose.
        print(escaped_lines(f"reverb: {error}"), file=sys.stderr)
    sys.exit(status)


def is_folder(source: str) -> bool:
    """Whether the source of items is the folder of a checkpoint; otherwise it is the address of a server.

    Raises:
      ValueError: The source is a path, but not of a folder.
    """
    if os.path.isdir(source):
        return True
    if source.startswith(("/", "./", "../", "~")) or os.path.exists(source):
        raise ValueError(f"{source} is neither a folder nor the address of a server, such as localhost:8000")
    return False


def print_json(value: Any) -> None:
    """Prints a value as one line of JSON."""
    print(json.dumps(value, default=_plain, allow_nan=True), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def limiter_text(limiter: Any) -> str:
    """What the rate limiter of a `RateLimiterInfo` message is for, in words."""
    bounds = limiter.min_diff, limiter.max_diff
    return _binding.limiter_rule((limiter.samples_per_insert, limiter.min_size_to_sample, *bounds))


def human_bytes(count: float) -> str:
    """A number of bytes with a unit, such as `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


# The styles of the levels of a verdict, from the best to the worst.
LEVELS = {"good": "green", "quiet": "", "warning": "yellow", "alarm": "red"}


def selector_text(options: Any) -> str:
    """The name of the selector in a `KeyDistributionOptions` message."""
    kind = options.WhichOneof("distribution")
    if kind == "prioritized":
        return f"prioritized({options.prioritized.priority_exponent:g})"
    if kind == "heap":
        return "min_heap" if options.heap.min_heap else "max_heap"
    return str(kind)
