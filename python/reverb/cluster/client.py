"""The client of a cluster."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable
from typing import Literal

from reverb import _binding, client
from reverb._settings import with_environment
from reverb.cluster.addresses import as_address, with_shard
from reverb.cluster.states import ClusterStats, ShardState, shard_state
from reverb.data import checks
from reverb.data.cluster_options import SHARD_TIMEOUT, ClusterOptions
from reverb.data.endpoint import Endpoint
from reverb.data.tls import TLS
from reverb.writing.options import MAX_PENDING_BYTES

__all__ = ["Client", "connect"]


def connect(
    addresses: str | Iterable[str],
    *,
    placement: Literal["episode", "writer"] = "episode",
    on_shard_loss: Literal["continue", "wait", "raise"] = "continue",
    shard_timeout: float = SHARD_TIMEOUT,
    max_pending_bytes: int = MAX_PENDING_BYTES,
    token: str | None = None,
    tls: TLS | None = None,
    allow_insecure: bool | None = None,
    unix_peers: Iterable[int] | None = None,
    max_shared_bytes: int | None = None,
) -> Client:
    """Makes a client of a cluster: of several servers, its shards, as of one buffer. Contacts none of them yet.

    Args:
      addresses: Addresses of the shards: `"host:port,host:port"` or a list of `"host:port"`, of which those on this
        machine are reached by their Unix sockets; `"ipv4:host:port,host:port"`, always over TCP; or
        `"dns:///name:port"`, a name of whose addresses each is a shard. With `grpcs://` in front over TLS.
      placement: When a writer chooses its shard: at each `"episode"`, or once for a `"writer"`.
      on_shard_loss: What becomes of calls while a shard is missing. `"continue"`: they go on with the others, and a
        warning names it. `"wait"`: they wait for it, for 300 seconds at most. `"raise"`: UnavailableError names it.
      shard_timeout: Time in seconds after which a shard that does not answer is missing.
      max_pending_bytes: Limit in bytes on the unconfirmed items of all writers of this client, as for `reverb.Client`.
      token: Token for servers with tokens, as for `reverb.Client`.
      tls: Files for servers with TLS, as for `reverb.Client`.
      allow_insecure: Whether the token may be sent over TCP without TLS, as for `reverb.Client`.
      unix_peers: Numbers of the users whose servers are trusted at Unix sockets, as for `reverb.Client`.
      max_shared_bytes: Limit in bytes on the memory shared with each shard of this host, as for `reverb.Client`.

    Raises:
      TypeError: An argument has the wrong type.
      ValueError: An address is not valid, or another argument is out of range.
    """
    options = ClusterOptions(placement, on_shard_loss, shard_timeout)
    endpoint = Endpoint(as_address(addresses), cluster=options)
    endpoint = endpoint.given(tls, token, allow_insecure, unix_peers, max_shared_bytes)
    _binding.check_endpoint(with_environment(endpoint))
    return Client(endpoint, max_pending_bytes=max_pending_bytes)


class Client(client.Client):
    """A client of a cluster, which `reverb.cluster.connect` makes. Its calls are those of `reverb.Client`.

    Draws are those of one table with the items of all shards: so are `probability` and `table_size`. `insert` and
    `insert_batch` go whole to one shard. Priority "max" is the largest that any shard has seen, as far as this client
    has heard from their answers. Updates, deletes and reads by keys go to the shards that own the keys. `server_info`
    adds up; `reset`, `configure_table` and `checkpoint` go to all shards, and fail by name if one is
    missing. `checkpoint` returns one path a line, in the order of the addresses.

    Args:
      endpoint: Endpoint of the cluster.
      max_pending_bytes: Limit in bytes on the unconfirmed items of all writers of this client.

    Raises:
      TypeError: The endpoint is none of a cluster.
    """

    def __init__(self, endpoint: Endpoint, *, max_pending_bytes: int = MAX_PENDING_BYTES) -> None:
        if not isinstance(endpoint, Endpoint) or endpoint.cluster is None:
            raise TypeError("reverb.cluster.connect makes clients of clusters")
        super().__init__(endpoint, max_pending_bytes=max_pending_bytes)
        # Held while a shard is added: threads would lose each other's.
        self._adding = threading.Lock()

    def __repr__(self) -> str:
        return f"reverb.cluster.Client, {self.described()}"

    def shards(self, *, timeout: float | None = None) -> list[ShardState]:
        """Describes each shard, also those that are missing, in the order of their ids.

        Of two servers with the same id, the older one, which the client refuses, is left out.

        Args:
          timeout: Time limit in seconds; None waits until each shard has answered or is missing.

        Raises:
          ValueError: A server is no shard, or not of the same cluster.
          PermissionDeniedError: The token does not allow it to see the server.
        """
        answers = self.engine.shards(checks.as_timeout(timeout))
        return [shard_state(*answer) for answer in answers]

    def stats(self) -> ClusterStats:
        """Counts what the draws and calls of this client did, and names the shards that are missing or slow."""
        rounds, spare, missing, slow, passed_over = self.engine.cluster_counts()
        return ClusterStats(rounds, spare, tuple(missing), tuple(slow), passed_over)

    def add_shard(self, address: str) -> None:
        """Adds a shard, which takes part once it was reached. Pickles that are made from now on have it, too.

        Args:
          address: Address of the shard, `host:port`. One that the cluster has already changes nothing.

        Raises:
          TypeError: The address is not a str.
          ValueError: It is not valid, or the cluster was named by `dns:///`, whose addresses are its shards.
        """
        with self._adding:
            endpoint = dataclasses.replace(self.endpoint, address=with_shard(self.endpoint.address, address))
            if endpoint != self.endpoint:
                self.engine.add_shards(with_environment(endpoint))
                self.endpoint = endpoint
