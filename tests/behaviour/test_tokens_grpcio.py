"""Clients of gRPC that are not ours, at a server with tokens. TensorFlow brings grpcio along."""

import pytest
from behaviour_support import make_table
from google.protobuf import descriptor_pb2
from token_support import token_of, write_tokens

import reverb
from reverb import _binding

grpc = pytest.importorskip("grpc")
pytestmark = [pytest.mark.tensorflow, pytest.mark.ports]

ROLES = ("view", "use", "admin")
# The least role of each method of our service and of dm-reverb's.
VIEW = {"Hello", "Info", "Observe", "ServerInfo", "InitializeConnection"}
USE = {
    "Sample",
    "Peek",
    "Get",
    "Newer",
    "Insert",
    "Write",
    "Mutate",
    "SampleStream",
    "InsertStream",
    "MutatePriorities",
    "Sums",
}
ADMIN = {"Reset", "Checkpoint", "Configure", "Bench"}
REFUSED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.RESOURCE_EXHAUSTED}


def methods():
    """Every method of the server's own services: its path, and the place of its least role."""
    for file in descriptor_pb2.FileDescriptorSet.FromString(_binding.descriptor_set()).file:
        for service in file.service:
            for method in service.method:
                [least] = [place for place, names in enumerate((VIEW, USE, ADMIN)) if method.name in names]
                yield f"/{file.package}.{service.name}/{method.name}", least


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = write_tokens(tmp_path_factory.mktemp("tokens") / "tokens.toml", **{role: role for role in ROLES})
    server = reverb.Server([make_table()], tokens=reverb.Tokens.from_file(path))
    yield server
    server.stop()


@pytest.fixture(scope="module", params=["tcp", "unix"])
def channel(request, server):
    address = f"127.0.0.1:{server.port}" if request.param == "tcp" else f"unix:{server.unix_path}"
    # grpcio would name the path of a socket as the host, which HTTP/2 does not allow.
    with grpc.insecure_channel(address, [("grpc.default_authority", "localhost")]) as channel:
        yield channel


def refusal(channel, path, name):
    """The error with which a call of one empty message is refused; None if it is let in."""
    metadata = [] if name is None else [("authorization", f"Bearer {token_of(name)}")]
    # A method that is let in may wait for longer than that.
    call = channel.stream_stream(path)(iter([b""]), metadata=metadata, timeout=1)
    try:
        next(call, None)
    except grpc.RpcError as error:
        return error if error.code() in REFUSED else None
    finally:
        call.cancel()
    return None


@pytest.mark.parametrize(("path", "least"), list(methods()), ids=lambda value: str(value))
def test_each_method_is_for_its_role(channel, path, least):
    for place, role in enumerate(ROLES):
        refused = refusal(channel, path, role)
        if place >= least:
            assert refused is None
        else:
            assert refused.code() == grpc.StatusCode.PERMISSION_DENIED
            assert f"token `{role}` has role {role}; " in refused.details()
    # A flood of strangers is told so.
    strangers = {refusal(channel, path, name).code() for name in (None, "stranger")}
    assert strangers <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_health_is_open_and_reflection_is_not(channel):
    assert refusal(channel, "/grpc.health.v1.Health/Check", None) is None
    for version in ("v1", "v1alpha"):
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        assert refusal(channel, path, None) is not None
        assert refusal(channel, path, "view") is None
