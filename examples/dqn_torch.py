"""Double DQN on CartPole-v1 in PyTorch, with prioritised replay: one server, two actors, one learner.

    pip install torch gymnasium
    python examples/dqn_torch.py [--seed N] [--updates N]

The agent of `examples/cartpole_dqn`, in one file and without the plot. The learner is the parent process.
"""

import argparse
import collections
import itertools
import multiprocessing
import signal
import sys
import time

import gymnasium
import numpy as np
import reverb
import torch

NUM_ACTORS = 2
BATCH_SIZE = 128
SAMPLES_PER_INSERT = 32.0
NUM_STEPS, DISCOUNT, REWARD_SCALE = 3, 0.99, 0.1
LAYER_SIZES = (4, 128, 128, 2)
NUM_PARAMETERS = sum((rows + 1) * columns for rows, columns in itertools.pairwise(LAYER_SIZES))


def make_tables() -> list[reverb.Table]:
    """The tables: transitions for the learner, the newest parameters for the actors, and returns for the report."""
    observation, scalar = reverb.TensorSpec((4,), np.float32), reverb.TensorSpec((), np.float32)
    return [
        reverb.Table(
            "replay",
            sampler=reverb.selectors.Prioritized(0.6),
            remover=reverb.selectors.Fifo(),
            max_size=200_000,
            rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                samples_per_insert=SAMPLES_PER_INSERT, min_size_to_sample=1_000, error_buffer=8_000.0
            ),
            signature={
                "observation": observation,
                "action": reverb.TensorSpec((), np.int64),
                "reward": scalar,
                "discount": scalar,
                "next_observation": observation,
            },
        ),
        reverb.Table(
            "parameters",
            sampler=reverb.selectors.Lifo(),
            remover=reverb.selectors.Fifo(),
            max_size=1,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature={"values": reverb.TensorSpec((NUM_PARAMETERS,), np.float32)},
        ),
        reverb.Table.queue("episodes", max_size=10_000, signature={"episode_return": scalar}),
    ]


def run_server(control) -> None:
    """Serves until the parent sends a message or exits."""
    server = reverb.Server(make_tables(), port=None)
    control.send(server.port)
    control.poll(None)
    server.stop()


