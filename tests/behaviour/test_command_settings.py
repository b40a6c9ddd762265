"""The settings of `reverb serve`: flags, environment variables, the file, and what `--check` says about them."""

import dataclasses
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, eventually

import reverb

typer = pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

from typer.testing import CliRunner  # noqa: E402

from reverb._settings import SETTINGS, ServerOptions  # noqa: E402
from reverb.cli import app, serving  # noqa: E402

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
TABLES = "[tables.queue]\nqueue = 3\n"
SERVE = typer.main.get_command(app.app).commands["serve"]
# Not settings: the file itself, and what to do with it.
ACTIONS = {"config", "check"}
KEYS = {setting.name: setting.key for setting in SETTINGS}
FLAGS = sorted(parameter.name for parameter in SERVE.params if parameter.name not in ACTIONS | {"help"})
# Three values of each kind: of a flag, of a variable, of the file.
VALUES = {
    "port": (8001, 8002, 8003),
    "max_message_size": (1_000_001, 1_000_002, 1_000_003),
    "host": ("127.0.0.1", "127.0.0.2", "127.0.0.3"),
    "heartbeat": (1.5, 2.5, 3.5),
    "max_shared_bytes": (1 << 20, 1 << 21, 1 << 22),
    "tls_cert": ("a.pem", "b.pem", "c.pem"),
    "tls_key": ("a.key", "b.key", "c.key"),
    "tls_client_ca": ("a-ca.pem", "b-ca.pem", "c-ca.pem"),
    "tls_client_role": ("view", "admin", "view"),
    "tokens_file": ("a.toml", "b.toml", "c.toml"),
    "unix_peers": ("1001", "1002,1003", "1004"),
    "audit_log": ("a.jsonl", "b.jsonl", "c.jsonl"),
    "shard_id": (0, 200, 255),
    "shard_cluster": ("a", "b", "c"),
    "checkpoint_path": ("/nowhere/a", "/nowhere/b", "/nowhere/c"),
    "interval": (10.0, 20.0, 30.0),
    "keep": (2, 3, 4),
    "durability": ("process", "power", "process"),
    "sync_interval": (0.5, 1.5, 2.5),
    "max_log_bytes": (1 << 28, 1 << 29, 1 << 30),
    "http_port": ("off", 8081, 8082),
    "http_host": ("127.0.0.4", "127.0.0.5", "127.0.0.6"),
    "http_allowed_hosts": ("a.test", "b.test,c.test", "d.test"),
    "metrics_per_table": ("off", "on", "off"),
    "log_format": ("json", "text", "json"),
    "log_level": ("debug", "error", "warning"),
    # Both values, since there are no three.
    "allow_insecure": (True, False, True),
    "save_on_stop": (False, True, False),
    "returns": (False, True, False),
    "accept_loss": (True, False, True),
}


# Variables without which a setting is refused.
NEEDED = {
    "tls_cert": {"REVERB_TLS_KEY": "needed.key"},
    "tls_key": {"REVERB_TLS_CERT": "needed.pem"},
    "tls_client_ca": {"REVERB_TLS_CERT": "needed.pem", "REVERB_TLS_KEY": "needed.key"},
    "unix_peers": {"REVERB_TOKENS_FILE": "needed.toml"},
    "shard_id": {"REVERB_SHARD_CLUSTER": "needed"},
    "shard_cluster": {"REVERB_SHARD_ID": "7"},
    "durability": {"REVERB_CHECKPOINT_PATH": "/nowhere/c"},
    "sync_interval": {"REVERB_CHECKPOINT_PATH": "/nowhere/c", "REVERB_DURABILITY": "process"},
    "max_log_bytes": {"REVERB_CHECKPOINT_PATH": "/nowhere/c", "REVERB_DURABILITY": "process"},
}


def toml_of(name, value):
    """A file with one setting besides a table."""
    section, _, key = KEYS[name].rpartition(".")
    line = f"{key} = {json.dumps(value)}\n"
    if section == "checkpoint" and key != "path":
        line += 'path = "/nowhere/c"\n'
    return f"{line}{TABLES}" if not section else f"{TABLES}[{section}]\n{line}"


def flags_of(name, value):
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    return [flag, str(value)]


