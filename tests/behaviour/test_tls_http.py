"""The HTTP port of a server with TLS."""

import dataclasses
import re
import socket
import ssl
import urllib.request

import pytest
from behaviour_support import PATIENCE_S, eventually, make_table
from tls_support import Authority

import reverb

pytestmark = pytest.mark.ports


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=[False, True], ids=["tls", "with client_ca"])
def server(request, authority):
    files = reverb.ServerTLS(*authority.sign("server"))
    if request.param:
        files = dataclasses.replace(files, client_ca=authority.ca)
    server = reverb.Server([make_table()], tls=files)
    yield server
    server.stop()


def read(server, path, authority):
    context = ssl.create_default_context(cafile=authority.ca)
    with urllib.request.urlopen(server.dashboard_url + path, context=context, timeout=PATIENCE_S) as answer:
        return answer.status, answer.read().decode()


def test_page_metrics_and_health_are_answered_over_tls_without_a_certificate_of_the_client(server, authority):
    assert server.dashboard_url == f"https://localhost:{server.http_port}"
    assert read(server, "/livez", authority) == (200, "ok\n")
    for path in ("/", "/metrics", "/api/v1/server"):
        assert read(server, path, authority)[0] == 200


def test_an_authority_that_the_client_does_not_know_is_refused(server):
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(server.dashboard_url, timeout=PATIENCE_S)


def test_a_request_without_tls_is_told_so(server):
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE_S) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while part := stream.recv(4096):
            answer += part
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 ")
    assert body == "This port speaks TLS. Use https://.\n"


def test_handshakes_that_fail_are_counted_and_probes_of_the_ports_are_not(server, authority):
    def failed():
        return int(re.search(r"(?m)^reverb_handshake_failures_total (\d+)", read(server, "/metrics", authority)[1])[1])

    assert failed() == 0
    for port in (server.port, server.http_port):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    for number, port in enumerate((server.port, server.http_port)):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stranger:
            stranger.sendall(b"no TLS")
            while stranger.recv(4096):
                pass
        eventually(lambda number=number: failed() == number + 1)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(server.dashboard_url, timeout=PATIENCE_S)
    eventually(lambda: failed() == 3)


def test_strangers_that_make_no_handshake_hold_up_nobody(server, authority):
    strangers = [socket.create_connection(("127.0.0.1", server.http_port), timeout=PATIENCE_S) for _ in range(200)]
    try:
        for stranger in strangers[::2]:
            stranger.sendall(b"\x16")
        assert read(server, "/livez", authority) == (200, "ok\n")
        assert read(server, "/metrics", authority)[0] == 200
    finally:
        for stranger in strangers:
            stranger.close()
