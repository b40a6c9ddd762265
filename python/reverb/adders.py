"""Adders: the items that most agents learn from, made of an environment's steps.

    adder = reverb.adders.NStepTransitionAdder(client, "replay", n=3, discount=0.99)
    while True:
      next_observation, reward, terminated, truncated, _ = env.step(action)
      adder.add(observation, action, reward, next_observation, terminated=terminated, truncated=truncated)

Each works for one environment, or, with `num_envs`, for a vector of them whose arrays have a first axis of that length.
They are a few lines over patterns (`reverb.structured`); write your own in the same way where these do not fit.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb import _checks
from reverb import structured_writer as structured
from reverb.client import Client

__all__ = ["EpisodeAdder", "NStepReturns", "NStepTransitionAdder", "SequenceAdder", "sequence_configs"]

_Adder = TypeVar("_Adder", bound="_WithWriter")
_Condition = structured.Condition


class _WithWriter:
    """What adders share: a writer that is made with the first step, when the structure is known."""

    def __init__(self, client: Client, num_envs: int | None) -> None:
        self._client = client
        self._num_envs = None if num_envs is None else _checks.as_count("num_envs", num_envs)
        self._writer: Any = None

    def __enter__(self: _Adder) -> _Adder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, traceback)

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """As `TrajectoryWriter.flush`."""
        if self._writer is not None:
            self._writer.flush(block_until_num_items, timeout_ms)

    def close(self) -> None:
        """As `TrajectoryWriter.close`."""
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
    """A flag of each environment."""
    each: NDArray[np.bool_] = np.broadcast_to(np.asarray(flags, np.bool_), (num_envs,)).copy()
    return each


def _present(mask: ArrayLike | None, num_envs: int | None) -> NDArray[np.bool_] | None:
    """Who has a step; None: all."""
    if mask is None:
        return None
    if num_envs is None:
        raise ValueError("`mask` is for vectors of environments: this adder was made without `num_envs`.")
    return _flags(mask, num_envs)


class NStepReturns:
    """Rewards and discounts folded over the last 1 to n steps, for one environment or a vector of them.

    For the window of the last k steps, which began with the reward r_0:

        return_k = r_0 + g d_0 r_1 + ... + (g d_0) ... (g d_{k-2}) r_{k-1}
        discount_k = (g d_0) ... (g d_{k-1})

    with g the discount and d_i 0 where the environment terminated with step i, else 1, so that
    `return_k + discount_k * value(next_observation)` is the k-step target (Sutton 1988, "Learning to predict by the
    methods of temporal differences"; Watkins 1989, §7, corrected k-step truncated returns).

    Args:
      n: The longest window, at least 1.
      discount: g, in [0, 1].

    Raises:
      ValueError: A number is out of range.
    """

    def __init__(self, n: int, discount: float) -> None:
        self._n = _checks.as_count("n", n)
        self._discount = float(discount)
        if not 0.0 <= self._discount <= 1.0:
            raise ValueError(f"`discount` must lie in [0, 1], got {discount}.")
        self._returns: list[NDArray[np.float64]] = []
        self._discounts: list[NDArray[np.float64]] = []

    def push(self, reward: ArrayLike, terminated: ArrayLike) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Adds a step.

        Args:
          reward: `[]` or `[num_envs]`.
          terminated: Bools of the same shape.

        Returns:
          `return_k` and `discount_k` for k = 1 to n, each float64 of the shape of `reward`. Those of windows that are
          longer than the episode so far mean nothing.
        """
        rewards = np.asarray(reward, np.float64)
        keep = self._discount * (1.0 - np.asarray(terminated, np.float64))
        zeros = [np.zeros_like(rewards)] * self._n
        before = [np.zeros_like(rewards), *(self._returns or zeros)[:-1]]
        reach = [np.ones_like(rewards), *(self._discounts or zeros)[:-1]]
        # A window of k steps is the window of k - 1 steps of one step ago, and this step.
        self._returns = [total + factor * rewards for total, factor in zip(before, reach, strict=True)]
        self._discounts = [factor * keep for factor in reach]
        return self._returns, self._discounts


class NStepTransitionAdder(_WithWriter):
    """Transitions over n steps, one for each step, as n-step Q-learning, Rainbow and Ape-X learn from.

    (Hessel et al. 2018, "Rainbow: Combining improvements in deep reinforcement learning"; Horgan et al. 2018,
    "Distributed prioritized experience replay".) An item is a dict of `observation`, `action`, `reward` (the n-step
    return), `discount` (what the value of `next_observation` is to be multiplied by; see NStepReturns),
    `next_observation`, and `extras` if there are any, none of them with a time axis. At the end of an episode the last
    n - 1 steps give transitions over fewer steps.

    Args:
      client: Of the server.
      table: Where items go.
      n: Steps of a transition.
      discount: Of one step, in [0, 1].
      priority: Of new items.
      num_envs: Environments of a vector; None: one environment.
      dtype: Of `reward` and `discount`.

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
          observation: What the agent saw; a nest. With `num_envs` all arrays begin with an axis of that length.
          action: What it did.
          reward: What it got.
          next_observation: What it saw then; at the end of an episode the last observation, not the next episode's
            first.
          terminated: Whether the episode ended there, so that nothing comes after.
          truncated: Whether it was cut off there.
          extras: Anything else of the step at which a transition begins.
          mask: Bools `[num_envs]`: who has a step; the rows of the others are passed over. None: all. Gymnasium's
            vectors, unless made with another `autoreset_mode`, begin the next episode with a step that is none: pass
            `~(terminated | truncated)` of the step before.

        Raises:
          ValueError, TypeError, UnavailableError: As `StructuredWriter.append`.
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
            # Shorter ones only where an episode ends.
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
    """Patterns for windows of steps that begin every `period` steps of an episode.

    Args:
      step_structure: A nest with the structure of the steps.
      table: Where items go.
      length: Steps of a window.
      period: Steps between the beginnings of two windows: `length` for windows that follow one another, less for
        overlap (R2D2: 80 and 40 after a burn-in of 40; Kapturowski et al. 2019, "Recurrent experience replay in
        distributed reinforcement learning").
      end: What becomes of the last window of an episode if the episode ends inside it: `truncate` makes it shorter,
        `drop` leaves it out.
      priority: Of new items.

    Returns:
      Configs for `Client.structured_writer` or `Client.batched_writer`.

    Raises:
      ValueError: A number is below 1, or `end` is another word.
    """
    length, period = _checks.as_count("length", length), _checks.as_count("period", period)
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
        # An episode shorter than a window is one item.
        configs += [config(rows, at_end, index() == rows - 1) for rows in range(1, length)]
        for more in range(1, period):
            rows = length - period + more
            # With gaps between windows there may be nothing of the next one yet.
            if rows > 0:
                configs.append(config(rows, at_end, index() >= length, index() % period == (last + more) % period))
    return configs


class SequenceAdder(_WithWriter):
    """Windows of steps, with a time axis, as recurrent agents learn from. See `sequence_configs`.

    Args:
      client: Of the server.
      table: Where items go.
      length: Steps of a window.
      period: Steps between the beginnings of two windows.
      end: What becomes of a window inside which the episode ends: `truncate` makes it shorter, `pad` fills it up with
        steps of zeros, `drop` leaves it out.
      priority: Of new items.
      num_envs: Environments of a vector; None: one environment.

    Raises:
      ValueError: A number is below 1, or `end` is another word.
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
        self._length, self._period = _checks.as_count("length", length), _checks.as_count("period", period)
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
          step: A nest. With `num_envs` all arrays begin with an axis of that length.
          last: Whether the episode ends with it; bools `[num_envs]` with `num_envs`.
          mask: As of `NStepTransitionAdder.add`.

        Raises:
          ValueError, TypeError, UnavailableError: As `StructuredWriter.append`.
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
        """Appends zeros until the episodes that end are as long as their last window reaches."""
        length, period, steps = self._length, self._period, self._steps
        windows = -(-np.maximum(steps - length, 0) // period)
        missing = length + windows * period - steps
        # Between two windows that do not touch there is nothing to fill up.
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


class EpisodeAdder:
    """Whole episodes, each an item with a time axis, as offline and Monte Carlo methods learn from.

    (Sutton and Barto 2018, "Reinforcement learning", ch. 5.)

    Args:
      client: Of the server.
      table: Where items go.
      max_length: Steps of the longest episode: the writer keeps so many.
      priority: Of new items.
      num_envs: Environments of a vector; None: one environment.

    Raises:
      ValueError: A number is below 1.
    """

    def __init__(
        self, client: Client, table: str, *, max_length: int, priority: float = 1.0, num_envs: int | None = None
    ) -> None:
        self._table = table
        self._priority = priority
        self._max_length = _checks.as_count("max_length", max_length)
        # One environment is a vector of one.
        self._is_vector = num_envs is not None
        self._num_envs = 1 if num_envs is None else _checks.as_count("num_envs", num_envs)
        self._writer = client.batched_writer(self._num_envs, self._max_length)

    def __enter__(self) -> "EpisodeAdder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, traceback)

    def add(self, step: Any, *, last: ArrayLike = False, mask: ArrayLike | None = None) -> None:
        """Adds a step; the last of an episode makes the item.

        Args:
          step: A nest. With `num_envs` all arrays begin with an axis of that length.
          last: Whether the episode ends with it; bools `[num_envs]` with `num_envs`.
          mask: As of `NStepTransitionAdder.add`.

        Raises:
          ValueError: An episode is longer than `max_length`; the step was not added. Also as `BatchedWriter.append`.
          TypeError, UnavailableError: As `BatchedWriter.append`.
        """
        present = _present(mask, self._num_envs if self._is_vector else None)
        is_there = _flags(True, self._num_envs) if present is None else present
        longest = int((self._writer.episode_steps * is_there).max())
        if longest >= self._max_length:
            raise ValueError(f"An episode has {longest} steps already; `max_length` is {self._max_length}.")
        ends = _flags(last, self._num_envs) & is_there
        if not self._is_vector:
            step = tree.map_structure(_as_vector, step)
        self._writer.append(step, mask=present)
        if ends.any():
            trajectory = tree.map_structure(lambda view: view[:], self._writer.history)
            self._writer.create_items(self._table, self._priority, trajectory, mask=ends)
            self._writer.append(step, mask=np.zeros_like(ends), episode_end=ends)

    def flush(self, block_until_num_items: int = 0, timeout_ms: int | None = None) -> None:
        """As `TrajectoryWriter.flush`."""
        self._writer.flush(block_until_num_items, timeout_ms)

    def close(self) -> None:
        """As `TrajectoryWriter.close`."""
        self._writer.close()


def _as_vector(leaf: Any) -> NDArray[Any]:
    """A value as the values of a vector of one. Of bytes numpy alone would make a fixed width, and cut NULs off."""
    return np.array([leaf], object) if isinstance(leaf, bytes | str) else np.asarray(leaf)[None]
