"""Where a server is, and what a client needs to be let in there."""

import dataclasses
import functools
import pickle
from collections.abc import Iterable
from typing import Any

from reverb.data import checks
from reverb.data.cluster_options import ClusterOptions
from reverb.data.tls import TLS

# Users have numbers of 32 bits, of which the last stands for none.
_MOST_USER = 2**32 - 2


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where a server is, and what a client needs to be let in there.

    Whatever makes a client later, or in another process, keeps one. Secrets are fields with a default that `repr`
    leaves out (`dataclasses.field(default=None, repr=False)`): an endpoint that has one does not pickle.

    Attributes:
      address: Address of the server, or of several, as the user gave it.
      tls: Files for an address with `grpcs://`, as the user gave them; None leaves them to the environment.
      token: Token of the client, as the user gave it; None leaves it to `token_file`.
      token_file: Path of the file with the token, which is read for each connection; None leaves it to the environment.
      allow_insecure: Whether the token may be sent over TCP without TLS; None leaves it to the environment.
      unix_peers: Numbers of the users whose servers are trusted at Unix sockets, beside the own user and root.
      max_shared_bytes: Bytes of memory shared with a server of this host, at most; None means the default, 0 none.
      cluster: How to use the servers as one buffer; None uses them as they are.
    """

    address: str
    tls: TLS | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    token_file: str | None = None
    allow_insecure: bool | None = None
    unix_peers: tuple[int, ...] = ()
    max_shared_bytes: int | None = None
    cluster: ClusterOptions | None = None

    @staticmethod
    def of(server: "str | Endpoint") -> "Endpoint":
        """The endpoint that a user named, by an address if it is not an endpoint already."""
        return server if isinstance(server, Endpoint) else Endpoint(server)

    def given(
        self,
        tls: TLS | None = None,
        token: str | None = None,
        allow_insecure: bool | None = None,
        unix_peers: Iterable[int] | None = None,
        max_shared_bytes: int | None = None,
    ) -> "Endpoint":
        """The endpoint with what a user gave a client beside the address. What is None stays as it is.

        Raises:
          TypeError: A value has the wrong type. The error does not show the token.
          ValueError: A user's number, or the number of bytes, is out of range.
        """
        if tls is not None and not isinstance(tls, TLS):
            checks.refuse("tls", "a reverb.TLS", tls)
        if token is not None and not isinstance(token, str):
            raise TypeError(f"`token` must be a str, got a {type(token).__name__}.")
        if allow_insecure is not None and not isinstance(allow_insecure, bool):
            checks.refuse("allow_insecure", "a bool", allow_insecure)
        users = None if unix_peers is None else _as_users(unix_peers)
        shared = None if max_shared_bytes is None else checks.as_bytes("max_shared_bytes", max_shared_bytes)
        values: dict[str, Any] = {"tls": tls, "token": token, "allow_insecure": allow_insecure}
        values |= {"unix_peers": users, "max_shared_bytes": shared}
        return dataclasses.replace(self, **{name: value for name, value in values.items() if value is not None})

    def check_for_event_loops(self) -> None:
        """Raises a ValueError if the servers are a cluster, of which event loops have no client."""
        if self.cluster is not None:
            raise ValueError(
                f"reverb.aio has no client of a cluster, such as that at {self.address}: make the calls in threads, as "
                "asyncio.to_thread does"
            )

    @property
    def is_tls(self) -> bool:
        """Whether connections are made over TLS."""
        return self.address.startswith("grpcs://")

    @property
    def has_token(self) -> bool:
        """Whether the client shows a token."""
        return self.token is not None or self.token_file is not None

    def shown(self) -> dict[str, Any]:
        """The fields that are not secret, with which another process makes the endpoint again."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}

    def in_pickles(self) -> "str | Endpoint":
        """What pickles contain: only the address if that is all there is, which earlier versions can read."""
        return self.address if self == Endpoint(self.address) else self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.token is not None:
            raise pickle.PicklingError(
                f"a client of {self.address} that was given a token does not pickle, since the token would be stored "
                "with it: put the token into a file, and name that by REVERB_TOKEN_FILE in the environment of this "
                "process and of those that get the client"
            )
        return functools.partial(type(self), **self.shown()), ()


def _as_users(users: Iterable[int]) -> tuple[int, ...]:
    try:
        listed = [checks.as_int("unix_peers", user) for user in users]
    except TypeError:
        raise TypeError(f"`unix_peers` must be a set of numbers of users, got {users!r}.") from None
    for user in listed:
        if not 0 <= user <= _MOST_USER:
            raise ValueError(f"unix_peers must be numbers of users, got {user}")
    return tuple(sorted(set(listed)))
