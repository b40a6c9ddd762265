"""PPO on CartPole-v1 in NumPy: two actors with eight environments each, and a learner that waits for whole rollouts.

    pip install gymnasium
    python examples/ppo_cartpole.py [--seed N] [--iterations N]

Each actor waits for newer parameters, makes a rollout with them, and waits again, so that the learner never learns from
an older policy than its newest. The learner is the parent process. Its server stops with it, also where it raises, and
that ends the actors.

Lines that touch the buffer end with `# reverb`, except for imports.
"""

import argparse
import contextlib
import multiprocessing
from typing import Any

import gymnasium
import numpy as np
import reverb
from numpy.typing import NDArray

NUM_ACTORS, NUM_ENVS, LENGTH = 2, 8, 64
DISCOUNT, LAMBDA, CLIP, EPOCHS, STEP_SIZE = 0.99, 0.95, 0.2, 20, 0.05
WINDOW = {"length": LENGTH, "period": LENGTH, "end": "drop"}

Arrays = dict[str, NDArray[Any]]


def make_envs() -> Any:
    """A vector that resets an environment with the step after its last, Gymnasium's default."""
    return gymnasium.make_vec("CartPole-v1", num_envs=NUM_ENVS)


def make_adder(server: str) -> reverb.adders.SequenceAdder:
    """Makes one item of each environment every `LENGTH` steps, with the observation after the last of them."""
    return reverb.adders.SequenceAdder(server, "rollouts", num_envs=NUM_ENVS, final="observation", **WINDOW)  # reverb


def features(observation: NDArray[Any]) -> NDArray[Any]:
    """What the policy and the value are linear in, `[..., 9]`."""
    return np.concatenate([observation, observation**2, np.ones_like(observation[..., :1])], axis=-1)


def log_probs(policy: NDArray[Any], observation: NDArray[Any]) -> NDArray[Any]:
    """The logarithms of the probabilities of the actions, `[..., 2]`."""
    logits = features(observation) @ policy
    return logits - np.logaddexp(logits[..., :1], logits[..., 1:])


def act(address: str, seed: int) -> None:
    """Makes rollouts, each with one version of the parameters, until the server is stopped."""
    envs, random = make_envs(), np.random.default_rng(seed)
    observation, is_reset = envs.reset(seed=seed)[0], np.zeros(NUM_ENVS, np.bool_)
    client, seen = reverb.Client(address), None  # reverb
    with contextlib.suppress(reverb.errors.ServerStoppedError), make_adder(address) as adder:  # reverb
        while True:
            parameters = client.wait_newer("parameters", after=seen)  # reverb
            seen, version = parameters.info.key, np.full(NUM_ENVS, parameters.data["version"])
            for _ in range(LENGTH):
                logs = log_probs(parameters.data["policy"], observation)
                action = (random.random(NUM_ENVS) > np.exp(logs[:, 0])).astype(np.int64)
                step = {"observation": observation, "action": action, "is_reset": is_reset, "version": version}
                step["log_prob"] = logs[np.arange(NUM_ENVS), action]
                observation, step["reward"], step["terminated"], step["truncated"], _ = envs.step(action)
                adder.add(step, final={"observation": observation})  # reverb
                # The step after the last of an episode only resets its environment.
                is_reset = step["terminated"] | step["truncated"]


def make_tables() -> list[reverb.Table]:
    """The newest parameters for the actors, and rollouts for the learner."""
    log_prob, flag, version = (np.zeros(NUM_ENVS, dtype) for dtype in (np.float64, np.bool_, np.int64))
    extras = {"log_prob": log_prob, "is_reset": flag, "version": version}
    signature = make_adder("localhost").signature(make_envs(), extras=extras)  # reverb
    specs = {"policy": reverb.TensorSpec((9, 2), np.float64), "version": reverb.TensorSpec((), np.int64)}  # reverb
    newest = reverb.selectors.Lifo(), reverb.selectors.Fifo(), 1, reverb.rate_limiters.MinSize(1)  # reverb
    parameters = reverb.Table("parameters", *newest, signature=specs)  # reverb
    return [parameters, reverb.Table.queue("rollouts", 4 * NUM_ACTORS * NUM_ENVS, signature=signature)]  # reverb


def advantages(batch: Arrays, value: NDArray[Any]) -> NDArray[Any]:
    """Generalised advantage estimates, `[batch, LENGTH]` (Schulman et al. 2016)."""
    values = features(batch["observation"]) @ value
    delta = batch["reward"] + DISCOUNT * values[:, 1:] * ~batch["terminated"] - values[:, :-1]
    goes_on = ~(batch["terminated"] | batch["truncated"])
    estimates = np.zeros_like(delta)
    following = np.zeros(len(delta))
    for t in reversed(range(LENGTH)):
        estimates[:, t] = following = delta[:, t] + DISCOUNT * LAMBDA * goes_on[:, t] * following
    return estimates


def learn(batch: Arrays, policy: NDArray[Any], value: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The policy after some epochs of PPO (Schulman et al. 2017), and the value that fits the returns best."""
    is_step = ~batch["is_reset"]
    observation = batch["observation"][:, :-1]
    estimates = advantages(batch, value)
    inputs, action, old = features(observation)[is_step], batch["action"][is_step], batch["log_prob"][is_step]
    returns = estimates[is_step] + inputs @ value
    advantage = (estimates[is_step] - estimates[is_step].mean()) / (estimates[is_step].std() + 1e-8)
    value = np.linalg.solve(inputs.T @ inputs + 1e-3 * np.eye(9), inputs.T @ returns)
    first, second = np.zeros_like(policy), np.zeros_like(policy)
    for epoch in range(1, EPOCHS + 1):
        logs = log_probs(policy, observation[is_step])
        ratio = np.exp(logs[np.arange(len(action)), action] - old)
        is_clipped = np.where(advantage > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
        weight = np.where(is_clipped, 0.0, ratio * advantage)
        gradient = inputs.T @ ((np.eye(2)[action] - np.exp(logs)) * weight[:, None]) / len(action)
        # Adam (Kingma and Ba 2015).
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        step = first / (1 - 0.9**epoch) / (np.sqrt(second / (1 - 0.999**epoch)) + 1e-8)
        policy = policy + STEP_SIZE * step
    return policy, value


def main(seed: int, iterations: int) -> None:
    """Learns, and prints how long the episodes are."""
    policy, value = np.zeros((9, 2)), np.zeros(9)
    context, lags = multiprocessing.get_context("spawn"), []
    with reverb.Server(make_tables()) as server, server.localhost_client() as client:  # reverb
        for number in range(NUM_ACTORS):
            context.Process(target=act, args=(f"localhost:{server.port}", 1_000 * seed + number)).start()
        for version in range(iterations):
            client.insert({"policy": policy, "version": np.int64(version)}, {"parameters": 1.0})  # reverb
            batch = client.sample_batch("rollouts", NUM_ACTORS * NUM_ENVS).data  # reverb
            policy, value = learn(batch, policy, value)
            lags.append(version - int(batch["version"].min()))
            num_episodes = max(1, np.count_nonzero(batch["terminated"] | batch["truncated"]))
            steps = np.count_nonzero(~batch["is_reset"]) / num_episodes
            print(f"iteration {version + 1}: {steps:.0f} steps per episode, lag {lags[-1]}", flush=True)
    print(f"learned for {iterations} iterations with a lag of at most {max(lags)} versions")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of the actors")
    parser.add_argument("--iterations", type=int, default=40, help="number of policies that are learned")
    arguments = parser.parse_args()
    main(arguments.seed, arguments.iterations)
