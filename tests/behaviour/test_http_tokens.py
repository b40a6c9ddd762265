"""The HTTP port of a server with tokens: who may read what, and what is said to those who may not."""

import contextlib
import json
import logging
import re
import ssl
import sys
import urllib.request

import pytest
from behaviour_support import PATIENCE_S, eventually, make_table
from http_support import ask, connect
from tls_support import Authority
from token_support import token_of, write_tokens

import reverb

pytestmark = pytest.mark.ports

ROLES = {"watcher": "view", "actors": "use", "boss": "admin"}
HEALTH = ("/livez", "/readyz", "/healthz")
PAGE = ("/", "/app.js", "/session.js", "/style.css", "/icon.svg")
NUMBERS = (
    "/metrics",
    *(f"/api/v1/{name}" for name in ("role", "server", "verdict", "tables", "waits", "clients", "checkpoints")),
    *("/api/v1/history", "/api/v1/log", "/api/v1/tables/0/histograms"),
)
VALUE = "a-value-of-an-item"
MISSING = ("/other", "/metrics/", "/api/v1", "/api/v1/other", "/api/v1/tables/0/other")
# Those who guess are told less from their eleventh attempt in a second on, so each of them has an address of its own.
SOURCES = (f"127.1.{i // 200}.{i % 200 + 1}" for i in range(40_000))
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all addresses of 127.0.0.0/8")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with an item, and tokens of all roles."""
    path = write_tokens(tmp_path_factory.mktemp("tokens") / "tokens.toml", **ROLES)
    tokens = reverb.Tokens.from_file(path)
    server = reverb.Server([make_table()], tokens=tokens)
    reverb.Client(f"localhost:{server.port}").insert([VALUE], {"table": 2.0})
    yield server
    server.stop()


def bearer(name):
    return () if name is None else (("Authorization", f"Bearer {token_of(name)}"),)


def ask_as(server, name, path, method="GET", source=None):
    return ask(server.http_port, path, method, headers=bearer(name), source=source)


def key_of_item(server):
    [item] = json.loads(ask_as(server, "actors", "/api/v1/tables/0/items").text)["items"]
    return item["key"]


def contents(server):
    """The paths of what is in items."""
    column = f"/api/v1/tables/0/items/{key_of_item(server)}/columns/0"
    return ("/api/v1/tables/0/items", f"/api/v1/tables/0/items?key={key_of_item(server)}", column, f"{column}?raw")


@only_linux
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_each_path_is_for_those_with_its_role(server, method):
    wanted = [(path, 200, 200, 200) for path in HEALTH + PAGE]
    wanted += [(path, 401, 200, 200) for path in NUMBERS]
    wanted += [(path, 401, 403, 200) for path in contents(server)]
    wanted += [(path, 401, 404, 404) for path in MISSING]
    for path, stranger, view, use in wanted:
        everyone = {None: stranger, "wrong": stranger, "watcher": view, "actors": use, "boss": use}
        got = {name: ask_as(server, name, path, method, next(SOURCES)).status for name in everyone}
        assert got == everyone, (method, path)


def test_the_verdict_is_not_told_with_health(server):
    """It names tables, and the files of a save that has failed."""
    for name in (None, "boss"):
        assert ask_as(server, name, "/readyz").text == "ready\n"


@only_linux
def test_those_without_a_token_are_told_what_to_do(server):
    for path in ("/api/v1/server", "/metrics"):
        answer = ask_as(server, None, path, source=next(SOURCES))
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert re.search("send the header `Authorization: Bearer TOKEN`.*open the page at `/`", answer.text)
        wrong = ask_as(server, "wrong", path, source=next(SOURCES))
        assert wrong.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
        assert "does not know the token" in wrong.text
        is_json = path.startswith("/api")
        assert answer.headers["Content-Type"] == ("application/json" if is_json else "text/plain; charset=utf-8")
        if is_json:
            assert list(json.loads(answer.text)) == ["error"]


def test_a_role_that_is_too_small_is_named(server):
    answer = ask_as(server, "watcher", "/api/v1/tables/0/items")
    said = "token `watcher` has role view; /api/v1/tables/{table}/items needs use"
    assert (answer.status, json.loads(answer.text)) == (403, {"error": said})


@only_linux
def test_only_one_header_with_one_token_is_accepted(server):
    [good] = bearer("boss")
    token = token_of("boss")
    others = [("Authorization", token)], [("Authorization", f"Basic {token}")], [("Cookie", token)]
    for headers in ([good, good], *others):
        answer = ask(server.http_port, "/api/v1/server", headers=headers, source=next(SOURCES))
        assert answer.status == 401, headers
    address = f"/api/v1/server?token={token}&access_token={token}"
    assert ask(server.http_port, address, source=next(SOURCES)).status == 401


def test_a_caller_is_told_its_role(server):
    for name, role in ROLES.items():
        assert json.loads(ask_as(server, name, "/api/v1/role").text) == {"token": name, "role": role}


def test_everyone_has_all_roles_where_there_are_no_tokens():
    server = reverb.Server([make_table()])
    try:
        answer = ask(server.http_port, "/api/v1/role")
        assert (answer.status, json.loads(answer.text)) == (200, {"token": None, "role": "admin"})
        assert ask(server.http_port, "/api/v1/tables/0/items", headers=bearer("wrong")).status == 200
    finally:
        server.stop()


def statuses(server, name, count):
    """The statuses of as many requests, sent at once over one connection."""
    [(header, value)] = bearer(name)
    request = f"HEAD /api/v1/server HTTP/1.1\r\nHost: localhost\r\n{header}: {value}\r\n"
    received = b""
    with connect(server.http_port) as stream:
        stream.sendall((f"{request}\r\n" * (count - 1) + f"{request}Connection: close\r\n\r\n").encode())
        while part := stream.recv(1 << 16):
            received += part
    return [int(status) for status in re.findall(r"HTTP/1\.1 (\d{3}) ", received.decode())]


