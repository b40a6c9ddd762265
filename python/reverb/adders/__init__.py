"""Adders create the items that most agents learn from out of an environment's steps.

    adder = reverb.adders.NStepTransitionAdder(client, "replay", n=3, discount=0.99, num_envs=64)
    envs = adder.add_from(gymnasium.make_vec("CartPole-v1", num_envs=64))
    observations, _ = envs.reset(seed=0)
    while True:
      observations, *_ = envs.step(policy(observations))

With another interface than Gymnasium's, `add` takes the steps one by one:

    adder.add(observation, action, reward, next_observation, terminated=terminated, truncated=truncated)

Each adder works for one environment or, with `num_envs`, for a vector of environments, whose arrays have a first axis
of that length. A column whose rows differ in length is a `Ragged` of an item for each environment, or of one item.
Adders are a few lines of code on top of patterns (`reverb.structured`). If none of them fits, write
your own in the same way.
"""

from reverb.adders.agents import AgentsRecorder
from reverb.adders.episode import EpisodeAdder
from reverb.adders.hindsight import HindsightAdder
from reverb.adders.n_step import NStepReturns, NStepTransitionAdder
from reverb.adders.recording import Recorder
from reverb.adders.sequence import SequenceAdder, sequence_configs

__all__ = [
    "AgentsRecorder",
    "EpisodeAdder",
    "HindsightAdder",
    "NStepReturns",
    "NStepTransitionAdder",
    "Recorder",
    "SequenceAdder",
    "sequence_configs",
]
