"""The commands, at servers with TLS and as such."""

import json
import os
import re
import subprocess
import sys

import pytest
from behaviour_support import PATIENCE_S, make_table
from tls_support import Authority, address_of

import reverb

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

pytestmark = pytest.mark.ports

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
SERVER_COMMAND = [sys.executable, "-c", "from reverb.server_executable.server_main import app_run_main; app_run_main()"]
TABLE = 'tables { table_name: "queue" sampler { fifo: true } remover { fifo: true } max_size: 1 max_times_sampled: 1'
LIMITER = "rate_limiter { samples_per_insert: 1 min_size_to_sample: 1 min_diff: 0 max_diff: 1 } }"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.sign("server")


@pytest.fixture
def server(certificate):
    server = reverb.Server([make_table()], tls=reverb.ServerTLS(*certificate))
    yield server
    server.stop()


def run(*arguments, **environment):
    names = [name for name in os.environ if name.startswith("REVERB_")]
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, env=kept | environment
    )


def test_commands_reach_a_server_with_tls_by_the_environment(server, authority):
    for arguments in (["health"], ["info", "--json"], ["bench", "--size", "400", "--seconds", "0.1", "--json"]):
        command, *options = arguments
        done = run(command, address_of(server), *options, REVERB_CA=authority.ca)
        assert (done.returncode, done.stderr) == (0, "")
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["road"] for one in measured} == {"tcp"}


def test_commands_name_what_is_wrong(server, authority):
    address = f"ipv4:127.0.0.1:{server.port}"
    for command in ("health", "info"):
        assert "grpcs://" in run(command, address).stderr
        assert "REVERB_CA" in run(command, address_of(server)).stderr
        half = run(command, address_of(server), REVERB_CERT="a.pem")
        assert half.returncode == 2
        assert "REVERB_KEY" in half.stderr


def test_health_is_that_of_the_server(server, authority):
    server.stop()
    done = run("health", address_of(server), REVERB_CA=authority.ca)
    assert done.returncode != 0
    assert "refused" in done.stderr


@pytest.fixture
def table_file(tmp_path):
    path = tmp_path / "tables.toml"
    path.write_text("[tables.queue]\nqueue = 3\n")
    return str(path)


class Serving:
    """A command that serves, and the line with which it begins."""

    def __init__(self, command, environment):
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)

    def __enter__(self):
        for line in self._process.stderr:
            if found := re.search(r"port (\d+), tables", line):
                self.port = int(found[1])
                return self
        raise AssertionError("the command does not serve")

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()


def reaches(port, authority):
    address = f"grpcs://localhost:{port}"
    client = reverb.Client(address, tls=reverb.TLS(ca=authority.ca))
    return list(client.server_info(timeout=PATIENCE_S)) == ["queue"]


def test_serve_takes_the_files_from_flags_variables_and_its_file(table_file, certificate, authority):
    cert, key = certificate
    with Serving([*COMMAND, "serve", table_file, "--tls-cert", cert, "--tls-key", key], {}) as serving:
        assert reaches(serving.port, authority)
    with Serving([*COMMAND, "serve", table_file], {"REVERB_TLS_CERT": cert, "REVERB_TLS_KEY": key}) as serving:
        assert reaches(serving.port, authority)
    with open(table_file, "a", encoding="utf-8") as file:
        file.write(f"[tls]\ncert = {json.dumps(cert)}\nkey = {json.dumps(key)}\n")
    with Serving([*COMMAND, "serve", table_file], {}) as serving:
        assert reaches(serving.port, authority)


def test_serve_refuses_half_a_pair(table_file):
    done = run("serve", table_file, "--tls-cert", "a.pem")
    assert done.returncode != 0
    assert "tls_key" in done.stderr
    done = run("serve", table_file, REVERB_TLS_CLIENT_CA="a.pem")
    assert done.returncode != 0
    assert "tls_client_ca" in done.stderr


def test_reverb_server_takes_the_files_from_variables(certificate, authority):
    cert, key = certificate
    command = [*SERVER_COMMAND, "--config", f"{TABLE} {LIMITER}"]
    with Serving(command, {"REVERB_TLS_CERT": cert, "REVERB_TLS_KEY": key}) as serving:
        assert reaches(serving.port, authority)


def test_a_server_in_a_program_does_not_take_the_files_from_variables(certificate, monkeypatch):
    monkeypatch.setenv("REVERB_TLS_CERT", certificate[0])
    monkeypatch.setenv("REVERB_TLS_KEY", certificate[1])
    server = reverb.Server([make_table()])
    try:
        assert reverb.Client(f"ipv4:127.0.0.1:{server.port}").server_info()
    finally:
        server.stop()
