"""Servers with TLS: who reaches them, who does not, and what the others are told."""

import concurrent.futures
import dataclasses
import json
import pickle
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from aio_support import run
from behaviour_support import PATIENCE_S, comes_true, draw_values, insert_values, make_table
from tls_support import Authority, address_of, s_client

import reverb
from reverb import aio, errors

pytestmark = pytest.mark.ports


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("other"), "other")


@pytest.fixture(scope="module")
def files(authority):
    return reverb.ServerTLS(*authority.sign("server"))


@pytest.fixture(scope="module")
def trusting(authority):
    """What a client has that trusts the authority."""
    return reverb.TLS(ca=authority.ca)


@pytest.fixture
def start(monkeypatch):
    for name in ("REVERB_CA", "REVERB_CERT", "REVERB_KEY"):
        monkeypatch.delenv(name, raising=False)
    servers = []

    def start(*tables, **options):
        servers.append(reverb.Server(list(tables) or [make_table()], **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(start, files):
    return start(tls=files)


def plain_address(server):
    return f"ipv4:127.0.0.1:{server.port}"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "ipv4:127.0.0.1", "dns:///localhost"])
def test_a_client_that_trusts_the_authority_writes_and_reads(server, trusting, host):
    client = reverb.Client(address_of(server, host), tls=trusting)
    insert_values(client, [1, 2, 3])
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append([np.int64(4)])
        writer.create_item("table", 1.0, [writer.history[0][:]])
    assert draw_values(client, 3) == [1, 1, 1]
    assert client.server_info()["table"].current_size == 4
    assert client.road.startswith("tcp")


def test_a_client_for_asyncio_takes_the_files(server, trusting):
    async def main():
        async with aio.Client(address_of(server), tls=trusting) as client:
            await client.insert(np.int64(1), {"table": 1.0})
            return await client.server_info()

    assert run(main())["table"].current_size == 1


def test_a_client_in_the_servers_process_takes_tcp_too(server, trusting):
    assert reverb.Client(f"localhost:{server.port}").server_info()
    client = reverb.Client(address_of(server), tls=trusting)
    client.server_info()
    assert client.road == "tcp"


