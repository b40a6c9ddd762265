"""Stopping a cluster on Ray."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import ray

from reverb.errors import StorageError
from reverb.ray import actors, placing

_logger = logging.getLogger("reverb")
# Seconds after which a shard that does not answer counts as dead.
_ANSWER_S = 10.0
# Seconds that a shard has to tell its clients that it stops.
_STOP_S = 60.0
# Those that this process has stopped, which may be stopped again.
_stopped: set[str] = set()


def stop(name: str = "replay", save: bool = True) -> list[str]:
    """Stops a cluster: saves its shards, tells its clients that it was for good, and removes it from Ray.

    Shards that are dead, or do not answer within 10 s, are removed without a save. Stop the writers first: what they
    insert while the shards are saved may not be in the checkpoints. A second stop in the same program does nothing.

    Args:
      name: Name of the cluster.
      save: Whether each shard saves a last checkpoint, if the cluster has a folder for them.

    Returns:
      The paths of the checkpoints that were saved, in the order of the shards.

    Raises:
      ValueError: There is no cluster of this name.
      ConnectionError: There is no Ray cluster.
      StorageError: A shard could not save. Nothing was stopped; `save=False` stops it nevertheless.
    """
    actors.join()
    found = actors.of_cluster(name)
    if not found and not placing.groups_of(name):
        if name in _stopped:
            return []
        raise actors.unknown(name)
    map_name = actors.map_name(name)
    shards = {int(key.rpartition("/")[2]): actor for key, actor in found.items() if key != map_name}
    shards = _alive(name, dict(sorted(shards.items())))
    paths = _save(name, shards) if save else []
    told = [shard.stop.remote() for shard in shards.values()]
    if told:
        # Those that die meanwhile have nothing to say.
        ray.wait(told, num_returns=len(told), timeout=_STOP_S)
    actors.remove(name)
    placing.remove_groups(name)
    _stopped.add(name)
    return paths


def _alive(name: str, shards: dict[int, Any]) -> dict[int, Any]:
    """The shards that answer."""
    asked = {shard.place.remote(): number for number, shard in shards.items()}
    alive = {}
    if asked:
        for answer in ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S)[0]:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(answer)
                alive[asked[answer]] = shards[asked[answer]]
    for number in shards.keys() - alive.keys():
        _logger.warning("shard %d of the cluster %s does not answer: it is removed without a save", number, name)
    return dict(sorted(alive.items()))


def _save(name: str, shards: dict[int, Any]) -> list[str]:
    asked = {number: shard.save.remote() for number, shard in shards.items()}
    paths, failed = [], {}
    for number, answer in asked.items():
        try:
            path = ray.get(answer)
        except ray.exceptions.RayActorError as error:
            _logger.warning("shard %d of the cluster %s died before it was saved: %s", number, name, error)
        except ray.exceptions.RayTaskError as error:
            failed[number] = error.cause
        else:
            paths += [path] if path is not None else []
    if failed:
        texts = "; ".join(f"shard {number}: {error}" for number, error in failed.items())
        raise StorageError(f"the cluster `{name}` still runs, since it could not be saved: {texts}")
    return paths
