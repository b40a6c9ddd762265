"""Clients with a token: what they send to whom, and what they do when a server refuses them."""

import logging
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from aio_support import run
from refusing_support import PERMISSION_DENIED, UNAUTHENTICATED, Refusing

import reverb
from reverb import adders, aio, errors, loaders

pytestmark = pytest.mark.ports

TOKEN = "rvb_a-token-that-nobody-may-see"
KINDS = {UNAUTHENTICATED: errors.UnauthenticatedError, PERMISSION_DENIED: errors.PermissionDeniedError}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("REVERB_TOKEN", "REVERB_TOKEN_FILE", "REVERB_ALLOW_INSECURE"):
        monkeypatch.delenv(name, raising=False)
    # Where clients look for the sockets of servers.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "reverb").mkdir(mode=0o700)
    return monkeypatch


def address_of(server):
    return f"ipv4:127.0.0.1:{server.port}"


def client_of(server, **given):
    return reverb.Client(address_of(server), **{"token": TOKEN, "allow_insecure": True} | given)


def asked(client):
    """Asks a server that refuses, and returns the error."""
    with pytest.raises(errors.ReverbError) as raised:
        client.server_info()
    return raised.value


@pytest.fixture(scope="module")
def encoded():
    """The header with TOKEN as HTTP/2 encodes it."""
    with Refusing() as server:
        asked(client_of(server))
        [bearer] = server.bearers
        asked(client_of(server, token="rvb_another"))
        assert server.bearers[1] != bearer
        assert TOKEN.encode() not in server.sent
        return bearer


# What is tried with a client that is refused. Each contacts the server.


def _draws(client):
    next(client.sample("table"))


def _writes(client):
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append([np.int64(1)])
        writer.create_item("table", 1.0, [writer.history[0][:]])
        writer.flush()


def _writes_of_old(client):
    with client.writer(max_sequence_length=1) as writer:
        writer.append([np.int64(1)])
        writer.create_item("table", 1, 1.0)
        writer.flush()


def _writes_of_many(client):
    with client.batched_writer(num_envs=2) as writer:
        writer.append([np.arange(2)])
        writer.create_items("table", np.ones(2), [writer.history[0][:]])
        writer.flush()


def _adds(client):
    with adders.NStepTransitionAdder(client, "table", n=1, discount=0.9) as adder:
        adder.add(0, 1, 1.0, 1, terminated=True)
        adder.flush()


def _loads(client):
    with loaders.NumpyLoader(client, "table", batch_size=1) as loader:
        next(loader)


CALLS = {
    "server_info": lambda client: client.server_info(),
    "insert": lambda client: client.insert([np.int64(1)], {"table": 1.0}),
    "insert_batch": lambda client: client.insert_batch([np.arange(3)], {"table": np.ones(3)}),
    "sample": _draws,
    "sample_batch": lambda client: client.sample_batch("table", 1),
    "get": lambda client: client.get("table", [1]),
    "wait_newer": lambda client: client.wait_newer("table"),
    "delete": lambda client: client.delete("table", [1]),
    "mutate_priorities": lambda client: client.mutate_priorities("table", updates={1: 2.0}),
    "reset": lambda client: client.reset("table"),
    "checkpoint": lambda client: client.checkpoint(),
    "configure_table": lambda client: client.configure_table("table", max_size=3),
    "trajectory_writer": _writes,
    "writer": _writes_of_old,
    "batched_writer": _writes_of_many,
    "adder": _adds,
    "loader": _loads,
}


@pytest.mark.parametrize("status", KINDS, ids=["unauthenticated", "permission_denied"])
@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_is_final(call, status, encoded):
    with Refusing(status) as server:
        with pytest.raises(KINDS[status], match="the server of the test refuses") as raised:
            CALLS[call](client_of(server))
        assert isinstance(raised.value, PermissionError)
        assert not raised.value.is_transient
        assert TOKEN not in str(raised.value)
        # One question, and no other protocol: the path of the reference's would make a second call.
        assert set(server.bearers) == {encoded}
        assert server.calls == len(server.bearers)
        assert server.calls <= 2


@pytest.mark.parametrize("status", KINDS, ids=["unauthenticated", "permission_denied"])
def test_a_refusal_is_final_in_event_loops(status, encoded):
    async def main(address):
        async with aio.Client(address, token=TOKEN, allow_insecure=True) as client:
            with pytest.raises(KINDS[status]):
                await client.insert([np.int64(1)], {"table": 1.0})
            with pytest.raises(KINDS[status]):
                await client.sample_batch("table", 1)
            with pytest.raises(KINDS[status]):
                await client.server_info()

    with Refusing(status) as server:
        run(main(address_of(server)))
        assert server.bearers == [encoded] * 3


def test_a_member_of_a_list_is_shown_the_token(encoded):
    with Refusing() as one, Refusing() as other:
        both = f"ipv4:127.0.0.1:{one.port},127.0.0.1:{other.port}"
        error = asked(reverb.Client(both, token=TOKEN, allow_insecure=True))
        assert isinstance(error, errors.UnauthenticatedError)
        assert set(one.bearers) == set(other.bearers) == {encoded}


