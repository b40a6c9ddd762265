"""Acme's DQN in TensorFlow learns to balance a pole. The agent is unmodified and makes server, adder and dataset.

Acme imports `launchpad`, which has no wheel for this Python: a module of that name must be on the path.

Run: python acme_dqn.py [--seconds 60] [--wanted 150] [--seed 0]
"""

import argparse
import random
import tempfile
import time

import acme
import gym
import numpy as np
import sonnet as snt
import tensorflow as tf
from acme import specs, wrappers
from acme.agents.tf import dqn
from acme.utils import loggers

MIN_REPLAY_SIZE = 500
LAST_EPISODES = 20


def make_environment(seed):
    environment = gym.make("CartPole-v0")
    environment.seed(seed)
    return wrappers.SinglePrecisionWrapper(wrappers.GymWrapper(environment))


def random_return(environment, spec):
    """The mean return of random actions: a network that is not trained may be lucky."""
    rng = np.random.default_rng(0)
    total = 0.0
    for _ in range(LAST_EPISODES):
        step = environment.reset()
        while not step.last():
            step = environment.step(rng.integers(spec.actions.num_values))
            total += float(step.reward)
    return total / LAST_EPISODES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to train at most")
    parser.add_argument("--wanted", type=float, default=150.0, help="the mean return that ends the training")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random.seed(options.seed)
    np.random.seed(options.seed)
    tf.random.set_seed(options.seed)

    environment = make_environment(options.seed)
    spec = specs.make_environment_spec(environment)
    by_chance = random_return(environment, spec)
    print(f"at random: {by_chance:.1f}", flush=True)
    network = snt.Sequential([snt.Flatten(), snt.nets.MLP([64, 64, spec.actions.num_values])])
    with tempfile.TemporaryDirectory() as folder:
        agent = dqn.DQN(
            environment_spec=spec,
            network=network,
            batch_size=64,
            samples_per_insert=16.0,
            min_replay_size=MIN_REPLAY_SIZE,
            target_update_period=50,
            learning_rate=1e-3,
            epsilon=tf.Variable(0.1, trainable=False),
            logger=loggers.NoOpLogger(),
            checkpoint=False,
            checkpoint_subpath=folder,
        )
        returns = train(acme.EnvironmentLoop(environment, agent, logger=loggers.NoOpLogger()), options)
    last = np.mean(returns[-LAST_EPISODES:])
    assert last >= options.wanted > 2 * by_chance, f"{last:.1f}, {by_chance:.1f} at random; wanted {options.wanted}"
    print(f"acme_dqn: from {by_chance:.1f} at random to {last:.1f} in {len(returns)} episodes")


def train(loop, options):
    """Trains until the last episodes reach the wanted return or the time is over, and returns all returns."""
    begun, returns = time.monotonic(), []
    while time.monotonic() - begun < options.seconds:
        returns.append(float(loop.run_episode()["episode_return"]))
        recent = np.mean(returns[-LAST_EPISODES:])
        if len(returns) % LAST_EPISODES == 0:
            print(f"after {len(returns)} episodes, {time.monotonic() - begun:.0f} s: {recent:.1f}", flush=True)
        if len(returns) > LAST_EPISODES and recent >= options.wanted:
            break
    return returns


if __name__ == "__main__":
    main()