def checked(path, name, *arguments, **environment):
    """The value of a setting and its source, as `serve --check` prints them."""
    names = [variable for variable in os.environ if variable.startswith("REVERB_")]
    done = CliRunner().invoke(
        app.app, ["serve", "--check", str(path), *arguments], env=dict.fromkeys(names) | environment
    )
    assert done.exit_code == 0, done.output + repr(done.exception)
    [line] = [line for line in done.output.splitlines() if line.split()[:1] == [name]]
    value, _, source = line.removeprefix(f"  {name} ").strip().rpartition("  (")
    return value.strip(), source.rstrip(")")


def shown(value):
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def test_each_flag_has_a_variable_and_a_key():
    assert sorted(KEYS) == FLAGS == sorted(VALUES)
    for parameter in SERVE.params:
        if parameter.name in FLAGS:
            assert parameter.envvar == f"REVERB_{parameter.name.upper()}"
            assert f"--{parameter.name.replace('_', '-')}" in parameter.opts


@pytest.mark.parametrize("name", FLAGS)
def test_flag_overrides_variable_overrides_file_overrides_default(tmp_path, name):
    of_flag, of_variable, of_file = VALUES[name]
    plain, full = tmp_path / "plain.toml", tmp_path / "full.toml"
    path = '[checkpoint]\npath = "/nowhere/c"\n' if name in ("interval", "keep", "save_on_stop") else ""
    plain.write_text(TABLES + path)
    full.write_text(toml_of(name, of_file))
    needed = NEEDED.get(name, {})
    variable = {f"REVERB_{name.upper()}": str(of_variable), **needed}
    flag = flags_of(name, of_flag)
    assert checked(plain, name)[1] == "default"
    assert checked(full, name, **needed) == (shown(of_file), "file")
    assert checked(full, name, **variable) == (shown(of_variable), f"REVERB_{name.upper()}")
    assert checked(plain, name, **variable) == (shown(of_variable), f"REVERB_{name.upper()}")
    assert checked(full, name, *flag, **variable) == (shown(of_flag), f"--{name.replace('_', '-')}")
    assert checked(full, name, *flag, **needed) == (shown(of_flag), f"--{name.replace('_', '-')}")


def arguments_of_server(monkeypatch, path, *arguments, **environment):
    """The arguments with which `reverb serve` makes its server."""
    made = {}

    def make(tables, options, checkpointer):
        assert isinstance(options, ServerOptions)
        for part in dataclasses.asdict(options).values():
            made.update(part)
        made.update(tables=[table.name for table in tables], checkpointer=checkpointer)
        raise reverb.errors.UnavailableError("not in this test")

    monkeypatch.setattr(serving.Server, "of", make)
    monkeypatch.setattr(serving, "_log_to_stderr", lambda *_: None)
    monkeypatch.setattr(serving.ExitOnSigterm, "begin", lambda _: None)
    done = CliRunner().invoke(app.app, ["serve", str(path), *arguments], env=environment)
    assert done.exit_code == 1, done.output
    return made


def test_settings_reach_the_server(tmp_path, monkeypatch):
    file = tmp_path / "tables.toml"
    file.write_text(
        "port = 8003\nheartbeat = 3.5\nallow_insecure = true\n"
        + TABLES
        + '[http]\nport = "off"\nhost = "127.0.0.6"\n[metrics]\nper_table = "off"\n'
        + '[checkpoint]\npath = "/nowhere/c"\nkeep = 4\nsave_on_stop = true\n'
        + '[tls]\ncert = "c.pem"\nkey = "c.key"\nclient_ca = "ca.pem"\nclient_role = "view"\n'
        + '[durability]\nmode = "power"\nsync_interval = 2\naccept_loss = true\n'
        + '[auth]\ntokens_file = "tokens.toml"\nunix_peers = [1002, 1001]\naudit_log = "audit.jsonl"\n'
    )
    made = arguments_of_server(monkeypatch, file)
    checkpointer = made.pop("checkpointer")
    assert made == {
        "tables": ["queue"],
        "port": 8003,
        "host": "localhost",
        "allow_insecure": True,
        "tls": {"cert": "c.pem", "key": "c.key", "client_ca": "ca.pem", "client_role": "view"},
        "tokens": {"path": "tokens.toml"},
        "unix_peers": (1001, 1002),
        "audit_log": "audit.jsonl",
        "max_message_size": 256 << 20,
        "heartbeat_interval": 3.5,
        "max_shared_bytes": None,
        "shard": None,
        "durability": {"mode": "power", "sync_interval": 2.0, "max_log_bytes": None},
        "accept_loss": True,
        "http_port": "off",
        # All that HTTP would need is not even looked at.
        "http_host": "localhost",
        "http_allowed_hosts": (),
        "metrics_per_table": True,
    }
    assert (checkpointer.path, checkpointer.keep, checkpointer.save_on_stop) == ("/nowhere/c", 4, True)
    made = arguments_of_server(
        monkeypatch,
        file,
        *("--no-allow-insecure", "--no-save-on-stop", "--http-port", "8081"),
        REVERB_ALLOW_INSECURE="1",
        REVERB_SAVE_ON_STOP="1",
        REVERB_KEEP="7",
        REVERB_HTTP_PORT="off",
    )
    assert (made["allow_insecure"], made["http_port"]) == (False, 8081)
    assert (made["checkpointer"].keep, made["checkpointer"].save_on_stop) == (7, False)
    file.write_text(TABLES)
    made = arguments_of_server(monkeypatch, file)
    assert (made["http_port"], made["http_host"], made["checkpointer"]) == (0, "localhost", None)
    file.write_text(
        TABLES + '[http]\nhost = "127.0.0.6"\nallowed_hosts = ["a.test", "b.test"]\n[metrics]\nper_table = "off"\n'
    )
    made = arguments_of_server(monkeypatch, file)
    assert (made["http_host"], made["metrics_per_table"]) == ("127.0.0.6", False)
    assert made["http_allowed_hosts"] == ("a.test", "b.test", "127.0.0.6")
    made = arguments_of_server(
        monkeypatch, file, "--http-host", "localhost", REVERB_HTTP_ALLOWED_HOSTS="c.test, d.test,"
    )
    assert made["http_allowed_hosts"] == ("c.test", "d.test")


