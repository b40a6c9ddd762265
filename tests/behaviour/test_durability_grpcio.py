"""What a durable server has confirmed to a client of dm-reverb's protocol. TensorFlow brings grpcio along."""

import json
import pathlib

import pytest
from behaviour_support import PATIENCE_S
from durability_support import MODES, DurableServer

import reverb
from reverb import _protos

grpc = pytest.importorskip("grpc")
pytestmark = [pytest.mark.tensorflow, pytest.mark.ports]

INSERT_STREAM = "/deepmind.reverb.ReverbService/InsertStream"
VECTORS = pathlib.Path(__file__).parents[1] / "data" / "insert_stream.json"


def recorded_requests(name):
    """The messages of a recorded client, whose items go into the tables `replay` and `queue` instead."""
    request_class = _protos.message_class("deepmind.reverb.InsertStreamRequest")
    [vector] = [vector for vector in json.loads(VECTORS.read_text())["vectors"] if vector["name"] == name]
    texts = [event["hex"] for event in vector["events"] if event.get("message", "").endswith("InsertStreamRequest")]
    requests = [request_class.FromString(bytes.fromhex(text)) for text in texts]
    for request in requests:
        for item in request.items:
            item.table = {"t": "replay", "prio": "queue"}[item.table]
    return requests


@pytest.mark.parametrize("mode", MODES)
def test_what_a_client_of_dm_reverb_was_confirmed_is_there_after_a_kill(tmp_path, mode):
    requests = recorded_requests("client_insert_two_tables")
    keys = {item.key: item.table for request in requests for item in request.items}
    response_class = _protos.message_class("deepmind.reverb.InsertStreamResponse")
    with DurableServer(tmp_path, mode) as server:
        with grpc.insecure_channel(f"localhost:{server.port}") as channel:
            stream = channel.stream_stream(
                INSERT_STREAM,
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=response_class.FromString,
            )
            confirmed = {key for response in stream(iter(requests), timeout=PATIENCE_S) for key in response.keys}
        assert confirmed == set(keys)
        server.end_by("kill")
    with DurableServer(tmp_path, mode, server.port) as again:
        client = reverb.Client(again.address())
        for key, table in keys.items():
            assert client.get(table, [key])[1].tolist() == [True]
