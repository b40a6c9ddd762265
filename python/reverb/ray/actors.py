"""The actors of clusters: how they are named, found and removed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

import ray

# Named actors are found in their namespace only, and that of a driver has a random name by default.
NAMESPACE = "reverb"
# Actors of clusters that end with this program: Ray ends such an actor as soon as no program knows it any more.
_kept: dict[str, list[Any]] = {}
# Seconds in which Ray removes an actor that was killed.
_REMOVAL_S = 20.0


def join() -> None:
    """Connects this program to the Ray cluster that is running, if it has not connected itself.

    Raises:
      ConnectionError: There is none.
    """
    if not ray.is_initialized():
        ray.init(address="auto")


def map_name(cluster: str) -> str:
    """Returns the name of the actor that holds the addresses of a cluster's shards."""
    return cluster


def shard_name(cluster: str, shard_id: int) -> str:
    """Returns the name of the actor of a shard."""
    return f"{cluster}/{shard_id}"


def find(name: str) -> Any:
    """Returns the actor of a name, or None if there is none."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def of_cluster(cluster: str) -> dict[str, Any]:
    """Returns the actors that a cluster has, by their names. Those that are dead for good are left out."""
    begin = shard_name(cluster, 0)[:-1]
    names = [name for name in _names() if name == map_name(cluster) or name.startswith(begin)]
    found = {name: find(name) for name in sorted(names)}
    return {name: actor for name, actor in found.items() if actor is not None}


def clusters() -> list[str]:
    """Returns the names of all clusters that have an actor."""
    return sorted({name.rpartition("/")[0] or name for name in _names()})


def unknown(cluster: str) -> ValueError:
    """Makes the error of a cluster that has no actor."""
    return ValueError(f"no cluster `{cluster}` is running on Ray; there are: {', '.join(clusters()) or 'none'}")


def _names() -> list[str]:
    listed = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in listed if actor["namespace"] == NAMESPACE]


def keep(cluster: str, kept: list[Any]) -> None:
    """Keeps the actors of a cluster until it is removed, or this program ends."""
    _kept[cluster] = kept


def remove(cluster: str, actors: Iterable[Any] = ()) -> None:
    """Kills the actors of a cluster, and those given, which need not be registered yet.

    Waits until Ray lists none, for 20 seconds at most.
    """
    _kept.pop(cluster, None)
    for actor in [*actors, *of_cluster(cluster).values()]:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(actor, no_restart=True)
    end = time.monotonic() + _REMOVAL_S
    while of_cluster(cluster) and time.monotonic() < end:
        time.sleep(0.05)
