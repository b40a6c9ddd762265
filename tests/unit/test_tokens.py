"""Tokens as programs give them, and where servers with and without them may listen."""

import pathlib
import pickle

import pytest

from reverb import ServerTLS, Tokens
from reverb._settings import ServerOptions

TOKENS = Tokens.from_file("tokens.toml")
PLAIN, MUTUAL = ServerTLS("server.pem", "server.key"), ServerTLS("server.pem", "server.key", "ca.pem")
# What protects a server; whether it may listen on other hosts at its port for clients, and at its HTTP port.
CELLS = {
    "neither": ({}, False, False),
    "tokens": ({"tokens": TOKENS}, False, False),
    "tls": ({"tls": PLAIN}, False, False),
    "tls and tokens": ({"tls": PLAIN, "tokens": TOKENS}, True, True),
    "mutual tls": ({"tls": MUTUAL}, True, False),
    "mutual tls and tokens": ({"tls": MUTUAL, "tokens": TOKENS}, True, True),
}


def of(**given):
    return ServerOptions.of(given, reads_environment=False)


@pytest.mark.parametrize("port", ["host", "http_host"])
@pytest.mark.parametrize("protected", CELLS)
def test_where_a_server_may_listen(protected, port):
    given, *may_listen = CELLS[protected]
    of(**given)
    of(**given, **{port: "127.0.0.2"})
    of(**given, **{port: "0.0.0.0"}, allow_insecure=True)
    if may_listen[port == "http_host"]:
        of(**given, **{port: "0.0.0.0"})
        return
    with pytest.raises(ValueError, match="allow_insecure") as raised:
        of(**given, **{port: "0.0.0.0"})
    assert ("encryption" in str(raised.value)) == ("tls" not in given)


def test_tokens_are_a_path_that_pickles():
    tokens = Tokens.from_file(pathlib.Path("a/tokens.toml"))
    assert tokens.path == "a/tokens.toml"
    assert pickle.loads(pickle.dumps(tokens)) == tokens
    for wrong, error in ((1, TypeError), (b"a", TypeError), ("", ValueError)):
        with pytest.raises(error, match="path"):
            Tokens.from_file(wrong)


@pytest.mark.parametrize("wrong", ["root", "", None, 1])
def test_roles_of_certificates_are_checked(wrong):
    with pytest.raises(ValueError, match="client_role must be one of view, use, admin"):
        ServerTLS("a.pem", "a.key", "ca.pem", wrong)


@pytest.mark.parametrize(("users", "expected"), [({3, 1}, (1, 3)), ([], ()), ((7,), (7,))])
def test_users_of_the_socket_are_numbers(users, expected):
    assert of(unix_peers=users, tokens=TOKENS).security.unix_peers == expected
