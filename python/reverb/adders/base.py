"""What the adders share: the writer, which is created with the first step, and flags of environments."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb.client import Client
from reverb.data import checks

__all__ = ["AdderBase", "as_flags", "as_present"]

_Adder = TypeVar("_Adder", bound="AdderBase")


class AdderBase:
    """Base class of adders whose writer is created with the first step, when the structure is known."""

    def __init__(self, client: Client, num_envs: int | None) -> None:
        self._client = client
        self._num_envs = None if num_envs is None else checks.as_count("num_envs", num_envs)
        self._writer: Any = None

    def __enter__(self: _Adder) -> _Adder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, traceback)

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Waits until the items are in their tables; see `TrajectoryWriter.flush`.

        Args:
          block_until_num_items: Number of items that may stay unconfirmed, at least 0.
          timeout_ms: Time limit in milliseconds; None waits as long as the tables' rate limiters block.
        """
        if self._writer is not None:
            self._writer.flush(block_until_num_items, timeout_ms)

    def close(self) -> None:
        """Closes the writer; see `TrajectoryWriter.close`."""
        if self._writer is not None:
            self._writer.close()

    def _append(
        self, step: Any, ends: ArrayLike, present: NDArray[np.bool_] | None, configs: Callable[[], Sequence[Any]]
    ) -> None:
        if self._num_envs is not None:
            if self._writer is None:
                self._writer = self._client.batched_writer(self._num_envs, configs=configs())
            self._writer.append(step, episode_end=self._each(ends), mask=present)
            return
        if self._writer is None:
            self._writer = self._client.structured_writer(configs())
        self._writer.append(step)
        if ends:
            self._end_episode()

    def _end_episode(self) -> None:
        self._writer.end_episode()

    def _each(self, flags: ArrayLike) -> NDArray[np.bool_]:
        return as_flags(flags, self._num_envs or 1)

    def _present(self, mask: ArrayLike | None) -> NDArray[np.bool_] | None:
        return as_present(mask, self._num_envs)


def as_flags(flags: ArrayLike, num_envs: int) -> NDArray[np.bool_]:
    """One flag for each environment."""
    each: NDArray[np.bool_] = np.broadcast_to(np.asarray(flags, np.bool_), (num_envs,)).copy()
    return each


def as_present(mask: ArrayLike | None, num_envs: int | None) -> NDArray[np.bool_] | None:
    """A flag for each environment that has a step; None if all have one."""
    if mask is None:
        return None
    if num_envs is None:
        raise ValueError("`mask` requires a vector of environments, but this adder was made without `num_envs`.")
    return as_flags(mask, num_envs)