def test_a_flood_of_wrong_tokens_is_answered_shortly_and_locks_nobody_out(server):
    flood = []
    eventually(lambda: flood.extend(statuses(server, "wrong", 100)) or 429 in flood)
    assert set(flood) == {401, 429}
    assert set(statuses(server, "boss", 100)) == {200}


def test_a_token_that_is_removed_or_has_a_lesser_role_is_refused_at_once(tmp_path):
    path = write_tokens(tmp_path / "tokens.toml", **ROLES)
    server = reverb.Server([make_table()], tokens=reverb.Tokens.from_file(path))
    try:
        assert ask_as(server, "actors", "/api/v1/tables/0/items").status == 200
        write_tokens(path, watcher="view", actors="view")
        server.reload()
        assert ask_as(server, "actors", "/api/v1/tables/0/items").status == 403
        assert ask_as(server, "actors", "/api/v1/tables").status == 200
        assert ask_as(server, "boss", "/api/v1/tables").status == 401
    finally:
        server.stop()


def test_what_is_shown_of_items_is_audited(server, audited):
    key = key_of_item(server)
    assert ask_as(server, "boss", "/api/v1/tables/0/items?order=oldest").status == 200
    assert ask_as(server, "actors", f"/api/v1/tables/0/items?key={key}").status == 200
    assert ask_as(server, "actors", f"/api/v1/tables/0/items/{key}/columns/0?raw").status == 200
    assert ask_as(server, "watcher", f"/api/v1/tables/0/items?key={key}").status == 403
    eventually(lambda: audited("refuse"))
    shown = [
        (line["event"], line["who"], line["role"], line["table"], line["count"]) for line in audited("peek", "get")
    ]
    by_key = ("get", "actors", "use", "table", 1)
    assert shown == [("peek", "actors", "use", "table", 1), ("peek", "boss", "admin", "table", 1), by_key, by_key]
    assert all(line["address"].startswith("127.0.0.1:") for line in audited("peek", "get"))
    [refused] = audited("refuse")
    assert (refused["who"], refused["reason"]) == ("watcher", "role")
    assert refused["method"] == "/api/v1/tables/{table}/items"


@only_linux
def test_who_comes_is_audited_once_however_often_it_asks(tmp_path, audited):
    path = write_tokens(tmp_path / "tokens.toml", **ROLES)
    server = reverb.Server([make_table()], tokens=reverb.Tokens.from_file(path))
    try:
        here, there = next(SOURCES), next(SOURCES)
        for _ in range(3):
            # Each request has a connection of its own, as those of Prometheus.
            assert ask_as(server, "watcher", "/metrics", source=here).status == 200
            assert ask_as(server, "watcher", "/api/v1/history", source=here).status == 200
        assert statuses(server, "boss", 10) == [200] * 10
        assert ask_as(server, "watcher", "/metrics", source=there).status == 200
        write_tokens(path, watcher="use", boss="admin")
        server.reload()
        assert ask_as(server, "watcher", "/metrics", source=here).status == 200
        # Neither these nor those who are refused have come.
        for name, path in ((None, "/metrics"), ("wrong", "/metrics"), (None, "/livez"), (None, "/")):
            ask_as(server, name, path, source=next(SOURCES))
        eventually(lambda: len(audited("refuse")) == 2)
        came = [(line["who"], line["role"], line["address"].split(":")[0]) for line in audited("connect")]
        wanted = [("watcher", "view", here), ("boss", "admin", "127.0.0.1")]
        assert came == [*wanted, ("watcher", "view", there), ("watcher", "use", here)]
        kinds = {(line["proof"], line["road"], line["result"]) for line in audited("connect")}
        assert kinds == {("token", "http", "ok")}
    finally:
        server.stop()


def test_without_tokens_what_is_shown_is_audited_too(tmp_path, audited):
    authority = Authority(tmp_path)
    server = reverb.Server([make_table()], tls=reverb.ServerTLS(*authority.sign("server"), client_ca=authority.ca))
    try:
        context = ssl.create_default_context(cafile=authority.ca)
        address = f"{server.dashboard_url}/api/v1/tables/0/items"
        assert urllib.request.urlopen(address, context=context, timeout=PATIENCE_S).status == 200
    finally:
        server.stop()
    eventually(lambda: audited("peek"))
    [line] = audited("peek")
    assert (line["who"], line["proof"], line["table"], line["count"]) == ("", "none", "table", 0)


@only_linux
def test_what_is_for_view_has_neither_tokens_nor_values_of_items(server, caplog):
    caplog.set_level(logging.DEBUG)
    client = reverb.Client(f"localhost:{server.port}")
    for wrong in ("other", "table/" + VALUE):
        with contextlib.suppress(ValueError):
            client.insert([VALUE], {wrong: 1.0})
    for name in ("wrong", *ROLES):
        ask_as(server, name, f"/api/v1/tables/0/items?key={key_of_item(server)}", source=next(SOURCES))
    assert VALUE in ask_as(server, "actors", contents(server)[3]).text
    told = {path: ask_as(server, "watcher", path) for path in NUMBERS}
    assert {path: answer.status for path, answer in told.items()} == dict.fromkeys(NUMBERS, 200)
    texts = {path: f"{answer.headers}\n{answer.text}" for path, answer in told.items()}
    texts["logs"] = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    for where, text in texts.items():
        assert "rvb_" not in text, where
        assert VALUE not in text, where
