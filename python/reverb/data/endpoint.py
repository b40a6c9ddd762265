"""Where a server is, and what a client needs to be let in there."""

import dataclasses
import functools
from typing import Any


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where a server is, and what a client needs to be let in there: nothing so far.

    Whatever makes a client later, or in another process, keeps one. Secrets are fields with a default that `repr`
    leaves out (`dataclasses.field(default=None, repr=False)`): pickles do not contain them.

    Attributes:
      address: Address of the server, or of several, as the user gave it.
    """

    address: str

    @staticmethod
    def of(server: "str | Endpoint") -> "Endpoint":
        """The endpoint that a user named, by an address if it is not an endpoint already."""
        return server if isinstance(server, Endpoint) else Endpoint(server)

    def shown(self) -> dict[str, Any]:
        """The fields that are not secret, with which another process makes the endpoint again."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}

    def in_pickles(self) -> "str | Endpoint":
        """What pickles contain: only the address if that is all there is, which earlier versions can read."""
        return self.address if self == Endpoint(self.address) else self

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), **self.shown()), ()
