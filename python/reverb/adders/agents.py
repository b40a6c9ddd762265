"""Environments of several agents, as PettingZoo has them, whose steps go into an adder by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tree
from numpy.typing import ArrayLike

from reverb.adders.recording import Recorder, Recording, Transition, copied, sampled
from reverb.data.arrays import as_array


class AgentsRecorder(Recorder):
    """A parallel environment of PettingZoo, whose steps go into an adder. Made by `add_from` of an adder.

    Where the adder was made with as many `num_envs` as there are possible agents, each agent is a row with episodes of
    its own, which end when it leaves. Otherwise an item has all agents by their names: an agent that has left keeps its
    last observation and its flags, its actions and rewards are 0, and `alive` tells it from the others.

    Args:
      adder: Adder that the steps go into.
      env: Environment with the interface of `pettingzoo.ParallelEnv`.
      transform: Function from the dict of a step to the nest that is stored; None stores the dict.

    Raises:
      ValueError: The adder was made for another number of rows, or the agents take turns.
    """

    def __init__(self, adder: Recording, env: Any, transform: Callable[[Any], Any] | None = None) -> None:
        self.env = env
        self._adder = adder
        self._transform = transform
        self._names: tuple[Any, ...] = tuple(env.possible_agents)
        if hasattr(env, "agent_iter"):
            raise ValueError(f"the agents of {env!r} take turns: use pettingzoo.utils.aec_to_parallel(env).")
        if adder.num_envs not in (None, len(self._names)):
            raise ValueError(
                f"{env!r} has {len(self._names)} possible agents, but this adder was made with num_envs="
                f"{adder.num_envs}: give num_envs={len(self._names)} for agents as rows, or none for all in one item."
            )
        # The living agents; None where the next call must be `reset`.
        self._alive: frozenset[Any] | None = None
        # By agent: the newest observation, the flags, and an action and a reward of zeros.
        self._observations: dict[Any, Any] = {}
        self._flags: dict[Any, tuple[bool, bool]] = {}
        self._blanks: dict[Any, tuple[Any, Any]] = {}

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
        """Resets the environment. Episodes under way end after their last step, as if that had been truncated.

        Args:
          seed: Seed as the environment takes it; None for none.
          options: Options as the environment takes them.

        Returns:
          The observations and the infos by agent, as the environment returned them.
        """
        self._adder.end_episode()
        observations, infos = self.env.reset(seed=seed, options=None if options is None else dict(options))
        self._observations = {agent: copied(observations[agent]) for agent in self._names if agent in observations}
        self._flags = dict.fromkeys(self._names, (False, False))
        self._alive = frozenset(self.env.agents)
        return observations, infos

    def step(
        self, action: Any, *, extras: Any = None, priority: ArrayLike | None = None
    ) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the environment, and adds the steps of the agents that were alive.

        Args:
          action: Actions by agent, one for each living agent.
          extras: Additional data for this step, as `step` of a Recorder takes them; with agents as rows, in arrays
            `[num_envs, ...]` in the order of `possible_agents`.
          priority: Priority of the items that this step completes, as `add` takes it; None, the default, takes that of
            the adder.

        Returns:
          The observations, rewards, `terminated`, `truncated` and infos by agent, as the environment returned them.

        Raises:
          RuntimeError: `reset` must be called first.
          ValueError: An agent has no action, and the step was not made; or see `add` of the adder.
          TypeError, ReverbError: See `add` of the adder. The step was made; `reset` must be called next.
        """
        alive = self._alive
        if not alive:
            raise RuntimeError(
                "call `reset` before `step`." if alive is None else "all agents have left: call `reset`."
            )
        missing = [str(agent) for agent in self._names if agent in alive and agent not in action]
        if missing:
            raise ValueError(f"actions: expected one for each living agent, missing: {', '.join(missing)}")
        self._alive = None
        observations, rewards, terminated, truncated, infos = self.env.step(action)
        following = frozenset(self.env.agents)
        for agent in alive:
            is_terminal, is_cut = bool(terminated.get(agent, False)), bool(truncated.get(agent, False))
            # One that leaves without a flag has not reached a terminal state.
            self._flags[agent] = is_terminal, is_cut or not (is_terminal or agent in following)
        before = self._observations
        newest = {agent: copied(observations[agent]) for agent in alive | following if agent in observations}
        self._observations = {**before, **newest}
        make = self._as_one if self._adder.num_envs is None else self._as_rows
        transition = make(
            alive,
            observation=before,
            action=action,
            reward=rewards,
            next_observation=self._observations,
            infos=infos,
            extras=extras,
            priority=priority,
        )
        self._adder.record(transition, self._transform)
        self._alive = following
        return observations, rewards, terminated, truncated, infos

    def sample_action(self) -> Any:
        """An action of each living agent. For `signature` of adders; it is not part of the public interface."""
        return {agent: sampled(self.env.action_space(agent)) for agent in self.env.agents}

    def _as_rows(self, alive: frozenset[Any], **given: Any) -> Transition:
        """A transition with a row for each agent. Those of agents that are not alive do not count."""
        one = next(agent for agent in self._names if agent in alive)
        chosen = [agent if agent in alive else one for agent in self._names]
        by_agent = ("observation", "action", "reward", "next_observation")
        stacked = {name: _stacked(name, given.pop(name), chosen) for name in by_agent}
        given["infos"] = _of_rows(given["infos"], self._names)
        return Transition(
            **stacked,
            **given,
            terminated=np.array([self._flags[agent][0] for agent in chosen]),
            truncated=np.array([self._flags[agent][1] for agent in chosen]),
            mask=np.array([agent in alive for agent in self._names]),
        )

    def _as_one(self, alive: frozenset[Any], *, action: Any, reward: Any, **given: Any) -> Transition:
        """A transition with all agents by their names."""
        for agent in alive:
            self._blanks[agent] = _zeros_like(action[agent]), _zeros_like(reward[agent])
        some = reward[next(iter(alive))]
        for agent in self._names:
            if agent not in self._blanks:
                self._blanks[agent] = _zeros_of(self.env.action_space(agent)), _zeros_like(some)
        for name in ("observation", "next_observation"):
            seen = given[name]
            given[name] = {
                agent: seen[agent] if agent in seen else _zeros_of(self.env.observation_space(agent))
                for agent in self._names
            }
        return Transition(
            **given,
            action={agent: action[agent] if agent in alive else self._blanks[agent][0] for agent in self._names},
            reward={agent: reward[agent] if agent in alive else self._blanks[agent][1] for agent in self._names},
            terminated={agent: self._flags[agent][0] for agent in self._names},
            truncated={agent: self._flags[agent][1] for agent in self._names},
            mask=None,
            alive={agent: agent in alive for agent in self._names},
            is_last=not self.env.agents,
        )


