"""Finds shards that have another address than before. One thread of the process does it for all of its clients."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

from reverb.cluster import Client
from reverb.ray.shard_map import Access

_logger = logging.getLogger("reverb")
# Seconds between two looks at what a client knows of its shards, which asks nobody.
_LOOK_S = 1.0
# Looks between two questions for a shard that stays missing, at most. The number doubles with each.
_MOST_LOOKS = 4


class _Watched:
    """A client whose shards may move.

    Args:
      client: Client of the cluster.
      access: What it knows of the shards.
      ask: Function that asks where they are now.
    """

    def __init__(self, client: Client, access: Access, ask: Callable[[], Access]) -> None:
        self._client, self._access, self._ask = weakref.ref(client), access, ask
        self._pause = self._left = 1

    def look(self) -> bool:
        """Asks for the places of shards if one is missing, and a question is due. Returns whether the client lives."""
        client = self._client()
        if client is None:
            return False
        if not (len(self._access.places) < self._access.num_shards or _is_missing(client)):
            self._pause = self._left = 1
            return True
        self._left -= 1
        if self._left == 0:
            self._pause = self._left = min(2 * self._pause, _MOST_LOOKS)
            self._access = self._ask()
            for place in self._access.places:
                client.add_shard(place.address)
        return True


def _is_missing(client: Client) -> bool:
    """Whether a shard is missing, as far as the client knows from its draws or, if it only writes, its connections."""
    return bool(client.stats().missing) or " of " in client.road


class _Watch:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[_Watched] = []

    def add(self, watched: _Watched) -> None:
        """Watches a client until it is gone. The thread lives as long as there is one."""
        with self._lock:
            self._watched.append(watched)
            if len(self._watched) == 1:
                threading.Thread(target=self._run, name="reverb-ray-watch", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_LOOK_S)
            with self._lock:
                watched = list(self._watched)
            gone = [one for one in watched if not _lives(one)]
            with self._lock:
                self._watched = [one for one in self._watched if one not in gone]
                if not self._watched:
                    return


def _lives(watched: _Watched) -> bool:
    try:
        return watched.look()
    except Exception as error:
        # Ray may have been shut down, or the cluster stopped. The client goes on with the addresses that it has.
        _logger.debug("no addresses of shards from Ray: %s", error)
        return True


_watch = _Watch()


def watch(client: Client, access: Access, ask: Callable[[], Access]) -> None:
    """Adds shards to a client at their new addresses, from now on.

    Args:
      client: Client of the cluster. It may be collected.
      access: What it knows of the shards.
      ask: Function that asks where they are now.
    """
    _watch.add(_Watched(client, access, ask))
