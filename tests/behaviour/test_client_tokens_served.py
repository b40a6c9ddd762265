"""Clients with tokens at a server that asks for them, over TLS and at its socket, until their token is revoked."""

import contextlib
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from aio_support import run
from behaviour_support import PATIENCE_S, draw_values, insert_values, make_table
from tls_support import Authority, address_of
from token_support import token_of, write_tokens

import reverb
from reverb import aio, errors, loaders

pytestmark = pytest.mark.ports


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def file(tmp_path):
    return write_tokens(tmp_path / "tokens.toml", actors="use", watchers="view")


@pytest.fixture
def server(authority, file):
    files = reverb.ServerTLS(*authority.sign("server"))
    server = reverb.Server(
        [make_table(), reverb.Table.queue("empty", 10)], tls=files, tokens=reverb.Tokens.from_file(file)
    )
    yield server
    server.stop()


@pytest.fixture
def connect(server, authority):
    def connect(name, make=reverb.Client, **given):
        return make(address_of(server), token=token_of(name), tls=reverb.TLS(ca=authority.ca), **given)

    return connect


def write_on(writer):
    """Writes until that fails."""
    while True:
        writer.append([np.int64(1)])
        writer.create_item("table", 1.0, [writer.history[0][:]])
        writer.flush()


def test_a_client_over_tls_writes_and_reads_with_its_token(connect):
    client = connect("actors")
    insert_values(client, [1, 2])
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append([np.int64(3)])
        writer.create_item("table", 1.0, [writer.history[0][:]])
    with loaders.NumpyLoader(client, "table", batch_size=2) as loader:
        assert len(next(loader).data[0]) == 2
    assert draw_values(client) == [1]
    assert client.road == "tcp"


def test_a_client_for_asyncio_has_its_token(connect):
    async def main():
        async with connect("actors", aio.Client) as client:
            await client.insert(np.int64(1), {"table": 1.0})
            return await client.server_info()

    assert run(main())["table"].current_size == 1


def test_a_role_that_is_too_small_is_denied_at_once(connect):
    client = connect("watchers")
    assert client.server_info()["table"].current_size == 0
    calls = [
        lambda: client.insert([np.int64(1)], {"table": 1.0}),
        lambda: client.sample_batch("table", 1),
        lambda: next(loaders.NumpyLoader(client, "table", batch_size=1)),
        lambda: client.reset("table"),
    ]
    for call in calls:
        with pytest.raises(errors.PermissionDeniedError, match="view") as raised:
            call()
        assert not raised.value.is_transient


def test_a_writer_with_a_role_that_is_too_small_ends(connect):
    writer = connect("watchers").trajectory_writer(num_keep_alive_refs=1)
    with pytest.raises(errors.PermissionDeniedError):
        write_on(writer)
    with contextlib.suppress(errors.ReverbError):
        writer.close()


def test_a_token_that_the_server_does_not_know_is_refused_at_once(connect):
    with pytest.raises(errors.UnauthenticatedError) as raised:
        connect("strangers").server_info()
    assert token_of("strangers") not in str(raised.value)


def test_readers_and_writers_that_run_end_when_their_token_is_revoked(connect, file):
    client = connect("actors")
    writer = client.trajectory_writer(num_keep_alive_refs=1)
    insert_values(client, [1])
    with loaders.NumpyLoader(client, "empty", batch_size=1) as loader:
        write_tokens(file, watchers="view")
        # It has waited for an item meanwhile.
        with pytest.raises(errors.UnauthenticatedError):
            next(loader)
    with pytest.raises(errors.UnauthenticatedError):
        client.server_info(timeout=PATIENCE_S)
    with pytest.raises(errors.UnauthenticatedError):
        write_on(writer)


PROGRAM = """
    import sys, reverb
    client = reverb.Client(sys.argv[1])
    client.insert([1], {"table": 1.0})
    print(client.road)
    """


def run_beside(server, **variables):
    """What another process says, whose client has this environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REVERB_")}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), f"localhost:{server.port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=kept | variables)


@pytest.mark.parametrize("variable", ["REVERB_TOKEN", "REVERB_TOKEN_FILE"])
def test_a_process_beside_the_server_needs_the_token_at_the_socket(server, tmp_path, variable):
    kept = tmp_path / "own"
    kept.write_text(token_of("actors") + "\n")
    done = run_beside(server, **{variable: str(kept) if variable == "REVERB_TOKEN_FILE" else token_of("actors")})
    assert done.stdout.split() == ["unix"], done.stderr
    without = run_beside(server)
    assert "UnauthenticatedError" in without.stderr
    assert "REVERB_TOKEN_FILE" in without.stderr


def test_the_socket_of_a_server_for_several_users_is_found(file):
    # It lies in another folder than those of other servers.
    server = reverb.Server([make_table()], tokens=reverb.Tokens.from_file(file), unix_peers={54_321})
    try:
        done = run_beside(server, REVERB_TOKEN=token_of("actors"))
        assert done.stdout.split() == ["unix"], done.stderr
    finally:
        server.stop()
