"""Where a server listens, and where it does not by default."""

import socket

import pytest
from behaviour_support import draw_values, insert_values, make_table

import reverb

pytestmark = pytest.mark.ports


def answers(host, port):
    try:
        with socket.create_connection((host, port), timeout=10):
            return True
    except OSError:
        return False


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def address_of_this_host():
    """Returns an address of this host other than loopback; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # This sends nothing. It only finds out which address would be used.
        except OSError:
            return None
        address = probe.getsockname()[0]
    return None if address.startswith("127.") or address == "0.0.0.0" else address


@pytest.fixture
def start():
    servers = []

    def start(**options):
        servers.append(reverb.Server(tables=[make_table()], **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def test_server_listens_on_both_loopback_addresses(start):
    server = start()
    assert answers("127.0.0.1", server.port)
    if has_ipv6():
        assert answers("::1", server.port)


def test_server_does_not_listen_on_other_addresses(start):
    address = address_of_this_host()
    if address is None:
        pytest.skip("this host has only its loopback address")
    assert not answers(address, start().port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_wider_host_is_refused_with_the_switch_that_allows_it(start, host):
    with pytest.raises(ValueError, match="allow_insecure"):
        start(host=host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_hosts_need_no_switch(start, host):
    server = start(host=host)
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    insert_values(client, [1])
    assert draw_values(client) == [1]


def test_wider_host_serves_when_allowed(start):
    server = start(host="0.0.0.0", allow_insecure=True)
    assert answers("127.0.0.1", server.port)
    address = address_of_this_host()
    if address is not None:
        client = reverb.Client(f"{address}:{server.port}")
        insert_values(client, [1])
        assert draw_values(client) == [1]


def test_environment_variable_allows_a_wider_host(start, monkeypatch):
    monkeypatch.setenv("REVERB_HOST", "0.0.0.0")
    with pytest.raises(ValueError, match="allow_insecure"):
        start()
    monkeypatch.setenv("REVERB_ALLOW_INSECURE", "1")
    assert answers("127.0.0.1", start().port)


def test_argument_overrides_the_environment(start, monkeypatch):
    monkeypatch.setenv("REVERB_HOST", "0.0.0.0")
    assert answers("127.0.0.1", start(host="127.0.0.1").port)


@pytest.mark.parametrize("port", [None, 0])
def test_free_port_is_found_and_reported(start, port):
    server = start(port=port)
    assert 0 < server.port < 2**16
    assert answers("127.0.0.1", server.port)


def test_port_in_use_is_an_error(start):
    taken = start().port
    with pytest.raises((reverb.ReverbError, OSError, ValueError), match=str(taken)):
        start(port=taken)


def test_port_used_by_another_program_is_an_error(start):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises((reverb.ReverbError, OSError, ValueError), match=str(port)):
            start(port=port)


def test_port_is_free_again_after_stop(start):
    first = start()
    first.stop()
    assert start(port=first.port).port == first.port


@pytest.mark.parametrize("port", [-1, 2**16, 99_999])
def test_impossible_ports_are_refused(start, port):
    with pytest.raises(ValueError, match=str(port)):
        start(port=port)


@pytest.mark.parametrize("port", ["8000", 80.5])
def test_ports_that_are_not_ints_are_type_errors(start, port):
    with pytest.raises(TypeError):
        start(port=port)


@pytest.mark.parametrize(
    "name", ["localhost:{port}", "127.0.0.1:{port}", "ipv4:127.0.0.1:{port}", "dns:///localhost:{port}"]
)
def test_usual_ways_to_write_an_address_work(start, name):
    client = reverb.Client(name.format(port=start().port))
    insert_values(client, [1])
    assert draw_values(client) == [1]


@pytest.mark.parametrize("name", ["[::1]:{port}", "ipv6:[::1]:{port}"])
def test_usual_ways_to_write_an_ipv6_address_work(start, name):
    if not has_ipv6():
        pytest.skip("this host has no IPv6")
    client = reverb.Client(name.format(port=start().port))
    insert_values(client, [1])
    assert draw_values(client) == [1]


@pytest.mark.parametrize(
    "noise", [b"\x00" * 100, b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500]
)
def test_arbitrary_bytes_on_the_port_do_no_harm(start, noise):
    server = start()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(noise)
    client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
    insert_values(client, [1])
    assert draw_values(client) == [1]


@pytest.fixture(params=["127.0.1.1", "host name", "card"])
def own_host(request):
    """A name or an address of this machine that is not the one on which servers listen."""
    host = {"host name": socket.gethostname(), "card": address_of_this_host()}.get(request.param, request.param)
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        host = None
    if host is None:
        pytest.skip("this host has no such address")
    return host


def test_every_address_of_this_machine_leads_to_a_server_on_loopback(start, own_host):
    client = reverb.Client(f"{own_host}:{start().port}")
    insert_values(client, [1])
    assert draw_values(client) == [1]
    assert client.road == "unix"
    with client.trajectory_writer(1) as writer:
        writer.append([2])
        writer.create_item("table", 1.0, [writer.history[0][-1]])
        writer.flush()


HINT = "servers listen on this machine only unless host= or REVERB_HOST is given"


@pytest.mark.parametrize("scheme", ["", "ipv4:"])
def test_error_at_an_address_without_server_says_where_servers_listen(start, scheme):
    server = start()
    server.stop()
    client = reverb.Client(f"{scheme}127.0.1.1:{server.port}")
    with pytest.raises(reverb.DeadlineExceededError, match=HINT):
        client.insert(1, {"table": 1.0}, timeout=3)


def test_an_address_with_a_scheme_is_taken_literally(start):
    client = reverb.Client(f"ipv4:127.0.1.1:{start().port}")
    with pytest.raises(reverb.DeadlineExceededError, match=HINT):
        client.insert(1, {"table": 1.0}, timeout=3)


def test_error_at_loopback_says_nothing_about_hosts(start):
    server = start()
    server.stop()
    with pytest.raises(reverb.DeadlineExceededError) as caught:
        reverb.Client(f"ipv4:127.0.0.1:{server.port}").insert(1, {"table": 1.0}, timeout=3)
    assert HINT not in str(caught.value)


@pytest.mark.parametrize("interval", [0, -1.0, float("nan"), float("inf")])
def test_heartbeat_that_is_no_time_is_refused(start, interval):
    with pytest.raises(ValueError, match=r"heartbeat_interval must be a number of seconds from 0\.001"):
        start(heartbeat_interval=interval)


def test_heartbeat_of_the_environment_counts_unless_one_is_given(start, monkeypatch):
    monkeypatch.setenv("REVERB_HEARTBEAT", "often")
    with pytest.raises(ValueError, match="REVERB_HEARTBEAT must be a number of seconds, got 'often'"):
        start()
    start(heartbeat_interval=1)
    monkeypatch.setenv("REVERB_HEARTBEAT", "0")
    with pytest.raises(ValueError, match=r"REVERB_HEARTBEAT must be a number of seconds from 0\.001"):
        start()
    monkeypatch.setenv("REVERB_HEARTBEAT", "2.5")
    start()
