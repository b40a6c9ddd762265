"""The recipes of docs/secure.md, as they stand there."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from tests.behaviour.tls_support import openssl

import reverb

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "secure.md"


def block(heading, language="bash"):
    """The first block of code in this language below a heading."""
    section = GUIDE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)[1]


def run(script, folder):
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def make_tokens(folder):
    """The tokens of the first recipe, by name."""
    commands = [line for line in block("One machine with several users").splitlines() if " token new " in line]
    assert len(commands) == 2
    command = f"{sys.executable} -c 'from reverb.cli import main; main()' token"
    for line in commands:
        run(line.replace("reverb token", command, 1), folder)
    return {name: (folder / f"{name}.token").read_text().split()[0] for name in ("learner", "me")}


@pytest.fixture
def folder(tmp_path):
    """A folder with the certificates of the second recipe."""
    openssl("version")
    run(block("A cluster").replace("IP:10.0.0.5", "IP:127.0.0.1"), tmp_path)
    return tmp_path


def serve(**options):
    return reverb.Server([reverb.Table.queue("queue", 10)], host="0.0.0.0", http_port=None, **options)


def test_one_machine_with_several_users(tmp_path):
    tokens = make_tokens(tmp_path)
    with reverb.Server(
        [reverb.Table.queue("queue", 10)], tokens=reverb.Tokens.from_file(tmp_path / "tokens.toml")
    ) as one:
        address = f"unix:{one.unix_path}"
        learner = reverb.Client(address, token=tokens["learner"])
        learner.insert(np.int64(7), {"queue": 1.0})
        with pytest.raises(reverb.errors.PermissionDeniedError, match="learner"):
            learner.reset("queue")
        with pytest.raises(reverb.errors.UnauthenticatedError):
            reverb.Client(address).insert(np.int64(8), {"queue": 1.0})
        with pytest.raises(reverb.errors.InvalidArgumentError, match="allow_insecure"):
            reverb.Client(f"ipv4:127.0.0.1:{one.port}", token=tokens["learner"]).server_info()
        reverb.Client(address, token=tokens["me"]).reset("queue")


def test_a_cluster(folder, monkeypatch):
    make_tokens(folder)
    files = reverb.ServerTLS(folder / "server.pem", folder / "server.key")
    with serve(tls=files, tokens=reverb.Tokens.from_file(folder / "tokens.toml")) as one:
        trusting = reverb.TLS(ca=folder / "ca.pem")
        with pytest.raises(reverb.errors.UnauthenticatedError):
            reverb.Client(f"grpcs://127.0.0.1:{one.port}", tls=trusting).server_info()
        monkeypatch.setenv("REVERB_TOKEN_FILE", str(folder / "learner.token"))
        client = reverb.Client(f"grpcs://127.0.0.1:{one.port}", tls=trusting)
        client.insert(np.int64(7), {"queue": 1.0})
        assert len(client.sample_batch("queue", 1).info.key) == 1


def test_certificates_of_clients(folder):
    files = reverb.ServerTLS(folder / "server.pem", folder / "server.key", client_ca=folder / "ca.pem")
    with serve(tls=files) as one:
        own = reverb.TLS(ca=folder / "ca.pem", cert=folder / "actors.pem", key=folder / "actors.key")
        client = reverb.Client(f"grpcs://127.0.0.1:{one.port}", tls=own)
        client.insert(np.int64(7), {"queue": 1.0})
        with pytest.raises(reverb.errors.PermissionDeniedError):
            client.reset("queue")
        with pytest.raises(reverb.errors.UnauthenticatedError):
            reverb.Client(f"grpcs://127.0.0.1:{one.port}", tls=reverb.TLS(ca=folder / "ca.pem")).server_info()
