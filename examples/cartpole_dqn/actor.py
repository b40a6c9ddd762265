"""An actor's process: plays CartPole with the newest parameters and writes n-step transitions."""

from __future__ import annotations

import collections
import itertools
import time
from multiprocessing.synchronize import Event

import gymnasium
import numpy as np
import reverb

import config as cfg
import network


class NStep:
    """Turns steps into n-step transitions. The last steps of an episode give shorter transitions."""

    def __init__(self, num_steps: int, discount: float, reward_scale: float):
        self._num_steps, self._discount, self._reward_scale = num_steps, discount, reward_scale
        self._steps: collections.deque[tuple[np.ndarray, int, float]] = collections.deque()

    def add(self, observation, action, reward, next_observation, terminated, truncated):
        """Yields the transitions that this step completes."""
        self._steps.append((observation, action, self._reward_scale * reward))
        if terminated or truncated:
            while self._steps:
                yield self._transition(next_observation, terminated)
                self._steps.popleft()
        elif len(self._steps) == self._num_steps:
            yield self._transition(next_observation, False)
            self._steps.popleft()

    def _transition(self, next_observation, terminated):
        observation, action, _ = self._steps[0]
        return {
            "observation": observation,
            "action": np.int32(action),
            "reward": np.float32(sum(self._discount**i * step[2] for i, step in enumerate(self._steps))),
            # Zero only if the environment terminated: after a time limit the return still continues.
            "discount": np.float32(0.0 if terminated else self._discount ** len(self._steps)),
            "next_observation": next_observation,
        }


def stack(transitions: list[dict]) -> dict[str, np.ndarray]:
    """Stacks rows to columns of shape `[n, ...]`."""
    return {key: np.stack([row[key] for row in transitions]) for key in transitions[0]}


def initial_priorities(layers: network.Layers, rows: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the absolute n-step TD error under the actor's own parameters (Horgan et al. 2018, §3)."""
    taken = network.action_values(layers, rows["observation"])[np.arange(len(rows["action"])), rows["action"]]
    following = network.action_values(layers, rows["next_observation"]).max(axis=-1)
    return np.abs(rows["reward"] + rows["discount"] * following - taken) + 1e-3


def play(client: reverb.Client, index: int, config: cfg.Config, ending: Event) -> None:
    """Plays until `ending` is set."""
    rng = np.random.default_rng([config.seed, index])
    env = gymnasium.make("CartPole-v1")
    n_step = NStep(config.num_steps, config.discount, config.reward_scale)
    rows: list[dict] = []
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    episode_return, layers = 0.0, []
    for step in itertools.count():
        if ending.is_set():
            return
        if step % config.pull_every_steps == 0:
            newest = client.sample_batch(cfg.PARAMETERS, 1, squeeze_time=True).data["values"][0]
            layers = network.split(newest, config.layer_sizes)
        fraction = min(1.0, step / config.epsilon_steps)
        epsilon = config.epsilon_start + fraction * (config.epsilon_end - config.epsilon_start)
        if rng.random() < epsilon:
            action = int(rng.integers(cfg.NUM_ACTIONS))
        else:
            action = int(network.action_values(layers, observation).argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        episode_return += float(reward)
        rows.extend(n_step.add(observation, action, reward, following, terminated, truncated))
        if len(rows) >= config.insert_size:
            columns = stack(rows)
            client.insert_batch(columns, {cfg.REPLAY: initial_priorities(layers, columns)})
            rows.clear()
        observation = following
        if terminated or truncated:
            episode = {
                "actor": np.int32(index),
                "episode_return": np.float32(episode_return),
                "epsilon": np.float32(epsilon),
                "finished_at": np.float64(time.time()),
            }
            client.insert(episode, {cfg.EPISODES: 1.0})
            observation, _ = env.reset()
            episode_return = 0.0


def run(index: int, address: str, config: cfg.Config, ending: Event) -> None:
    """Plays until it is told to end, or until the server is gone."""
    try:
        play(reverb.Client(address), index, config, ending)
    except (reverb.errors.UnavailableError, reverb.errors.CancelledError):
        pass
