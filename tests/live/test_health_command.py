"""`reverb health` asks any server that has gRPC's health service, here that of grpcio."""

import subprocess
import sys
from concurrent import futures

import pytest

pytestmark = pytest.mark.live

grpc = pytest.importorskip("grpc")
health = pytest.importorskip("grpc_health.v1.health")
health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
health_pb2_grpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")


@pytest.fixture
def other():
    """A server of grpcio with a health service: the port, and the service."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    service = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port, service
    server.stop(None)


def run(port, *arguments):
    command = [sys.executable, "-c", "from reverb.cli import main; main()", "health", f"localhost:{port}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_status_says_what_the_server_says(other):
    port, service = other
    statuses = health_pb2.HealthCheckResponse
    for status, shown, code in (
        (statuses.SERVING, "serving\n", 0),
        (statuses.NOT_SERVING, "not_serving\n", 1),
        (statuses.UNKNOWN, "not_serving\n", 1),
    ):
        service.set("", status)
        done = run(port)
        assert (done.returncode, done.stdout, done.stderr) == (code, shown, "")
    service.set("one", statuses.SERVING)
    assert run(port, "--service", "one").returncode == 0
    done = run(port, "--service", "two")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no service `two`" in done.stderr


def test_server_without_the_service_is_named():
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    done = run(port)
    server.stop(None)
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not tell its health (grpc.health.v1)" in done.stderr
