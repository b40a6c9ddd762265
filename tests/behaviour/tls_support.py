"""Certificates that tests make, and what connects without our client."""

import pathlib
import shutil
import socket
import ssl
import subprocess

import pytest
from behaviour_support import PATIENCE_S

_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
# Names under which the tests reach their servers.
NAMES = "DNS:localhost,IP:127.0.0.1,IP:::1"


def openssl(*arguments, **options):
    """Runs the command openssl, and returns what it has printed."""
    command = shutil.which("openssl")
    if command is None:
        pytest.skip("the command openssl is not installed")
    done = subprocess.run(
        [command, *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=PATIENCE_S,
        **options,
    )
    assert done.returncode == 0 or "s_client" in arguments, done.stderr
    return done.stdout + done.stderr


class Authority:
    """An authority, which signs certificates.

    Args:
      folder: Folder of its files.
      name: Name of the files, and of the authority.
    """

    def __init__(self, folder, name="ca"):
        self._folder = pathlib.Path(folder)
        self._key, self.ca = self._folder / f"{name}.key", str(self._folder / f"{name}.pem")
        openssl("req", "-x509", *_NEW_KEY, "-days", 2, "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca)

    def sign(self, name, names=NAMES, days=2):
        """Makes a certificate, and returns the paths of it and its key."""
        paths = str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key")
        signed_by = ("-x509", "-CA", self.ca, "-CAkey", self._key, "-days", days)
        extensions = ("-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE")
        openssl(
            "req", *signed_by, *_NEW_KEY, "-subj", f"/CN={name}", *extensions, "-keyout", paths[1], "-out", paths[0]
        )
        return paths


def address_of(server, host="localhost"):
    """The address of a server with TLS."""
    return f"grpcs://{host}:{server.port}"


def s_client(port, *arguments):
    """What `openssl s_client` prints about a port."""
    return openssl("s_client", "-connect", f"127.0.0.1:{port}", *arguments, stdin=subprocess.DEVNULL)


def shown_by(port, protocol="h2"):
    """The certificate that a port shows now, in DER."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return secure.getpeercert(binary_form=True)
