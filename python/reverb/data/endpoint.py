"""Where a server is, and what a client needs to be let in there."""

import dataclasses
import functools
from typing import Any

from reverb.data.tls import TLS


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where a server is, and what a client needs to be let in there.

    Whatever makes a client later, or in another process, keeps one. Secrets are fields with a default that `repr`
    leaves out (`dataclasses.field(default=None, repr=False)`): pickles do not contain them.

    Attributes:
      address: Address of the server, or of several, as the user gave it.
      tls: Files for an address with `grpcs://`, as the user gave them; None leaves them to the environment.
    """

    address: str
    tls: TLS | None = None

    @staticmethod
    def of(server: "str | Endpoint") -> "Endpoint":
        """The endpoint that a user named, by an address if it is not an endpoint already."""
        return server if isinstance(server, Endpoint) else Endpoint(server)

    @property
    def is_tls(self) -> bool:
        """Whether connections are made over TLS."""
        return self.address.startswith("grpcs://")

    def shown(self) -> dict[str, Any]:
        """The fields that are not secret, with which another process makes the endpoint again."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}

    def in_pickles(self) -> "str | Endpoint":
        """What pickles contain: only the address if that is all there is, which earlier versions can read."""
        return self.address if self == Endpoint(self.address) else self

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), **self.shown()), ()
