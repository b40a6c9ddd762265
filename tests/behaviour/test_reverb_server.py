"""The reference's command `reverb_server`, without dependencies beyond those of the package."""

import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import PATIENCE_S

import reverb
from reverb.server_executable import reverb_config_pb2, server_from_proto, server_main

CONFIG = """
port: {port}
tables: {{
  table_name: "my_table"
  sampler: {{ {sampler} }}
  remover: {{ fifo: true }}
  max_size: 200 max_times_sampled: 5
  rate_limiter: {{
    min_size_to_sample: 1
    samples_per_insert: 1
    min_diff: -1.7976931348623157e+308
    max_diff: 1.7976931348623157e+308
  }}
}}
"""
COMMAND = [sys.executable, "-c", "from reverb.server_executable.server_main import app_run_main; app_run_main()"]


def config(port=0, sampler="fifo: true"):
    return CONFIG.format(port=port, sampler=sampler)


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


class Serving:
    """The running command. A context manager that kills it on exit."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


@pytest.mark.ports
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_serves_the_tables_of_the_text_until_a_signal(number, status):
    port = free_port()
    with Serving(f"--config={config(port)}") as serving:
        assert f"port {port}, tables: my_table" in serving.process.stderr.readline()
        client = reverb.Client(f"localhost:{port}")
        info = client.server_info()["my_table"]
        assert (info.max_size, info.max_times_sampled, info.sampler_options.fifo) == (200, 5, True)
        client.insert([np.int64(5)], {"my_table": 1.0})
        assert [sample[0].data[0].item() for sample in client.sample("my_table", 5)] == [5] * 5
        serving.process.send_signal(number)
        assert serving.process.wait(PATIENCE_S) == status
        assert "Traceback" not in serving.process.stderr.read()


def test_a_free_port_is_reported():
    with Serving("--config", config()) as serving:
        line = serving.process.stderr.readline()
        port = int(line.split("port ")[1].split(",")[0])
        assert "my_table" in reverb.Client(f"localhost:{port}").server_info()


def test_flags_may_be_in_a_file(tmp_path):
    flags = tmp_path / "flags"
    flags.write_text(f"# tables\n--config='{config()}'\n")
    with Serving(f"--flagfile={flags}") as serving:
        assert "tables: my_table" in serving.process.stderr.readline()


def test_a_missing_configuration_is_reported():
    done = run()
    assert done.returncode == 1
    assert "Flag --config must have a value other than None" in done.stderr


def test_the_example_in_the_help_is_valid():
    done = run("--help")
    assert done.returncode == 0
    example = done.stdout.split("--config='")[1].split("}'")[0] + "}"
    [table] = server_from_proto.tables_from_proto(server_main.parse_config(example).tables)
    assert table.info.max_size == 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (config().replace("max_size: 200", "max_size: many"), ["7:", "many"]),
        ("tables: {", ["configuration cannot be parsed"]),
        ("nothing: 1", ["1:1", "nothing"]),
        ("port: 1", ["At least one table must be provided"]),
        (config(sampler="fifo: false"), ["my_table", "sampler", "associated boolean value is false"]),
        (config().replace("sampler: { fifo: true }", ""), ["my_table", "sampler", "distribution=None"]),
        (config().replace("max_size: 200", ""), ["my_table", "max_size (0) must be a positive integer"]),
        (config().replace("samples_per_insert: 1", ""), ["my_table", "samples_per_insert"]),
        (config().replace('table_name: "my_table"', ""), ["tables[0]", "name must be nonempty"]),
        (config(port=-5), ["port -5"]),
    ],
)
def test_errors_report_their_position(text, expected):
    done = run(f"--config={text}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for part in expected:
        assert part in done.stderr


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("fifo: true", "FifoSelector"),
        ("lifo: true", "LifoSelector"),
        ("uniform: true", "UniformSelector"),
        ("prioritized { priority_exponent: 0.5 }", "PrioritizedSelector(priority_exponent=0.5)"),
        ("heap { min_heap: true }", "HeapSelector(sign=1)"),
        ("heap { }", "HeapSelector(sign=-1)"),
    ],
)
def test_every_selector_can_be_named(text, kind):
    message = server_main.parse_config(config(sampler=text))
    assert isinstance(message, reverb_config_pb2.ReverbServerConfig)
    assert repr(server_from_proto.selector_from_proto(message.tables[0].sampler)) == kind
    assert repr(server_from_proto.rate_limiter_from_proto(message.tables[0].rate_limiter)).startswith("RateLimiter(")
