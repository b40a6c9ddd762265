"""The HTTP port of a server: where it listens, what it refuses, when it answers, and how it ends."""

import contextlib
import http.client
import logging
import os
import select
import socket

import pytest
from behaviour_support import PATIENCE_S, make_table, program, run_program
from http_support import ask, connect

import reverb

pytestmark = pytest.mark.ports

HEALTH = ("/livez", "/readyz", "/healthz")
PATHS = (*HEALTH, "/", "/metrics", "/api/v1/server", "/api/v1/tables", "/nothing")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}


def is_closed_by_server(connection):
    """Whether the server closes the connection, reading what it still sends."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.fixture(scope="module")
def server():
    with reverb.Server([make_table()]) as server:
        yield server


@pytest.fixture(scope="module")
def port(server):
    return server.http_port


@pytest.fixture
def start():
    with contextlib.ExitStack() as servers:
        yield lambda **options: servers.enter_context(reverb.Server([make_table()], **options))


def test_every_path_is_answered_on_both_loopback_addresses(port):
    for path in PATHS:
        assert ask(port, path).status == (404 if path == "/nothing" else 200), path
    if socket.has_ipv6:
        with contextlib.suppress(OSError):
            assert ask(port, "/livez", host="::1").status == 200
    live, ready, healthy = (ask(port, path).text for path in HEALTH)
    assert (live, healthy) == ("ok\n", "ok\n")
    assert ready.startswith("ready. ")
    assert ready.endswith("\n")


def test_page_is_named_by_the_server(server):
    assert server.dashboard_url == f"http://localhost:{server.http_port}"
    assert server.http_port != server.port


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_headers_that_keep_other_sites_out(port, path):
    for answer in (ask(port, path), ask(port, path, "POST"), ask(port, path, headers=[("Host", "evil.example")])):
        assert {name: answer.headers.get_all(name) for name in HEADERS} == {
            name: [value] for name, value in HEADERS.items()
        }
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", PATHS)
def test_only_get_and_head_are_answered(port, path):
    got, head = ask(port, path), ask(port, path, "HEAD")
    assert (head.status, head.text) == (got.status, "")
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        answer = ask(port, path, method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD"), method


def test_body_of_a_request_is_not_read(port):
    assert ask(port, "/livez", body=b"x" * 100).status == 200
    with connect(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 405 ")
        assert is_closed_by_server(connection)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "10.9.8.7:80", "[::1]:5", socket.gethostname()]
)
def test_hosts_of_this_machine_are_answered(port, host):
    assert ask(port, "/", headers=[("Host", host)]).status == 200


@pytest.mark.parametrize("hosts", [["evil.example"], ["localhost.evil.example"], [""], [], ["localhost"] * 2])
def test_other_hosts_are_refused_except_for_health(port, hosts):
    lines = "".join(f"Host: {host}\r\n" for host in hosts)
    for path, expected in (("/", 421), ("/metrics", 421), ("/api/v1/tables", 421), ("/livez", 200)):
        with connect(port) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
            assert connection.recv(1 << 16).startswith(f"HTTP/1.1 {expected} ".encode()), path


def test_allowed_hosts_are_answered(start, monkeypatch):
    given = start(http_allowed_hosts=["replay.example", "other"])
    monkeypatch.setenv("REVERB_HTTP_ALLOWED_HOSTS", "replay.example, other")
    for server in (given, start()):
        for host in ("replay.example:80", "Other"):
            assert ask(server.http_port, "/", headers=[("Host", host)]).status == 200
        assert ask(server.http_port, "/", headers=[("Host", "third")]).status == 421


def test_name_at_which_the_port_listens_is_allowed(monkeypatch):
    def allowed(names):
        made = []

        class Unstarted:
            set_last = staticmethod(lambda is_last: None)

            def __init__(self, *arguments):
                made.append(arguments)
                raise ZeroDivisionError

        with monkeypatch.context() as patch:
            # Which names lead to this machine depends on the machine.
            patch.setattr("reverb._binding.Server", Unstarted)
            with pytest.raises(ZeroDivisionError):
                reverb.Server([make_table()], http_host="replay.example", http_allowed_hosts=names, allow_insecure=True)
        (arguments,) = made
        return list(arguments[1].observe.http_allowed_hosts)

    assert allowed(["other"]) == ["other", "replay.example"]
    monkeypatch.setenv("REVERB_HTTP_ALLOWED_HOSTS", "another")
    assert allowed(None) == ["another", "replay.example"]


@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_pages_of_other_sites_are_refused(port, site):
    for path in ("/", "/metrics", "/api/v1/server", "/nothing"):
        assert ask(port, path, headers=[("Sec-Fetch-Site", site)]).status == 403
    assert ask(port, "/livez", headers=[("Sec-Fetch-Site", site)]).status == 200


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_own_pages_and_typed_addresses_are_answered(port, site):
    assert ask(port, "/api/v1/server", headers=[("Sec-Fetch-Site", site)]).status == 200


def test_link_of_another_site_opens_the_page_but_no_frame_and_no_data(port):
    link = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")]
    assert ask(port, "/", headers=[*link, ("Sec-Fetch-Dest", "document")]).status == 200
    assert ask(port, "/", headers=[*link, ("Sec-Fetch-Dest", "iframe")]).status == 403
    assert ask(port, "/api/v1/server", headers=[*link, ("Sec-Fetch-Dest", "document")]).status == 403


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /livez?" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X: x\r\n" * 100 + b"\r\n", 431),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: local\x00host\r\n\r\n", 400),
    ],
)
def test_heads_that_are_too_large_or_no_http_are_refused(port, head, status):
    with connect(port) as connection:
        connection.sendall(head)
        assert connection.recv(1 << 16).startswith(f"HTTP/1.1 {status} ".encode())
        assert is_closed_by_server(connection)
    assert ask(port, "/livez").status == 200


@pytest.mark.parametrize("bytes_", [b"", b"GET /live", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_connections_that_end_early_do_no_harm(port, bytes_):
    for _ in range(20):
        with connect(port) as connection:
            connection.sendall(bytes_)
    assert ask(port, "/livez").status == 200


def test_slow_clients_are_cut_and_others_are_answered_meanwhile(start):
    port = start().http_port
    slow = [connect(port) for _ in range(10)]
    request = iter(b"GET / HTTP/1.1\r\nX: " + b"x" * 10_000)
    with contextlib.ExitStack() as stack:
        for connection in slow:
            stack.enter_context(connection)
        open_ones = list(slow)
        while open_ones:
            byte = bytes([next(request)])
            for connection in open_ones:
                with contextlib.suppress(OSError):
                    connection.sendall(byte)
            assert ask(port, "/").status == 200
            for connection in select.select(open_ones, [], [], 0.5)[0]:
                assert is_closed_by_server(connection)
                open_ones.remove(connection)


def test_idle_connections_give_way_to_new_ones(start):
    port = start().http_port
    with contextlib.ExitStack() as idle:
        for _ in range(200):
            idle.enter_context(connect(port))
        for path in (*HEALTH, "/", "/metrics"):
            assert ask(port, path).status == 200
    assert ask(port, "/").status == 200


def test_connections_that_ask_now_and_then_do_not_shut_others_out(start):
    port = start().http_port
    with contextlib.ExitStack() as stack:
        kept = [http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S) for _ in range(64)]
        for connection in kept:
            stack.callback(connection.close)
            connection.request("GET", "/livez")
            connection.getresponse().read()
        # All but the first two ask again: the first ones have been idle for the longest time.
        for connection in kept[2:]:
            connection.request("GET", "/livez")
            connection.getresponse().read()
        assert [ask(port, "/metrics").status for _ in range(3)] == [200] * 3
        assert is_closed_by_server(kept[0].sock)
        kept[-1].request("GET", "/metrics")
        assert kept[-1].getresponse().status == 200


def test_connection_is_kept_for_further_requests(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.connect()
        kept = connection.sock
        for path in PATHS:
            connection.request("GET", path)
            connection.getresponse().read()
            assert connection.sock is kept


def test_http_can_be_switched_off(start, monkeypatch):
    off = [start(http_port=None), start(http_port="off")]
    monkeypatch.setenv("REVERB_HTTP_PORT", "off")
    for server in (*off, start()):
        assert (server.http_port, server.dashboard_url) == (None, None)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_given_ports_are_used(start, monkeypatch):
    wanted = free_port()
    assert start(http_port=wanted).http_port == wanted
    wanted = free_port()
    monkeypatch.setenv("REVERB_HTTP_PORT", str(wanted))
    assert start().http_port == wanted
    other = free_port()
    assert start(http_port=other).http_port == other
    assert start(http_port=None).http_port is None


@pytest.mark.parametrize("port", [-1, 2**16])
def test_impossible_ports_are_refused(start, port, monkeypatch):
    with pytest.raises(ValueError, match=f"http_port must be between 0 and 65535, or None, got {port}"):
        start(http_port=port)
    monkeypatch.setenv("REVERB_HTTP_PORT", str(port))
    with pytest.raises(ValueError, match="REVERB_HTTP_PORT must be between 0 and 65535, or off, got"):
        start()


@pytest.mark.parametrize(
    "option", [{"http_port": "80"}, {"http_port": 8.5}, {"http_host": 5}, {"http_allowed_hosts": "a"}]
)
def test_options_of_wrong_type_are_type_errors(start, option):
    with pytest.raises(TypeError, match=next(iter(option))):
        start(**option)


@pytest.mark.parametrize("name", ["http://a", "a:80", "", "a b"])
def test_allowed_hosts_that_are_no_names_are_refused(start, name):
    with pytest.raises(ValueError, match="http_allowed_hosts must be host names without a scheme or a port, got"):
        start(http_allowed_hosts=[name])


def test_port_in_use_is_an_error_that_names_the_option_and_comes_before_the_load(start, tmp_path):
    from reverb.platform.default.checkpointers import DefaultCheckpointer

    with start(checkpointer=DefaultCheckpointer(str(tmp_path))) as saved:
        saved.localhost_client().checkpoint()
    taken = start().http_port
    log = []
    handler = logging.Handler()
    handler.emit = lambda record: log.append(record.getMessage())
    logging.getLogger("reverb").addHandler(handler)
    try:
        with pytest.raises(reverb.errors.UnavailableError, match=rf"http_port {taken}: "):
            start(http_port=taken, checkpointer=DefaultCheckpointer(str(tmp_path)))
    finally:
        logging.getLogger("reverb").removeHandler(handler)
    assert not [line for line in log if "checkpoint" in line]
    # Nothing of the failed server is left: neither its port nor its hold on the folder.
    assert start(checkpointer=DefaultCheckpointer(str(tmp_path))).restored_from


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_wider_host_is_refused_with_the_switch_that_allows_it(start, host, monkeypatch):
    with pytest.raises(ValueError, match="http_host=.*allow_insecure"):
        start(http_host=host)
    monkeypatch.setenv("REVERB_HTTP_HOST", host)
    with pytest.raises(ValueError, match="REVERB_HTTP_HOST=.*allow_insecure"):
        start()


def test_wider_host_serves_when_allowed(start):
    server = start(http_host="0.0.0.0", allow_insecure=True)
    assert server.dashboard_url == f"http://{socket.gethostname()}:{server.http_port}"
    assert ask(server.http_port, "/livez").status == 200
    assert server.host == "127.0.0.1"


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("::1", "[::1]")])
def test_address_of_the_page_has_the_given_host(start, host, shown):
    try:
        server = start(http_host=host)
    except ValueError as error:
        pytest.skip(str(error))
    assert server.dashboard_url == f"http://{shown}:{server.http_port}"


def test_foreign_host_is_an_error(start):
    with pytest.raises(ValueError, match=r"http_host 192\.0\.2\.1 is not an address of this machine"):
        start(http_host="192.0.2.1", allow_insecure=True)


def test_stop_frees_the_port_while_clients_hang(start):
    server = start()
    port = server.http_port
    with contextlib.ExitStack() as clients:
        hanging = [clients.enter_context(connect(port)) for _ in range(60)]
        for connection in hanging[::2]:
            connection.sendall(b"GET / HT")
        hanging[1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert hanging[1].recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        server.stop()
        again = start(http_port=port)
        assert again.http_port == port
        assert all(map(is_closed_by_server, hanging))
    assert ask(port, "/readyz").text.startswith("ready. ")
    assert (server.http_port, server.dashboard_url) == (port, f"http://localhost:{port}")


def test_deleted_server_frees_the_port(start):
    server = reverb.Server([make_table()])
    port = server.http_port
    del server
    assert start(http_port=port).http_port == port


def test_server_that_cannot_start_frees_the_port(start):
    port, taken = free_port(), start().port
    with pytest.raises(reverb.errors.UnavailableError):
        start(http_port=port, port=taken)
    assert start(http_port=port).http_port == port


def test_servers_of_one_process_have_ports_of_their_own(start):
    one, other = start(), start()
    assert one.http_port != other.http_port
    one.stop()
    assert ask(other.http_port, "/livez").status == 200
    with pytest.raises(ConnectionRefusedError):
        ask(one.http_port, "/livez")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_holds_neither_port_nor_connections(start):
    run_program(
        """
        import os, signal, socket
        import reverb

        def make(**options):
            limiter = reverb.rate_limiters.MinSize(1)
            table = reverb.Table("t", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 9, limiter)
            return reverb.Server([table], **options)

        server = make()
        connection = socket.create_connection(("127.0.0.1", server.http_port), timeout=20)
        request = b"GET /livez HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
        connection.sendall(request)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            # A child's copy does nothing when it is stopped, and its own servers have a port of their own.
            server.stop()
            own = make()
            with socket.create_connection(("127.0.0.1", own.http_port), timeout=20) as to_own:
                to_own.sendall(request)
                os.write(told, to_own.recv(100)[:12])
            signal.pause()
        assert os.read(ready, 12) == b"HTTP/1.1 200"
        connection.sendall(request)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        server.stop()
        assert connection.recv(1) == b"", "the child keeps the connection open"
        assert make(http_port=server.http_port).http_port == server.http_port
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        """
    )


def test_every_path_is_answered_while_a_thread_holds_the_gil():
    with program(
        """
        import ctypes, sys
        import reverb

        limiter = reverb.rate_limiters.MinSize(1)
        tables = [reverb.Table("t", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 9, limiter)]
        server = reverb.Server(tables)
        print(server.http_port, flush=True)
        sys.stdin.readline()
        # `PyDLL` keeps the GIL during a call. The shell prints that, and waits.
        ctypes.PyDLL(None).system(b"echo held; read line")
        print("released", flush=True)
        """
    ) as child:
        port = int(child.line())
        child.process.stdin.write("hold\n")
        child.process.stdin.flush()
        assert child.line() == "held"
        for path in PATHS:
            assert ask(port, path).status == (404 if path == "/nothing" else 200), path
        child.process.stdin.write("release\n")
        child.process.stdin.flush()
        assert child.line() == "released"
        child.end()
