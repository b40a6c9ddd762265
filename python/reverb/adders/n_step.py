"""Transitions over n steps."""

from typing import Any

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb import structured_writer as structured
from reverb.adders.base import AdderBase
from reverb.client import Client
from reverb.data import checks

__all__ = ["NStepReturns", "NStepTransitionAdder"]


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

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

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


class NStepTransitionAdder(AdderBase):
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

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

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
            [] if k == self._n else [structured.Condition.is_end_episode()],
            structured.constant_priority_fn(self._priority),
        )
