"""Health and reflection, asked by the clients of grpcio."""

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import proto_reflection_descriptor_database

import reverb

pytestmark = pytest.mark.live

SERVICES = ("", "reverb.replay.v1.Replay", "deepmind.reverb.ReverbService")
TIMEOUT_S = 60


@pytest.fixture
def server():
    """A server with one table that waits for its first item."""
    server = reverb.Server([reverb.Table.queue("queue", max_size=10)])
    yield server
    server.stop()


@pytest.fixture(params=["tcp", "unix"])
def channel(request, server):
    """A channel of grpcio to the server."""
    target = {"tcp": f"localhost:{server.port}", "unix": f"unix:{server.unix_path}"}[request.param]
    # By default grpcio names the path of a Unix socket as the authority, with escapes that the server does not accept.
    with grpc.insecure_channel(target, options=[("grpc.default_authority", "localhost")]) as channel:
        yield channel


def test_every_service_is_healthy_and_others_are_not_known(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in SERVICES:
        answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
    with pytest.raises(grpc.RpcError) as unknown:
        health.Check(health_pb2.HealthCheckRequest(service="unknown"), timeout=TIMEOUT_S)
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


def test_those_who_watch_are_told_of_a_stop(server, channel):
    health = health_pb2_grpc.HealthStub(channel)
    requests = [health_pb2.HealthCheckRequest(service=service) for service in SERVICES]
    watches = [health.Watch(request, timeout=TIMEOUT_S) for request in requests]
    assert [next(watch).status for watch in watches] == [health_pb2.HealthCheckResponse.SERVING] * len(SERVICES)
    server.stop()
    for watch in watches:
        # The stream ends well after the last word, so that nobody takes the stop for a broken connection.
        assert [answer.status for answer in watch] == [health_pb2.HealthCheckResponse.NOT_SERVING]
        assert watch.code() == grpc.StatusCode.OK


def test_reflection_lists_the_services_and_decodes_a_message(server, channel):
    database = proto_reflection_descriptor_database.ProtoReflectionDescriptorDatabase(channel)
    assert set(SERVICES[1:]) <= set(database.get_services())
    pool = descriptor_pool.DescriptorPool(database)
    service = pool.FindServiceByName("reverb.replay.v1.Replay")
    method = service.methods_by_name["Info"]
    answer_class = message_factory.GetMessageClass(method.output_type)
    call = channel.unary_unary(
        f"/{service.full_name}/{method.name}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=answer_class.FromString,
    )
    answer = call(message_factory.GetMessageClass(method.input_type)(), timeout=TIMEOUT_S)
    assert [table.info.name for table in answer.tables] == ["queue"]
    assert pool.FindServiceByName("deepmind.reverb.ReverbService").methods_by_name["InsertStream"].client_streaming
    # Its parts come from other files.
    assert pool.FindMessageTypeByName("deepmind.reverb.ChunkData").fields_by_name["chunk_key"].number == 1