@pytest.mark.parametrize(("end", "how"), [("client.close()", "closed"), ("os._exit(1)", "lost")])
def test_the_server_knows_how_a_client_over_tls_has_left(server, authority, end, how):
    code = f"""
        import os, reverb
        client = reverb.Client({address_of(server)!r}, tls=reverb.TLS(ca={authority.ca!r}))
        client.insert([1], {{"table": 1.0}})
        {end}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, timeout=PATIENCE_S)
    observer = reverb.Client(f"unix:{server.unix_path}")

    def left():
        return [client["how"] for client in json.loads(observer.engine.observe(None))["left"]]

    assert comes_true(left, PATIENCE_S)
    assert left() == [how]


def test_large_batches_arrive_as_they_were_sent(start, files, trusting):
    server = start(reverb.Table.queue("queue", 1000), tls=files)
    client = reverb.Client(address_of(server), tls=trusting)
    data = np.random.default_rng(0).integers(0, 256, (64, 100_000), np.uint8)
    client.insert_batch([data], {"queue": 1.0})
    batch = client.sample_batch("queue", 64)
    np.testing.assert_array_equal(batch.data[0].reshape(data.shape), data)


def test_many_clients_at_once_are_served(server, trusting):
    def one(value):
        client = reverb.Client(address_of(server), tls=trusting)
        insert_values(client, [value] * 10)
        return client.sample_batch("table", 10).info.key.size

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(8))) == [10] * 8
    assert reverb.Client(f"localhost:{server.port}").server_info()["table"].current_size == 80


# Who is not trusted.


def refused(client, kind, text):
    """Whether the first call of a client fails, at once and for good; and so does the next."""
    for _ in range(2):
        with pytest.raises(kind, match=text) as raised:
            client.server_info(timeout=PATIENCE_S)
        assert not raised.value.is_transient
    return raised.value


def test_a_server_of_another_authority_is_not_trusted(server, other):
    client = reverb.Client(address_of(server), tls=reverb.TLS(ca=other.ca))
    error = refused(client, errors.UnauthenticatedError, "UnknownIssuer.*REVERB_CA")
    assert isinstance(error, PermissionError)


def test_a_server_of_another_name_is_not_trusted(start, authority):
    server = start(tls=reverb.ServerTLS(*authority.sign("named", "DNS:replay.example")))
    client = reverb.Client(address_of(server), tls=reverb.TLS(authority.ca))
    refused(client, errors.UnauthenticatedError, "replay.example")
    named = reverb.TLS(authority.ca, server_name="replay.example")
    assert reverb.Client(address_of(server), tls=named).server_info()


def test_writers_and_loaders_do_not_wait_for_a_server_that_is_not_trusted(server, other):
    client = reverb.Client(address_of(server), tls=reverb.TLS(ca=other.ca))
    with pytest.raises(errors.UnauthenticatedError):
        client.insert([np.int64(1)], {"table": 1.0})
    with pytest.raises(errors.UnauthenticatedError):
        client.trajectory_writer(num_keep_alive_refs=1)
    with (
        reverb.loaders.NumpyLoader(client, "table", batch_size=1) as loader,
        pytest.raises(errors.UnauthenticatedError),
    ):
        next(loader)


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(start, authority, files, other):
    server = start(tls=dataclasses.replace(files, client_ca=authority.ca))
    without = reverb.Client(address_of(server), tls=reverb.TLS(authority.ca))
    refused(without, errors.UnauthenticatedError, "asks for a certificate of the client")
    strange = reverb.Client(address_of(server), tls=reverb.TLS(authority.ca, *other.sign("client")))
    refused(strange, errors.UnauthenticatedError, "does not accept the certificate")
    known = reverb.Client(address_of(server), tls=reverb.TLS(authority.ca, *authority.sign("client")))
    insert_values(known, [1])
    assert draw_values(known) == [1]
    for version in ("-tls1_2", "-tls1_3"):
        assert "alert" in s_client(server.port, version, "-alpn", "h2", "-ign_eof")


# Who speaks no TLS, and who alone does.


def test_a_client_without_tls_is_told_of_grpcs(server):
    refused(reverb.Client(plain_address(server)), errors.InvalidArgumentError, "speaks TLS: use grpcs://")
    with pytest.raises(errors.InvalidArgumentError, match="grpcs://"):
        reverb.Client(plain_address(server)).insert([1], {"table": 1.0})


def test_a_client_with_tls_is_told_of_a_server_without(start, trusting):
    client = reverb.Client(address_of(start()), tls=trusting)
    refused(client, errors.InvalidArgumentError, "does not speak TLS; grpcs://")


def test_a_client_with_tls_is_told_of_the_http_port(server, trusting):
    client = reverb.Client(f"grpcs://localhost:{server.http_port}", tls=trusting)
    refused(client, errors.InvalidArgumentError, "server.port")


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def test_clients_of_others_are_told_in_http_2(server):
    preface, settings, headers = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4, 0, 0), frame(1, 5, 3, b"\x82")
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as stream:
        for part in (preface[:1], preface[1:], settings + headers):
            stream.sendall(part)
        answer = b""
        while part := stream.recv(4096):
            answer += part
    assert answer.startswith(settings)
    answer = answer.removeprefix(settings)
    assert answer[3:9] == frame(1, 5, 3)[3:]
    assert b"\x0bgrpc-status\x017" in answer
    assert b"this port speaks TLS: use grpcs://" in answer
    assert answer.endswith(frame(7, 0, 0, (3).to_bytes(4, "big") + bytes(4)))


def test_a_process_of_this_machine_needs_no_tls_by_the_servers_socket(server):
    program = f"""
        import reverb
        client = reverb.Client("localhost:{server.port}")
        client.insert([1], {{"table": 1.0}})
        print(client.road)
        """
    assert output_of(program) == ["unix"]


def output_of(program, **options):
    """The lines that a program prints in another process."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("old", ["-tls1", "-tls1_1"])
def test_old_versions_of_tls_are_refused(server, old):
    printed = s_client(server.port, old, "-alpn", "h2", "-cipher", "DEFAULT@SECLEVEL=0")
    assert "Cipher is (NONE)" in printed


def test_openssl_accepts_the_certificate_and_the_protocol(server, authority):
    printed = s_client(server.port, "-alpn", "h2", "-CAfile", authority.ca, "-verify_return_error")
    assert "TLSv1.3" in printed
    assert "ALPN protocol: h2" in printed
    assert "Verify return code: 0 (ok)" in printed


@pytest.mark.parametrize("arguments", [["-alpn", "http/1.1"], []], ids=["http/1.1", "none"])
def test_connections_that_do_not_agree_on_http_2_end(server, arguments):
    # Otherwise the command would wait for the end of the connection in vain.
    printed = s_client(server.port, *arguments, "-ign_eof")
    assert "CONNECTED" in printed
    assert "ALPN protocol" not in printed


# Strangers.


def test_slow_handshakes_hold_up_nobody(server, trusting):
    strangers = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) for _ in range(300)]
    try:
        for stranger in strangers[::2]:
            # The first byte of a handshake, and no more.
            stranger.sendall(b"\x16")
        client = reverb.Client(address_of(server), tls=trusting)
        insert_values(client, [1])
        assert draw_values(client) == [1]
    finally:
        for stranger in strangers:
            stranger.close()


def test_a_stranger_that_sends_garbage_ends_and_others_are_served(server, trusting):
    for garbage in (b"\x16\x03\x01\xff\xff" + bytes(70_000), b"\0" * 70_000, b"\x16" * 70_000):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as stream:
            try:
                stream.sendall(garbage)
                while stream.recv(4096):
                    pass
            except OSError:
                pass
    assert reverb.Client(address_of(server), tls=trusting).server_info()


