"""Servers with tokens, and what certificates allow where there are none."""

import contextlib
import json
import logging
import os
import socket
import stat
import sys

import pytest
from behaviour_support import PATIENCE_S, draw_values, eventually, insert_values, make_table
from token_support import token_of, write_tokens

import reverb
from reverb import errors

pytestmark = pytest.mark.ports

# A user of nobody's. Only its number matters.
OTHER = 54_321


@pytest.fixture
def tokens(tmp_path):
    return reverb.Tokens.from_file(write_tokens(tmp_path / "tokens.toml", actors="use", boss="admin"))


@pytest.fixture
def start():
    servers = []

    def start(**options):
        servers.append(reverb.Server([make_table()], **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def audited(caplog):
    """The lines of the audit so far."""
    caplog.set_level(logging.INFO, logger="reverb.audit")
    return lambda: [json.loads(record.getMessage()) for record in caplog.records if record.name == "reverb.audit"]


def roads(server):
    return [f"ipv4:127.0.0.1:{server.port}", f"unix:{server.unix_path}"]


def test_the_same_process_needs_no_token_and_every_other_road_does(start, tokens):
    server = start(tokens=tokens)
    here = reverb.Client(f"localhost:{server.port}")
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
        start(tokens=reverb.Tokens.from_file(path))


def test_a_file_that_becomes_wrong_leaves_the_tokens_in_use(start, tokens, tmp_path, caplog):
    server = start(tokens=tokens)
    (tmp_path / "tokens.toml").write_text("token = 1")
    server.reload()
    server.reload()
    warnings = [record for record in caplog.records if "tokens" in record.getMessage()]
    eventually(lambda: any("stay in use" in record.getMessage() for record in caplog.records))
    assert len([one for one in warnings if one.levelno == logging.WARNING]) <= 1
    with pytest.raises(errors.UnauthenticatedError):
        reverb.Client(roads(server)[0]).server_info()


def test_refused_calls_are_audited_without_the_token(start, tokens, audited):
    server = start(tokens=tokens)
    with pytest.raises(errors.UnauthenticatedError):
        reverb.Client(roads(server)[0]).server_info()
    eventually(lambda: [line for line in audited() if line["event"] == "refuse"])
    [refused, *_] = [line for line in audited() if line["event"] == "refuse"]
    assert (refused["reason"], refused["method"]) == ("no_token", "reverb.replay.v1.Replay/Hello")
    assert refused["address"].startswith("127.0.0.1:")


def test_other_users_of_the_socket_need_tokens(start):
    with pytest.raises(ValueError, match="unix_peers needs tokens"):
        start(unix_peers={OTHER})
    for wrong, error in (({-1}, ValueError), ({2**32 - 1}, ValueError), ({"1"}, TypeError), ("1000", TypeError)):
        with pytest.raises(error, match="unix_peers"):
            start(unix_peers=wrong)


def is_let_in_as(user, path):
    """Whether a server answers a client of HTTP/2 that the system takes for one of this user."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(PATIENCE_S)
        os.seteuid(user)
        try:
            end.connect(path)
        finally:
            os.seteuid(0)
        with contextlib.suppress(BrokenPipeError):
            end.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        try:
            return bool(end.recv(9))
        except ConnectionResetError:
            return False


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux")
def test_other_users_of_the_socket_are_let_in_and_are_asked_for_tokens(start, tokens):
    server = start(tokens=tokens, unix_peers={OTHER})
    folder = os.path.dirname(server.unix_path)
    # The folder for temporary files may be one of this test run, which only its user can enter.
    os.chmod(os.path.dirname(folder), stat.S_IMODE(os.stat(os.path.dirname(folder)).st_mode) | 0o011)
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    assert (mode, stat.S_IMODE(os.stat(server.unix_path).st_mode)) == (0o711, 0o666)
    assert [is_let_in_as(user, server.unix_path) for user in (0, OTHER, OTHER + 1)] == [True, True, False]
    with pytest.raises(errors.UnauthenticatedError):
        reverb.Client(f"unix:{server.unix_path}").server_info()


def test_nothing_that_people_read_holds_a_token(start, tokens):
    server = start(tokens=tokens)
    texts = [repr(tokens), repr(server), repr(reverb.Client(roads(server)[0]))]
    assert not [text for text in texts if token_of("actors") in text]
