"""What the shards of a cluster and its clients trust each other by: certificates and a token, made for the cluster.

They are made in the actor of its map, and fetched from there by calls. They are never arguments of an actor or a task,
which Ray shows on its dashboard.
"""

from __future__ import annotations

import atexit
import dataclasses
import datetime
import functools
import hashlib
import os
import secrets
import shutil
import tempfile
from typing import NamedTuple

from reverb.data.tls import TLS, ServerTLS
from reverb.data.tokens import Tokens

# All shards have one certificate, and clients expect its name whatever the address is.
_SERVER_NAME = "shard.reverb"
_VALIDITY = datetime.timedelta(days=3650)
# By how much the clocks of nodes may differ.
_SKEW = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Credentials:
    """What a client needs.

    Attributes:
      ca: Certificate of the cluster's authority in PEM.
      token: Token with the role `admin`.
    """

    ca: bytes = dataclasses.field(repr=False)
    token: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Secrets:
    """What a shard needs.

    Attributes:
      credentials: What its clients need.
      cert: Certificate of all shards in PEM.
      key: Private key of it in PEM.
    """

    credentials: Credentials = dataclasses.field(repr=False)
    cert: bytes = dataclasses.field(repr=False)
    key: bytes = dataclasses.field(repr=False)


def make_secrets() -> Secrets:
    """Makes an authority, a certificate of shards that it has signed, and a token. The authority's key is forgotten."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    def signed(subject: str, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType, is_ca: bool) -> bytes:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder(named("Reverb on Ray"), named(subject), key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - _SKEW).not_valid_after(now + _VALIDITY)
        builder = builder.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        builder = builder.add_extension(extension, critical=False)
        pem: bytes = builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return pem

    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = signed("Reverb on Ray", authority, x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), True)
    cert = signed(_SERVER_NAME, own, x509.SubjectAlternativeName([x509.DNSName(_SERVER_NAME)]), False)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = own.private_bytes(encoding, form, serialization.NoEncryption())
    return Secrets(Credentials(ca, f"rvb_{secrets.token_urlsafe(32)}"), cert, key)


@functools.cache
def client_files(credentials: Credentials) -> tuple[TLS, str]:
    """Writes what a client needs to files of this process. Returns the TLS and the path of the token."""
    folder = _folder()
    ca = _write(folder, "ca.pem", credentials.ca)
    return TLS(ca=ca, server_name=_SERVER_NAME), _write(folder, "token", credentials.token.encode())


class ServerFiles(NamedTuple):
    """Files of a shard, in a folder of this process."""

    folder: str
    tls: ServerTLS
    tokens: Tokens


def server_files(shard: Secrets) -> ServerFiles:
    """Writes what a shard needs to files of this process. The token is there as its hash only.

    Ray kills the actors that it removes, so the folder is to be removed before.
    """
    folder = _folder()
    tls = ServerTLS(_write(folder, "cert.pem", shard.cert), _write(folder, "key.pem", shard.key))
    digest = hashlib.sha256(shard.credentials.token.encode()).hexdigest()
    entry = f'[[token]]\nname = "cluster"\nrole = "admin"\nsha256 = "{digest}"\n'
    return ServerFiles(folder, tls, Tokens.from_file(_write(folder, "tokens.toml", entry.encode())))


def _folder() -> str:
    """A new folder that only the own user can look into, and that ends with the process, unless that is killed."""
    folder, owner = tempfile.mkdtemp(prefix="reverb-ray-"), os.getpid()

    def remove() -> None:
        # A forked child that exits leaves it to its parent.
        if os.getpid() == owner:
            remove_folder(folder)

    atexit.register(remove)
    return folder


def remove_folder(folder: str) -> None:
    """Removes the files of a shard that has stopped."""
    shutil.rmtree(folder, ignore_errors=True)


def _write(folder: str, name: str, content: bytes) -> str:
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path
