"""Unix sockets between users of a machine: each end trusts its own user and root."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest
from behaviour_support import PATIENCE_S, insert_values, make_table
from refusing_support import Refusing

import reverb
from reverb import errors

pytestmark = [
    pytest.mark.ports,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux"),
]

# A user of nobody's. Only its number matters.
OTHER = 54_321
PROGRAM = """
import sys, reverb
client = reverb.Client(sys.argv[1])
client.insert([1], {"table": 1.0})
print(client.road)
"""


@contextlib.contextmanager
def as_other():
    """Makes the system take this process for one of another user, as far as a new socket tells."""
    os.seteuid(OTHER)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def listening_as_other(path):
    """A socket of another user, which does not answer."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with as_other():
            listener.listen()
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def server():
    server = reverb.Server([make_table()])
    yield server
    server.stop()


def road_of(address):
    """The road of a client in another process."""
    command = [sys.executable, "-c", PROGRAM, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def was_sent_nothing(listener):
    with listener.accept()[0] as stream:
        stream.settimeout(PATIENCE_S)
        return stream.recv(1) == b""


def test_a_server_of_another_user_is_sent_nothing(tmp_path):
    path = tmp_path / "other.sock"
    with listening_as_other(path) as listener:
        client = reverb.Client(f"unix:{path}")
        for _ in range(2):
            with pytest.raises(errors.PermissionDeniedError, match=f"user {OTHER}; this one is of user 0") as raised:
                client.insert([1], {"table": 1.0})
            assert isinstance(raised.value, PermissionError)
            assert not raised.value.is_transient
            assert was_sent_nothing(listener)
    server = reverb.Server([make_table()])
    try:
        insert_values(reverb.Client(f"unix:{server.unix_path}"), [1])
    finally:
        server.stop()


def test_a_socket_of_another_user_in_the_servers_place_means_tcp(server):
    address = f"localhost:{server.port}"
    assert road_of(address) == "unix"
    os.rename(server.unix_path, f"{server.unix_path}.kept")
    with listening_as_other(server.unix_path) as listener:
        assert road_of(address) == "tcp"
        assert was_sent_nothing(listener)
    os.replace(f"{server.unix_path}.kept", server.unix_path)
    assert road_of(address) == "unix"


# Clients with a token.

TOKEN = "rvb_a-token-that-nobody-may-see"


def refusal(client):
    with pytest.raises(errors.ReverbError) as raised:
        client.server_info()
    return raised.value


def test_a_token_is_not_sent_to_a_server_of_another_user(tmp_path):
    path = tmp_path / "other.sock"
    with Refusing(path=path, listening=as_other()) as server:
        for others in (None, {OTHER + 1}):
            client = reverb.Client(f"unix:{path}", token=TOKEN, allow_insecure=True, unix_peers=others)
            error = refusal(client)
            assert isinstance(error, errors.PermissionDeniedError)
            assert f"user {OTHER}; " in str(error)
        assert server.sent == b""


def test_users_that_the_program_trusts_are_sent_the_token(tmp_path):
    path = tmp_path / "other.sock"
    with Refusing(path=path, listening=as_other()) as server:
        client = reverb.Client(f"unix:{path}", token=TOKEN, unix_peers={OTHER, OTHER + 1})
        assert isinstance(refusal(client), errors.UnauthenticatedError)
        assert len(server.bearers) == 1


@pytest.mark.parametrize("allowed", [False, True])
def test_a_socket_of_another_user_means_tcp_by_the_rules_of_tcp(monkeypatch, tmp_path, allowed):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "reverb").mkdir(mode=0o700)
    with Refusing() as tcp, Refusing(path=tmp_path / "reverb" / f"{tcp.port}.sock", listening=as_other()) as other:
        error = refusal(reverb.Client(f"localhost:{tcp.port}", token=TOKEN, allow_insecure=allowed))
        assert other.sent == b""
        assert len(tcp.bearers) == allowed
        if allowed:
            assert isinstance(error, errors.UnauthenticatedError)
        else:
            assert isinstance(error, errors.InvalidArgumentError)
            for text in ("grpcs://", "allow_insecure=True", f"user {OTHER}"):
                assert text in str(error)


@pytest.mark.parametrize(("mode", "owner"), [(0o777, 0), (0o1777, 0), (0o770, 0), (0o700, OTHER)], ids=str)
def test_a_socket_where_others_may_write_means_tcp(server, mode, owner):
    folder = os.path.dirname(server.unix_path)
    try:
        os.chmod(folder, mode)
        os.chown(folder, owner, -1)
        assert road_of(f"localhost:{server.port}") == "tcp"
    finally:
        os.chmod(folder, 0o700)
        os.chown(folder, 0, -1)
    assert road_of(f"localhost:{server.port}") == "unix"


def received_as_other(path):
    """What a process of another user receives first. This one has the server, which compares users as it accepts."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setresuid(OTHER, OTHER, OTHER)
            with socket.socket(socket.AF_UNIX) as stream:
                stream.settimeout(PATIENCE_S)
                stream.connect(path)
                with contextlib.suppress(ConnectionError):
                    os.write(writer, stream.recv(1))
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        received = pipe.read()
    os.waitpid(child, 0)
    return received


def test_a_client_of_another_user_is_not_served(server):
    # As if somebody had opened the socket to all.
    for path, mode in ((server.unix_path, 0o666), (os.path.dirname(server.unix_path), 0o711)):
        os.chmod(path, mode)
    parent = os.path.dirname(os.path.dirname(server.unix_path))
    before = os.stat(parent).st_mode & 0o7777
    os.chmod(parent, before | 0o111)
    try:
        assert received_as_other(server.unix_path) == b""
    finally:
        os.chmod(parent, before)
        os.chmod(os.path.dirname(server.unix_path), 0o700)
    insert_values(reverb.Client(f"unix:{server.unix_path}"), [1])