def _stacked(name: str, by_agent: Mapping[Any, Any], agents: Sequence[Any]) -> Any:
    """A nest of arrays `[agents, ...]`."""
    rows = [tree.map_structure(as_array, by_agent[agent]) for agent in agents]
    try:
        return tree.map_structure(lambda *leaves: np.stack(leaves), *rows)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: agents can be rows only if their arrays have the same names and shapes; an adder without "
            f"num_envs makes items with all agents by their names. {error}"
        ) from None


def _of_rows(infos: Mapping[Any, Any], agents: Sequence[Any]) -> dict[str, Any]:
    """Infos as a vector of Gymnasium has them: `_name` says which rows have `name`."""
    each = [infos.get(agent) or {} for agent in agents]
    vector: dict[str, Any] = {}
    for name in dict.fromkeys(name for own in each for name in own):
        vector[name] = [own.get(name) for own in each]
        vector[f"_{name}"] = [name in own for own in each]
    return vector


def _zeros_like(nest: Any) -> Any:
    return tree.map_structure(lambda leaf: np.zeros_like(as_array(leaf)), nest)


def _zeros_of(space: Any) -> Any:
    """Zeros of a space of Gymnasium, for an agent that has not been there yet."""
    if isinstance(space, Mapping):
        return {name: _zeros_of(part) for name, part in space.items()}
    if hasattr(space, "spaces"):
        return tuple(map(_zeros_of, space.spaces))
    return np.zeros(space.shape, space.dtype)
