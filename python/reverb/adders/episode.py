"""Whole episodes."""

from types import TracebackType
from typing import Any

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb.adders.base import as_flags, as_present
from reverb.client import Client
from reverb.data import checks

__all__ = ["EpisodeAdder"]


class EpisodeAdder:
    """Creates one item, with a time axis, from each whole episode, for offline and Monte Carlo methods.

    (Sutton and Barto 2018, "Reinforcement learning", ch. 5.)

    Args:
      client: Client for the server that holds the table.
      table: Name of the table for the items.
      max_length: Number of steps in the longest episode, at least 1. The writer keeps this many steps.
      priority: Priority of new items, 1 by default.
      num_envs: Number of environments in the vector; None for a single environment.

    Raises:
      ValueError: A number is below 1.
    """

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

    def __init__(
        self, client: Client, table: str, *, max_length: int, priority: float = 1.0, num_envs: int | None = None
    ) -> None:
        self._table = table
        self._priority = priority
        self._max_length = checks.as_count("max_length", max_length)
        # A single environment is handled as a vector of one.
        self._is_vector = num_envs is not None
        self._num_envs = 1 if num_envs is None else checks.as_count("num_envs", num_envs)
        self._writer = client.batched_writer(self._num_envs, self._max_length)

    def __enter__(self) -> "EpisodeAdder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, traceback)

    def add(self, step: Any, *, last: ArrayLike = False, mask: ArrayLike | None = None) -> None:
        """Adds a step. The last step of an episode creates the item.

        Args:
          step: Nest of the arrays of the step. With `num_envs` all arrays have a first axis of that length.
          last: Whether the episode ends with this step; with `num_envs`, bools `[num_envs]`.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.

        Raises:
          ValueError: An episode is longer than `max_length`, and the step was not added. See also
            `BatchedWriter.append`.
          TypeError, UnavailableError: See `BatchedWriter.append`.
        """
        present = as_present(mask, self._num_envs if self._is_vector else None)
        is_there = as_flags(True, self._num_envs) if present is None else present
        longest = int((self._writer.episode_steps * is_there).max())
        if longest >= self._max_length:
            raise ValueError(f"An episode already has {longest} steps, and `max_length` is {self._max_length}.")
        ends = as_flags(last, self._num_envs) & is_there
        if not self._is_vector:
            step = tree.map_structure(_as_vector, step)
        self._writer.append(step, mask=present)
        if ends.any():
            trajectory = tree.map_structure(lambda view: view[:], self._writer.history)
            self._writer.create_items(self._table, self._priority, trajectory, mask=ends)
            self._writer.append(step, mask=np.zeros_like(ends), episode_end=ends)

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """Waits until the items are in their tables; see `TrajectoryWriter.flush`.

        Args:
          block_until_num_items: Number of items that may stay unconfirmed, at least 0.
          timeout_ms: Time limit in milliseconds; None waits as long as the tables' rate limiters block.
        """
        self._writer.flush(block_until_num_items, timeout_ms)

    def close(self) -> None:
        """Closes the writer; see `TrajectoryWriter.close`."""
        self._writer.close()


def _as_vector(leaf: Any) -> NDArray[Any]:
    """Adds a first axis of length 1. Text becomes an object array: numpy's fixed-width types drop trailing NULs."""
    return np.array([leaf], object) if isinstance(leaf, bytes | str) else np.asarray(leaf)[None]
