"""`reverb doctor`: the facts for a bug report, and nothing else."""

import json
import os
import pathlib
import platform
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import Background, eventually, info_of, insert_values, make_table

import reverb
from reverb import checkpointers

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

doctor = pytest.importorskip("reverb.cli.doctor")
machine = pytest.importorskip("reverb.cli.machine")

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()", "doctor"]


def run(*arguments, preexec_fn=None, **environment):
    # Of the variables of whoever runs the tests, it would tell the names.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REVERB_")}
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**inherited, **environment},
        preexec_fn=preexec_fn,
    )


def facts(*arguments, **options):
    done = run(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def server(tmp_path):
    """A server with an item in `table`, and a checkpoint folder."""
    checkpointer = checkpointers.DefaultCheckpointer(str(tmp_path / "kept"))
    server = reverb.Server([make_table(), reverb.Table.queue("queue", 1)], checkpointer=checkpointer)
    insert_values(server.localhost_client(), [7])
    yield server
    server.stop()


def test_it_tells_versions_and_limits_of_this_process():
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (123, 456))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    told = facts(preexec_fn=limit)
    assert told["reverb"] == reverb.__version__
    assert told["python"] == f"{platform.python_implementation()} {platform.python_version()}"
    assert told["packages"]["numpy"] == np.__version__
    assert (told["machine"]["open_files"], told["machine"]["open_files_at_most"]) == (123, 456)
    assert told["machine"]["processors"] == os.cpu_count()
    if hasattr(os, "sched_setaffinity"):
        assert told["machine"]["usable_processors"] <= 1
    assert told["machine"]["memory_bytes"] > 1 << 28
    assert told["server"] is None
    lines = run(preexec_fn=limit).stdout.splitlines()
    assert f"reverb      {reverb.__version__}" in lines
    assert "open files  123, at most 456" in lines
    assert lines[-1] == "server      not asked: name its address"


@pytest.mark.parametrize("road", ["unix", "tcp"])
def test_it_tells_the_road_to_a_server_and_its_tables(server, road):
    address = {"unix": f"localhost:{server.port}", "tcp": f"ipv4:127.0.0.1:{server.port}"}[road]
    client = server.localhost_client()
    waiting = Background(client.sample_batch, "queue", 1)
    eventually(lambda: info_of(client, "queue").waiting_samples == 1)
    told = facts(address)["server"]
    text = run(address).stdout
    insert_values(client, [1], "queue")
    waiting.result()
    assert (told["road"], told["state"], told["version"]) == (road, "serving", reverb.__version__)
    assert told["uptime_seconds"] > 0
    [table, queue] = told["tables"]
    assert (table["name"], table["size"], table["inserts"], table["samples"]) == ("table", 1, 1, 0)
    assert table["waits"] == []
    [reason] = queue["waits"]
    assert re.search(rf"^road +{road}$", text, re.MULTILINE)
    assert re.search(r"^table +table: 1 of 1000 items, 8 B, 1 inserts, 0 samples, fifo and fifo$", text, re.MULTILINE)
    assert re.search(rf"^ +waits: {re.escape(reason)}", text, re.MULTILINE)


@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["text", "json"])
def test_it_tells_no_value_of_the_environment_no_path_and_no_item(server, tmp_path, arguments):
    variables = {"REVERB_HOST": "mysecret", "REVERB_ADDRESS": "mysecret:1", "SECRET_TOKEN": "mysecret"}
    done = run(f"localhost:{server.port}", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert "REVERB_ADDRESS" in done.stdout
    assert "REVERB_HOST" in done.stdout
    for hidden in ("mysecret", "SECRET_TOKEN", str(tmp_path), server.unix_path, sys.prefix):
        assert hidden not in done.stdout


def test_it_does_not_ask_the_server_that_the_environment_names():
    assert facts(REVERB_ADDRESS="localhost:1")["server"] is None


def test_it_tells_all_the_rest_where_the_server_cannot_be_asked():
    done = run("localhost:1", "--timeout", "0.2", "--json")
    assert done.returncode == 4
    told = json.loads(done.stdout)
    assert told["reverb"] == reverb.__version__
    assert "localhost:1" in told["server"]["error"]
    assert done.stderr == f"reverb: {told['server']['error']}\n"
    done = run("localhost:1", "--timeout", "0.2")
    assert done.returncode == 4
    assert done.stdout.splitlines()[-1].startswith("server      not reached: ")


@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["text", "json"])
def test_an_error_names_a_variable_and_not_its_value(tmp_path, arguments):
    variables = {"REVERB_CA": str(tmp_path / "mysecret.pem"), "REVERB_KEEP": ""}
    done = run("grpcs://localhost:1", "--timeout", "0.2", *arguments, **variables)
    assert done.returncode != 0
    for printed in (done.stdout, done.stderr):
        assert "$REVERB_CA: No such file" in printed
        assert "mysecret" not in printed


def test_several_servers_tell_their_tables(server):
    other = reverb.Server([make_table(), reverb.Table.queue("queue", 1)])
    address = f"ipv4:127.0.0.1:{server.port},127.0.0.1:{other.port}"
    told = facts(address)["server"]
    assert told["version"] is None
    assert [table["name"] for table in told["tables"]] == ["table", "queue"]
    assert "it tells no version: one of dm-reverb, or several servers" in run(address).stdout
    other.stop()


def test_names_of_tables_do_not_act_on_the_terminal():
    server = reverb.Server([reverb.Table.queue("\x1b[31mred", 1)])
    assert "\\x1b[31mred: 0 of 1 items" in run(f"localhost:{server.port}").stdout
    server.stop()


GROUPS = "9:memory:/job\n4:cpu,cpuacct:/job/step\n0::/a/b\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"a/memory.max": "300", "a/b/memory.max": "max"}, 300),
        ({"a/memory.max": "300", "a/b/memory.max": "200", "memory.max": "max"}, 200),
        ({"memory/job/memory.limit_in_bytes": "100", "a/memory.max": "300"}, 100),
        # A group of version 1 without a limit.
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
        ({"other/memory.max": "5"}, None),
    ],
    ids=["none", "outer", "lowest", "version 1", "huge", "another group"],
)
def test_the_lowest_memory_limit_of_the_groups_counts(tmp_path, files, expected):
    write(tmp_path, files)
    assert machine.memory_limit(GROUPS, tmp_path, 1000) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ({"a/cpu.max": "150000 100000", "a/b/cpu.max": "50000 100000"}, 0.5),
        ({"cpu/job/cpu.cfs_quota_us": "200000", "cpu/job/cpu.cfs_period_us": "100000"}, 2.0),
        ({"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/job/cpu.cfs_quota_us": "100000"}, None),
    ],
    ids=["none", "outer", "lowest", "version 1", "version 1 without", "torn"],
)
def test_the_lowest_quota_of_the_groups_counts(tmp_path, files, expected):
    write(tmp_path, files)
    assert machine.processor_quota(GROUPS, tmp_path) == expected


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


def test_it_looks_for_each_package_that_this_one_can_use():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    project = tomllib.loads((pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {name: packages for name, packages in project["optional-dependencies"].items() if name != "test"}
    required = [*project["dependencies"], *(package for packages in extras.values() for package in packages)]
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in required}
    assert names <= set(doctor.PACKAGES)
