"""Transitions whose goal is replaced by one that was reached."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb.adders import columns
from reverb.adders.base import AdderBase, AdderKeys
from reverb.adders.episode import as_vector
from reverb.adders.flags import per_env
from reverb.adders.recording import Transition
from reverb.adders.rows import Rows
from reverb.client import Client
from reverb.data import checks
from reverb.data.arrays import as_array
from reverb.data.keys import ItemPriority, is_max
from reverb.replay_sample import Ragged
from reverb.tensor_spec import TensorSpec
from reverb.writing.options import WriterArguments, WriterOptions, shows_writer_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

_STRATEGIES = ("future", "final", "episode")
# More rows than any episode has.
_KEPT_ROWS = 1 << 24


class _Step(NamedTuple):
    """A step of one environment."""

    observation: Any
    action: Any
    reward: float
    following: Any
    terminated: bool
    info: Any
    priority: ItemPriority


@shows_writer_options
class HindsightAdder(AdderBase):
    """Creates transitions with the goal of the episode, and with goals that the episode reached instead.

    (Andrychowicz et al. 2017, "Hindsight experience replay".) Observations are dicts of `observation`, `achieved_goal`
    and `desired_goal`, as in Gymnasium-Robotics. Each step of an episode gives, when the episode ends, 1 + k items:
    dicts of `observation`, `action`, `reward`, `discount` and `next_observation`, without a time axis. The first item
    is the transition as it was; in k others both desired goals are a goal that a step of the episode achieved, and
    `compute_reward` gives the reward. `discount` is 0 if the step was terminal and the given discount otherwise. All
    items share the observations, which are sent and stored once.

        adder = HindsightAdder(
            client, "replay", discount=0.98, compute_reward=env.unwrapped.compute_reward, num_envs=None, seed=0
        )
        env = adder.add_from(env)

    Args:
      client: Client for the server that holds the table, or the server's address.
      table: Name of the table for the items.
      discount: Discount per step, in [0, 1].
      compute_reward: Function `(achieved_goal, desired_goal, info)` that returns the reward of one step, as in
        Gymnasium-Robotics. It is called with the goal achieved after the step, one goal at a time.
      compute_terminated: Function with the same arguments that returns whether the step is terminal for another goal;
        None, the default, keeps what the step was for its own goal.
      k: Number of items with other goals for each step, at least 0; 4 by default.
      strategy: Steps whose achieved goals are taken: `future`, the default, for random ones from this step to the end
        of the episode; `final` for the last one, which all k items then have; `episode` for random ones of the whole
        episode.
      seed: Seed for the choice of steps; None, the default, takes one from the operating system.
      priority: Priority of items that get none in `add`: a number, 1 by default; or `max` for the largest that the
        table has seen since it was reset, in inserts and updates by anybody.
      num_envs: Number of environments in the vector; None for a single environment.
      dtype: Floating-point dtype of `reward` and `discount` in the items, float32 by default.
      options: Options of the adder's writer, for all that is not given by name; None means their defaults.
      **writer_options: Options of the writer by name, which are the fields of `reverb.WriterOptions`.

    Raises:
      ValueError: A number is out of range, `strategy` is none of the three words, or `priority` is another text than
        `max`.
      TypeError: `compute_reward` cannot be called.
    """

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

    def __init__(
        self,
        client: Client | str,
        table: str,
        *,
        discount: float,
        compute_reward: Callable[[Any, Any, Any], Any],
        compute_terminated: Callable[[Any, Any, Any], Any] | None = None,
        k: int = 4,
        strategy: Literal["future", "final", "episode"] = "future",
        seed: int | None = None,
        priority: float | Literal["max"] = 1.0,
        num_envs: int | None = None,
        dtype: Any = np.float32,
        options: WriterOptions | None = None,
        **writer_options: Unpack[WriterArguments],
    ) -> None:
        super().__init__(client, table, priority, num_envs, options, writer_options, takes_formula=False)
        self._discount = float(discount)
        if not 0.0 <= self._discount <= 1.0:
            raise ValueError(f"`discount` must be in [0, 1], got {discount}.")
        if strategy not in _STRATEGIES:
            raise ValueError(f"`strategy` must be 'future', 'final' or 'episode', got {strategy!r}.")
        if not callable(compute_reward):
            raise TypeError(f"`compute_reward` must be a function, got {compute_reward!r}.")
        self._compute_reward, self._compute_terminated = compute_reward, compute_terminated
        self._k = checks.as_int("k", k)
        if self._k < 0:
            raise ValueError(f"`k` must be at least 0, got {k}.")
        self._strategy = strategy
        self._random = np.random.default_rng(seed)
        self._dtype = np.dtype(dtype)
        self._default_priority = self._priorities.config.constant_fn.value
        # The goals of a step are known at the end of its episode, so episodes are kept until then.
        self._episodes: list[list[_Step]] = [[] for _ in range(self._num_envs or 1)]
        self._writer = self._pace(self._client.batched_writer(1, _KEPT_ROWS, options=self._options))
        # The keys of the items that a call has made, for each environment whose episode it has written.
        self._made: dict[int, NDArray[np.uint64]] = {}
        # Whether the writer has rows of an episode that has not ended, as an error in the midst of one leaves it.
        self._is_writing = False

    def add(
        self,
        observation: Mapping[str, Any],
        action: Any,
        reward: ArrayLike,
        next_observation: Mapping[str, Any],
        *,
        terminated: ArrayLike = False,
        truncated: ArrayLike = False,
        info: Any = None,
        priority: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        timeout: float | None = None,
    ) -> AdderKeys:
        """Adds a step. The last step of an episode creates the items of all its steps.

        An error of `compute_reward` or `compute_terminated` drops the episode whole, and no other. An error of the
        writer may leave items of the first steps. Either way the next step of that environment begins an episode.

        Args:
          observation: Dict of `observation`, `achieved_goal` and `desired_goal`, each a nest. With `num_envs` all
            arrays have a first axis of that length. Within an episode it must be the `next_observation` of the step
            before. Outside of the goals, a row of open length is a `Ragged` of one item, or of `num_envs` items.
          action: Action that the agent took, a nest.
          reward: Reward for the action, a number or an array `[num_envs]`.
          next_observation: Observation after the action, a dict like `observation`. At the end of an episode it is the
            last observation of that episode, not the first of the next one.
          terminated: Whether the episode ended with this step in a terminal state, so that no further reward follows.
          truncated: Whether the episode was cut off after this step, for instance by a time limit.
          info: Infos of the step, which `compute_reward` gets; with `num_envs` those of a vector of Gymnasium, of which
            it gets the part of its environment. None stands for an empty dict.
          priority: Priority of all items made from this step: a number, "max", or with `num_envs` an array
            `[num_envs]`. None, the default, takes the priority of the adder.
          mask: Bools `[num_envs]` that mark the environments that have a step; other rows are ignored. None marks all.
          timeout: Time limit in seconds to wait for room for the items that the step creates, before it is added; None,
            the default, waits as long as the table's rate limiter blocks.

        Returns:
          The keys of the items that the step has created, in the order of their creation: uint64 `[items]`, or with
          `num_envs` a `Ragged` with the keys of each environment.

        Raises:
          DeadlineExceededError: There was no room for the items within the timeout. The step was not added, and the
            same call may be repeated.
          ValueError: An observation lacks a key, an array has another first axis than `num_envs`, or a goal is a
            `Ragged`. See also `BatchedWriter.append`.
          TypeError, UnavailableError: See `BatchedWriter.append`.
        """
        present, seconds = self._present(mask), checks.as_timeout(timeout)
        is_terminal = self._flags("terminated", terminated)
        ends = (is_terminal | self._flags("truncated", truncated)) & present
        rewards = per_env("reward", reward, self._dtype, self._num_envs)
        given = self._priorities.of_step(priority)
        each: Any = self._default_priority if given is None else given
        each = [each] * present.size if is_max(each) else np.broadcast_to(each, present.shape).tolist()
        step = {
            "action": self._leaves(action, seconds, "action"),
            "next_observation": self._observed("next_observation", next_observation, seconds),
            "observation": self._observed("observation", observation, seconds),
        }
        # All rows are made before the first is kept, so that an error leaves no environment with a step of its own.
        added = {}
        for env in np.flatnonzero(present).tolist():
            row = self._row(step, env)
            added[env] = _Step(
                row["observation"],
                row["action"],
                rewards[env],
                row["next_observation"],
                bool(is_terminal[env]),
                self._info(info, env),
                each[env],
            )
        if True in ends:
            num_items = self._num_last(ends, self._steps + present)
            self._take_room(num_items, seconds)
        for env, taken in added.items():
            self._episodes[env].append(taken)
        self._steps += present
        if ends.any():
            self._end_episodes(ends, None)
        keys = self._take_keys()
        self._reports.finish()
        return keys

    def record(self, transition: Transition, transform: Callable[[Any], Any] | None) -> None:
        """Adds a step of a recorder. For `add_from`; it is not part of the public interface."""
        _refuse_more(transition, transform)
        if transition.alive is not None:
            raise ValueError(f"these items have one goal: give num_envs={len(transition.alive)} for agents as rows.")
        transition.add_whole(self.add, info=transition.infos)

    def _signature_of(self, transition: Transition, transform: Callable[[Any], Any] | None) -> Any:
        _refuse_more(transition, transform)
        specs = {"action": self._specs(transition.action)}
        for name in ("observation", "next_observation"):
            specs[name] = self._specs(dict(_checked(name, getattr(transition, name))))
        for name in ("discount", "reward"):
            specs[name] = TensorSpec((), self._dtype)
        return tree.map_structure_with_path(
            lambda path, spec: TensorSpec(spec.shape, spec.dtype, "/".join(map(str, path))), specs
        )

    def _observed(self, name: str, observation: Any, timeout: float | None) -> Mapping[str, Any]:
        """An observation whose keys and goals are those that they must be."""
        own: Mapping[str, Any] = self._leaves(_checked(name, observation), timeout, name)
        if self._has_rows:
            for key in ("achieved_goal", "desired_goal"):
                if any(isinstance(leaf, Rows) for leaf in tree.flatten(own[key])):
                    raise ValueError(f"{name}/{key} must be arrays of one shape, got a Ragged: goals are exchanged.")
        return own

    def _row(self, step: Any, env: int) -> Any:
        """A copy of what one environment has of a step."""
        if self._num_envs is None:
            return tree.map_structure(_own, step)
        for path, leaf in tree.flatten_with_path(step):
            shape = np.shape(leaf)
            if shape[:1] != (self._num_envs,):
                name = "/".join(map(str, path))
                raise ValueError(f"{name} has shape {list(shape)}; this adder was made with num_envs={self._num_envs}.")
        return tree.map_structure(lambda leaf: _own(leaf[env]), step)

    def _info(self, info: Any, env: int) -> Any:
        if info is None:
            return {}
        if self._num_envs is None or not isinstance(info, Mapping):
            return info
        own = _info_of(info, env)
        # Environments that reset themselves in the same step keep the infos of the step apart from those of the reset.
        return own.get("final_info", own)

    def _num_last(self, ends: NDArray[np.bool_], steps: NDArray[np.int64]) -> int:
        return (1 + self._k) * int(np.add.reduce(steps[ends]))

    def _end_episodes(self, ends: NDArray[np.bool_], priority: Any) -> None:
        envs = np.flatnonzero(ends).tolist()
        episodes = [self._episodes[env] for env in envs]
        # The next steps of these environments begin other episodes, whatever becomes of these.
        for env in envs:
            self._episodes[env] = []
        self._begin_anew(ends)
        first: Exception | None = None
        self._made.clear()
        self._writer.take_keys(1)
        for env, episode in zip(envs, episodes, strict=True):
            try:
                self._write(episode)
            except Exception as error:
                # An episode that fails takes no other with it.
                first = first or error
            self._made[env], _ = self._writer.take_keys(1)
        if first is not None:
            raise first

    def _take_keys(self) -> AdderKeys:
        made = [self._made.get(env, np.zeros(0, np.uint64)) for env in range(self._num_envs or 1)]
        self._made.clear()
        keys = np.concatenate(made)
        return keys if self._num_envs is None else Ragged(keys, np.array([len(own) for own in made], np.int64))

    def _drop_rows(self, ends: NDArray[np.bool_]) -> None:
        """Does nothing: the episode that is written next drops what an error has left."""

    def _write(self, episode: list[_Step]) -> None:
        """Writes an episode: row t is the observation before step t, and what step t gave."""
        # The functions of the program run first: if one fails, nothing of the episode has been written.
        others = [self._others(episode, t) for t in range(len(episode))]
        if self._is_writing:
            self._end_rows(episode)
        self._is_writing = True
        append = functools.partial(self._reports.call_unless_interrupted, self._writer.append)
        for step in episode:
            discount = self._discounted(step.terminated)
            given = {"action": step.action, "reward": step.reward, "discount": discount}
            append(self._for_writer(tree.map_structure(as_vector, {**step.observation, **given})))
        append(self._for_writer(tree.map_structure(as_vector, dict(episode[-1].following))))
        history = {name: tree.flatten(views) for name, views in self._writer.history.items()}
        row = len(episode)
        for t, step in enumerate(episode):
            self._create_item(history, t, t, 0, step.priority)
            for reached, relabelled in others[t]:
                # The reward for another goal has a row of its own.
                row += 1
                append(relabelled)
                self._create_item(history, t, row, reached, step.priority)
        self._end_rows(episode)

    def _end_rows(self, episode: list[_Step]) -> None:
        """Ends the writer's episode. `episode` gives the structure of a row."""
        blank = columns.blank(dict(episode[-1].following))
        self._reports.call(self._writer.append, blank, mask=np.zeros(1, bool), episode_end=np.ones(1, bool))
        self._is_writing = False

    def _others(self, episode: list[_Step], t: int) -> list[tuple[int, Any]]:
        """The rows whose achieved goals step t gets, each with what the step gives for that goal."""
        return [
            (reached, self._relabelled(episode[t], episode[reached - 1].following["achieved_goal"]))
            for reached in self._reached(t, len(episode)).tolist()
        ]

    def _reached(self, t: int, length: int) -> NDArray[np.int64]:
        """The rows whose achieved goals step t gets."""
        if self._strategy == "final":
            return np.full(self._k, length)
        return self._random.integers(t + 1 if self._strategy == "future" else 1, length + 1, self._k)

    def _relabelled(self, step: _Step, goal: Any) -> Any:
        achieved = step.following["achieved_goal"]
        reward = self._compute_reward(achieved, goal, step.info)
        judge = self._compute_terminated
        terminated = step.terminated if judge is None else bool(judge(achieved, goal, step.info))
        discount = self._discounted(terminated)
        return {"reward": np.full(1, as_array(reward, self._dtype)), "discount": as_vector(discount)}

    def _discounted(self, terminated: bool) -> Any:
        return self._dtype.type(0.0 if terminated else self._discount)

    def _create_item(self, history: dict[str, Any], t: int, row: int, reached: int, priority: ItemPriority) -> None:
        """Creates an item of step t with the reward in a row, and the goal achieved in another; 0 keeps its goal."""

        def observed(index: int) -> Any:
            goal = _at(history["achieved_goal"], reached) if reached else _at(history["desired_goal"], index)
            return _at(history["achieved_goal"], index) + goal + _at(history["observation"], index)

        # The columns of the dict in the order of their names.
        action, discount, reward = (history[name] for name in ("action", "discount", "reward"))
        columns = [_at(action, t), _at(discount, row), observed(t + 1), observed(t), _at(reward, row)]
        rows = [column for part in columns for column in part]
        self._reports.call_unless_interrupted(self._writer.create_items, self._table, priority, rows)


