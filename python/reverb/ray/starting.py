"""Starting a cluster on Ray."""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from reverb._announcement import tell
from reverb.data import checks
from reverb.data.durability import Durability, as_durability
from reverb.data.shard import Shard
from reverb.errors import DeadlineExceededError, UnavailableError
from reverb.ray import actors, placing
from reverb.ray.connecting import RayClient, connect
from reverb.ray.shard_map import Place, ShardMap
from reverb.ray.shard_server import ShardServer, ShardSettings
from reverb.server import Table

# Larger arguments of actors lie in the object store of the program that starts them, and are lost with it.
# limit (Processes): size of the pickled `make_tables` of a cluster on Ray | {:bytes} | `ValueError`
_MAX_PICKLE = 65_536


def start(
    make_tables: Callable[[], Iterable[Table]],
    *,
    shards: int,
    name: str = "replay",
    cpus_per_shard: float = 1,
    memory_per_shard: int | None = None,
    placement: Literal["spread", "pack"] = "spread",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_interval: float | None = None,
    durability: Literal["process", "power"] | Durability | None = None,
    accept_loss: bool = False,
    max_restarts: int = -1,
    detached: bool = True,
    timeout: float = 60,
    allow_insecure: bool = False,
) -> RayClient:
    """Starts a cluster: each shard is a server in an actor of its own, which Ray restarts when it is lost.

    A shard that starts again has the items of its newest checkpoint, with a `durability` all that it has confirmed, and
    keeps its port if that is free. Its clients wait for it as they were told by `on_shard_loss`, and find it, also at
    another address. One that refuses what is in its folder, such as a damaged log, stays away, and `shards()` says why.
    If the start fails, nothing of it is left.

    Args:
      make_tables: Function that makes the tables of a shard. Each shard calls it, also when it starts again. Limits of
        a table, such as `max_size`, are those of each shard.
      shards: Number of shards, 1 to 256.
      name: Name of the cluster, for `connect` and `stop`.
      cpus_per_shard: CPUs that Ray reserves for a shard.
      memory_per_shard: Bytes of memory that Ray reserves for a shard. Ray does not enforce it; `max_bytes` of the
        tables does. None reserves none.
      placement: Whether Ray puts shards on as many nodes as it can, `spread`, or on few, `pack`.
      checkpoint: Folder in which each shard keeps its checkpoints, in a folder of its own, named by its number. It must
        be storage that all nodes share if a shard is to survive its node. None saves nothing.
      checkpoint_interval: Seconds between two saves of a shard; None saves only by `checkpoint()` of a client and by
        `stop`.
      durability: What a confirmed change of a shard survives beside its checkpoints, as for `reverb.Server`. It needs
        `checkpoint`. None keeps nothing between checkpoints.
      accept_loss: Whether shards set aside a log that cannot be trusted or would not be replayed, as for
        `reverb.Server`. That holds for this start, and not for restarts by Ray.
      max_restarts: Number of times that Ray restarts a shard; -1 means always.
      detached: Whether the cluster outlives this program. False ends it with the program, without a save.
      timeout: Seconds in which all shards must have started, which includes the load of their checkpoints.
      allow_insecure: Whether shards of a Ray cluster with several nodes listen on the network without TLS and tokens,
        where anyone who can reach them can read and write the tables. False, the default, makes certificates and a
        token for the cluster, which `connect` fetches. With one node, shards listen on loopback, without either.

    Returns:
      A client of the cluster, as `connect(name)` returns.

    Raises:
      ValueError: A cluster of this name is running, `make_tables` pickles to more than 64 KiB, a number is out of
        range, or there is an interval or a durability without a folder.
      TypeError: An argument has the wrong type.
      DeadlineExceededError: The shards have not started within the timeout. The text says what Ray lacks.
      UnavailableError: A shard could not start. The text has its error.
    """
    if not ray.is_initialized():
        ray.init()
    _check(make_tables, shards, name, cpus_per_shard, placement, timeout)
    kept = as_durability("durability", durability)
    for argument, value in (("checkpoint_interval", checkpoint_interval), ("durability", kept)):
        if checkpoint is None and value is not None:
            raise ValueError(f"`{argument}` needs `checkpoint`, the folder in which the shards save")
    resources: dict[str, float] = {"CPU": cpus_per_shard}
    if memory_per_shard is not None:
        resources["memory"] = checks.as_count("memory_per_shard", memory_per_shard)
    if actors.of_cluster(name):
        raise ValueError(f"a cluster `{name}` is running on Ray already: connect to it, stop it, or take another name")
    is_loopback = sum(node["Alive"] for node in ray.nodes()) == 1
    settings = ShardSettings(
        name,
        make_tables,
        None if checkpoint is None else os.path.abspath(checkpoint),
        checkpoint_interval,
        kept,
        checks.as_flag("accept_loss", accept_loss),
        is_loopback=is_loopback,
        is_tls=not (is_loopback or allow_insecure),
    )
    # What takes the name is not removed if it has been taken: that cluster is another's.
    begun = _Start(settings, shards, resources, max_restarts, detached)
    try:
        places = begun.run(placement, time.monotonic() + timeout)
        client = connect(name)
    except BaseException:
        actors.remove(name, begun.actors)
        placing.remove_groups(name)
        raise
    actors.keep(name, begun.actors)
    tell(_summary(name, places))
    return client


