"""Environments whose steps go into an adder by themselves."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import tree
from numpy.typing import ArrayLike, NDArray

from reverb.adders import rows


class Transition(NamedTuple):
    """A step of an environment, or of each environment of a vector.

    Attributes:
      observation: Observation that the agent acted on.
      action: Action that the agent took.
      reward: Reward for the action.
      next_observation: Observation after the action, also where the episode ended and another has begun.
      terminated: Whether the episode ended in a terminal state.
      truncated: Whether the episode was cut off.
      infos: Further information, as the environment gave it.
      extras: Additional data of the agent; None if there is none.
      priority: Priority for the items that the step completes; None means that of the adder.
      mask: Bools that mark the environments that made a step; None for a single environment.
      alive: Whether each agent acted in this step, a dict by agent, where the other parts are such dicts, too; None
        where no agents have names.
      is_last: Whether the episode of all agents ended with this step.
    """

    observation: Any
    action: Any
    reward: Any
    next_observation: Any
    terminated: Any
    truncated: Any
    infos: Any
    extras: Any
    priority: ArrayLike | None
    mask: NDArray[np.bool_] | None
    alive: Mapping[Any, bool] | None = None
    is_last: bool = False

    def step(self, transform: Callable[[Any], Any] | None, *, is_next: bool = False) -> Any:
        """The step of a sequence or an episode: what `transform` makes of a dict of its parts.

        Args:
          transform: Function from the dict to the nest that is stored; None stores the dict.
          is_next: Whether `observation` is the observation after the action.
        """
        parts = {
            "observation": self.next_observation if is_next else self.observation,
            "action": self.action,
            "reward": self.reward,
            "terminated": self.terminated,
            "truncated": self.truncated,
        }
        if self.alive is not None:
            parts["alive"] = self.alive
        if self.extras is not None:
            parts.update(self.extras)
        return parts if transform is None else transform(parts)

    def add_step(self, add: Callable[..., object], transform: Callable[[Any], Any] | None, *, has_final: bool) -> None:
        """Passes the step of a sequence or an episode to the method of an adder.

        Args:
          add: The method `add` of the adder.
          transform: Function from the dict of the step to the nest that is stored; None stores the dict.
          has_final: Whether the adder takes values after the step.
        """
        add(
            self.step(transform),
            last=np.logical_or(self.terminated, self.truncated) if self.alive is None else self.is_last,
            final=self.step(transform, is_next=True) if has_final else None,
            priority=self.priority,
            mask=self.mask,
        )

    def add_whole(self, add: Callable[..., object], **more: Any) -> None:
        """Passes the transition to the method of an adder, with further arguments that this adder takes."""
        add(
            self.observation,
            self.action,
            self.reward,
            self.next_observation,
            terminated=self.terminated,
            truncated=self.truncated,
            priority=self.priority,
            mask=self.mask,
            **more,
        )


class Recording(Protocol):
    """What a recorder needs of an adder."""

    @property
    def num_envs(self) -> int | None:
        """Number of environments in the vector; None for a single environment."""

    def record(self, transition: Transition, transform: Callable[[Any], Any] | None) -> None:
        """Adds a step."""

    def end_episode(self, mask: ArrayLike | None = None) -> object:
        """Ends the episodes of these environments after their last step."""


class Caught:
    """Takes the first step of a recorder in place of an adder.

    Args:
      num_envs: Number of environments in the vector; None for a single environment.

    Attributes:
      transition: The step; None before it was made.
    """

    def __init__(self, num_envs: int | None) -> None:
        self.num_envs = num_envs
        self.transition: Transition | None = None

    def record(self, transition: Transition, transform: Callable[[Any], Any] | None) -> None:
        """Keeps a step."""
        self.transition = transition

    def end_episode(self, mask: ArrayLike | None = None) -> None:
        """Does nothing: no step belongs to an episode."""


class _Autoreset(enum.Enum):
    """When an environment that ended begins its next episode; the values are those of Gymnasium."""

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"


class Recorder:
    """An environment, or a vector of them, whose steps go into an adder. Made by `add_from` of an adder.

    `reset` and `step` take and return what those of the environment do. All other attributes are the environment's.

    Args:
      adder: Adder that the steps go into.
      env: Environment with Gymnasium's interface: a `gymnasium.Env`, or a `gymnasium.vector.VectorEnv`.
      autoreset_mode: Autoreset mode of a vector that does not name it in its metadata; None reads it there.
      transform: Function from the dict of a step to the nest that is stored; None stores the dict.

    Raises:
      ValueError: The numbers of environments differ, or the autoreset mode is unknown.
    """

    # The public module of the class, which pickles refer to.
    __module__ = "reverb.adders"

    def __init__(
        self, adder: Recording, env: Any, autoreset_mode: Any = None, transform: Callable[[Any], Any] | None = None
    ) -> None:
        self.env = env
        self._adder = adder
        self._transform = transform
        num_envs = getattr(env, "num_envs", None)
        if num_envs != adder.num_envs:
            has = "is a single environment" if num_envs is None else f"has {num_envs} environments"
            made = "without num_envs" if adder.num_envs is None else f"with num_envs={adder.num_envs}"
            raise ValueError(f"{env!r} {has}, but this adder was made {made}.")
        self._num_envs: int | None = num_envs
        self._mode = _mode_of(env, autoreset_mode, is_vector=num_envs is not None)
        # None where the next call must be `reset`: before the first one, and after a step that failed.
        self._observation: Any = None
        self._ended = np.zeros(num_envs or 1, np.bool_)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.env, name)

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
        """Resets the environment. Episodes under way end after their last step, as if that had been truncated.

        Args:
          seed: Seed as the environment takes it; None for none.
          options: Options as the environment takes them. `reset_mask` marks the environments of a vector to reset.

        Returns:
          The observation and the infos, as the environment returned them.
        """
        mask = None if options is None else options.get("reset_mask")
        if mask is not None and self._observation is None:
            raise RuntimeError("all environments must be reset first: call `reset` without `reset_mask`.")
        self._adder.end_episode(mask)
        observation, infos = self.env.reset(seed=seed, options=None if options is None else dict(options))
        self._observation = copied(observation)
        self._ended[... if mask is None else np.asarray(mask)] = False
        return observation, infos

    def step(
        self, action: Any, *, extras: Any = None, priority: ArrayLike | None = None
    ) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the environment, and adds the steps that belong to an episode.

        Args:
          action: Action as the environment takes it.
          extras: Additional data of the agent for this step. Transitions have them as `extras`; sequences and episodes
            take a dict of further columns, such as `{"state": state}`. None adds nothing.
          priority: Priority of the items that this step completes, as `add` takes it; None, the default, takes that of
            the adder.

        Returns:
          The observation, reward, `terminated`, `truncated` and infos, as the environment returned them.

        Raises:
          RuntimeError: `reset` must be called first.
          ValueError, TypeError, ReverbError: See `add` of the adder. The step was made; `reset` must be called next.
        """
        if self._observation is None:
            raise RuntimeError("call `reset` before `step`.")
        if self._mode is _Autoreset.DISABLED and self._ended.any():
            raise RuntimeError(self._must_reset())
        before, self._observation = self._observation, None
        observation, reward, terminated, truncated, infos = self.env.step(action)
        present = ~self._ended if self._mode is _Autoreset.NEXT_STEP else np.ones_like(self._ended)
        ended = np.logical_or(terminated, truncated).reshape(self._ended.shape)
        following = copied(observation)
        if present.any():
            is_over = self._mode is _Autoreset.SAME_STEP and ended.any()
            transition = Transition(
                observation=before,
                action=action,
                reward=reward,
                next_observation=_with_final(following, infos, ended) if is_over else following,
                terminated=terminated,
                truncated=truncated,
                infos=infos,
                extras=extras,
                priority=priority,
                mask=None if self._num_envs is None else present,
            )
            self._adder.record(transition, self._transform)
        self._ended = ended
        self._observation = following
        return observation, reward, terminated, truncated, infos

    def sample_action(self) -> Any:
        """An action of the action space. For `signature` of adders; it is not part of the public interface."""
        return sampled(self.env.action_space)

    def _must_reset(self) -> str:
        if self._num_envs is None:
            return "the episode has ended: call `reset` before the next `step`."
        which = ", ".join(map(str, np.flatnonzero(self._ended)))
        return (
            f"environments {which} have ended and do not reset themselves: call "
            "`reset(options={'reset_mask': terminated | truncated})` before the next `step`."
        )


