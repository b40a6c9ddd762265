"""An actor: plays CartPole with the newest parameters, and writes n-step transitions with priorities of its own."""

from __future__ import annotations

import collections
import time
from typing import Any

import gymnasium
import numpy as np
import ray
import reverb

import config as cfg
import network


class Board:
    """What is small goes through Ray: an actor with the newest parameters and the returns of finished episodes."""

    def __init__(self) -> None:
        self._parameters: network.Parameters | None = None
        self._episodes: list[tuple[float, float]] = []

    def put(self, parameters: network.Parameters | None) -> None:
        """Notes newer parameters; None ends the actors."""
        self._parameters = parameters

    def get(self, episodes: list[tuple[float, float]]) -> network.Parameters | None:
        """Notes episodes, each with its time and return, and returns the newest parameters."""
        self._episodes += episodes
        return self._parameters

    def episodes(self) -> list[tuple[float, float]]:
        """Returns all finished episodes in the order of time."""
        return sorted(self._episodes)


class NStep:
    """Turns steps into n-step transitions. The last steps of an episode give shorter transitions."""

    def __init__(self, config: cfg.Config):
        self._config = config
        self._steps: collections.deque[tuple[Any, int, float]] = collections.deque()

    def add(self, observation, action, reward, following, terminated, truncated):
        """Yields the transitions that this step completes."""
        self._steps.append((observation, action, reward * self._config.reward_scale))
        is_over = terminated or truncated
        while self._steps and (is_over or len(self._steps) == self._config.num_steps):
            rewards = [step[2] for step in self._steps]
            yield {
                "observation": self._steps[0][0],
                "action": np.int32(self._steps[0][1]),
                "reward": np.float32(sum(self._config.discount**i * reward for i, reward in enumerate(rewards))),
                # Zero only if the environment terminated: after a time limit the return still continues.
                "discount": np.float32(0.0 if terminated else self._config.discount ** len(rewards)),
                "next_observation": following,
            }
            self._steps.popleft()


def write(replay: reverb.Client, rows: list[dict], parameters: network.Parameters) -> None:
    """Inserts transitions with their TD errors under the actor's parameters as priorities (Horgan et al. 2018, §3)."""
    columns = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    priorities = np.abs(network.td_errors(parameters, parameters, columns)) + 1e-3
    try:
        replay.insert_batch(columns, {cfg.REPLAY: priorities})
    except reverb.errors.UnavailableError:
        # The shard was lost, and nobody knows whether it had these rows. Another one gets them: at least once.
        replay.insert_batch(columns, {cfg.REPLAY: priorities})


def act(replay: reverb.Client, board: Any, index: int, config: cfg.Config) -> int:
    """Plays until the board has no parameters any more. Returns the number of steps.

    Args:
      replay: Client of the cluster. Its pickle is the name of the cluster, so each task connects by itself.
      board: The actor `Board`.
      index: Number of this actor.
      config: Configuration of the run.
    """
    rng, env, n_step = np.random.default_rng([config.seed, index]), gymnasium.make("CartPole-v1"), NStep(config)
    epsilon = config.epsilon ** (1 + 7 * index / max(1, config.num_actors - 1))
    rows: list[dict] = []
    episodes: list[tuple[float, float]] = []
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    total = 0.0
    step = 0
    while True:
        if step % config.pull_every_steps == 0:
            parameters = ray.get(board.get.remote(episodes))
            episodes = []
            if parameters is None:
                return step
        is_random = rng.random() < epsilon
        values = network.action_values(parameters, observation)
        action = int(rng.integers(cfg.NUM_ACTIONS)) if is_random else int(values.argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        rows.extend(n_step.add(observation, action, reward, following, terminated, truncated))
        if len(rows) >= config.insert_size:
            write(replay, rows, parameters)
            rows = []
        observation = following
        if terminated or truncated:
            episodes.append((time.time(), total))
            observation, _ = env.reset()
            total = 0.0
        step += 1