# Where addresses are taken.


def test_the_environment_names_the_files(start, authority, files, monkeypatch):
    server = start(tls=dataclasses.replace(files, client_ca=authority.ca))
    cert, key = authority.sign("by-environment")
    monkeypatch.setenv("REVERB_CA", authority.ca)
    refused(reverb.Client(address_of(server)), errors.UnauthenticatedError, "asks for a certificate")
    monkeypatch.setenv("REVERB_CERT", cert)
    monkeypatch.setenv("REVERB_KEY", key)
    assert reverb.Client(address_of(server)).server_info()
    monkeypatch.setenv("REVERB_CA", "/nowhere/ca.pem")
    refused(reverb.Client(address_of(server)), errors.InvalidArgumentError, "/nowhere/ca.pem")
    assert reverb.Client(address_of(server), tls=reverb.TLS(ca=authority.ca)).server_info()
    monkeypatch.delenv("REVERB_KEY")
    with pytest.raises(ValueError, match="REVERB_KEY"):
        reverb.Client(address_of(server))


def test_a_pickled_client_has_the_paths(server, trusting):
    client = reverb.Client(address_of(server), tls=trusting)
    pickled = pickle.dumps(client)
    again = pickle.loads(pickled)
    insert_values(again, [7])
    assert draw_values(client) == [7]
    with open(trusting.ca, "rb") as file:
        assert file.read() not in pickled
    program = f"""
        import pickle, sys
        client = pickle.loads(bytes.fromhex("{pickled.hex()}"))
        print(client.server_info()["table"].current_size, client.road)
        """
    assert output_of(program) == ["1", "tcp"]


def test_a_list_of_servers_is_reached_over_tls(start, files, trusting):
    servers = [start(tls=files) for _ in range(2)]
    both = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    for scheme in ("grpcs://ipv4:", "grpcs://"):
        client = reverb.Client(scheme + both, tls=trusting)
        insert_values(client, [1, 2, 3, 4])
        assert client.road == "tcp (2 servers)"
    sizes = [reverb.Client(f"localhost:{server.port}").server_info()["table"].current_size for server in servers]
    assert sizes == [4, 4]


def test_members_of_a_list_without_tls_are_not_used(start, files, trusting):
    secure, plain = start(tls=files), start()
    client = reverb.Client(f"grpcs://127.0.0.1:{secure.port},127.0.0.1:{plain.port}", tls=trusting)
    with pytest.raises(errors.InvalidArgumentError, match=f"{plain.port} does not speak TLS"):
        insert_values(client, [1, 2])
    assert reverb.Client(f"localhost:{plain.port}").server_info()["table"].current_size == 0
    client = reverb.Client(f"grpcs://127.0.0.1:{plain.port},localhost:{plain.port}", tls=trusting)
    refused(client, errors.InvalidArgumentError, "does not speak TLS")


def test_files_need_an_address_with_grpcs(server, trusting):
    for address in (f"localhost:{server.port}", plain_address(server), f"unix:{server.unix_path}"):
        with pytest.raises(ValueError, match="grpcs://"):
            reverb.Client(address, tls=trusting)
    with pytest.raises(TypeError, match="reverb.TLS"):
        reverb.Client(address_of(server), tls="ca.pem")
    refused(
        reverb.Client(f"grpcs://unix:{server.unix_path}"), errors.InvalidArgumentError, "not a valid server address"
    )


# Servers.


@pytest.mark.parametrize("wrong", ["cert", "key", "client_ca"])
def test_a_server_refuses_files_that_it_cannot_read(start, files, wrong, tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for path in (str(empty), str(tmp_path / "missing.pem")):
        with pytest.raises(ValueError, match=path):
            start(tls=dataclasses.replace(files, **{wrong: path}))


def test_a_server_refuses_a_key_of_another_certificate(start, files, other):
    with pytest.raises(ValueError, match="KeyMismatch|InconsistentKeys|key"):
        start(tls=dataclasses.replace(files, key=other.sign("another")[1]))


def test_a_wide_host_needs_tls_with_certificates_of_clients(start, files, authority, trusting):
    with pytest.raises(ValueError, match="without a password. .*allow_insecure=True"):
        start(tls=files, host="0.0.0.0")
    server = start(tls=dataclasses.replace(files, client_ca=authority.ca), host="0.0.0.0")
    client = reverb.Client(address_of(server), tls=reverb.TLS(authority.ca, *authority.sign("wide")))
    assert client.server_info()
    with pytest.raises(ValueError, match="http_host"):
        start(tls=dataclasses.replace(files, client_ca=authority.ca), http_host="0.0.0.0")
    with pytest.raises(TypeError, match="reverb.ServerTLS"):
        start(tls=trusting)