def test_the_library_does_not_find_the_variable_that_a_flag_overrides(tmp_path, monkeypatch):
    file = tmp_path / "tables.toml"
    file.write_text(TABLES)
    monkeypatch.setenv("REVERB_HTTP_PORT", "8081")
    monkeypatch.setenv("REVERB_ALLOW_INSECURE", "1")
    before = dict(os.environ)
    made = arguments_of_server(monkeypatch, file, "--http-port", "0")
    assert (made["http_port"], made["allow_insecure"]) == (0, True)
    made = arguments_of_server(monkeypatch, file, "--no-allow-insecure")
    assert (made["http_port"], made["allow_insecure"]) == (8081, False)
    # Programs that the command starts find the environment as it was.
    assert dict(os.environ) == before


def test_check_touches_nothing(tmp_path):
    file = tmp_path / "tables.toml"
    file.write_text(TABLES + f'[checkpoint]\npath = "{tmp_path}/kept"\n')
    with subprocess.Popen(
        [*COMMAND, "serve", "--check", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as checking:
        out, err = checking.communicate(timeout=PATIENCE_S)
    assert (checking.returncode, err) == (0, "")
    assert "table queue: fifo, fifo, at most 3 items" in out
    assert f"There is no folder {tmp_path}/kept yet" in out
    assert os.listdir(tmp_path) == ["tables.toml"]


def test_check_names_the_checkpoint_that_would_be_loaded(tmp_path):
    server = reverb.Server(
        [reverb.Table.queue("queue", 3)], checkpointer=reverb.checkpointers.DefaultCheckpointer(tmp_path / "kept")
    )
    path = server.localhost_client().checkpoint()
    file = tmp_path / "tables.toml"
    file.write_text(TABLES + f'[checkpoint]\npath = "{tmp_path}/kept"\n')
    # Also while another server has the folder.
    done = CliRunner().invoke(app.app, ["serve", "--check", str(file)])
    server.stop()
    assert done.exit_code == 0
    assert f"It would load the newest checkpoint, {path}" in done.output
    bounds = "actors may be at most 3 items ahead, the learner must not be ahead"
    rule = f"1 sample per insert, once the table has 1 item; {bounds}"
    shown = CliRunner().invoke(app.app, ["checkpoint", "show", path, "--json"])
    assert json.loads(shown.output)["tables"][0]["rate_limiter"]["rule"] == rule
    file.write_text(TABLES)
    assert rule in CliRunner().invoke(app.app, ["serve", "--check", str(file)]).output


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("[http]\nport = true\n", [], 'http.port must be a number or "off", got True'),
        ("[http]\nport = 'on'\n", [], "http.port must be a number or \"off\", got 'on'"),
        ("[http]\nports = 1\n", [], "[http] has an unknown key 'ports'; known: port, host, allowed_hosts"),
        ("[log]\nlevel = 'loud'\n", [], "log.level must be one of debug, info, warning, error, critical, got 'loud'"),
        ("[log]\nformat = 'xml'\n", [], "log.format must be one of text, json, got 'xml'"),
        ("", ["--http-port", "70000"], "the HTTP port must be a number from 0 to 65535, or off, got '70000'"),
        ("", ["--host", "0.0.0.0"], "lets anyone who can reach this machine"),
        ("", ["--interval", "5"], "checkpoints need a path"),
        ("[checkpoint]\npath = '/nowhere'\ninterval = -1\n", [], "`interval` must be a positive number"),
    ],
)
def test_check_finds_what_serve_would_refuse(tmp_path, text, arguments, expected):
    file = tmp_path / "tables.toml"
    file.write_text(TABLES + text)
    done = CliRunner().invoke(app.app, ["serve", "--check", str(file), *arguments])
    assert isinstance(done.exception, ValueError)
    assert expected in str(done.exception)