def split(values: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Splits a flat vector into `(weights [out, in], bias)` per layer, in the order of `torch`'s parameters."""
    layers, offset = [], 0
    for rows, columns in itertools.pairwise(LAYER_SIZES):
        weights = values[offset : offset + rows * columns].reshape(columns, rows)
        offset += rows * columns
        layers.append((weights.T, values[offset : offset + columns]))
        offset += columns
    return layers


def action_values(layers, observations: np.ndarray) -> np.ndarray:
    """Q-values `[..., 2]` of observations `[..., 4]`."""
    for weights, bias in layers[:-1]:
        observations = np.maximum(observations @ weights + bias, 0.0)
    weights, bias = layers[-1]
    return observations @ weights + bias


def transition(steps, next_observation, terminated: bool) -> dict:
    """Makes the transition over all of `steps`: sums rewards and multiplies discounts, with zero at a termination."""
    return {
        "observation": steps[0][0],
        "action": np.int64(steps[0][1]),
        "reward": np.float32(sum(DISCOUNT**i * reward for i, (_, _, reward) in enumerate(steps))),
        "discount": np.float32(0.0 if terminated else DISCOUNT ** len(steps)),
        "next_observation": next_observation,
    }


def insert(client: reverb.Client, layers, rows: list[dict]) -> None:
    """Writes transitions with the actor's own absolute TD errors as their first priorities."""
    columns = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    taken = action_values(layers, columns["observation"])[np.arange(len(rows)), columns["action"]]
    following = action_values(layers, columns["next_observation"]).max(axis=-1)
    errors = columns["reward"] + columns["discount"] * following - taken
    client.insert_batch(columns, {"replay": np.abs(errors) + 1e-3})


def play(client: reverb.Client, index: int, seed: int) -> None:
    """Plays as long as the server runs."""
    rng = np.random.default_rng([seed, index])
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    steps, rows, layers, episode_return = collections.deque(), [], [], 0.0
    for step in range(2**62):
        if step % 200 == 0:
            layers = split(client.sample_batch("parameters", 1, squeeze_time=True).data["values"][0])
        explore = rng.random() < max(0.01, 1.0 - 0.99 * step / 5_000)
        action = int(rng.integers(2) if explore else action_values(layers, observation).argmax())
        next_observation, reward, terminated, truncated, _ = env.step(action)
        episode_return += float(reward)
        steps.append((observation, action, REWARD_SCALE * float(reward)))
        observation, over = next_observation, terminated or truncated
        while steps and (over or len(steps) == NUM_STEPS):
            rows.append(transition(steps, next_observation, terminated))
            steps.popleft()
        if len(rows) >= 32:
            insert(client, layers, rows)
            rows.clear()
        if over:
            client.insert({"episode_return": np.float32(episode_return)}, {"episodes": 1.0})
            episode_return = 0.0
            observation, _ = env.reset()


def run_actor(index: int, address: str, seed: int) -> None:
    """Plays until the server has stopped, which ends a run."""
    try:
        play(reverb.Client(address), index, seed)
    except (reverb.errors.UnavailableError, reverb.errors.CancelledError):
        pass


def make_network() -> torch.nn.Sequential:
    """A network of linear layers of `LAYER_SIZES` with rectifiers between them."""
    layers: list[torch.nn.Module] = []
    for rows, columns in itertools.pairwise(LAYER_SIZES):
        layers += [torch.nn.Linear(rows, columns), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def td_errors(online, target, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Double DQN: the online network chooses the next action, and the target network evaluates it."""
    taken = online(batch["observation"]).gather(1, batch["action"][:, None])[:, 0]
    with torch.no_grad():
        choice = online(batch["next_observation"]).argmax(dim=1, keepdim=True)
        judged = target(batch["next_observation"]).gather(1, choice)[:, 0]
    return batch["reward"] + batch["discount"] * judged - taken


def learn(client: reverb.Client, seed: int, num_updates: int, check_children) -> list[float]:
    """Learns, prints a line every two seconds, and returns the returns of all episodes."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # The actors use the other core.
    online, target = make_network(), make_network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_updates)
    returns: list[float] = []
    update, started_at, next_report = 0, time.time(), 0.0
    while update < num_updates:
        if update % 50 == 0:
            values = torch.nn.utils.parameters_to_vector(online.parameters()).detach().numpy()
            client.insert({"values": values}, {"parameters": 1.0})
        try:
            sample = client.sample_batch("replay", BATCH_SIZE, timeout=5.0, squeeze_time=True)
        except reverb.errors.DeadlineExceededError:
            check_children()  # The rate limiter waits for inserts. Checks that actors are still running to make them.
            continue
        batch = {key: torch.from_numpy(column) for key, column in sample.data.items()}
        weights = torch.from_numpy(reverb.importance_weights(sample.info, 0.4 + 0.6 * update / num_updates))
        errors = td_errors(online, target, batch)
        loss = (weights * torch.nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), 0.005)
        client.update_priorities("replay", sample.info.key, errors.detach().abs().numpy() + 1e-3)
        update += 1
        if time.time() >= next_report or update == num_updates:
            check_children()
            next_report = time.time() + 2.0
            tables = client.server_info()
            if waiting := tables["episodes"].current_size:
                episodes = client.sample_batch("episodes", waiting, timeout=10.0, squeeze_time=True)
                returns += episodes.data["episode_return"].tolist()
            limiter = tables["replay"].rate_limiter_info
            inserts, samples = limiter.insert_stats.completed, limiter.sample_stats.completed
            print(
                f"{time.time() - started_at:5.0f} s  update {update:6d}/{num_updates}"
                f"  return {np.mean(returns[-20:] or 0.0):5.1f}  items {tables['replay'].current_size:6d}"
                f"  samples per insert {samples / max(1, inserts - 1_000):5.2f}",
                flush=True,
            )
    return returns


def main() -> int:
    """Starts the processes, learns, and ends them again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=30_000)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    control, server_end = context.Pipe()
    children = [context.Process(name="server", target=run_server, args=(server_end,))]
    # Children ignore Ctrl-C from the start: the parent stops the server, and the actors end when they notice.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    children[0].start()
    server_end.close()

    def check_children() -> None:
        for child in children:
            if not child.is_alive():
                raise RuntimeError(f"{child.name} ended with status {child.exitcode}")

    try:
        address = f"localhost:{control.recv()}"
        for index in range(NUM_ACTORS):
            actor = context.Process(name=f"actor {index}", target=run_actor, args=(index, address, arguments.seed))
            actor.start()
            children.append(actor)
        signal.signal(signal.SIGINT, handler)
        returns = learn(reverb.Client(address), arguments.seed, arguments.updates, check_children)
    except KeyboardInterrupt:
        return 130
    finally:
        control.close()
        for child in children:
            child.join()
    print(f"mean return of the last 20 episodes, as the actors played them: {np.mean(returns[-20:]):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
