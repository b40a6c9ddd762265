"""The command `reverb`, run in separate processes."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, insert_values, make_table

import reverb
from reverb import checkpointers
from reverb._settings import SETTINGS

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

config = pytest.importorskip("reverb.cli.config")

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
TABLES = """
[tables.replay]
sampler = { prioritized = 0.6 }
remover = "fifo"
max_size = 1_000
max_times_sampled = 3
rate_limiter = { samples_per_insert = 4.0, min_size = 10, error_buffer = 400.0 }
seed = 1

[tables.plain]
sampler = "uniform"
remover = "min_heap"
max_size = 10
rate_limiter = { min_size = 2 }

[tables.queue]
queue = 3
signature = ["int64", "float32[?, 4]"]
"""


def run(*arguments, **environment):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


def output(*arguments, **environment):
    done = run(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def address():
    """The address of a server with a table `table` of three items, and an empty queue."""
    server = reverb.Server([make_table(sampler="lifo"), reverb.Table.queue("queue", 1)])
    client = server.localhost_client()
    insert_values(client, range(3))
    yield f"localhost:{server.port}"
    server.stop()


@pytest.fixture
def saved(tmp_path):
    """A folder with one checkpoint."""
    server = reverb.Server([make_table()], checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path)))
    client = server.localhost_client()
    insert_values(client, range(3))
    client.insert([np.array([b"text"], object)], {"table": 1.0})
    path = client.checkpoint()
    server.stop()
    return pathlib.Path(path)


def test_help_explains_the_commands():
    text = output("--help")
    for word in ("serve", "info", "checkpoint", "peek", "Exit status"):
        assert word in text
    assert "[tables.replay]" in output("serve", "--help")


def test_help_cuts_nothing_in_a_narrow_terminal():
    text = output("serve", "--help", COLUMNS="80")
    words = text.replace(",", " ").replace("]", " ").split()
    for setting in SETTINGS:
        assert {f"--{setting.name.replace('_', '-')}", setting.variable} <= set(words)
    for commands in ((), ("checkpoint",), ("table",)):
        text += output(*commands, "--help", COLUMNS="80")
    lines = text.splitlines()
    assert not [line for line in lines if len(line) > 80 or (line.endswith(("...", "…")) and "Usage" not in line)]
    assert "what a server and the road to it carry" in text


def test_info_shows_tables(address):
    text = output("info", address)
    assert "table" in text
    assert "lifo, fifo" in text
    tables = {table["name"]: table for table in json.loads(output("info", address, "--json"))}
    assert (tables["table"]["size"], tables["table"]["inserts"], tables["table"]["samples"]) == (3, 3, 0)
    assert tables["queue"]["waits"] == []


def test_info_takes_the_address_from_the_environment(address):
    assert json.loads(output("info", "--json", REVERB_ADDRESS=address))


def test_info_can_watch(address):
    with subprocess.Popen(
        [*COMMAND, "info", address, "--watch", "--json", "--interval", "0.05"], stdout=subprocess.PIPE, text=True
    ) as watching:
        looks = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE_S) == 130
    assert looks[0][0]["inserts_per_second"] is None
    assert looks[2][0]["inserts_per_second"] == 0.0


def test_an_unreachable_server_has_its_own_exit_status():
    done = run("info", "localhost:1", "--timeout", "0.2")
    assert done.returncode == 4
    assert done.stderr.startswith("reverb: ")
    assert "Traceback" not in done.stderr


def test_wrong_usage_has_exit_status_2():
    assert run("info").returncode == 2
    assert run("peek", "localhost:1", "table", "--count", "0").returncode == 2
    assert run("nothing").returncode == 2
    assert run("serve").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        ("info localhost:1 --timeout 0.2", 4, "localhost:1"),
        ("info ADDRESS --interval 0", 2, "--interval must be greater than 0"),
        ("peek localhost:1 table --timeout 0.2", 4, "localhost:1"),
        ("peek ADDRESS nowhere", 1, "nowhere was not found; this server has: table, queue"),
        ("peek FOLDER/nothing table", 1, "FOLDER/nothing is neither a folder nor the address of a server"),
        ("peek FOLDER/file table", 1, "FOLDER/file is neither a folder nor the address of a server"),
        ("peek FOLDER table", 1, "FOLDER"),
        ("export ADDRESS nowhere FOLDER/new", 1, "nowhere was not found; this server has: table, queue"),
        ("export ADDRESS table FOLDER/nothing/new", 1, "there is no folder FOLDER/nothing"),
        ("export FOLDER/nothing table FOLDER/new", 1, "FOLDER/nothing is neither a folder nor the address of a server"),
        ("import FOLDER/nothing ADDRESS table", 1, "FOLDER/nothing is not a file"),
        ("import FOLDER/file ADDRESS table", 3, "FOLDER/file is not a complete Parquet file"),
        ("checkpoint list FOLDER/nothing", 1, "FOLDER/nothing is not a folder"),
        ("checkpoint show FOLDER", 1, "no checkpoint in FOLDER"),
        ("checkpoint verify FOLDER/file", 1, "FOLDER/file"),
        ("info nowhere", 2, "`nowhere` is not a valid server address: expected host:port"),
        ("peek http://localhost:8000 table", 2, "`http://localhost:8000` is not a valid server address"),
        ("export nowhere table FOLDER/new", 2, "`nowhere` is not a valid server address"),
        ("import FOLDER/file localhost:1 table --timeout 0.2", 4, "localhost:1"),
        ("checkpoint save localhost:1 --timeout 0.2", 4, "localhost:1"),
        ("table configure localhost:1 table --max-size 3 --timeout 0.2", 4, "localhost:1"),
        ("table configure ADDRESS table", 2, "give at least one option to change"),
        ("table configure ADDRESS table --min-diff 3", 2, "rate_limiter needs min_size"),
        ("table configure ADDRESS nowhere --max-size 3", 1, "nowhere was not found"),
        ("table configure ADDRESS table --max-size 0", 1, "max_size"),
        ("serve FOLDER/nothing.toml", 1, "reverb: FOLDER/nothing.toml: No such file or directory"),
        ("serve FOLDER/binary.toml", 1, "reverb: FOLDER/binary.toml: "),
        ("serve FOLDER/file.toml --port PORT", 1, "port PORT: Address already in use"),
    ],
)
def test_wrong_argument_is_reported_in_a_few_lines(address, tmp_path, arguments, status, expected):
    if arguments.startswith(("export", "import")):
        pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")
    (tmp_path / "file").write_text("anything")
    (tmp_path / "file.toml").write_text("[tables.queue]\nqueue = 3\n")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    words = {"ADDRESS": address, "FOLDER": str(tmp_path), "PORT": address.split(":")[1]}
    for word, meaning in words.items():
        arguments, expected = arguments.replace(word, meaning), expected.replace(word, meaning)
    done = run(*arguments.split(), COLUMNS="80")
    assert done.returncode == status, done.stderr
    assert expected in done.stderr
    assert done.stderr.startswith("reverb: ")
    assert len(done.stderr.splitlines()) <= 3


def test_peek_shows_items_without_counting_them_as_sampled(address):
    items = [json.loads(line) for line in output("peek", address, "table", "-n", "2", "--json").splitlines()]
    assert [item["columns"][0]["values"] for item in items] == [[0], [1]]
    assert items[0]["columns"][0]["dtype"] == "int64"
    [newest] = [json.loads(line) for line in output("peek", address, "table", "-n1", "--newest", "--json").splitlines()]
    assert (newest["columns"][0]["values"], newest["times_sampled"]) == ([2], 0)
    info = reverb.Client(address).server_info()["table"]
    assert info.rate_limiter_info.sample_stats.completed == 0
    assert "int64[1]  [0]" in output("peek", address, "table")
    unknown = run("peek", address, "nowhere")
    assert unknown.returncode == 1
    assert "table, queue" in unknown.stderr


def test_peek_reads_checkpoints(saved):
    for source in (saved, saved.parent):
        items = [json.loads(line) for line in output("peek", source, "table", "--json", "-n", "9").splitlines()]
        assert [item["columns"][0]["values"] for item in items] == [[0], [1], [2], ["text"]]


def test_checkpoints_are_listed_shown_and_verified(saved):
    assert saved.name in output("checkpoint", "list", saved.parent)
    [listed] = json.loads(output("checkpoint", "list", saved.parent, "--json"))
    assert (listed["writer"], listed["tables"][0]["items"], listed["error"]) == ("reverb-replay", 4, None)
    shown = json.loads(output("checkpoint", "show", saved.parent, "--json"))
    assert shown["path"] == str(saved)
    assert shown["tables"][0]["rate_limiter"]["min_size_to_sample"] == 1
    assert "table" in output("checkpoint", "show", saved)
    assert "good, 4 items" in output("checkpoint", "verify", saved)


def test_a_checkpoint_without_our_own_file_is_taken_as_one_of_the_reference(saved):
    (saved / "reverb.jsonl").unlink()
    shown = json.loads(output("checkpoint", "show", saved, "--json"))
    assert (shown["writer"], shown["tables"][0]["items"]) == ("dm-reverb", None)
    [verified] = json.loads(output("checkpoint", "verify", saved, "--json"))
    assert verified["tables"][0]["items"] == 4


def test_a_damaged_checkpoint_has_its_own_exit_status(saved):
    items = saved / "items.tfrecord"
    items.write_bytes(items.read_bytes()[:-1])
    done = run("checkpoint", "verify", saved.parent)
    assert done.returncode == 3
    assert "items.tfrecord" in done.stdout
    assert run("peek", saved, "table").returncode == 3
    assert run("checkpoint", "verify", saved.parent.parent / "nowhere").returncode == 1


class Serving:
    """A running `reverb serve`. A context manager that kills it on exit."""

    def __init__(self, *arguments, **environment):
        self.process = subprocess.Popen(
            [*COMMAND, "serve", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.line = ""
        while not self.line.startswith("reverb: "):
            self.line = self.process.stderr.readline()
            assert self.line, f"it has ended with {self.process.wait()}"
        self.client = reverb.Client(f"localhost:{int(self.line.split('port ')[1].split(',')[0])}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def test_serve_reads_toml_and_keeps_checkpoints(tmp_path):
    file = tmp_path / "tables.toml"
    file.write_text(TABLES + f'[checkpoint]\npath = "{tmp_path}/kept"\nsave_on_stop = true\n')
    with Serving(file) as serving:
        infos = serving.client.server_info()
        assert list(infos) == ["replay", "plain", "queue"]
        assert infos["replay"].sampler_options.prioritized.priority_exponent == 0.6
        assert infos["replay"].rate_limiter_info.max_diff == 440.0
        assert infos["plain"].remover_options.heap.min_heap
        assert infos["queue"].max_times_sampled == 1
        assert infos["plain"].signature is None
        assert infos["queue"].signature == [
            reverb.TensorSpec((), np.int64),
            reverb.TensorSpec((None, 4), np.float32),
        ]
        insert_values(serving.client, range(3), "plain")
        serving.process.send_signal(signal.SIGTERM)
        assert serving.process.wait(PATIENCE_S) == 143
    with Serving(REVERB_CONFIG=str(file)) as serving:
        assert f"restored from {tmp_path}/kept/" in serving.line
        assert serving.client.server_info()["plain"].current_size == 3
        serving.process.send_signal(signal.SIGINT)
        assert serving.process.wait(PATIENCE_S) == 130


def test_serve_reads_the_textproto_of_reverb_server(tmp_path):
    file = tmp_path / "tables.textproto"
    file.write_text(
        'tables { table_name: "t" sampler { fifo: true } remover { lifo: true } max_size: 7\n'
        "rate_limiter { samples_per_insert: 1 min_size_to_sample: 1 min_diff: -9 max_diff: 9 } }"
    )
    with Serving(file) as serving:
        assert serving.client.server_info()["t"].max_size == 7


def test_serve_reads_the_heartbeat_of_a_file(tmp_path):
    file = tmp_path / "tables.toml"
    file.write_text("heartbeat = 2.5\n[tables.queue]\nqueue = 3\n")
    assert config.read(str(file)).settings == {"heartbeat": 2.5}
    file.write_text('heartbeat = "often"\n[tables.queue]\nqueue = 3\n')
    with pytest.raises(ValueError, match="heartbeat must be a number of seconds, got 'often'"):
        config.read(str(file))


def test_example_in_the_help_of_serve_is_valid(tmp_path):
    # As a user would copy it out of a narrow terminal.
    lines = [line.strip() for line in output("serve", "--help", COLUMNS="80").splitlines()]
    file = tmp_path / "tables.toml"
    text = "\n".join(lines[lines.index("port = 8000") : lines.index("save_on_stop = true") + 1])
    file.write_text(text.replace("/data/checkpoints", f"{tmp_path}/kept"))
    read = config.read(str(file))
    assert [table.info.signature for table in read.tables] == [
        {"obs": reverb.TensorSpec((4,), np.float32), "reward": reverb.TensorSpec((), np.float32)},
        {
            "obs": {
                "image": reverb.TensorSpec((None, 84, 84), np.uint8),
                "vector": reverb.TensorSpec((None, 4), np.float32),
            },
            "reward": reverb.TensorSpec((None,), np.float32),
        },
    ]
    assert read.checkpoint == {"path": f"{tmp_path}/kept", "interval": 600.0, "save_on_stop": True}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("max_size = 10\n", "", ["[tables.plain]", "max_size is missing"]),
        ('"uniform"', '"any"', ["[tables.plain]", "sampler", "any", "uniform"]),
        ("min_size = 2", "size = 2", ["[tables.plain]", "unknown key 'size'"]),
        ("seed = 1", "sede = 1", ["[tables.replay]", "unknown key 'sede'"]),
        ("error_buffer = 400.0", "min_diff = 1.0", ["[tables.replay]", "error_buffer"]),
        ("[tables.queue]", "[tables.queue", ["line 16"]),
        ("queue = 3", "queue = 0", ["[tables.queue]", "max_size (0)"]),
        ("queue = 3", 'queue = "3"', ["[tables.queue]", "queue must be a number", "'3'"]),
        ("min_size = 2", 'min_size = "2"', ["[tables.plain]", "rate_limiter.min_size must be a number"]),
        ("[tables.replay]", 'port = "any"\n[tables.replay]', ["port must be a number, got 'any'"]),
        ('"int64"', '"int46"', ["[tables.queue]", "signature[0]", "'int46'", "int64", "bfloat16", "string"]),
        ('"int64"', '{ a = "bool", b = { c = 4 } }', ["[tables.queue]", "signature[0].b.c", "got 4", '"float32[4]"']),
        ('"int64"', "{ a = {} }", ["[tables.queue]", "signature[0].a is empty"]),
        ("[?, 4]", "[None, 4]", ["[tables.queue]", "signature[1]", '"?"', "'float32[None, 4]'"]),
        ("[?, 4]", "[?, 4", ["[tables.queue]", "signature[1]", '"float32[4]"', "'float32[?, 4'"]),
    ],
)
def test_serve_reports_the_position_of_an_error(tmp_path, old, new, expected):
    file = tmp_path / "tables.toml"
    assert old in TABLES
    file.write_text(TABLES.replace(old, new))
    done = run("serve", file)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for part in [str(file), *expected]:
        assert part in done.stderr


def test_a_command_makes_a_server_save(tmp_path):
    server = reverb.Server([make_table()], checkpointer=checkpointers.DefaultCheckpointer(str(tmp_path)))
    paths = [output("checkpoint", "save", f"localhost:{server.port}").strip()]
    paths.append(json.loads(output("checkpoint", "save", f"localhost:{server.port}", "--json"))["path"])
    server.stop()
    # By default the newest is kept.
    assert [str(path) for path in tmp_path.iterdir() if path.is_dir()] == paths[1:]
    assert paths[0] < paths[1]


def test_a_command_changes_a_table(address):
    client = reverb.Client(address)
    options = ["--max-size", 2, "--max-bytes", "1e9", "--max-times-sampled", 3]
    assert output("table", "configure", address, "table", *options) == (
        "table: changed max_size, max_bytes, max_times_sampled\n"
    )
    info = client.server_info()["table"]
    assert (info.max_size, info.max_bytes, info.max_times_sampled) == (2, 1_000_000_000, 3)
    assert info.current_size == 2
    limiter = ["--min-size", 1, "--samples-per-insert", 4, "--error-buffer", 8]
    text = output("table", "configure", address, "table", *limiter, "--json")
    assert json.loads(text) == {"table": "table", "changed": ["rate_limiter"]}
    info = client.server_info()["table"]
    assert (info.max_size, info.rate_limiter_info.samples_per_insert) == (2, 4.0)
    assert output("table", "configure", address, "table", "--max-bytes", "inf")
    assert client.server_info()["table"].max_bytes is None


def test_the_name_of_a_checkpoint_is_never_cut(saved):
    assert saved.name in output("checkpoint", "list", saved.parent, COLUMNS="60")


def test_export_and_import_move_a_table_through_a_file(address, tmp_path):
    pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")
    file = tmp_path / "table.parquet"
    client = reverb.Client(address)
    before = [value.tolist() for value in client.sample_batch("table", 3).data]
    assert json.loads(output("export", address, "table", file, "--json")) == {"items": 3, "path": str(file)}
    client.reset("table")
    assert output("import", file, address, "table").startswith("imported 3 items: ")
    assert [value.tolist() for value in client.sample_batch("table", 3).data] == before
    folder = client.checkpoint()
    assert output("export", folder, "table", file).startswith("exported 3 items: ")
    torn = run("import", __file__, address, "table")
    assert torn.returncode == 3
    assert "is not a complete Parquet file" in torn.stderr
    assert run("export", address, "nowhere", file).returncode == 1