def test_check_escapes_names(tmp_path):
    file = tmp_path / "tables.toml"
    file.write_text('[tables."evil\\u001b[31m\\u202e"]\nqueue = 3\n')
    done = CliRunner().invoke(app.app, ["serve", "--check", str(file)])
    assert "table evil\\x1b[31m\\u202e: fifo" in done.output
    assert "\x1b" not in done.output


SERVED = """
import os, sys
os.environ["REVERB_CONFIG"] = sys.argv[1]
sys.argv = ["reverb", "serve", *sys.argv[2:]]
from reverb.cli import main
main()
"""


class Served:
    """A running `reverb serve` with a checkpoint folder, whose output goes to a file."""

    def __init__(self, folder, *arguments):
        self._file = folder / "tables.toml"
        self._file.write_text(TABLES + f'[checkpoint]\npath = "{folder}/kept"\nsave_on_stop = true\n')
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVED, str(self._file), *arguments], stdout=log, stderr=log
            )

    def lines(self):
        return self._log.read_text().splitlines()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def use(port):
    """Lets a client save a checkpoint, and an insert wait for more than ten seconds."""
    client = reverb.Client(f"ipv4:127.0.0.1:{port}")
    client.checkpoint()
    client.insert([np.float32(1)] * 2, {"queue": 1.0})
    for _ in range(2):
        client.insert([np.float32(1)], {"queue": 1.0})
    with pytest.raises(reverb.DeadlineExceededError):
        client.insert([np.float32(1)], {"queue": 1.0}, timeout=10.5)


@pytest.mark.slow
def test_every_line_of_a_json_log_parses(tmp_path):
    with Served(tmp_path, "--log-format", "json") as served:
        eventually(lambda: any('"port"' in line for line in served.lines()))
        use(json.loads(next(line for line in served.lines() if '"port"' in line))["port"])
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_S) == 143
        lines = [json.loads(line) for line in served.lines()]
    assert all(list(line)[:4] == ["ts", "level", "logger", "msg"] for line in lines)
    assert all(line["ts"].endswith("Z") for line in lines)
    [serving_line] = [line for line in lines if "port" in line]
    assert (serving_line["tables"], serving_line["level"]) == (["queue"], "info")
    assert serving_line["dashboard_url"].startswith("http://localhost:")
    assert sum("kept/" in json.dumps(line) for line in lines) >= 2


@pytest.mark.slow
def test_a_text_log_is_what_it_was(tmp_path):
    with Served(tmp_path) as served:
        eventually(lambda: any("port " in line for line in served.lines()))
        line = next(line for line in served.lines() if line.startswith("reverb: "))
        assert ", tables: queue" in line
        use(line.split("port ")[1].split(",")[0])
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_S) == 143
        others = [each for each in served.lines() if each != line]
    assert sum("Live dashboard: http://localhost:" in each for each in others) == 1, others
    assert all(each[:4].isdigit() and each.split()[2] in ("INFO", "WARNING") for each in others), others


def test_errors_are_lines_of_a_json_log_too(tmp_path):
    server = reverb.Server([reverb.Table.queue("queue", 1)])
    file = tmp_path / "tables.toml"
    file.write_text(TABLES)
    done = subprocess.run(
        [*COMMAND, "serve", str(file), "--port", str(server.port), "--log-format", "json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    server.stop()
    assert done.returncode == 1
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["level"], f"port {server.port}: Address already in use" in last["msg"]) == ("error", True)
