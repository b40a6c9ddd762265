"""Clients of gRPC that are not ours, at a server with TLS. TensorFlow brings grpcio along."""

import dataclasses
import pathlib

import pytest
from behaviour_support import PATIENCE_S, make_table
from tls_support import Authority

import reverb

grpc = pytest.importorskip("grpc")
pytestmark = [pytest.mark.tensorflow, pytest.mark.ports]

SERVER_INFO = "/deepmind.reverb.ReverbService/ServerInfo"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def files(authority):
    return reverb.ServerTLS(*authority.sign("server"))


@pytest.fixture
def start():
    servers = []

    def start(files):
        servers.append(reverb.Server([make_table("replay")], tls=files))
        return servers[-1].port

    yield start
    for server in servers:
        server.stop()


def bytes_of(*paths):
    return [pathlib.Path(path).read_bytes() for path in paths]


def info_over(channel):
    """What the server tells of its tables in the protocol of dm-reverb, as bytes of a message."""
    with channel:
        return channel.unary_unary(SERVER_INFO)(b"", timeout=PATIENCE_S)


def test_the_protocol_of_dm_reverb_is_served_over_tls(start, files, authority):
    port = start(files)
    secure = grpc.ssl_channel_credentials(*bytes_of(authority.ca))
    assert b"replay" in info_over(grpc.secure_channel(f"localhost:{port}", secure))


def test_certificates_of_clients_are_checked(start, files, authority):
    port = start(dataclasses.replace(files, client_ca=authority.ca))
    [ca] = bytes_of(authority.ca)
    cert, key = bytes_of(*authority.sign("client"))
    own = grpc.ssl_channel_credentials(ca, private_key=key, certificate_chain=cert)
    assert b"replay" in info_over(grpc.secure_channel(f"localhost:{port}", own))
    with pytest.raises(grpc.RpcError) as raised:
        info_over(grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(ca)))
    assert raised.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_client_without_tls_is_told_of_grpcs(start, files):
    with pytest.raises(grpc.RpcError) as raised:
        info_over(grpc.insecure_channel(f"localhost:{start(files)}"))
    assert "grpcs://" in raised.value.details()
