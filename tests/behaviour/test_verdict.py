"""Whether a server works, in one line, and who its clients are: those that are connected, and those that have left."""

import os
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import Background, draw, eventually, insert_values, make_table
from http_support import INSERTER, ask, get

import reverb
from reverb.loaders import NumpyLoader

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]


def line(server):
    """Returns the verdict."""
    return get(server, "verdict")["line"]


@pytest.fixture
def run(tmp_path):
    """Starts a program that has inserted an item and waits for the end of its input."""
    (tmp_path / "actor.py").write_text(INSERTER)
    started = []

    def run(address):
        command = [sys.executable, tmp_path / "actor.py", address]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "done\n"
        return started[-1]

    yield run
    for program in started:
        program.kill()
        program.wait()
        program.stdout.close()
        program.stdin.close()


def test_a_server_that_nobody_uses_is_idle(serve):
    client = serve(make_table(), http_port=0)
    eventually(lambda: line(serve.server).startswith("Idle "))
    told = get(serve.server, "verdict")
    assert (told["state"], told["level"], told["tables"], told["troubles"]) == ("idle", "quiet", [], [])
    insert_values(client, range(5))
    eventually(lambda: get(serve.server, "verdict")["state"] == "flowing")
    [table] = get(serve.server, "tables")["tables"]
    assert (table["progress"]["state"], table["progress"]["level"]) == ("flowing", "good")
    assert table["progress"]["seconds"] is None


def test_a_wait_names_who_waits_and_why(serve):
    client = serve(make_table("replay", limiter=reverb.rate_limiters.MinSize(3)), make_table("other"), http_port=0)
    waiting = Background(draw, client, 1, "replay")
    eventually(lambda: "nobody has inserted into replay (empty), so " in line(serve.server))
    told = get(serve.server, "verdict")
    assert (told["state"], told["level"], told["tables"]) == ("waiting", "quiet", [0])
    [first, other] = get(serve.server, "tables")["tables"]
    assert first["progress"]["sentence"] == "nobody has inserted into replay (empty)"
    assert first["progress"]["seconds"] > 0
    assert (other["progress"]["state"], other["progress"]["sentence"]) == ("idle", "")
    insert_values(client, range(3), "replay")
    waiting.result()
    eventually(lambda: line(serve.server).startswith("Flowing: "))


def test_probes_and_commands_begin_with_it(serve):
    serve(make_table(), http_port=0)
    server = serve.server
    eventually(lambda: "nobody is connected" in line(server) or "asks for nothing" in line(server))
    assert ask(server.http_port, "/readyz").text.startswith("ready. Idle ")
    for command in ("info", "top"):
        done = subprocess.run(
            [*COMMAND, command, f"127.0.0.1:{server.port}"], capture_output=True, text=True, check=True, timeout=120
        )
        assert done.stdout.startswith("Idle "), command


@pytest.mark.parametrize(("end", "how"), [("close", "closed"), ("kill", "lost")])
def test_clients_that_leave_are_told_with_how(serve_far, run, end, how):
    serve_far(make_table(), http_port=0)
    server = serve_far.server
    program = run(serve_far.address)

    def its(part):
        return [one for one in get(server, "clients")[part] if one["name"].endswith(f":{program.pid})")]

    [client] = its("clients")
    assert (client["program"], client["role"], client["inserts"]) == ("actor.py", "writes", 1)
    assert its("left") == []
    if end == "kill":
        program.kill()
    else:
        program.stdin.close()
    eventually(lambda: its("left"))
    [one] = its("left")
    assert (one["how"], one["program"], one["role"], one["inserts"]) == (how, "actor.py", "writes", 1)
    assert one["since"] <= one["at"]


def test_draws_ahead_of_a_program_are_not_its_own_waits(serve_far):
    client = serve_far(reverb.Table.queue("table", 10), http_port=0)
    client.insert_batch(np.arange(4), {"table": 1.0})
    with NumpyLoader(client, "table", batch_size=4) as batches:
        assert sorted(next(iter(batches)).data[0].ravel().tolist()) == [0, 1, 2, 3]
        eventually(lambda: get(serve_far.server, "waits")["waits"])
        assert {wait["kind"] for wait in get(serve_far.server, "waits")["waits"]} == {"ahead"}
    eventually(lambda: get(serve_far.server, "waits")["waits"] == [])
    waiting = Background(draw, client, 1)
    eventually(lambda: [wait["kind"] for wait in get(serve_far.server, "waits")["waits"]] == ["call"])
    insert_values(client, [5])
    waiting.result()


@pytest.mark.parametrize(("option", "seconds"), [({}, 600), ({"stall_after": 1800}, 1800), ({"stall_after": 0.5}, 0.5)])
def test_a_table_may_say_how_long_it_pauses(option, seconds):
    table = reverb.Table.queue("table", 2).replace(**option).replace()
    with reverb.Server([table], http_port=0) as server:

        def told():
            return get(server, "tables")["tables"][0]["progress"]["stall_after_seconds"]

        eventually(lambda: told() > 0)
        assert told() == seconds


def test_a_pause_that_is_longer_than_the_table_says_is_a_stall():
    with reverb.Server([reverb.Table.queue("table", 1).replace(stall_after=0.1)], http_port=0) as server:
        client = reverb.Client(f"localhost:{server.port}")
        insert_values(client, [1])
        draw(client, 1)
        insert_values(client, [2])
        waiting = Background(insert_values, client, [3])
        eventually(lambda: get(server, "verdict")["state"] == "stalled")
        told = get(server, "verdict")
        assert (told["level"], told["tables"]) == ("warning", [0])
        assert "has not drawn from table (full), so it waits for itself" in told["line"]
        assert ask(server.http_port, "/readyz").status == 200
        draw(client, 1)
        waiting.result()
        eventually(lambda: get(server, "verdict")["state"] == "flowing")


def test_the_process_of_a_server_is_a_client_only_if_it_is_used():
    with reverb.Server([make_table()], http_port=0) as server:
        assert get(server, "clients") == {"clients": [], "left": []}
        client = reverb.Client(f"localhost:{server.port}")
        insert_values(client, [1])
        [told] = get(server, "clients")["clients"]
        assert (told["transport"], told["connections"], told["role"]) == ("same_process", 0, "writes")
        assert f":{os.getpid()})" in told["name"]
