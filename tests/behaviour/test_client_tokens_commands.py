"""Commands that show a token: where they have it from, and where they do not send it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from refusing_support import PERMISSION_DENIED, Refusing

import reverb

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

pytestmark = pytest.mark.ports

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
TOKEN = "rvb_a-token-that-nobody-may-see"
COMMANDS = {
    "info": ["info"],
    "top": ["top"],
    "health": ["health"],
    "doctor": ["doctor"],
    "bench": ["bench"],
    "peek": ["peek", "table"],
    "table configure": ["table configure", "table", "--max-size", "3"],
    "checkpoint save": ["checkpoint save"],
    "export": ["export", "table", "out.parquet"],
}


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return str(path)


def run(command, address, *arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REVERB_")}
    done = subprocess.run(
        [*COMMAND, *command.split(), address, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=kept | environment,
    )
    assert TOKEN not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def address_of(server):
    return f"ipv4:127.0.0.1:{server.port}"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_shows_the_token_of_a_file_where_that_is_allowed(name, token_file):
    command, *arguments = COMMANDS[name]
    with Refusing(PERMISSION_DENIED) as server:
        done = run(command, address_of(server), *arguments, "--token-file", token_file, "--allow-insecure")
        assert "the server of the test refuses" in done.stdout + done.stderr
        assert done.returncode == 1
        assert len(set(server.bearers)) == 1
        assert len(server.bearers) == server.calls
        shown = server.bearers[0]
        variables = {"REVERB_TOKEN": TOKEN, "REVERB_ALLOW_INSECURE": "1"}
        run(command, address_of(server), *arguments, **variables)
        assert set(server.bearers) == {shown}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_sends_the_token_without_tls(name, token_file):
    command, *arguments = COMMANDS[name]
    with Refusing() as server:
        done = run(command, address_of(server), *arguments, "--token-file", token_file)
        assert "grpcs://" in done.stdout + done.stderr
        assert server.sent == b""


def test_the_flag_takes_precedence_over_the_environment(token_file):
    with Refusing() as server:
        both = {"REVERB_TOKEN": "rvb_another", "REVERB_TOKEN_FILE": "/nowhere/token"}
        run("info", address_of(server), "--token-file", token_file, "--allow-insecure", **both)
        run("info", address_of(server), REVERB_TOKEN=TOKEN, REVERB_ALLOW_INSECURE="1")
        assert len(server.bearers) == 2
        assert server.bearers[0] == server.bearers[1]


def test_a_command_names_what_is_wrong_with_a_token(token_file, tmp_path):
    with Refusing() as server:
        both = run("info", address_of(server), REVERB_TOKEN=TOKEN, REVERB_TOKEN_FILE=token_file)
        assert both.returncode == 2
        assert "both REVERB_TOKEN and REVERB_TOKEN_FILE" in both.stderr
        missing = run("info", address_of(server), "--allow-insecure", "--token-file", str(tmp_path / "missing"))
        assert missing.returncode == 1
        assert str(tmp_path / "missing") in missing.stderr
        without = run("health", address_of(server))
        assert without.returncode == 1
        assert "REVERB_TOKEN_FILE" in without.stderr


def test_commands_beside_their_server_use_its_socket(token_file, tmp_path):
    server = reverb.Server([reverb.Table.queue("table", 10)])
    try:
        reverb.Client(f"localhost:{server.port}").insert([np.int64(1)], {"table": 1.0})
        for command in ("health", "info"):
            done = run(command, f"localhost:{server.port}", "--token-file", token_file)
            assert (done.returncode, done.stderr) == (0, "")
        # Its processes read the file, too.
        measured = run(
            *("bench", f"localhost:{server.port}", "--size", "400", "--seconds", "0.1", "--json"),
            *("--token-file", token_file),
        )
        assert [json.loads(line)["road"] for line in measured.stdout.splitlines()] == ["unix", "unix"]
    finally:
        server.stop()
