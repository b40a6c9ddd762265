"""Servers with tokens, and what certificates allow where there are none."""

import contextlib
import logging
import os
import stat
import sys
import threading

import pytest
from behaviour_support import PATIENCE_S, draw_values, eventually, insert_values, make_table, run_program
from token_support import token_of, write_tokens

import reverb
from reverb import errors

pytestmark = pytest.mark.ports

# A user of nobody's. Only its number matters.
OTHER = 54_321


@pytest.fixture
def tokens(tmp_path):
    return reverb.Tokens.from_file(write_tokens(tmp_path / "tokens.toml", actors="use", boss="admin"))


def roads(server):
    return [f"ipv4:127.0.0.1:{server.port}", f"unix:{server.unix_path}"]


def test_the_same_process_needs_no_token_and_every_other_road_does(start, tokens):
    server, here = start(make_table(), tokens=tokens)
    insert_values(here, [1])
    assert draw_values(here) == [1]
    for address in roads(server):
        for call in (lambda client: client.server_info(), lambda client: client.sample_batch("table", 1)):
            with pytest.raises(errors.UnauthenticatedError, match="REVERB_TOKEN"):
                call(reverb.Client(address))


@pytest.mark.parametrize("broken", ["token = 1", '[[token]]\nname = "a"', None], ids=["wrong", "incomplete", "missing"])
def test_a_file_that_is_wrong_refuses_to_serve(start, tmp_path, broken):
    path = tmp_path / "tokens.toml"
    if broken is not None:
        path.write_text(broken)
    with pytest.raises(ValueError, match=str(path)):
        start(make_table(), tokens=reverb.Tokens.from_file(path))


def test_a_file_that_becomes_wrong_leaves_the_tokens_in_use(start, tokens, tmp_path, caplog):
    server, _ = start(make_table(), tokens=tokens)
    (tmp_path / "tokens.toml").write_text("token = 1")
    server.reload()
    server.reload()
    warnings = [record for record in caplog.records if "tokens" in record.getMessage()]
    eventually(lambda: any("stay in use" in record.getMessage() for record in caplog.records))
    assert len([one for one in warnings if one.levelno == logging.WARNING]) <= 1
    with pytest.raises(errors.UnauthenticatedError):
        reverb.Client(roads(server)[0]).server_info()


def test_a_pipe_in_the_place_of_the_file_holds_nothing_up(start, tokens, tmp_path):
    server, _ = start(make_table(), tokens=tokens)
    path = tmp_path / "tokens.toml"
    path.unlink()
    os.mkfifo(path)
    looking = threading.Thread(target=server.reload, daemon=True)
    looking.start()
    looking.join(PATIENCE_S)
    assert not looking.is_alive()
    write_tokens(path, boss="admin")
    server.reload()
    with pytest.raises(errors.UnauthenticatedError):
        reverb.Client(roads(server)[0], token=token_of("actors"), allow_insecure=True).server_info()
    server.stop()


@pytest.mark.parametrize(("argument", "is_told"), [("host", True), ("http_host", True), (None, False)])
def test_a_port_that_takes_tokens_from_elsewhere_without_tls_warns(start, tokens, caplog, argument, is_told):
    start(make_table(), tokens=tokens, allow_insecure=True, **({argument: "0.0.0.0"} if argument else {}))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["clients from other machines send their tokens without encryption; see `tls`"] * is_told


def test_refused_calls_are_audited_without_the_token(start, tokens, audited):
    server, _ = start(make_table(), tokens=tokens)
    with pytest.raises(errors.UnauthenticatedError):
        reverb.Client(roads(server)[0]).server_info()
    eventually(lambda: audited("refuse"))
    [refused, *_] = audited("refuse")
    assert (refused["reason"], refused["method"]) == ("no_token", "reverb.replay.v1.Replay/Hello")
    assert refused["address"].startswith("127.0.0.1:")


def test_a_client_that_may_only_view_keeps_its_connection(start, tmp_path, audited):
    tokens = reverb.Tokens.from_file(write_tokens(tmp_path / "tokens.toml", monitor="view"))
    server, _ = start(make_table(), tokens=tokens)
    clients = [reverb.Client(address, token=token_of("monitor"), allow_insecure=True) for address in roads(server)]
    for client in clients * 3:
        client.server_info()
    assert [line["who"] for line in audited("connect")] == ["monitor", "monitor"]
    assert not audited("refuse")
    for client in clients * 2:
        with pytest.raises(errors.PermissionDeniedError, match="has role view; Sample needs use"):
            client.sample_batch("table", 1)
        with pytest.raises(errors.PermissionDeniedError, match="has role view; Insert needs use"):
            client.insert([1], {"table": 1.0})
        client.server_info()
    assert {line["method"].partition("/")[2] for line in audited("refuse")} == {"Sample", "Insert"}


def test_a_client_that_may_only_view_finds_the_next_server(start, tmp_path):
    tokens = reverb.Tokens.from_file(write_tokens(tmp_path / "tokens.toml", monitor="view"))
    server, _ = start(make_table(), tokens=tokens)
    client = reverb.Client(roads(server)[0], token=token_of("monitor"), allow_insecure=True)
    client.server_info()
    server.stop()
    start(make_table(), make_table("other"), tokens=tokens, port=server.port)
    # No stream of the client has ended, so the call finds out.
    with contextlib.suppress(errors.UnavailableError):
        client.server_info()
    assert set(client.server_info()) == {"table", "other"}


def test_other_users_of_the_socket_need_tokens(start):
    with pytest.raises(ValueError, match="unix_peers needs tokens"):
        start(make_table(), unix_peers={OTHER})
    for wrong, error in (({-1}, ValueError), ({2**32 - 1}, ValueError), ({"1"}, TypeError), ("1000", TypeError)):
        with pytest.raises(error, match="unix_peers"):
            start(make_table(), unix_peers=wrong)


# A process of its own, since the server is in that of the test, and asks which user that is. Root starts it, and it
# becomes another user.
CONNECTING = """
    import contextlib, os, socket, sys
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(float(sys.argv[3]))
    os.seteuid(int(sys.argv[1]))
    end.connect(sys.argv[2])
    with contextlib.suppress(BrokenPipeError):
        end.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    with contextlib.suppress(ConnectionResetError):
        print(end.recv(9).hex())
"""


def is_let_in_as(user, path):
    """Whether a server answers a client of HTTP/2 of this user."""
    return run_program(CONNECTING, user, path, PATIENCE_S)[0].strip() != ""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux")
def test_other_users_of_the_socket_are_let_in_and_are_asked_for_tokens(start, tokens):
    server, _ = start(make_table(), tokens=tokens, unix_peers={OTHER})
    folder = os.path.dirname(server.unix_path)
    # The folder for temporary files may be one of this test run, which only its user can enter.
    os.chmod(os.path.dirname(folder), stat.S_IMODE(os.stat(os.path.dirname(folder)).st_mode) | 0o011)
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    assert (mode, stat.S_IMODE(os.stat(server.unix_path).st_mode)) == (0o711, 0o666)
    assert [is_let_in_as(user, server.unix_path) for user in (0, OTHER, OTHER + 1)] == [True, True, False]
    with pytest.raises(errors.UnauthenticatedError):
        reverb.Client(f"unix:{server.unix_path}").server_info()


def test_nothing_that_people_read_holds_a_token(start, tokens):
    server, _ = start(make_table(), tokens=tokens)
    texts = [repr(tokens), repr(server), repr(reverb.Client(roads(server)[0]))]
    assert not [text for text in texts if token_of("actors") in text]
