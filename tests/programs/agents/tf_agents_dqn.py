"""TF-Agents' DQN learns to balance a pole. The replay buffer, its observer and its dataset are TF-Agents' own.

The program follows TF-Agents' DQN tutorial with Reverb: a driver steps the environment, an observer writes pairs of
frames to a table, and the agent trains on batches of these.

Run: python tf_agents_dqn.py [--seconds 60] [--wanted 150] [--seed 0]
"""

import argparse
import random
import time

import numpy as np
import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.drivers import py_driver
from tf_agents.environments import suite_gym, tf_py_environment
from tf_agents.networks import q_network
from tf_agents.policies import py_tf_eager_policy, random_py_policy
from tf_agents.replay_buffers import reverb_replay_buffer, reverb_utils
from tf_agents.specs import tensor_spec
from tf_agents.utils import common

import reverb

TABLE = "uniform_table"
RANDOM_STEPS = 500
STEPS_PER_ITERATION = 4
BATCH = 64
EVALUATE_EVERY = 250
EPISODES = 10


def make_agent(environment):
    network = q_network.QNetwork(environment.observation_spec(), environment.action_spec(), fc_layer_params=(64, 64))
    agent = dqn_agent.DdqnAgent(
        environment.time_step_spec(),
        environment.action_spec(),
        q_network=network,
        optimizer=tf.keras.optimizers.Adam(learning_rate=1e-3),
        epsilon_greedy=0.1,
        target_update_period=50,
        td_errors_loss_fn=common.element_wise_squared_loss,
        train_step_counter=tf.Variable(0),
    )
    agent.initialize()
    agent.train = common.function(agent.train)
    return agent


def make_buffer(agent):
    """A local server with one table, the buffer over it, and an observer that writes to it."""
    signature = tensor_spec.add_outer_dim(tensor_spec.from_spec(agent.collect_data_spec))
    server = reverb.Server(
        [
            reverb.Table(
                TABLE,
                max_size=100_000,
                sampler=reverb.selectors.Uniform(),
                remover=reverb.selectors.Fifo(),
                rate_limiter=reverb.rate_limiters.MinSize(1),
                signature=signature,
            )
        ]
    )
    buffer = reverb_replay_buffer.ReverbReplayBuffer(
        agent.collect_data_spec, table_name=TABLE, sequence_length=2, local_server=server
    )
    observer = reverb_utils.ReverbAddTrajectoryObserver(buffer.py_client, TABLE, sequence_length=2)
    return server, buffer, observer


def mean_return(environment, policy):
    """The mean over some episodes of the greedy policy."""
    total = 0.0
    for _ in range(EPISODES):
        step = environment.reset()
        while not step.is_last():
            step = environment.step(policy.action(step).action)
            total += float(step.reward)
    return total / EPISODES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to train at most")
    parser.add_argument("--wanted", type=float, default=150.0, help="the mean return that ends the training")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random.seed(options.seed)
    np.random.seed(options.seed)
    tf.random.set_seed(options.seed)

    collected, evaluated = suite_gym.load("CartPole-v0"), suite_gym.load("CartPole-v0")
    collected.seed(options.seed)
    evaluated.seed(options.seed + 1)
    agent = make_agent(tf_py_environment.TFPyEnvironment(suite_gym.load("CartPole-v0")))
    greedy = py_tf_eager_policy.PyTFEagerPolicy(agent.policy, use_tf_function=True)
    exploring = py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True)
    server, buffer, observer = make_buffer(agent)

    by_chance = mean_return(
        evaluated, random_py_policy.RandomPyPolicy(evaluated.time_step_spec(), evaluated.action_spec())
    )
    print(f"at random: {by_chance:.1f}", flush=True)
    driver = py_driver.PyDriver(collected, exploring, [observer], max_steps=STEPS_PER_ITERATION)
    step = collected.reset()
    for _ in range(RANDOM_STEPS // STEPS_PER_ITERATION):
        step, _ = driver.run(step)
    batches = iter(buffer.as_dataset(num_parallel_calls=3, sample_batch_size=BATCH, num_steps=2).prefetch(3))

    begun, iterations, best = time.monotonic(), 0, 0.0
    while best < options.wanted and time.monotonic() - begun < options.seconds:
        step, _ = driver.run(step)
        batch, _ = next(batches)
        agent.train(batch)
        iterations += 1
        if iterations % EVALUATE_EVERY == 0:
            now = mean_return(evaluated, greedy)
            best = max(best, now)
            print(f"after {iterations} batches, {time.monotonic() - begun:.0f} s: {now:.1f}", flush=True)
    print(f"items in the table: {buffer.num_frames()}")
    observer.close()
    server.stop()
    assert best >= options.wanted > 2 * by_chance, f"{best:.1f}, {by_chance:.1f} at random; wanted {options.wanted}"
    print(f"tf_agents_dqn: from {by_chance:.1f} at random to {best:.1f} in {iterations} batches")


if __name__ == "__main__":
    main()
