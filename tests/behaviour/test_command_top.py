"""`reverb top`, `reverb health` and `reverb info --stat`, run in separate processes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, eventually, insert_values, make_table, program
from terminal_support import Terminal

import reverb

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
HOSTILE = "evil\x1b[31m\u202e[bold]"


def run(*arguments, **environment):
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**inherited, **environment},
    )


@pytest.fixture
def server():
    """A server with a full queue at which an insert waits, a table of three items, and one with a hostile name."""
    server = reverb.Server([reverb.Table.queue("queue", 1), make_table("table", max_size=7), make_table(HOSTILE)])
    client = server.localhost_client()
    insert_values(client, [1], "queue")
    insert_values(client, range(3), "table")
    waiting = Background(client.insert, np.int64(2), {"queue": 1.0})
    eventually(lambda: json.loads(client.engine.observe(5.0))["tables"][0]["waiting_inserts"]["count"] == 1)
    yield server
    server.stop()
    with pytest.raises(reverb.ReverbError):
        waiting.result()


@pytest.fixture
def address(server):
    return f"localhost:{server.port}"


SERVER = """
import reverb
server = reverb.Server([reverb.Table.queue("queue", 1)])
print(server.port, flush=True)
server.wait()
"""


def test_top_prints_one_screen_into_a_pipe(address, server):
    done = run("top", address)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"page {server.dashboard_url}" in done.stdout
    assert re.search(r"^table .* 3/7 +[0-9.]+G? *.* 0\.0 .* 0\.0", done.stdout, re.MULTILINE)
    assert "1 insert " in done.stdout
    assert "evil\\x1b[31m\\u202e[bold]" in done.stdout
    assert not {"\x1b", "\u202e"} & set(done.stdout)
    for width in (60, 100):
        assert max(map(len, run("top", address, COLUMNS=str(width)).stdout.splitlines())) <= width


def test_top_obeys_its_keys(address):
    with Terminal([*COMMAND, "top", address]) as terminal:
        terminal.wait_for(lambda screen: "queue" in screen and "s sort: as on the server" in screen)
        assert terminal.modes != terminal.modes_before
        terminal.press("s")
        terminal.wait_for(lambda screen: "s sort: inserts/s" in screen)
        terminal.press("c")
        terminal.wait_for(lambda screen: "s sort" in screen and "busiest clients" not in screen)
        terminal.press("c")
        terminal.wait_for(lambda screen: "s sort" in screen and "busiest clients" in screen)
        terminal.press("p")
        terminal.wait_for(lambda screen: "PAUSED" in screen)
        terminal.press("pq")
        assert terminal.end() == 0
        terminal.check_restored()
    assert "\x1b[31m\\u202e" not in terminal.seen


def test_top_shows_what_waits_and_hides_it(address):
    with Terminal([*COMMAND, "top", address]) as terminal:
        terminal.wait_for(lambda screen: "insert into table `queue` waits: the queue" in screen)
        terminal.press("w")
        terminal.wait_for(lambda screen: "s sort" in screen and "insert into table" not in screen)
        terminal.press("q")
        assert terminal.end() == 0


def test_top_follows_the_size_of_the_terminal(address):
    with Terminal([*COMMAND, "top", address], width=140, height=30) as terminal:
        wide = terminal.wait_for(lambda screen: "limiter" in screen and "s sort" in screen)
        assert len(wide.splitlines()) == 30
        terminal.resize(50, 12)
        narrow = terminal.wait_for(lambda screen: "q quit" in screen and max(map(len, screen.splitlines())) <= 50)
        assert len(narrow.splitlines()) == 12
        assert "table" in narrow
        terminal.press("q")
        assert terminal.end() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_top_restores_the_terminal_after_a_signal(address, number, status):
    with Terminal([*COMMAND, "top", address]) as terminal:
        terminal.wait_for(lambda screen: "q quit" in screen)
        terminal.process.send_signal(number)
        assert terminal.end() == status
        terminal.check_restored()
    assert "Traceback" not in terminal.seen


def test_top_restores_the_terminal_while_it_is_stopped(address):
    # Only the shell's jobs can be stopped.
    shell = f"{sys.executable} -c 'from reverb.cli import main; main()' top {address}"
    with Terminal(["bash", "--norc", "-i"], PS1="ready> ") as terminal:
        terminal.press(shell + "\n")
        terminal.wait_for(lambda screen: "q quit" in screen)
        terminal.press("\x1a")
        eventually(lambda: terminal.read() is not None and "Stopped" in terminal.seen)
        assert terminal.seen.rfind("\x1b[?1049l") > terminal.seen.rfind("\x1b[?1049h")
        terminal.press("fg\n")
        terminal.wait_for(lambda screen: "q quit" in screen)
        assert terminal.seen.rfind("\x1b[?1049h") > terminal.seen.rfind("\x1b[?1049l")
        terminal.press("q")
        eventually(lambda: terminal.read() is not None and terminal.seen.rstrip().endswith("ready>"))
        terminal.press("echo ended $?\n")
        eventually(lambda: terminal.read() is not None and "ended 0" in terminal.seen)


def test_top_without_color_has_none(address):
    with Terminal([*COMMAND, "top", address], NO_COLOR="1") as terminal:
        terminal.wait_for(lambda screen: "q quit" in screen)
        terminal.press("q")
        assert terminal.end() == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.seen)


def test_top_ends_when_its_server_is_killed():
    with program(SERVER) as serving:
        address = f"localhost:{serving.line()}"
        with Terminal([*COMMAND, "top", address, "--timeout", "2"]) as terminal:
            terminal.wait_for(lambda screen: "q quit" in screen)
            serving.process.kill()
            assert terminal.end() == 4
            terminal.check_restored()
            after = terminal.seen[terminal.seen.rfind("\x1b[?1049l") :]
    assert f"reverb: no server at {address}: " in after
    assert "Traceback" not in terminal.seen


def test_top_needs_a_server():
    done = run("top", "localhost:1", "--timeout", "0.2")
    assert done.returncode == 4
    assert "no server at localhost:1" in done.stderr


def test_top_of_several_servers_is_refused(address):
    port = address.split(":")[1]
    done = run("top", f"ipv4:127.0.0.1:{port},127.0.0.2:{port}")
    assert done.returncode == 1
    assert "one server" in done.stderr


def stat_lines(address, count, *arguments):
    with subprocess.Popen(
        [*COMMAND, "info", "--stat", address, "--interval", "0.05", *arguments], stdout=subprocess.PIPE, text=True
    ) as watching:
        lines = [watching.stdout.readline() for _ in range(count)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 130
    return [line.rstrip("\n") for line in lines]


def test_stat_prints_a_line_each_time_and_headers_between(address):
    lines = stat_lines(address, 43)
    header = lines[0]
    assert header.split() == ["items", "bytes", "clients", "blocked", "inserts", "samples", "connections"]
    assert [number for number, line in enumerate(lines) if line == header] == [0, 21, 42]
    assert lines[1].split()[0] == "4"
    items, size, clients, blocked, *counts, connections = lines[2].split()
    assert (items, size, blocked, counts) == ("4", "32B", "1", ["4", "(+0)", "0", "(+0)"])
    # The server's own process, and the command.
    assert (int(clients), int(connections)) == (2, 1)


def test_stat_counts_one_table_and_prints_json(address):
    assert stat_lines(address, 2, "--table", "table")[1].split()[0] == "3"
    [look] = map(json.loads, stat_lines(address, 1, "--table", "queue", "--json"))
    assert (look["items"], look["blocked"], look["inserts"], look["samples"]) == (1, 1, 1, 0)
    done = run("info", "--stat", address, "--table", "nothing")
    assert done.returncode == 1
    assert "table nothing was not found; this server has: queue, table, evil\\x1b" in done.stderr


def test_stat_shows_what_was_added(address, server):
    client = reverb.Client(address)
    with subprocess.Popen(
        [*COMMAND, "info", "--stat", address, "--interval", "0.05"], stdout=subprocess.PIPE, text=True
    ) as watching:
        for _ in range(3):
            watching.stdout.readline()
        insert_values(client, range(5), "table")
        added = 0
        while added < 5:
            line = watching.stdout.readline()
            added += sum(map(int, re.findall(r"\(\+(\d+)\)", line)[:1]))
        watching.send_signal(signal.SIGINT)
    assert added == 5
    assert re.search(r" 9 \(\+\d\) ", line)


def test_stat_excludes_watch(address):
    for arguments in (["--stat", "--watch"], ["--table", "queue"], ["--stat", "--interval", "0"]):
        assert run("info", address, *arguments).returncode == 2


def test_health_of_a_server_is_status_0(address):
    for arguments in ([], ["--service", "reverb.replay.v1.Replay"]):
        done = run("health", address, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "serving\n", "")
    done = run("health", address, "--service", "unknown")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the server at {address} has no service `unknown`" in done.stderr


def test_health_of_a_unix_socket(server):
    assert run("health", f"unix:{server.unix_path}").stdout == "serving\n"


def test_health_of_no_server_is_status_4():
    done = run("health", "localhost:1")
    assert (done.returncode, done.stdout) == (4, "")
    assert "no server at localhost:1: connection refused" in done.stderr


def test_health_of_a_mute_server_is_status_4():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        done = run("health", f"localhost:{mute.getsockname()[1]}", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (4, "")


def test_health_of_several_servers_is_refused():
    done = run("health", "ipv4:127.0.0.1:1,127.0.0.1:2")
    assert done.returncode == 1
    assert "expected the address of one server, got the 2" in done.stderr
