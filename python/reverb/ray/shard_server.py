"""The actor of one shard: a server in a process of its own."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable

import ray

from reverb.client import Client
from reverb.data.durability import Durability
from reverb.data.shard import Shard
from reverb.errors import DataLossError, StorageError, UnavailableError
from reverb.platform.default.checkpointers import DefaultCheckpointer
from reverb.ray import actors
from reverb.ray.metrics import begin_gauges
from reverb.ray.secrets import Secrets, remove_folder, server_files
from reverb.ray.shard_map import Place
from reverb.server import Server, Table

_LOOPBACK = "127.0.0.1"
# Seconds that a shard waits for the map to tell its last port.
_ASK_S = 10.0


@dataclasses.dataclass(frozen=True)
class ShardSettings:
    """What all shards of a cluster have in common.

    Attributes:
      cluster: Name of the cluster.
      make_tables: Function that makes the tables of a shard.
      checkpoint: Folder in which each shard has a folder of its own; None saves nothing.
      checkpoint_interval: Seconds between two saves of a shard; None saves only if it is asked to.
      durability: Log of the changes of a shard; None means that it has none.
      accept_loss: Whether a shard that starts for the first time sets aside a log that it would refuse.
      is_loopback: Whether shards listen for programs of their node only.
      is_tls: Whether they speak TLS, and ask for the token of the cluster.
    """

    cluster: str
    make_tables: Callable[[], Iterable[Table]]
    checkpoint: str | None
    checkpoint_interval: float | None
    durability: Durability | None
    accept_loss: bool
    is_loopback: bool
    is_tls: bool


class ShardServer:
    """Serves one shard. Ray makes it again after it was lost; then it loads its newest checkpoint.

    Args:
      settings: What all shards have in common.
      shard_id: Number of this one.

    Raises:
      DataLossError, StorageError: It refuses what is in its folder. Ray does not make such an actor again.
    """

    def __init__(self, settings: ShardSettings, shard_id: int) -> None:
        self._settings, self._id = settings, shard_id
        self._node_ip = ray.util.get_node_ip_address()
        self._map = actors.find(actors.map_name(settings.cluster))
        self._secrets: Secrets | None = self._asked_secrets()
        self._files = None if self._secrets is None else server_files(self._secrets)
        self._server = self._served()
        # Whatever ends the process before `stop` does, Ray starts it again: also an exit with status 0.
        atexit.register(self._server.stop, returns=True)
        if self._map is not None:
            self._map.put.options(max_task_retries=-1).remote(self.place())
        begin_gauges(self._tables, settings.cluster, shard_id)

    def _asked_secrets(self) -> Secrets | None:
        """Without a limit, since the map may be starting again as well."""
        if not self._settings.is_tls:
            return None
        if self._map is None:
            raise UnavailableError(f"the actor with the secrets of the cluster `{self._settings.cluster}` is gone")
        found: Secrets = ray.get(self._map.secrets.options(max_task_retries=-1).remote())
        return found

    def _served(self) -> Server:
        """Starts the server. What it refuses in its folder, it would refuse again, so the map says it from now on."""
        try:
            return self._serve()
        except (DataLossError, StorageError) as error:
            if self._map is not None:
                # A map that is gone must not hide why.
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.get(self._map.refuse.options(max_task_retries=-1).remote(self._id, str(error)))
            raise

    def _serve(self) -> Server:
        """Starts the server at its last port if that is free, so that clients find it again by themselves."""
        last = self._last_port()
        if last is not None:
            with contextlib.suppress(UnavailableError):
                return self._server_at(last)
        return self._server_at(None)

    def _last_port(self) -> int | None:
        if self._map is None:
            return None
        try:
            place: Place | None = ray.get(self._map.last.remote(self._id), timeout=_ASK_S)
        except ray.exceptions.RayError:
            return None
        return None if place is None else place.port

    def _server_at(self, port: int | None) -> Server:
        settings, checkpointer = self._settings, None
        if settings.checkpoint is not None:
            folder = os.path.join(settings.checkpoint, str(self._id))
            checkpointer = DefaultCheckpointer(folder, interval=settings.checkpoint_interval)
        self._tables = list(settings.make_tables())
        return Server(
            self._tables,
            port,
            checkpointer,
            host=self._host,
            allow_insecure=True if self._secrets is None else None,
            tls=None if self._files is None else self._files.tls,
            tokens=None if self._files is None else self._files.tokens,
            shard=Shard(self._id, settings.cluster),
            durability=settings.durability,
            # Nobody has looked at what a restart finds.
            accept_loss=settings.accept_loss and not ray.get_runtime_context().was_current_actor_reconstructed,
        )

    @property
    def _host(self) -> str:
        return _LOOPBACK if self._settings.is_loopback else self._node_ip

    def place(self) -> Place:
        """Returns where the shard is."""
        node = ray.get_runtime_context().get_node_id()
        is_loopback, is_tls = self._settings.is_loopback, self._settings.is_tls
        return Place(self._id, self._host, self._server.port, is_loopback, is_tls, node, self._node_ip, os.getpid())

    def secrets(self) -> Secrets | None:
        """Returns the secrets of the cluster, for a map that has lost them; None if there are none."""
        return self._secrets

    def save(self) -> str | None:
        """Saves a checkpoint, and returns its path; None if the cluster has no folder for them.

        Raises:
          StorageError: It could not be written.
        """
        if self._settings.checkpoint is None:
            return None
        token = None if self._secrets is None else self._secrets.credentials.token
        with Client(f"unix:{self._server.unix_path}", token=token) as client:
            return client.checkpoint()

    def stop(self) -> None:
        """Stops the server, and tells its clients that it was for good."""
        self._server.stop()
        if self._files is not None:
            remove_folder(self._files.folder)
