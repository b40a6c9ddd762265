"""Transitions over n steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb import structured_writer as structured
from reverb.adders import columns
from reverb.adders.base import AdderBase, AdderKeys
from reverb.adders.flags import per_env, refuse_dict
from reverb.adders.recording import Transition
from reverb.client import Client
from reverb.data import checks
from reverb.data.arrays import as_array
from reverb.replay_sample import Ragged
from reverb.tensor_spec import TensorSpec
from reverb.writing.options import WriterArguments, WriterOptions, shows_writer_options

if TYPE_CHECKING:
    from typing_extensions import Unpack


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

    def push(
        self, reward: ArrayLike, terminated: ArrayLike, mask: ArrayLike | None = None
    ) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Adds a step.

        Args:
          reward: Reward of the step, a number or an array `[num_envs]`.
          terminated: Whether the environment terminated with the step, bools of the same shape as `reward`.
          mask: Bools of the same shape that mark the environments that have a step; the others keep their values. None
            marks all.

        Returns:
          `return_k` and `discount_k` for k = 1 to n, each float64 with the shape of `reward`. Values for windows that
          are longer than the episode so far are meaningless.
        """
        self.commit(*self.after(reward, terminated, mask))
        return self._returns, self._discounts

    def after(
        self, reward: ArrayLike, terminated: ArrayLike, mask: ArrayLike | None, alive: NDArray[np.bool_] | None = None
    ) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """What `push` would return. For the adder, which commits it later; it is not part of the public interface.

        Args:
          reward: Reward of the step, as `push` takes it.
          terminated: Whether the environment or the agent terminated with the step, as `push` takes it.
          mask: Bools that mark the environments that have a step, as `push` takes them.
          alive: Bools of the same shape that mark the agents that act. The windows of others grow with theirs, but end
            with the last step of their agent: later steps give no reward, and no discount. None marks all.
        """
        rewards = as_array(reward, np.float64)
        keep = self._discount * (1.0 - as_array(terminated, np.float64))
        first = np.ones_like(rewards)
        if alive is not None:
            # A window that begins after its agent has left is worth nothing.
            keep, first = np.where(alive, keep, 1.0), first * alive
        zeros = [np.zeros_like(rewards)] * self._n
        before = [np.zeros_like(rewards), *(self._returns or zeros)[:-1]]
        reach = [first, *(self._discounts or zeros)[:-1]]
        # A window of k steps is the window of k - 1 steps that ended with the previous step, plus this step.
        returns = [total + factor * rewards for total, factor in zip(before, reach, strict=True)]
        discounts = [factor * keep for factor in reach]
        if mask is not None:
            returns = [np.where(mask, new, old) for new, old in zip(returns, self._returns or zeros, strict=True)]
            discounts = [np.where(mask, new, old) for new, old in zip(discounts, self._discounts or zeros, strict=True)]
        return returns, discounts

    def commit(self, returns: list[NDArray[Any]], discounts: list[NDArray[Any]]) -> None:
        """Takes the step that `after` has computed. For the adder; it is not part of the public interface."""
        self._returns, self._discounts = returns, discounts


