"""Who waits, and who does what: what the HTTP port tells of requests and connections, over each road."""

import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import Background, draw, eventually, insert_values, make_table
from http_support import INSERTER, get

import reverb


def busy(server):
    """Returns the clients that have inserted or drawn."""
    return [client for client in get(server, "clients")["clients"] if client["inserts"] or client["samples"]]


def test_each_waiting_insert_is_told_with_its_client_and_its_sentence(serve, road):
    first = serve(reverb.Table.queue("full", max_size=2), http_port=0)
    server, clients = serve.server, [first, serve.connect(), serve.connect()]
    insert_values(first, [1, 2], "full")
    waiting = []
    for number, client in enumerate(clients, 1):
        waiting.append(Background(insert_values, client, [0], "full"))
        eventually(lambda expected=number: len(get(server, "waits")["waits"]) == expected)
    waits = get(server, "waits")["waits"]
    assert [(wait["table_name"], wait["operation"], wait["transport"]) for wait in waits] == [
        ("full", "insert", road)
    ] * 3
    reason = "the queue is full (2 of 2 items); 1 more sample until an insert may go"
    behind = ["waits", "waits behind 1 other insert", "waits behind 2 other inserts"]
    assert [wait["reason"] for wait in waits] == [f"insert into table `full` {what}: {reason}" for what in behind]
    assert [wait["seconds"] for wait in waits] == sorted((wait["seconds"] for wait in waits), reverse=True)
    known = {client["id"]: client for client in get(server, "clients")["clients"]}
    for wait in waits:
        assert re.search(rf" \({re.escape(socket.gethostname())}:{os.getpid()}\)$", wait["client_name"])
        assert known[wait["client"]]["name"] == wait["client_name"]
    assert len({wait["client"] for wait in waits}) == 1, "they are one process"
    told = known[waits[0]["client"]]["waits"]
    assert [(one["table_name"], one["operation"], one["kind"], one["count"]) for one in told] == [
        ("full", "insert", "call", 3)
    ]
    longest = get(server, "tables")["tables"][0]["waiting_inserts"]
    assert longest["count"] == 3
    assert longest["longest_seconds"] >= waits[0]["seconds"] > 0

    draw(first, 3, "full")
    for call in waiting:
        call.result()
    assert get(server, "waits")["waits"] == []
    assert get(server, "tables")["tables"][0]["waiting_inserts"]["longest_seconds"] == 0


def test_a_wait_for_a_newer_item_is_told_and_is_no_stall(serve):
    client = serve(make_table(), http_port=0)
    insert_values(client, [1])
    seen = client.wait_newer("table").info.key
    waiting = Background(client.wait_newer, "table", seen)
    eventually(lambda: get(serve.server, "waits")["waits"])
    (wait,) = get(serve.server, "waits")["waits"]
    assert (wait["table_name"], wait["reason"]) == (
        "table",
        "`wait_newer` of table `table` waits: no other item than the one seen has come",
    )
    (told,) = [one for known in get(serve.server, "clients")["clients"] for one in known["waits"]]
    assert (told["operation"], told["kind"], told["count"]) == ("sample", "newer", 1)
    eventually(lambda: "for a newer version of table" in get(serve.server, "verdict")["line"])
    assert get(serve.server, "verdict")["level"] == "quiet"
    assert get(serve.server, "tables")["tables"][0]["waiting_samples"]["count"] == 0
    insert_values(client, [2])
    waiting.result()
    assert get(serve.server, "waits")["waits"] == []


def test_draws_that_only_wait_for_items_all_wait_for_the_same(serve):
    client = serve(make_table(limiter=reverb.rate_limiters.MinSize(3)), http_port=0)
    draws = [Background(draw, client, 1) for _ in range(2)]
    eventually(lambda: len(get(serve.server, "waits")["waits"]) == 2)
    waits = get(serve.server, "waits")["waits"]
    assert {wait["operation"] for wait in waits} == {"sample"}
    assert len({wait["reason"] for wait in waits}) == 1
    assert "more items until samples may go" in waits[0]["reason"]
    insert_values(client, range(3))
    for one in draws:
        one.result()


def test_clients_are_told_with_what_they_inserted_and_drew(serve, road):
    client = serve(make_table(), http_port=0)
    server = serve.server
    insert_values(client, range(5))
    client.insert_batch(np.arange(20), priorities={"table": 1.0})
    client.sample_batch("table", 7)
    [busy_one] = busy(server)
    assert (busy_one["inserts"], busy_one["samples"], busy_one["transport"]) == (25, 7, road)
    if road == "same_process":
        assert (busy_one["address"], busy_one["receive_bytes"], busy_one["streams"]) == ("", 0, 0)
    else:
        assert busy_one["receive_bytes"] > 25 * 8
        assert busy_one["transmit_bytes"] > 7 * 8
        assert busy_one["streams"] >= 2

    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for step in range(4):
            writer.append({"step": np.int64(step)})
            writer.create_item("table", 1.0, {"step": writer.history["step"][-1:]})
        writer.flush()
        assert sum(one["inserts"] for one in busy(server)) == 29
    [one] = get(server, "clients")["clients"]
    assert one["role"] == "both"
    assert get(server, "server")["connections"] == one["connections"] == (0 if road == "same_process" else 2)


def test_bytes_of_closed_connections_stay_in_the_totals():
    with reverb.Server([make_table()], http_port=0) as server:
        client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
        client.insert_batch(np.zeros((100, 100)), priorities={"table": 1.0})
        del client
        eventually(lambda: get(server, "server")["connections"] == 0)
        assert get(server, "server")["receive_bytes"] > 100 * 100 * 8
        assert get(server, "clients")["clients"] == [], "a server is not its own client"


@pytest.mark.parametrize(("arguments", "name"), [(["learner.py"], "learner.py"), (["-u", "-m", "learner"], "learner")])
def test_a_program_is_named_by_its_script_or_module(tmp_path, arguments, name):
    (tmp_path / "learner.py").write_text(INSERTER)
    with reverb.Server([make_table()], http_port=0) as server:
        command = [sys.executable, *arguments, f"ipv4:127.0.0.1:{server.port}"]
        learner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        with learner:
            assert learner.stdout.readline() == "done\n"
            [client] = busy(server)
            assert client["name"] == f"{name} ({socket.gethostname()}:{learner.pid})"
            assert client["address"].startswith("127.0.0.1:")
            learner.stdin.close()
