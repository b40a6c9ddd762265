"""The settings that the four processes of the example share."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import reverb

REPLAY = "replay"
PARAMETERS = "parameters"
EPISODES = "episodes"

OBSERVATION_SIZE = 4
NUM_ACTIONS = 2


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a run. The defaults learn CartPole-v1 on two CPU cores."""

    seed: int = 0
    num_actors: int = 2
    num_updates: int = 30_000

    # Replay: 32 samples per insert and batches of 128 make one update for every four transitions.
    max_size: int = 200_000  # Holds the whole run: an agent that no longer fails would forget its failures.
    min_size_to_sample: int = 1_000
    samples_per_insert: float = 32.0
    error_buffer: float = 8_000.0
    batch_size: int = 128
    priority_exponent: float = 0.6
    beta_start: float = 0.4

    # Actors.
    num_steps: int = 3
    discount: float = 0.99
    reward_scale: float = 0.1  # Action values of about 10 rather than 100, which the network learns sooner.
    epsilon_start: float = 1.0
    epsilon_end: float = 0.01
    epsilon_steps: int = 5_000
    insert_size: int = 32
    pull_every_steps: int = 200

    # Learner.
    hidden_size: int = 128
    learning_rate: float = 1e-3
    target_step: float = 0.005
    push_every_updates: int = 50
    look_every_s: float = 0.2
    report_every_s: float = 2.0

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """The widths of the network's layers, from input to output."""
        return (OBSERVATION_SIZE, self.hidden_size, self.hidden_size, NUM_ACTIONS)

    @property
    def num_parameters(self) -> int:
        """Length of the flat parameter vector that is sent to the actors."""
        return sum((rows + 1) * columns for rows, columns in itertools.pairwise(self.layer_sizes))


def transition_signature() -> dict[str, reverb.TensorSpec]:
    """The signature of one n-step transition, with rewards summed and discounts multiplied by the actor."""
    return {
        "observation": reverb.TensorSpec((OBSERVATION_SIZE,), np.float32),
        "action": reverb.TensorSpec((), np.int32),
        "reward": reverb.TensorSpec((), np.float32),
        "discount": reverb.TensorSpec((), np.float32),
        "next_observation": reverb.TensorSpec((OBSERVATION_SIZE,), np.float32),
    }


def parameters_signature(config: Config) -> dict[str, reverb.TensorSpec]:
    """The signature of the flat network parameters and of the number of updates that made them."""
    return {
        "values": reverb.TensorSpec((config.num_parameters,), np.float32),
        "update": reverb.TensorSpec((), np.int64),
    }


def episode_signature() -> dict[str, reverb.TensorSpec]:
    """The signature of an actor's report on a finished episode."""
    return {
        "actor": reverb.TensorSpec((), np.int32),
        "episode_return": reverb.TensorSpec((), np.float32),
        "epsilon": reverb.TensorSpec((), np.float32),
        "finished_at": reverb.TensorSpec((), np.float64),
    }