@shows_writer_options
class NStepTransitionAdder(AdderBase):
    """Creates one transition over n steps for each step, for n-step Q-learning, Rainbow and Ape-X.

    (Hessel et al. 2018, "Rainbow: Combining improvements in deep reinforcement learning"; Horgan et al. 2018,
    "Distributed prioritized experience replay".) An item is a dict of `observation`, `action`, `reward` (the n-step
    return), `discount` (the factor for the value of `next_observation`; see NStepReturns), `next_observation`, and
    `extras` if the steps have any. None of them has a time axis. At the end of an episode the last n - 1 steps give
    transitions over fewer steps.

    Args:
      client: Client for the server that holds the table, or the server's address.
      table: Name of the table for the items.
      n: Number of steps in a transition, at least 1.
      discount: Discount per step, in [0, 1].
      priority: Priority of items that get none in `add`: a number, 1 by default; or `max` for the largest that the
        table has seen since it was reset, in inserts and updates by anybody.
      num_envs: Number of environments in the vector; None for a single environment.
      dtype: Floating-point dtype of `reward` and `discount` in the items, float32 by default.
      stack: Mapping from `observation`, or a path below it such as `observation/pixels`, to a number of frames. The
        environment gives single frames, and an item has the last so many of them, as `[frames, ...]`; at the start of
        an episode the first frame is repeated. Each frame is sent and stored once, for all items and for both
        observations. Within an episode, `observation` must be the `next_observation` of the step before: only that of
        the first step is read.
      options: Options of the adder's writer, for all that is not given by name; None means their defaults.
      **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

    Raises:
      ValueError: A number is out of range, or `priority` is another text than `max`.
    """

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

    def __init__(
        self,
        client: Client | str,
        table: str,
        *,
        n: int,
        discount: float,
        priority: float | Literal["max"] = 1.0,
        num_envs: int | None = None,
        dtype: Any = np.float32,
        stack: Mapping[str, int] | None = None,
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> None:
        super().__init__(client, table, priority, num_envs, options, writer_options, takes_formula=False, period=1)
        self._n = n
        self._dtype = np.dtype(dtype)
        self._returns = NStepReturns(n, discount)
        self._stack = columns.as_stack(stack)
        # Whether the first step had extras, so that all have.
        self._has_extras = False
        # The number of frames by leaf of the observation.
        self._frames: dict[int, int] = {}

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
        priority: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
    ) -> AdderKeys:
        """Adds a step, and the transitions that it completes.

        Args:
          observation: Observation that the agent acted on, a nest. With `num_envs` all arrays have a first axis of that
            length. In it, and in the other nests, a row of open length is a `Ragged` of one item; with `num_envs`, a
            `Ragged` has an item for each environment.
          action: Action that the agent took, a nest.
          reward: Reward for the action, a number or an array `[num_envs]`.
          next_observation: Observation after the action, a nest. At the end of an episode it is the last observation
            of that episode, not the first of the next one.
          terminated: Whether the episode ended with this step in a terminal state, so that no further reward follows.
          truncated: Whether the episode was cut off after this step, for instance by a time limit.
          extras: Additional data of the first step of a transition, a nest; None if there is none.
          priority: Priority of the transitions that this step completes: a number, "max", or with `num_envs` an array
            `[num_envs]`. It completes the transition that began n - 1 steps before, and at the end of an episode also
            the shorter ones. None, the default, takes the priority of the adder.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.
            Gymnasium's vector environments, by default, start the next episode with a step that is not a transition:
            pass `~(terminated | truncated)` of the previous step.
          timeout: Time limit in seconds to wait for room for the items that the step creates, before it is added; None,
            the default, waits as long as the table's rate limiter blocks.

        Returns:
          The keys of the items that the step has created, in the order of their creation: uint64 `[items]`, or with
          `num_envs` a `Ragged` with the keys of each environment.

        Raises:
          DeadlineExceededError: There was no room for the items within the timeout. The step was not added, and the
            same call may be repeated.
          ValueError: A column has no value (None) that an item needs. The step was not added. See also
            `StructuredWriter.append`.
          TypeError, UnavailableError: See `StructuredWriter.append`.
        """
        present, seconds = self._present(mask), checks.as_timeout(timeout)
        rewards = self._rewards(reward)
        is_terminal = self._flags("terminated", terminated)
        ends = (is_terminal | self._flags("truncated", truncated)) & present
        parts = {"action": action, "extras": extras, "next_observation": next_observation, "observation": observation}
        if self._num_envs is None:
            after = self._returns.after(rewards, is_terminal.reshape(rewards.shape), None)
        else:
            after = self._returns.after(rewards, is_terminal, None if mask is None else present)
        return self._add(parts, after, present, ends, priority, seconds)

    def _add(
        self,
        parts: dict[str, Any],
        after: tuple[list[NDArray[Any]], list[NDArray[Any]]],
        present: NDArray[np.bool_],
        ends: NDArray[np.bool_],
        priority: ArrayLike | None,
        timeout: float | None,
    ) -> AdderKeys:
        """Adds a step of these parts; `after` has the returns and discounts of the windows that end with it."""
        given = self._priorities.of_step(priority)
        parts = self._leaves(parts, timeout)
        observation = parts["observation"]
        needed = dict(parts)
        if self._stack and True not in (present & ~self._is_led):
            del needed["observation"]
        if parts["extras"] is None and not self._has_extras:
            del needed["extras"]
        if True in present:
            columns.refuse_none(needed)
        returns, discounts = after
        step = {
            **parts,
            "discounts": [self._column(value, parts) for value in discounts],
            "returns": [self._column(value, parts) for value in returns],
        }
        if self._stack:
            step["observation"] = None
        if self._writer is None:
            self._set_frames(observation)
            self._has_extras = parts["extras"] is not None
            self._open(step, [self._config(step, k) for k in range(self._n, 0, -1)])
        at_most = len(present) * (self._n if True in ends else 1)
        self._take_room(at_most, timeout, lambda: self._num_due(present, ends))
        self._begin_call()
        if self._stack:
            # The frames before the first step repeat the first observation.
            self._lead(
                lambda: {**columns.blank(step), "next_observation": observation}, max(self._frames.values()), present
            )
        self._append(step, present, ends, given)
        self._returns.commit(returns, discounts)
        self._steps += present
        self._begin_anew(ends)
        return self._end_call()

    def _rewards(self, reward: ArrayLike) -> NDArray[Any]:
        """One reward for each environment, or one for all."""
        if isinstance(reward, Ragged):
            raise ValueError("reward must be numbers, got a Ragged.")
        refuse_dict("reward", reward, self._num_envs)
        rewards = as_array(reward)
        return rewards if rewards.size == 1 else per_env("reward", rewards, rewards.dtype, self._num_envs)

    def _num_due(self, present: NDArray[np.bool_], ends: NDArray[np.bool_]) -> int:
        """The number of items that a step of these environments creates, and the end of the episodes that end there."""
        steps = self._steps + 1
        return int(np.count_nonzero(present & (steps >= self._n))) + self._num_last(ends, steps)

    def _num_last(self, ends: NDArray[np.bool_], steps: NDArray[np.int64]) -> int:
        return int(np.add.reduce(np.minimum(steps, self._n - 1)[ends]))

    def record(self, transition: Transition, transform: Callable[[Any], Any] | None) -> None:
        """Adds a step of a recorder. For `add_from`; it is not part of the public interface."""
        _refuse_transform(transform)
        if transition.alive is None:
            transition.add_whole(self.add, extras=transition.extras)
        else:
            self._add_of_agents(transition, transition.alive)

    def _add_of_agents(self, transition: Transition, alive: Mapping[Any, bool]) -> None:
        """Adds a step of agents with names, each of which has returns of its own."""

        def of_agents(by_agent: Any, dtype: Any) -> NDArray[Any]:
            return np.array([by_agent[agent] for agent in alive], dtype)

        rewards, is_terminal = of_agents(transition.reward, np.float64), of_agents(transition.terminated, np.bool_)
        after = self._returns.after(rewards, is_terminal, None, of_agents(alive, np.bool_))
        names = ("action", "alive", "extras", "next_observation", "observation")
        parts = {name: getattr(transition, name) for name in names}
        self._add(parts, after, self._present(None), np.array([transition.is_last]), transition.priority, None)

    def _column(self, values: NDArray[Any], parts: dict[str, Any]) -> Any:
        """A column of returns or discounts, which is a dict by agent where the agents have names."""
        column = values.astype(self._dtype)
        return dict(zip(parts["alive"], column, strict=True)) if "alive" in parts else column

    def _signature_of(self, transition: Transition, transform: Callable[[Any], Any] | None) -> Any:
        _refuse_transform(transform)
        names = ("observation", "action", "next_observation")
        specs = {name: self._specs(getattr(transition, name)) for name in names}
        specs["extras"] = None if transition.extras is None else self._specs(transition.extras)
        number: Any = TensorSpec((), self._dtype)
        if transition.alive is not None:
            specs["alive"] = self._specs(transition.alive)
            number = dict.fromkeys(transition.alive, number)
        for name in ("discounts", "returns"):
            specs[name] = [number] * self._n
        self._set_frames(specs["observation"])
        return structured.infer_signature([self._config(specs, self._n)], specs)

    def _set_frames(self, observation: Any) -> None:
        places = columns.places("stack", tuple(self._stack), {"observation": observation})
        self._frames = {leaf: self._stack[name] for leaf, name in places.items()}

    def _config(self, step: Any, k: int) -> Any:
        def transition(x: Any) -> Any:
            begin = {"action": tree.map_structure(lambda node: node[-k], x["action"])}
            if step["extras"] is not None:
                begin["extras"] = tree.map_structure(lambda node: node[-k], x["extras"])
            if "alive" in step:
                begin["alive"] = tree.map_structure(lambda node: node[-k], x["alive"])
            begin["discount"] = tree.map_structure(lambda node: node[-1], x["discounts"][k - 1])
            begin["reward"] = tree.map_structure(lambda node: node[-1], x["returns"][k - 1])
            frames = x["next_observation"]
            if self._stack:
                # The observation that the agent acted on is in the row before that of its step.
                begin["observation"] = self._stacked(frames, k)
                begin["next_observation"] = self._stacked(frames, 0)
            else:
                begin["observation"] = tree.map_structure(lambda node: node[-k], x["observation"])
                begin["next_observation"] = tree.map_structure(lambda node: node[-1], frames)
            return begin

        return structured.create_config(
            structured.pattern_from_transform(step, transition),
            self._table,
            # Transitions over fewer steps are created only at the end of an episode.
            [] if k == self._n else [structured.Condition.is_end_episode()],
            self._priorities.config,
        )

    def _stacked(self, frames: Any, age: int) -> Any:
        """The last frames of each leaf, without the newest `age` rows."""
        nodes = []
        for leaf, node in enumerate(tree.flatten(frames)):
            count = self._frames.get(leaf)
            nodes.append(node[-1 - age] if count is None else node[-count - age : -age or None])
        return tree.unflatten_as(frames, nodes)


def _refuse_transform(transform: Callable[[Any], Any] | None) -> None:
    if transform is not None:
        raise ValueError("`transform` is for sequences and episodes; transitions have columns of their own.")
