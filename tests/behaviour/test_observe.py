"""What a client sees of a server by the call `Observe`, over each road."""

import json

import numpy as np
import pytest
from behaviour_support import draw, insert_values, make_table

import reverb

HOSTILE = "<img src=x onerror=alert(1)>\u202e\n\x1b[31m\"\\'{}\u2028"


def observe(client):
    return json.loads(client.engine.observe(20.0))


def test_a_client_sees_the_server_over_each_road(serve):
    client = serve(make_table("a", max_size=7), make_table("b"))
    insert_values(client, [1, 2, 3], "a")
    draw(client, 2, "a")
    observed = observe(client)
    assert sorted(observed) == ["checkpoints", "clients", "left", "server", "tables", "verdict", "waits"]
    assert observed["server"]["state"] == "serving"
    assert observed["server"]["version"] == reverb.__version__
    one, other = observed["tables"]
    assert (one["name"], one["number"], one["items"], one["max_items"], one["inserts"]) == ("a", 0, 3, 7, 3)
    assert (other["name"], other["number"], other["items"]) == ("b", 1, 0)
    assert observed["waits"] == []


def test_hostile_names_arrive_as_they_are(serve):
    client = serve(make_table(HOSTILE))
    client.insert(np.int64(1), {HOSTILE: 1.0})
    assert [table["name"] for table in observe(client)["tables"]] == [HOSTILE]


def test_a_list_of_servers_cannot_be_observed():
    servers = [reverb.Server([make_table()]) for _ in range(2)]
    client = reverb.Client("ipv4:" + ",".join(f"127.0.0.1:{server.port}" for server in servers))
    with pytest.raises(reverb.errors.InvalidArgumentError, match="only one server can be observed at a time"):
        client.engine.observe(20.0)
    for server in servers:
        server.stop()


def test_a_stopped_server_is_not_observed(serve):
    client = serve(make_table())
    assert observe(client)["server"]["state"] == "serving"
    serve.stop()
    with pytest.raises(reverb.errors.ReverbError):
        client.engine.observe(2.0)
