"""TLS of clients and of servers: the files that each end has. They are read by the programs that connect or listen."""

from __future__ import annotations

import dataclasses

from reverb.data.paths import as_path

__all__ = ["TLS", "ServerTLS"]

# What callers of a server may do, the least first.
ROLES = ("view", "use", "admin")


def _set_paths(files: TLS | ServerTLS, *names: str) -> None:
    for name in names:
        value = getattr(files, name)
        if value is not None:
            object.__setattr__(files, name, as_path(name, value))


@dataclasses.dataclass(frozen=True)
class TLS:
    """What a client has for servers with TLS. Pickles contain the paths, and not what is in the files.

    A field that is None is not given: then its environment variable counts, `REVERB_CA`, `REVERB_CERT` or `REVERB_KEY`.

    Attributes:
      ca: Path of the certificates in PEM of the authorities that the client trusts; by default, those of the operating
        system.
      cert: Path of the client's own certificate in PEM, for servers with a `client_ca`; by default, it has none.
      key: Path of the private key of `cert`, in PEM without a password.
      server_name: Name in the certificate of the server; by default, the host of the address.

    Raises:
      TypeError: A path is neither a str nor an os.PathLike, or the name is not a str.
      ValueError: There is only one of `cert` and `key`, or a path or the name is empty.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        _set_paths(self, "ca", "cert", "key")
        if (self.cert is None) != (self.key is None):
            raise ValueError("TLS needs both cert and key, or neither")
        if self.server_name is not None and not isinstance(self.server_name, str):
            raise TypeError(
                f"`server_name` must be a str, got {self.server_name!r} ({type(self.server_name).__name__})."
            )
        if self.server_name == "":
            raise ValueError("server_name must be a name, got an empty text")


@dataclasses.dataclass(frozen=True)
class ServerTLS:
    """The files of a server with TLS. It reads them again within 5 s after they have changed.

    Attributes:
      cert: Path of the server's certificate in PEM, followed by those between it and its authority.
      key: Path of the private key of `cert`, in PEM without a password.
      client_ca: Path of the certificates in PEM of the authorities that sign those of clients. Then the port for
        clients lets in only those with such a certificate. None, the default, asks for none.
      client_role: What a client with such a certificate may do, where the server has no tokens: `view`, `use`, which is
        the default, or `admin`. Programs of the server's own user that use its Unix socket may do everything.

    Raises:
      TypeError: A path is neither a str nor an os.PathLike.
      ValueError: A path is empty, or the role is none of the three.
    """

    cert: str
    key: str
    client_ca: str | None = None
    client_role: str = "use"

    def __post_init__(self) -> None:
        for name in ("cert", "key"):
            object.__setattr__(self, name, as_path(name, getattr(self, name)))
        _set_paths(self, "client_ca")
        if self.client_role not in ROLES:
            raise ValueError(f"client_role must be one of {', '.join(ROLES)}, got {self.client_role!r}")