def _check(make_tables: object, shards: int, name: str, cpus_per_shard: float, placement: str, timeout: float) -> None:
    if not callable(make_tables):
        raise TypeError(f"`make_tables` must be a function that returns a list of tables, got {make_tables!r}")
    if (size := len(ray.cloudpickle.dumps(make_tables))) > _MAX_PICKLE:
        raise ValueError(
            f"`make_tables` pickles to {size} bytes, more than {_MAX_PICKLE}: Ray would lose it with this program, so "
            f"load what it needs from a file, in the function"
        )
    Shard(checks.as_count("shards", shards) - 1, name)
    if "/" in name:
        raise ValueError(f"`name` must have no slash, got {name!r}")
    if not checks.as_float("cpus_per_shard", cpus_per_shard) > 0:
        raise ValueError(f"`cpus_per_shard` must be above 0, got {cpus_per_shard!r}")
    if placement not in placing.STRATEGIES:
        raise ValueError(f"`placement` must be one of {', '.join(placing.STRATEGIES)}, got {placement!r}")
    if not math.isfinite(checks.as_float("timeout", timeout)) or timeout <= 0:
        raise ValueError(f"`timeout` must be a positive number of seconds, got {timeout!r}")


class _Start:
    """The actors of a cluster that is starting. It begins with the map, which takes the name.

    Args:
      settings: What all shards have in common.
      shards: Number of shards.
      resources: What Ray reserves for each.
      max_restarts: Number of times that Ray restarts one.
      is_detached: Whether they outlive this program.

    Raises:
      ValueError: Another program has just taken the name.
    """

    def __init__(
        self, settings: ShardSettings, shards: int, resources: dict[str, float], max_restarts: int, is_detached: bool
    ) -> None:
        self._settings, self._shards, self._resources = settings, shards, resources
        self._common = {"namespace": actors.NAMESPACE, "lifetime": "detached" if is_detached else None}
        self._max_restarts, self._is_detached = max_restarts, is_detached
        name = settings.cluster
        options = {"name": actors.map_name(name), "num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        shard_map = ray.remote(ShardMap).options(**options, **self._common).remote(name, shards, settings.is_tls)
        self.actors: list[Any] = [shard_map]

    def run(self, placement: str, end: float) -> list[Place]:
        """Starts the shards, and waits for them. Returns where they are."""
        name = self._settings.cluster
        group = placing.make_group(name, self._shards, self._resources, placement, self._is_detached)
        seconds = end - time.monotonic()
        placing.wait_for_group(group, name, self._shards, self._resources, seconds)
        with _silenced():
            for number in range(self._shards):
                self.actors.append(self._shard(group, number))
        return self._places(end, seconds)

    def _shard(self, group: Any, number: int) -> Any:
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        return (
            ray.remote(ShardServer)
            .options(
                name=actors.shard_name(self._settings.cluster, number),
                num_cpus=self._resources["CPU"],
                memory=self._resources.get("memory"),
                max_restarts=self._max_restarts,
                # It says where it is, and what it knows, also while it saves.
                max_concurrency=4,
                scheduling_strategy=strategy,
                **self._common,
            )
            .remote(self._settings, number)
        )

    def _places(self, end: float, seconds: float) -> list[Place]:
        """Returns where the shards are. The first that fails ends the wait."""
        waiting = {shard.place.remote(): number for number, shard in enumerate(self.actors[1:])}
        places: list[Place] = []
        while waiting:
            answered, _ = ray.wait(list(waiting), timeout=max(0.0, end - time.monotonic()))
            if not answered:
                raise DeadlineExceededError(
                    f"the cluster `{self._settings.cluster}` has not started within {seconds:.0f} s: its shards "
                    f"{', '.join(map(str, waiting.values()))} did not; they may still load checkpoints, see `timeout`"
                )
            number = waiting.pop(answered[0])
            try:
                places.append(ray.get(answered[0]))
            except ray.exceptions.RayError as error:
                raise UnavailableError(
                    f"shard {number} of the cluster `{self._settings.cluster}` could not start: {error}"
                ) from error
        return places


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keeps Ray from warning, for each shard, that the removal of its placement group ends it, as `stop` wants it."""
    logger = logging.getLogger("ray.actor")

    # One of each call: other threads may start clusters, too.
    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)


def _summary(name: str, places: list[Place]) -> str:
    """Says how many shards are on which node, since Ray spreads them as well as it can, and no better."""
    counts = collections.Counter((place.node, place.node_ip) for place in places)
    nodes = ", ".join(f"{count} on {ip}" for (_, ip), count in counts.items())
    return f"cluster {name}: {len(places)} shards on {len(counts)} nodes: {nodes}"