# Where the token comes from.


def test_the_environment_has_a_token(environment, encoded, tmp_path):
    file = tmp_path / "token"
    file.write_text(f" {TOKEN}\n")
    environment.setenv("REVERB_ALLOW_INSECURE", "1")
    for name, value in (("REVERB_TOKEN", f"{TOKEN} "), ("REVERB_TOKEN_FILE", str(file))):
        environment.setenv(name, value)
        with Refusing() as server:
            asked(reverb.Client(address_of(server)))
            assert server.bearers == [encoded]
            asked(reverb.Client(address_of(server), token="rvb_another"))
            assert server.bearers[1] != encoded
        environment.delenv(name)


def test_the_file_is_read_for_each_connection(environment, encoded, tmp_path):
    file = tmp_path / "token"
    environment.setenv("REVERB_TOKEN_FILE", str(file))
    with Refusing() as server:
        client = client_of(server, token=None)
        for text, kind, why in (
            (None, errors.InvalidArgumentError, "No such file"),
            ("\n", errors.InvalidArgumentError, "got nothing"),
            ("rvb_another", errors.UnauthenticatedError, "refuses"),
            (TOKEN, errors.UnauthenticatedError, "refuses"),
        ):
            if text is not None:
                file.write_text(text)
            error = asked(client)
            assert isinstance(error, kind)
            assert why in str(error)
            assert kind is errors.UnauthenticatedError or str(file) in str(error)
        assert len(server.bearers) == 2
        assert server.bearers[1] == encoded


WORKER = """
    import pickle, sys
    from reverb import errors
    client = pickle.loads(sys.stdin.buffer.read())
    try:
        client.server_info()
    except errors.UnauthenticatedError:
        print("refused", client)
    """


def test_another_process_reads_its_own_environment(environment, encoded, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    with Refusing() as server:
        pickled = pickle.dumps(client_of(server, token=None))
        command = [sys.executable, "-c", textwrap.dedent(WORKER)]
        variables = os.environ | {"REVERB_TOKEN_FILE": str(file)}
        done = subprocess.run(command, input=pickled, capture_output=True, timeout=60, check=True, env=variables)
        assert done.stdout.decode().startswith("refused Client")
        assert server.bearers == [encoded]


# On which road it goes.


@pytest.mark.parametrize("host", ["ipv4:127.0.0.1", "localhost", "127.0.0.1", "dns:///localhost"])
def test_a_token_is_not_sent_without_tls(host):
    with Refusing() as server:
        for name, call in CALLS.items():
            if name == "wait_newer" and host.startswith("dns"):
                # It takes the address of one server only.
                continue
            client = reverb.Client(f"{host}:{server.port}", token=TOKEN)
            with pytest.raises(errors.InvalidArgumentError, match=r"grpcs://.*allow_insecure=True") as raised:
                call(client)
            assert TOKEN not in str(raised.value)
        assert (server.connections, server.sent) == (0, b"")


def test_localhost_means_the_servers_socket_first(encoded, tmp_path):
    with Refusing() as tcp, Refusing(path=tmp_path / "reverb" / f"{tcp.port}.sock") as unix:
        for allowed in (False, True):
            client = reverb.Client(f"localhost:{tcp.port}", token=TOKEN, allow_insecure=allowed)
            assert isinstance(asked(client), errors.UnauthenticatedError)
        # A refusal there is final: nothing goes to TCP instead.
        assert unix.bearers == [encoded] * 2
        assert tcp.sent == b""


def test_a_token_is_sent_to_a_socket_that_the_program_names(encoded, tmp_path):
    with Refusing(path=tmp_path / "own.sock") as server:
        assert isinstance(asked(reverb.Client(f"unix:{tmp_path}/own.sock", token=TOKEN)), errors.UnauthenticatedError)
        assert server.bearers == [encoded]


def test_a_server_of_the_same_process_needs_no_token():
    server = reverb.Server([reverb.Table.queue("table", 10)])
    try:
        client = reverb.Client(f"localhost:{server.port}", token=TOKEN)
        client.insert([np.int64(1)], {"table": 1.0})
        assert client.road == "same_process"
    finally:
        server.stop()


def test_a_process_beside_the_server_uses_its_socket_without_tls(environment):
    server = reverb.Server([reverb.Table.queue("table", 10)])
    program = f"""
        import reverb
        client = reverb.Client("localhost:{server.port}", token={TOKEN!r})
        client.insert([1], {{"table": 1.0}})
        print(client.road)
        """
    try:
        command = [sys.executable, "-c", textwrap.dedent(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.split() == ["unix"]
    finally:
        server.stop()


def test_logs_do_not_have_the_token(caplog):
    with Refusing() as server, caplog.at_level(1):
        for call in CALLS.values():
            with pytest.raises(errors.UnauthenticatedError) as raised:
                call(client_of(server))
            logging.getLogger("reverb").exception("refused", exc_info=raised.value)
    assert "refused" in caplog.text
    assert TOKEN not in caplog.text
