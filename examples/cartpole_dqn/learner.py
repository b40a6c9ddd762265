"""The learner: Double DQN on prioritised batches, in JAX on the CPU."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import reverb

import config as cfg
import network


@dataclasses.dataclass
class History:
    """The measurements of a run for the report. Times are in seconds since the start."""

    started_at: float
    episodes: list[tuple[float, float]] = dataclasses.field(default_factory=list)  # (time, return)
    ratio: list[tuple[float, int, int]] = dataclasses.field(default_factory=list)  # (time, inserts, samples)
    updates: int = 0
    duration_s: float = 0.0
    final_values: np.ndarray | None = None

    def last_returns(self, count: int = 20) -> list[float]:
        """The returns of the last `count` finished episodes."""
        return [value for _, value in self.episodes[-count:]]


def td_errors(values, target_values, batch, layer_sizes):
    """Double DQN: the online network chooses the next action, and the target network evaluates it."""
    online = network.split(values, layer_sizes)
    target = network.split(target_values, layer_sizes)
    q_taken = jnp.take_along_axis(forward(online, batch["observation"]), batch["action"][:, None], axis=1)[:, 0]
    choice = forward(online, batch["next_observation"]).argmax(axis=1)
    judged = jnp.take_along_axis(forward(target, batch["next_observation"]), choice[:, None], axis=1)[:, 0]
    return jax.lax.stop_gradient(batch["reward"] + batch["discount"] * judged) - q_taken


def forward(layers, observations):
    """The network of `network.action_values`, in JAX."""
    for weights, bias in layers[:-1]:
        observations = jax.nn.relu(observations @ weights + bias)
    weights, bias = layers[-1]
    return observations @ weights + bias


def make_update(config: cfg.Config, optimizer: optax.GradientTransformation) -> Callable:
    """Makes one jitted step: gradient, optimiser, and a small update of the target parameters."""

    def loss(values, target_values, batch, weights):
        errors = td_errors(values, target_values, batch, config.layer_sizes)
        return jnp.mean(weights * optax.losses.huber_loss(errors)), jnp.abs(errors)

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(values, target_values, state, batch, weights):
        gradient, errors = jax.grad(loss, has_aux=True)(values, target_values, batch, weights)
        changes, state = optimizer.update(gradient, state, values)
        values = optax.apply_updates(values, changes)
        target_values = optax.incremental_update(values, target_values, config.target_step)
        return values, target_values, state, errors

    return update


def observe(client: reverb.Client, history: History) -> reverb.reverb_types.TableInfo:
    """Moves the queue of episodes into the history, and records the limiter's counts."""
    info = client.server_info()
    waiting = info[cfg.EPISODES].current_size
    if waiting:
        data = client.sample_batch(cfg.EPISODES, waiting, timeout=10.0, squeeze_time=True).data
        times = data["finished_at"] - history.started_at
        history.episodes.extend(zip(times.tolist(), data["episode_return"].tolist(), strict=True))
    limiter = info[cfg.REPLAY].rate_limiter_info
    now = time.time() - history.started_at
    history.ratio.append((now, limiter.insert_stats.completed, limiter.sample_stats.completed))
    return info[cfg.REPLAY]


def run(address: str, config: cfg.Config, report: Callable, check_peers: Callable[[], None]) -> History:
    """Learns for `config.num_updates` updates and returns what happened."""
    client = reverb.Client(address)
    schedule = optax.cosine_decay_schedule(config.learning_rate, config.num_updates)
    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(schedule))
    update = make_update(config, optimizer)
    values = jnp.asarray(network.init(config.layer_sizes, np.random.default_rng(config.seed)))
    target_values, state = values.copy(), optimizer.init(values)
    history = History(started_at=time.time())
    next_look = next_report = 0.0
    while history.updates < config.num_updates:
        if history.updates % config.push_every_updates == 0:
            newest = {"values": np.asarray(values), "update": np.int64(history.updates)}
            client.insert(newest, {cfg.PARAMETERS: 1.0})
        try:
            batch = client.sample_batch(cfg.REPLAY, config.batch_size, timeout=5.0, squeeze_time=True)
        except reverb.errors.DeadlineExceededError:
            check_peers()  # The rate limiter waits for inserts. Checks that actors are still running to make them.
            continue
        beta = config.beta_start + (1.0 - config.beta_start) * history.updates / config.num_updates
        weights = reverb.importance_weights(batch.info, beta)
        values, target_values, state, errors = update(values, target_values, state, batch.data, weights)
        client.update_priorities(cfg.REPLAY, batch.info.key, np.asarray(errors, np.float64) + 1e-3)
        history.updates += 1
        if time.time() >= next_look:
            check_peers()
            table = observe(client, history)
            next_look = time.time() + config.look_every_s
            if time.time() >= next_report:
                report(history, table)
                next_report = time.time() + config.report_every_s
    report(history, observe(client, history))
    history.duration_s = time.time() - history.started_at
    history.final_values = np.asarray(values)
    return history
