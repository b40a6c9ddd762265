"""The priorities of an adder's items: a number, the largest so far, from TD errors, or given with a step."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reverb import structured_writer as structured
from reverb.adders.flags import per_env
from reverb.data.arrays import as_array
from reverb.data.keys import as_priority, is_max

# A number, "max", or a formula that `structured.td_error` or `structured.constant_priority_fn` has made.
Priority = float | Literal["max"] | structured.Priority


def priority_fn(priority: Any, allowed: str) -> structured.Priority:
    """The priority function for patterns.

    Raises:
      ValueError: The priority is text.
      TypeError: The priority is neither a number nor a formula.
    """
    if isinstance(priority, structured.Priority):
        return priority
    if isinstance(priority, str):
        raise ValueError(f"`priority` must be {allowed}, got {priority!r}.")
    return structured.constant_priority_fn(as_priority(priority))


class Priorities:
    """The priorities of one adder's items.

    Args:
      priority: Priority as the adder was given it.
      num_envs: Number of environments in the vector; None for a single environment.
      takes_formula: Whether the adder's items have a column of TD errors, so that `structured.td_error` works.

    Attributes:
      config: Priority function for patterns, which applies where a step gives no priority.
      noted: Largest priority that `note` has taken into account; 0.0 before the first.

    Raises:
      ValueError: The priority is text other than `max`, or a formula that the adder cannot use.
      TypeError: The priority is neither a number nor a formula.
    """

    def __init__(self, priority: Any, num_envs: int | None, *, takes_formula: bool = True) -> None:
        self._num_envs = num_envs
        self._is_max = is_max(priority)
        self.noted = 0.0
        allowed = "a number, 'max', or a formula of `reverb.structured`" if takes_formula else "a number or 'max'"
        if isinstance(priority, structured.Priority) and priority.HasField("td_error") and not takes_formula:
            raise ValueError(f"`priority` must be {allowed}: give TD errors with the steps, as `add(..., priority=)`.")
        self.config = structured.constant_priority_fn(1.0) if self._is_max else priority_fn(priority, allowed)

    def of_step(self, given: ArrayLike | None) -> float | NDArray[np.float64] | Literal["max"] | None:
        """The priority of the items that a step creates: a number, `[num_envs]` or "max"; None if it is `config`.

        Args:
          given: Priority given with the step, a number, an array `[num_envs]` or "max"; None if none was given.
        """
        if given is None:
            return "max" if self._is_max else None
        if is_max(given):
            return given
        values = per_env("priority", given, np.float64, self._num_envs)
        return float(values[0]) if self._num_envs is None else values

    def note(self, priorities: ArrayLike) -> None:
        """Takes priorities into account for `max`. Those that are not finite are ignored."""
        values = as_array(priorities, np.float64)
        self.noted = max(self.noted, float(np.max(values, initial=0.0, where=np.isfinite(values))))


class TdErrors:
    """The TD errors of the episodes under way, for the priority of each whole episode.

    Args:
      formula: Formula that `structured.td_error` has made.
      num_envs: Number of environments.
    """

    def __init__(self, formula: structured.Priority, num_envs: int) -> None:
        self._weight = formula.td_error.max_priority_weight
        self._column = formula.td_error.flat_source_index
        self._largest = np.zeros(num_envs)
        self._sum = np.zeros(num_envs)

    def push(self, leaves: list[Any], present: NDArray[np.bool_]) -> None:
        """Adds the errors of a step, given by the leaves of the step."""
        errors = np.abs(as_array(leaves[self._column], np.float64)) * present
        self._largest = np.maximum(self._largest, errors)
        self._sum += errors

    def pop(self, steps: NDArray[np.int64], ends: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The priorities of episodes with so many steps. Those that end are forgotten."""
        priorities: NDArray[np.float64] = self._weight * self._largest + (1.0 - self._weight) * (
            self._sum / np.maximum(steps, 1)
        )
        self._largest[ends] = 0.0
        self._sum[ends] = 0.0
        return priorities