def _at(views: list[Any], index: int) -> list[Any]:
    return [view[index] for view in views]


def _refuse_more(transition: Transition, transform: Callable[[Any], Any] | None) -> None:
    if transform is not None or transition.extras is not None:
        raise ValueError("`transform` and `extras` are for other adders: these items have no further columns.")


def _checked(name: str, observation: Any) -> Mapping[str, Any]:
    keys = ("observation", "achieved_goal", "desired_goal")
    if not isinstance(observation, Mapping) or set(observation) != set(keys):
        got = f"the keys {', '.join(observation)}" if isinstance(observation, Mapping) else repr(type(observation))
        raise ValueError(f"`{name}` must be a dict of {', '.join(keys)}, got {got}.")
    return dict(observation)


def _own(leaf: Any) -> Any:
    if isinstance(leaf, Rows):
        return leaf.copy()
    return leaf if isinstance(leaf, (bytes, str)) else np.array(as_array(leaf))


def _info_of(infos: Mapping[str, Any], env: int) -> dict[str, Any]:
    """The part of a vector's infos that belongs to one environment: `_name` says which environments have `name`."""
    own = {}
    for name, value in infos.items():
        mask = infos.get(f"_{name}")
        if mask is not None and mask[env]:
            own[name] = _info_of(value, env) if isinstance(value, Mapping) else value[env]
    return own
