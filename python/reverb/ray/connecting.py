"""Clients of a cluster on Ray, which find it by its name."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import ray

from reverb import cluster
from reverb.cluster.addresses import as_address
from reverb.data.cluster_options import SHARD_TIMEOUT, ClusterOptions
from reverb.data.endpoint import Endpoint
from reverb.errors import UnavailableError
from reverb.ray import actors, watching
from reverb.ray.secrets import client_files
from reverb.ray.shard_map import Access

# Seconds that a client waits for the map, which Ray may be restarting.
_MAP_S = 30.0


def connect(
    name: str = "replay",
    *,
    placement: Literal["episode", "writer"] = "episode",
    on_shard_loss: Literal["continue", "wait", "raise"] = "continue",
    shard_timeout: float = SHARD_TIMEOUT,
) -> RayClient:
    """Makes a client of a cluster that `start` has started, in any driver, task or actor of the same Ray cluster.

    Args:
      name: Name of the cluster.
      placement: When a writer chooses its shard: at each `"episode"`, or once for a `"writer"`.
      on_shard_loss: What becomes of calls while a shard is missing. `"continue"`: they go on with the others, and a
        warning names it. `"wait"`: they wait for it, for 300 seconds at most. `"raise"`: UnavailableError names it.
      shard_timeout: Time in seconds after which a shard that does not answer is missing.

    Raises:
      ValueError: No cluster of this name is running, or an argument is out of range.
      TypeError: An argument has the wrong type.
      ConnectionError: There is no Ray cluster.
      UnavailableError: The actor that knows the addresses does not answer, or the shards listen on the loopback
        interface of another node.
    """
    return _connected(name, ClusterOptions(placement, on_shard_loss, shard_timeout))


def _connected(name: str, options: ClusterOptions) -> RayClient:
    """Makes the client. Pickles of clients name this function, so it keeps its place."""
    actors.join()
    access = access_to(name)
    if not access.places:
        raise UnavailableError(f"no shard of the cluster `{name}` has started yet: try again when one has")
    tls, token_file = (None, None) if access.credentials is None else client_files(access.credentials)
    address = as_address([place.address for place in access.places])
    return RayClient(name, Endpoint(address, tls=tls, token_file=token_file, cluster=options), access)


def access_to(name: str) -> Access:
    """Asks the map of a cluster where its shards are, and what they ask of clients.

    Raises:
      ValueError: No cluster of this name is running.
      UnavailableError: The map does not answer, or this program cannot reach the shards from its node.
    """
    shard_map = actors.find(actors.map_name(name))
    if shard_map is None:
        raise actors.unknown(name)
    try:
        access: Access = ray.get(shard_map.access.remote(), timeout=_MAP_S)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
        raise UnavailableError(f"the actor that knows the shards of the cluster `{name}` does not answer") from error
    node = ray.get_runtime_context().get_node_id()
    for place in access.places:
        if place.is_loopback and place.node != node:
            raise UnavailableError(
                f"the shards of the cluster `{name}` listen on loopback of the node {place.node_ip}, and this program "
                f"is on another one: the Ray cluster had one node when it was started; stop it, and start it again"
            )
    return access


class RayClient(cluster.Client):
    """A client of a cluster on Ray, which `connect` makes. Its pickle has the name of the cluster, and no address.

    While a shard is missing, the client asks Ray once in a while whether it has another address by now.

    Args:
      name: Name of the cluster.
      endpoint: Endpoint of those shards that are known.
      access: What the map knows.
    """

    def __init__(self, name: str, endpoint: Endpoint, access: Access) -> None:
        super().__init__(endpoint)
        self._name = name
        # A question would start Ray again where the program has shut it down.
        watching.watch(self, access, lambda: access_to(name) if ray.is_initialized() else access)

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._name

    def shards(self, *, timeout: float | None = None) -> list[cluster.ShardState]:
        """Describes each shard, also those that are missing, in the order of their ids.

        If one is missing, the client asks Ray whether it refuses to start.

        Args:
          timeout: Time limit in seconds for their answers; None waits until each shard has answered or is missing.

        Raises:
          ValueError: A server is no shard, or not of the same cluster.
          PermissionDeniedError: The token does not allow it to see the server.
        """
        states = super().shards(timeout=timeout)
        if all(state.alive for state in states) or not ray.is_initialized():
            return states
        # The cluster may be stopped by now.
        with contextlib.suppress(ValueError, UnavailableError, ray.exceptions.RayError):
            access = access_to(self._name)
            refused = {place.address: access.refused.get(place.id) for place in access.places}
            states = [
                state if state.alive else dataclasses.replace(state, refused=refused.get(state.address))
                for state in states
            ]
        return states

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _connected, (self._name, self.endpoint.cluster)
