"""Ape-X on Ray: double DQN on CartPole-v1 with a prioritised replay of two shards, two actors and one learner.

    pip install 'reverb-replay[ray]' gymnasium matplotlib
    python examples/apex_ray [--seed N] [--quick] [--output DIR]

The learner is this process. The shards and the actors are actors and tasks of Ray, which it starts on this machine.
Halfway, the run kills a shard: the learner goes on with the other, Ray restarts the first one, and it comes back with
the items of its last checkpoint.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import pathlib
import signal
import sys
import tempfile
import time

# The learner leaves the other core to the actors. Workers of Ray find the modules of this folder.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)

import numpy as np  # noqa: E402
import ray  # noqa: E402
import reverb  # noqa: E402

import actor  # noqa: E402
import config as cfg  # noqa: E402
import network  # noqa: E402
import report  # noqa: E402

QUICK_UPDATES = 3_000
PATIENCE_S = 60.0


def kill_a_shard(replay: reverb.Client) -> int:
    """Kills the process of a shard, as a crash would. Returns its number."""
    shard = replay.shards()[0]
    os.kill(shard.pid, signal.SIGKILL)
    return shard.id


def learn(replay: reverb.Client, board, config: cfg.Config) -> report.History:
    """Learns for `config.num_updates` updates, and kills a shard halfway."""
    learner, history = network.Learner(config), report.History(started_at=time.time())
    ray.get(board.put.remote(learner.parameters))
    next_look = 0.0
    while history.updates < config.num_updates:
        if history.updates % config.target_every_updates == 0:
            learner.target = dict(learner.parameters)
        if history.updates % config.push_every_updates == 0:
            board.put.remote(learner.parameters)
        batch = replay.sample_batch(cfg.REPLAY, config.batch_size, timeout=PATIENCE_S, squeeze_time=True)
        weights = reverb.importance_weights(batch.info, config.beta)
        errors = learner.update(batch.data, weights)
        # Keys tell their shard, so each update goes to the one that has the item. Keys of a lost shard are passed over.
        replay.update_priorities(cfg.REPLAY, batch.info.key, errors.astype(np.float64) + 1e-3)
        history.updates += 1
        if time.time() >= next_look:
            history.look({shard.id: shard.items if shard.alive else 0 for shard in replay.shards()})
            next_look = time.time() + config.look_every_s
        if history.updates == config.num_updates // 2:
            history.killed = (time.time() - history.started_at, kill_a_shard(replay))
            print(f"  killed shard {history.killed[1]} at update {history.updates}", flush=True)
    history.duration_s = time.time() - history.started_at
    history.finish(ray.get(board.episodes.remote()))
    return history


def run(config: cfg.Config, checkpoints: str) -> report.History:
    """Starts the shards and the actors, learns, and stops them."""
    replay = reverb.ray.start(
        cfg.make_tables,
        shards=config.num_shards,
        name=cfg.CLUSTER,
        checkpoint=checkpoints,
        checkpoint_interval=config.save_every_s,
        detached=False,
    )
    board = ray.remote(actor.Board).options(num_cpus=0).remote()
    try:
        ray.get(board.put.remote(network.init(config)))
        act = ray.remote(actor.act)
        playing = [act.remote(replay, board, index, config) for index in range(config.num_actors)]
        wait_for_items(replay, playing, config)
        history = learn(replay, board, config)
        ray.get(board.put.remote(None))
        history.steps = sum(ray.get(playing, timeout=PATIENCE_S))
        return history
    finally:
        reverb.ray.stop(cfg.CLUSTER, save=False)


def wait_for_items(replay: reverb.Client, playing: list[ray.ObjectRef], config: cfg.Config) -> None:
    """Waits until the shards together have enough transitions. Raises the error of an actor that fails."""
    while replay.server_info()[cfg.REPLAY].current_size < config.min_size_to_sample:
        ray.get(ray.wait(playing, timeout=0.1)[0])


def main() -> int:
    """Parses the command line, runs, reports. Returns 0 if the agent learned and the killed shard came back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of the network and the actors")
    parser.add_argument("--quick", action="store_true", help="a short run that only has to improve, for CI")
    parser.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("demo-output"), help="folder of the picture"
    )
    arguments = parser.parse_args()
    config = cfg.Config(seed=arguments.seed)
    if arguments.quick:
        config = dataclasses.replace(config, num_updates=QUICK_UPDATES)
    # One CPU for each shard and actor, however many the machine has.
    num_cpus = config.num_shards + config.num_actors
    ray.init(num_cpus=num_cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as checkpoints:
            history = run(config, checkpoints)
    finally:
        ray.shutdown()
    arguments.output.mkdir(parents=True, exist_ok=True)
    report.save_picture(arguments.output / "apex_ray.png", history)
    report.print_summary(history)
    print(f"  picture: {arguments.output / 'apex_ray.png'}")
    return report.verdict(history)


if __name__ == "__main__":
    sys.exit(main())
