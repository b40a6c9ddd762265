"""Adders create the items that most agents learn from out of an environment's steps.

    adder = reverb.adders.NStepTransitionAdder(client, "replay", n=3, discount=0.99)
    while True:
      next_observation, reward, terminated, truncated, _ = env.step(action)
      adder.add(observation, action, reward, next_observation, terminated=terminated, truncated=truncated)

Each adder works for one environment or, with `num_envs`, for a vector of environments, whose arrays have a first axis
of that length. Adders are a few lines of code on top of patterns (`reverb.structured`). If none of them fits, write
your own in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb import structured_writer as structured
from reverb.client import Client
from reverb.data import checks

__all__ = ["EpisodeAdder", "NStepReturns", "NStepTransitionAdder", "SequenceAdder", "sequence_configs"]

_Adder = TypeVar("_Adder", bound="_AdderBase")
_Condition = structured.Condition


class _AdderBase:
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
        return _flags(flags, self._num_envs or 1)

    def _present(self, mask: ArrayLike | None) -> NDArray[np.bool_] | None:
        return _present(mask, self._num_envs)


def _flags(flags: ArrayLike, num_envs: int) -> NDArray[np.bool_]:
    """One flag for each environment."""
    each: NDArray[np.bool_] = np.broadcast_to(np.asarray(flags, np.bool_), (num_envs,)).copy()
    return each


def _present(mask: ArrayLike | None, num_envs: int | None) -> NDArray[np.bool_] | None:
    """A flag for each environment that has a step; None if all have one."""
    if mask is None:
        return None
    if num_envs is None:
        raise ValueError("`mask` requires a vector of environments, but this adder was made without `num_envs`.")
    return _flags(mask, num_envs)


class NStepReturns:
    """Accumulates rewards and discounts over the last 1 to n steps, for one environment or a vector of environments.

    For the window of the last k steps, which starts with the reward r_0:

        return_k = r_0 + g d_0 r_1 + ... + (g d_0) ... (g d_{k-2}) r_{k-1}
        discount_k = (g d_0) ... (g d_{k-1})

    where g is the discount, and d_i is 0 if the environment terminated with step i and 1 otherwise, so that
    `return_k + discount_k * value(next_observation)` is the k-step target (Sutton 1988, "Learning to predict by the
    methods of temporal differences"; Watkins 1989, §7, corrected k-step truncated returns).

    Args:
      n: Length of the longest window in steps, at least 1.
      discount: Discount g per step, in [0, 1].

    Raises:
      ValueError: A number is out of range.
    """

    def __init__(self, n: int, discount: float) -> None:
        self._n = checks.as_count("n", n)
        self._discount = float(discount)
        if not 0.0 <= self._discount <= 1.0:
            raise ValueError(f"`discount` must be in [0, 1], got {discount}.")
        self._returns: list[NDArray[np.float64]] = []
        self._discounts: list[NDArray[np.float64]] = []

    def push(self, reward: ArrayLike, terminated: ArrayLike) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Adds a step.

        Args:
          reward: Reward of the step, a number or an array `[num_envs]`.
          terminated: Whether the environment terminated with the step, bools of the same shape as `reward`.

        Returns:
          `return_k` and `discount_k` for k = 1 to n, each float64 with the shape of `reward`. Values for windows that
          are longer than the episode so far are meaningless.
        """
        rewards = np.asarray(reward, np.float64)
        keep = self._discount * (1.0 - np.asarray(terminated, np.float64))
        zeros = [np.zeros_like(rewards)] * self._n
        before = [np.zeros_like(rewards), *(self._returns or zeros)[:-1]]
        reach = [np.ones_like(rewards), *(self._discounts or zeros)[:-1]]
        # A window of k steps is the window of k - 1 steps that ended with the previous step, plus this step.
        self._returns = [total + factor * rewards for total, factor in zip(before, reach, strict=True)]
        self._discounts = [factor * keep for factor in reach]
        return self._returns, self._discounts


class NStepTransitionAdder(_AdderBase):
    """Creates one transition over n steps for each step, for n-step Q-learning, Rainbow and Ape-X.

    (Hessel et al. 2018, "Rainbow: Combining improvements in deep reinforcement learning"; Horgan et al. 2018,
    "Distributed prioritized experience replay".) An item is a dict of `observation`, `action`, `reward` (the n-step
    return), `discount` (the factor for the value of `next_observation`; see NStepReturns), `next_observation`, and
    `extras` if the steps have any. None of them has a time axis. At the end of an episode the last n - 1 steps give
    transitions over fewer steps.

    Args:
      client: Client for the server that holds the table.
      table: Name of the table for the items.
      n: Number of steps in a transition, at least 1.
      discount: Discount per step, in [0, 1].
      priority: Priority of new items, 1 by default.
      num_envs: Number of environments in the vector; None for a single environment.
      dtype: Floating-point dtype of `reward` and `discount` in the items, float32 by default.

    Raises:
      ValueError: A number is out of range.
    """

    def __init__(
        self,
        client: Client,
        table: str,
        *,
        n: int,
        discount: float,
        priority: float = 1.0,
        num_envs: int | None = None,
        dtype: Any = np.float32,
    ) -> None:
        super().__init__(client, num_envs)
        self._table = table
        self._n = n
        self._priority = priority
        self._dtype = np.dtype(dtype)
        self._returns = NStepReturns(n, discount)

    def add(
        self,
        observation: Any,
        action: Any,
        reward: ArrayLike,
        next_observation: Any,
        *,
        terminated: ArrayLike = False,
        truncated: ArrayLike = False,
        extras: Any = None,
        mask: ArrayLike | None = None,
    ) -> None:
        """Adds a step, and the transitions that it completes.

        Args:
          observation: Observation that the agent acted on, a nest. With `num_envs` all arrays have a first axis of that
            length.
          action: Action that the agent took, a nest.
          reward: Reward for the action, a number or an array `[num_envs]`.
          next_observation: Observation after the action, a nest. At the end of an episode it is the last observation
            of that episode, not the first of the next one.
          terminated: Whether the episode ended with this step in a terminal state, so that no further reward follows.
          truncated: Whether the episode was cut off after this step, for instance by a time limit.
          extras: Additional data of the first step of a transition, a nest; None if there is none.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.
            Gymnasium's vector environments, by default, start the next episode with a step that is not a transition:
            pass `~(terminated | truncated)` of the previous step.

        Raises:
          ValueError, TypeError, UnavailableError: See `StructuredWriter.append`.
        """
        present = self._present(mask)
        returns, discounts = self._returns.push(reward, terminated)
        step = {
            "action": action,
            "discounts": [value.astype(self._dtype) for value in discounts],
            "extras": extras,
            "next_observation": next_observation,
            "observation": observation,
            "returns": [value.astype(self._dtype) for value in returns],
        }
        ends = np.logical_or(terminated, truncated) & (True if present is None else present)
        self._append(step, ends, present, lambda: [self._config(step, k) for k in range(self._n, 0, -1)])

    def _config(self, step: Any, k: int) -> Any:
        def transition(x: Any) -> Any:
            begin = tree.map_structure(lambda node: node[-k], {name: x[name] for name in ("action", "observation")})
            if step["extras"] is not None:
                begin["extras"] = tree.map_structure(lambda node: node[-k], x["extras"])
            begin["discount"] = x["discounts"][k - 1][-1]
            begin["reward"] = x["returns"][k - 1][-1]
            begin["next_observation"] = tree.map_structure(lambda node: node[-1], x["next_observation"])
            return begin

        return structured.create_config(
            structured.pattern_from_transform(step, transition),
            self._table,
            # Transitions over fewer steps are created only at the end of an episode.
            [] if k == self._n else [_Condition.is_end_episode()],
            structured.constant_priority_fn(self._priority),
        )


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
        return _Condition.step_index()

    last = length - 1
    configs = [config(length, index() >= last, index() % period == last % period)]
    if end == "truncate":
        at_end = _Condition.is_end_episode()
        # An episode shorter than a window becomes one item.
        configs += [config(rows, at_end, index() == rows - 1) for rows in range(1, length)]
        for more in range(1, period):
            rows = length - period + more
            # With gaps between the windows, the next one may not have started yet.
            if rows > 0:
                configs.append(config(rows, at_end, index() >= length, index() % period == (last + more) % period))
    return configs


class SequenceAdder(_AdderBase):
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
        if self._pad and True in ends:
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
        for index in range(int(np.maximum.reduce(missing))):
            if self._num_envs is None:
                self._writer.append(zeros)
            else:
                self._writer.append(zeros, mask=missing > index)
        if self._num_envs is None:
            self._writer.end_episode()
        else:
            self._writer.append(zeros, mask=np.zeros_like(ends), episode_end=ends)


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

    def __enter__(self) -> EpisodeAdder:
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
        present = _present(mask, self._num_envs if self._is_vector else None)
        is_there = _flags(True, self._num_envs) if present is None else present
        # Not the method `max`, which imports at its first call, and a `__del__` at interpreter exit cannot import.
        longest = int(np.maximum.reduce(self._writer.episode_steps * is_there))
        if longest >= self._max_length:
            raise ValueError(f"An episode already has {longest} steps, and `max_length` is {self._max_length}.")
        ends = _flags(last, self._num_envs) & is_there
        if not self._is_vector:
            step = tree.map_structure(_as_vector, step)
        self._writer.append(step, mask=present)
        if True in ends:
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
