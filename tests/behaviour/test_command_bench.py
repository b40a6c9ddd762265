"""`reverb bench`, and the tables that it measures with."""

import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, eventually, insert_values, make_table, program

import reverb
from reverb import _binding
from reverb.data.endpoint import Endpoint

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
# Tables for measurements that a server has at most.
MOST = 4


@pytest.fixture
def server(tmp_path):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(tmp_path / "kept")
    server = reverb.Server([make_table("table")], checkpointer=checkpointer)
    insert_values(server.localhost_client(), range(3))
    yield server
    server.stop()


@pytest.fixture(params=["unix", "tcp"])
def address(server, request):
    return f"unix:{server.unix_path}" if request.param == "unix" else f"ipv4:127.0.0.1:{server.port}"


def far_client(address):
    """A client that a connection serves, also in the server's process."""
    return reverb.Client(address)


def bench(address, *arguments):
    return subprocess.run(
        [*COMMAND, "bench", address, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )


def num_held(address):
    """The number of tables for measurements that the server has."""
    made = []
    try:
        for _ in range(MOST):
            made.append(_binding.BenchTable(Endpoint(address), PATIENCE_S))
    except reverb.errors.ResourceExhaustedError:
        pass
    for table in made:
        table.close()
    # The server removes these a little later, and the next call must not count them.
    time.sleep(0.3)
    return MOST - len(made)


def test_bench_measures_and_leaves_nothing(server, address):
    done = bench(address, "--size", "400", "--size", "4k", "--clients", "2", "--seconds", "0.2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["operation"], one["size"]) for one in results] == [
        ("insert", 400),
        ("sample", 400),
        ("insert", 4096),
        ("sample", 4096),
    ]
    for one in results:
        assert one["items_per_second"] > 0
        assert one["bytes_per_second"] == pytest.approx(one["items_per_second"] * one["size"])
        assert 0 < one["p50_ms"] <= one["p99_ms"]
        assert (one["clients"], one["road"]) == (2, "unix" if address.startswith("unix:") else "tcp")
    eventually(lambda: num_held(address) == 0)
    [info] = server.localhost_client().server_info().values()
    assert (info.name, info.current_size, info.rate_limiter_info.insert_stats.completed) == ("table", 3, 3)
    assert info.rate_limiter_info.sample_stats.completed == 0


def test_bench_prints_a_line_for_each_measurement(server):
    done = bench(f"localhost:{server.port}", "--size", "1k", "--seconds", "0.1")
    assert (done.returncode, done.stderr) == (0, "")
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["size", "items/s", "MB/s", "p50", "ms", "p99", "ms", "items", "a", "call,", "road"]
    assert [line.split()[0] for line in lines] == ["insert", "sample"]
    assert all(re.search(r"1\.0 KiB .* 64 items a call, unix$", line) for line in lines)


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["--size", "0"], 1, "a size must be a number of bytes from 1 to 64m, such as 400, 4k or 1m, got '0'"),
        (["--size", "65m"], 1, "got '65m'"),
        (["--size", "big"], 1, "got 'big'"),
        (["--seconds", "0"], 2, "--seconds must be greater than 0"),
    ],
)
def test_wrong_arguments_are_named(server, arguments, status, expected):
    done = bench(f"localhost:{server.port}", *arguments)
    assert done.returncode == status
    assert expected in done.stderr


def test_bench_needs_one_server(server):
    assert bench("localhost:1", "--timeout", "0.3").returncode == 4
    done = bench(f"ipv4:127.0.0.1:{server.port},127.0.0.2:{server.port}")
    assert done.returncode == 1
    assert "only one server can be measured at a time" in done.stderr


def test_ctrl_c_removes_the_table(server, address):
    with subprocess.Popen(
        [*COMMAND, "bench", address, "--seconds", "0.1", *["--size", "1k"] * 100],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as measuring:
        # The header, and the results of one size; then the next table is in use.
        for _ in range(4):
            assert measuring.stdout.readline()
        measuring.send_signal(signal.SIGINT)
        assert measuring.wait(PATIENCE_S) == 130
        assert "Traceback" not in measuring.stderr.read()
    eventually(lambda: num_held(address) == 0)


HOLDER = """
import sys
from reverb import _binding
from reverb.data.endpoint import Endpoint
table = _binding.BenchTable(Endpoint(sys.argv[1]), 20.0)
print(table.name, flush=True)
sys.stdin.read()
"""


def test_table_goes_with_its_client(address):
    client = far_client(address)
    with program(HOLDER, address) as holder:
        name = holder.line()
        client.insert(np.float32(1), {name: 1.0})
        assert client.sample_batch(name, 1).data[0].tolist() == [[1.0]]
        holder.process.kill()

    def is_gone():
        try:
            client.insert(np.float32(1), {name: 1.0}, timeout=PATIENCE_S)
        except reverb.errors.TableNotFoundError:
            return True
        return False

    eventually(is_gone)


def test_table_is_in_no_list_and_no_checkpoint(server, address, tmp_path):
    client = far_client(address)
    held = _binding.BenchTable(Endpoint(address), PATIENCE_S)
    client.insert(np.float32(1), {held.name: 1.0})
    assert list(client.server_info()) == ["table"]
    observed = json.loads(client.engine.observe(PATIENCE_S))
    assert [table["name"] for table in observed["tables"]] == ["table"]
    path = client.checkpoint()
    assert list(reverb.checkpointers.open(path).tables) == ["table"]
    for call in (lambda: client.reset(held.name), lambda: client.mutate_priorities(held.name, {1: 1.0})):
        with pytest.raises(reverb.errors.TableNotFoundError):
            call()
    held.close()
    held.close()


def test_waiting_draw_ends_with_the_table(address):
    client = far_client(address)
    held = _binding.BenchTable(Endpoint(address), PATIENCE_S)
    draw = Background(client.sample_batch, held.name, 1)
    eventually(lambda: json.loads(client.engine.observe(PATIENCE_S))["clients"])
    held.close()
    with pytest.raises(reverb.ReverbError):
        draw.result()


def test_number_of_tables_is_limited(address):
    held = [_binding.BenchTable(Endpoint(address), PATIENCE_S) for _ in range(MOST)]
    with pytest.raises(reverb.errors.ResourceExhaustedError, match="4 measurements of this server are running"):
        _binding.BenchTable(Endpoint(address), PATIENCE_S)
    held.pop().close()
    eventually(lambda: num_held(address) == MOST - 1)


def test_table_is_refused_in_the_same_process(server):
    with pytest.raises(ValueError, match="a server of this process cannot be measured"):
        _binding.BenchTable(Endpoint(f"localhost:{server.port}"), PATIENCE_S)


def test_server_stops_while_it_is_measured(server):
    held = _binding.BenchTable(Endpoint(f"ipv4:127.0.0.1:{server.port}"), PATIENCE_S)
    server.stop()
    held.close()