def sampled(space: Any) -> Any:
    """A sample of a copy of a space, since the program may have seeded the space."""
    return copy.deepcopy(space).sample()


def _mode_of(env: Any, given: Any, *, is_vector: bool) -> _Autoreset:
    """The autoreset mode of an environment."""
    if given is None and not is_vector:
        return _Autoreset.NEXT_STEP if _resets_itself(env) else _Autoreset.DISABLED
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode") if given is None else given
    if mode is None:
        raise ValueError(
            f"{env!r} does not name its autoreset mode in `metadata['autoreset_mode']`: give `autoreset_mode`, one of "
            "'NextStep', 'SameStep' and 'Disabled'."
        )
    name = getattr(mode, "value", mode)
    for known in _Autoreset:
        if name in (known.value, known.name, known.name.lower()):
            return known
    raise ValueError(f"the autoreset mode must be 'NextStep', 'SameStep' or 'Disabled', got {mode!r}.")


def _resets_itself(env: Any) -> bool:
    """Whether a single environment has Gymnasium's wrapper that resets it with the step after the last."""
    while env is not None:
        if type(env).__name__ == "Autoreset":
            return True
        env = getattr(env, "__dict__", {}).get("env")
    return False


def copied(observation: Any) -> Any:
    """The observation in arrays of its own: environments may write the next one into the same arrays."""
    return tree.map_structure(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, observation)


def _with_final(observation: Any, infos: Mapping[str, Any], ended: NDArray[np.bool_]) -> Any:
    """The observations after a step: where an episode ended, its last one, which the infos have."""
    if "final_obs" not in infos:
        raise ValueError("the environments reset themselves in the same step, but their infos have no `final_obs`.")
    final = infos["final_obs"]
    result = rows.as_leaves(copied(observation), len(ended), "observation")
    # Gymnasium gives an array of the observations of single environments; others may give batches.
    is_listed = isinstance(final, np.ndarray) and final.dtype == object
    if not is_listed:
        final = rows.as_leaves(final, len(ended), "final_obs")
    for env in np.flatnonzero(ended):
        if is_listed:
            last = rows.as_leaves(final[env], 1, "final_obs")
        else:
            last = tree.map_structure(lambda leaf, env=env: leaf[env], final)
        for leaf, value in zip(tree.flatten(result), tree.flatten(last), strict=True):
            leaf[env] = value
    return rows.as_ragged(result) if rows.may_have_rows(observation) else result
