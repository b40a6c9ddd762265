"""`reverb token`, and `reverb serve` with tokens."""

import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys

import pytest
from behaviour_support import PATIENCE_S, eventually
from token_support import write_tokens

import reverb
from reverb import errors

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
SERVER_COMMAND = [sys.executable, "-c", "from reverb.server_executable.server_main import app_run_main; app_run_main()"]
TABLE = 'tables { table_name: "queue" sampler { fifo: true } remover { fifo: true } max_size: 1 max_times_sampled: 1'
LIMITER = "rate_limiter { samples_per_insert: 1 min_size_to_sample: 1 min_diff: 0 max_diff: 1 } }"


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_a_new_token_is_printed_with_its_entry():
    done = run("token", "new", "--name", "actors", "--role", "use")
    token, _, entry = done.stdout.partition("\n\n")
    assert re.fullmatch(r"rvb_[A-Za-z0-9_-]{43}", token)
    hashed = hashlib.sha256(token.encode()).hexdigest()
    assert entry == f'[[token]]\nname = "actors"\nrole = "use"\nsha256 = "{hashed}"\n'
    assert run("token", "new", "--name", "actors", "--role", "use").stdout != done.stdout


def test_tokens_are_added_to_a_file_and_listed(tmp_path):
    file = tmp_path / "tokens.toml"
    added = [
        run("token", "new", "--name", name, "--role", role, "--file", str(file))
        for name, role in (("actors", "use"), ("page", "view"))
    ]
    assert [done.returncode for done in added] == [0, 0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tokens = [done.stdout.strip() for done in added]
    assert not any(token in file.read_text() for token in tokens)
    assert run("token", "list", str(file)).stdout.split() == ["actors", "use", "page", "view"]
    assert json.loads(run("token", "list", "--json", str(file)).stdout) == [
        {"name": "actors", "role": "use"},
        {"name": "page", "role": "view"},
    ]
    before = file.read_text()
    again = run("token", "new", "--name", "page", "--role", "admin", "--file", str(file))
    assert again.returncode != 0
    assert "page" in again.stderr
    assert file.read_text() == before
    assert os.listdir(tmp_path) == ["tokens.toml"]


@pytest.mark.parametrize("name", ["", "a b", "a\n[[token]]", 'a"', "\u202eabc", "x" * 65])
def test_names_that_could_disturb_a_file_or_a_log_are_refused(tmp_path, name):
    done = run("token", "new", "--name", name, "--role", "use", "--file", str(tmp_path / "tokens.toml"))
    assert done.returncode != 0
    assert done.stdout == ""
    assert os.listdir(tmp_path) == []


@pytest.fixture
def serve(tmp_path):
    """Runs a command that serves. Returns it, its port, and what it has logged for the audit."""
    programs = []
    audit = tmp_path / "audit.jsonl"

    def serve(command, **environment):
        program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ) | environment)
        programs.append(program)
        for line in iter(program.stderr.readline, ""):
            if found := re.search(r"port (\d+), tables", line):
                return program, found[1], lambda: [json.loads(line) for line in audit.read_text().splitlines()]
        pytest.fail("the command has ended")

    yield serve
    for program in programs:
        program.terminate()
        program.wait(PATIENCE_S)
        program.stderr.close()


def is_refused(port):
    with pytest.raises(errors.UnauthenticatedError):
        reverb.Client(f"ipv4:127.0.0.1:{port}").server_info()
    return True


def test_serve_asks_for_tokens_and_reads_them_again_on_sighup(serve, tmp_path):
    tables, tokens = tmp_path / "tables.toml", write_tokens(tmp_path / "tokens.toml", actors="use")
    tables.write_text(
        "[tables.queue]\nqueue = 3\n"
        f'[auth]\ntokens_file = "{tokens}"\naudit_log = "{tmp_path / "audit.jsonl"}"\n[http]\nport = "off"\n'
    )
    program, port, audit = serve([*COMMAND, "serve", str(tables)])
    assert is_refused(port)
    assert [line["reason"] for line in audit() if line["event"] == "refuse"] == ["no_token"]
    write_tokens(tokens, actors="use", learner="use")
    program.send_signal(signal.SIGHUP)
    # Well before the server would look by itself, on most machines; the first look after the signal finds it.
    eventually(lambda: [line for line in audit() if line["event"] == "reload"])
    tokens.write_text("token = 1")
    program.send_signal(signal.SIGHUP)
    eventually(lambda: len([line for line in audit() if line["event"] == "reload"]) > 1)
    reloads = [(line["files"], line["result"]) for line in audit() if line["event"] == "reload"]
    assert reloads == [("tokens", "ok"), ("tokens", "refused")]
    assert is_refused(port)
    assert program.poll() is None


def test_reverb_server_takes_tokens_from_the_environment(serve, tmp_path):
    tokens = write_tokens(tmp_path / "tokens.toml", actors="use")
    _, port, audit = serve(
        [*SERVER_COMMAND, f"--config=port: 0 {TABLE} {LIMITER}"],
        REVERB_TOKENS_FILE=str(tokens),
        REVERB_AUDIT_LOG=str(tmp_path / "audit.jsonl"),
    )
    assert is_refused(port)
    assert [line["event"] for line in audit()] == ["refuse"]


def test_a_server_in_a_program_takes_no_tokens_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("REVERB_TOKENS_FILE", str(tmp_path / "missing.toml"))
    monkeypatch.setenv("REVERB_UNIX_PEERS", "1000")
    server = reverb.Server([reverb.Table.queue("queue", 1)])
    try:
        assert list(reverb.Client(f"ipv4:127.0.0.1:{server.port}").server_info()) == ["queue"]
    finally:
        server.stop()


def test_an_open_server_is_audited_too(serve, tmp_path):
    _, port, audit = serve(
        [*SERVER_COMMAND, f"--config=port: 0 {TABLE} {LIMITER}"], REVERB_AUDIT_LOG=str(tmp_path / "audit.jsonl")
    )
    client = reverb.Client(f"ipv4:127.0.0.1:{port}")
    client.insert([1], {"queue": 1.0})
    client.reset("queue")
    with pytest.raises(errors.TableNotFoundError):
        client.get("nowhere", [1])
    assert [(line["event"], line["proof"], line.get("table"), line.get("result")) for line in audit()] == [
        ("connect", "none", None, "ok"),
        ("reset", "none", "queue", "ok"),
        ("get", "none", "nowhere", "TableNotFound"),
    ]
