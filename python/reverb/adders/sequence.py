"""Windows of steps."""

from typing import Any, Literal

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb import structured_writer as structured
from reverb.adders.base import AdderBase
from reverb.client import Client
from reverb.data import checks

__all__ = ["SequenceAdder", "sequence_configs"]


def sequence_configs(
    step_structure: Any,
    table: str,
    *,
    length: int,
    period: int,
    end: Literal["truncate", "drop"] = "truncate",
    priority: float = 1.0,
) -> list[Any]:
    """Patterns for windows of steps that start every `period` steps of an episode.

    Args:
      step_structure: Nest with the structure of a step; the values of its leaves are ignored.
      table: Name of the table for the items.
      length: Number of steps in a window, at least 1.
      period: Number of steps between the starts of two windows, at least 1: `length` for adjacent windows, less for
        overlapping ones (R2D2: 80 and 40 after a burn-in of 40; Kapturowski et al. 2019, "Recurrent experience replay
        in distributed reinforcement learning").
      end: Treatment of a window in which the episode ends: `truncate`, the default, makes it shorter, `drop` omits it.
      priority: Priority of new items, 1 by default.

    Returns:
      Configs for `Client.structured_writer` or `Client.batched_writer`.

    Raises:
      ValueError: A number is below 1, or `end` is neither of the two words.
    """
    length, period = checks.as_count("length", length), checks.as_count("period", period)
    if end not in ("truncate", "drop"):
        raise ValueError(f"`end` must be 'truncate' or 'drop', got {end!r}.")

    def config(rows: int, *conditions: Any) -> Any:
        pattern = structured.pattern_from_transform(
            step_structure, lambda x: tree.map_structure(lambda node: node[-rows:], x)
        )
        return structured.create_config(pattern, table, conditions, structured.constant_priority_fn(priority))

    def index() -> Any:
        return structured.Condition.step_index()

    last = length - 1
    configs = [config(length, index() >= last, index() % period == last % period)]
    if end == "truncate":
        at_end = structured.Condition.is_end_episode()
        # An episode shorter than a window becomes one item.
        configs += [config(rows, at_end, index() == rows - 1) for rows in range(1, length)]
        for more in range(1, period):
            rows = length - period + more
            # With gaps between the windows, the next one may not have started yet.
            if rows > 0:
                configs.append(config(rows, at_end, index() >= length, index() % period == (last + more) % period))
    return configs


# The public module of the function, which pickles refer to.
sequence_configs.__module__ = "reverb.adders"


class SequenceAdder(AdderBase):
    """Creates windows of steps, with a time axis, for recurrent agents. See `sequence_configs`.

    Args:
      client: Client for the server that holds the table.
      table: Name of the table for the items.
      length: Number of steps in a window, at least 1.
      period: Number of steps between the starts of two windows, at least 1.
      end: Treatment of a window in which the episode ends: `truncate`, the default, makes it shorter, `pad` fills it up
        with steps of zeros, `drop` omits it.
      priority: Priority of new items, 1 by default.
      num_envs: Number of environments in the vector; None for a single environment.

    Raises:
      ValueError: A number is below 1, or `end` is none of the three words.
    """

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

    def __init__(
        self,
        client: Client,
        table: str,
        *,
        length: int,
        period: int,
        end: Literal["truncate", "pad", "drop"] = "truncate",
        priority: float = 1.0,
        num_envs: int | None = None,
    ) -> None:
        super().__init__(client, num_envs)
        if end not in ("truncate", "pad", "drop"):
            raise ValueError(f"`end` must be 'truncate', 'pad' or 'drop', got {end!r}.")
        self._length, self._period = checks.as_count("length", length), checks.as_count("period", period)
        self._pad = end == "pad"
        self._options: dict[str, Any] = {
            "table": table,
            "length": length,
            "period": period,
            "end": "drop" if end == "pad" else end,
            "priority": priority,
        }
        self._steps = np.zeros(self._num_envs or 1, np.int64)

    def add(self, step: Any, *, last: ArrayLike = False, mask: ArrayLike | None = None) -> None:
        """Adds a step, and the windows that it completes.

        Args:
          step: Nest of the arrays of the step. With `num_envs` all arrays have a first axis of that length.
          last: Whether the episode ends with this step; with `num_envs`, bools `[num_envs]`.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.

        Raises:
          ValueError, TypeError, UnavailableError: See `StructuredWriter.append`.
        """
        present = self._present(mask)
        is_there = self._each(True) if present is None else present
        ends = self._each(last) & is_there
        end_now = (ends if self._num_envs else ends[0]) & (not self._pad)
        self._append(step, end_now, present, lambda: self._configs(step))
        self._steps += is_there
        if self._pad and ends.any():
            self._fill_up(step, ends)
        self._steps[ends] = 0

    def _configs(self, step: Any) -> list[Any]:
        return sequence_configs(step, **self._options)

    def _fill_up(self, step: Any, ends: NDArray[np.bool_]) -> None:
        """Appends steps of zeros to each episode that ends, until its last window is complete."""
        length, period, steps = self._length, self._period, self._steps
        windows = -(-np.maximum(steps - length, 0) // period)
        missing = length + windows * period - steps
        # An episode that ends in a gap between two windows needs no padding.
        missing[(missing >= length) | ~ends] = 0
        zeros = tree.map_structure(lambda leaf: np.zeros_like(np.asarray(leaf)), step)
        for index in range(int(missing.max())):
            if self._num_envs is None:
                self._writer.append(zeros)
            else:
                self._writer.append(zeros, mask=missing > index)
        if self._num_envs is None:
            self._writer.end_episode()
        else:
            self._writer.append(zeros, mask=np.zeros_like(ends), episode_end=ends)
