"""Where Ray places the shards of a cluster."""

from __future__ import annotations

import contextlib
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from reverb.errors import DeadlineExceededError

STRATEGIES = {"spread": "SPREAD", "pack": "PACK"}
_REMOVED = "REMOVED"


def group_name(cluster: str) -> str:
    """Returns the name of the placement group of a cluster."""
    return f"reverb/{cluster}"


def make_group(cluster: str, shards: int, resources: dict[str, float], strategy: str, is_detached: bool) -> Any:
    """Asks Ray for a placement group with one bundle for each shard. Does not wait for it."""
    lifetime = "detached" if is_detached else None
    return placement_group([resources] * shards, STRATEGIES[strategy], group_name(cluster), lifetime)


def wait_for_group(group: Any, cluster: str, shards: int, resources: dict[str, float], timeout: float) -> None:
    """Waits until Ray has reserved the resources of a placement group.

    Raises:
      DeadlineExceededError: It has not within the timeout. The text says what is needed and what is present.
    """
    if group.wait(timeout):
        return
    nodes = [node for node in ray.nodes() if node["Alive"]]
    free = ray.available_resources()
    each = "; ".join(f"{node['NodeManagerAddress']} has {_shown(resources, node['Resources'])}" for node in nodes)
    needed = {name: amount * shards for name, amount in resources.items()}
    raise DeadlineExceededError(
        f"Ray did not place the cluster `{cluster}` within {timeout:.0f} s: it needs {_shown(resources, resources)} "
        f"for each of {shards} shards, {_shown(needed, needed)} in all; of the {len(nodes)} nodes, {each}; "
        f"{_shown(resources, free)} are free. Add nodes, free resources, or start fewer or smaller shards."
    )


def _shown(names: dict[str, float], amounts: dict[str, float]) -> str:
    return ", ".join(f"{amounts.get(name, 0):g} {_unit(name)}" for name in names)


def _unit(resource: str) -> str:
    return "bytes of memory" if resource == "memory" else resource


def groups_of(cluster: str) -> list[str]:
    """Returns the ids of the placement groups of a cluster, also of starts that have failed."""
    table = placement_group_table()
    return [
        group["placement_group_id"]
        for group in table.values()
        if group["name"] == group_name(cluster) and group["state"] != _REMOVED
    ]


def remove_groups(cluster: str) -> None:
    """Removes the placement groups of a cluster."""
    for group in groups_of(cluster):
        with contextlib.suppress(ray.exceptions.RayError):
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))))
