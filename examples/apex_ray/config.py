"""The settings that the processes of the example share, and the table of each shard."""

from __future__ import annotations

import dataclasses

import numpy as np
import reverb

CLUSTER = "apex"
REPLAY = "replay"
OBSERVATION_SIZE, NUM_ACTIONS = 4, 2


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a run. The defaults learn CartPole-v1 on two CPU cores in two minutes."""

    seed: int = 0
    num_shards: int = 2
    num_actors: int = 2
    num_updates: int = 8_000

    min_size_to_sample: int = 500
    batch_size: int = 128
    beta: float = 0.4
    save_every_s: float = 3.0

    num_steps: int = 3
    discount: float = 0.99
    reward_scale: float = 0.1
    # The actors explore differently, as in Ape-X: actor i with the power 1 + 7 i / (n - 1) of this.
    epsilon: float = 0.4
    insert_size: int = 32
    pull_every_steps: int = 100

    hidden_size: int = 64
    learning_rate: float = 1e-3
    target_every_updates: int = 200
    push_every_updates: int = 50
    look_every_s: float = 0.25


def make_tables() -> list[reverb.Table]:
    """The table of one shard. Its limits are those of the shard; both shards together hold twice as much."""
    observation = reverb.TensorSpec((OBSERVATION_SIZE,), np.float32)
    number = reverb.TensorSpec((), np.float32)
    return [
        reverb.Table(
            REPLAY,
            sampler=reverb.selectors.Prioritized(0.6),
            remover=reverb.selectors.Fifo(),
            max_size=100_000,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature={
                "observation": observation,
                "action": reverb.TensorSpec((), np.int32),
                "reward": number,
                "discount": number,
                "next_observation": observation,
            },
        )
    ]
