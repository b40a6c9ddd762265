"""Which durability a server takes: arguments in Python, and flags, variables and keys of `reverb serve`."""

import dataclasses
import math
import os
import re
import subprocess
import sys

import pytest
from behaviour_support import PATIENCE_S, make_table

import reverb
from reverb.data.durability import as_durability

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]
MIB = 1 << 20
# The exit status of commands that find damage.
DAMAGED = 3


def serve(checkpointer=None, **options):
    return reverb.Server([make_table("table")], checkpointer=checkpointer, http_port="off", **options)


@pytest.mark.parametrize("mode", ["process", "power"])
def test_a_durability_has_a_mode_and_defaults(mode):
    durability = reverb.Durability(mode)
    assert (durability.mode, durability.sync_interval, durability.max_log_bytes) == (mode, 1.0, None)
    assert as_durability("durability", mode) == durability
    assert as_durability("durability", durability) is durability
    with pytest.raises(dataclasses.FrozenInstanceError):
        durability.mode = "power"


def test_numbers_of_other_types_are_converted():
    durability = reverb.Durability("power", sync_interval=2, max_log_bytes=128 * MIB)
    assert (type(durability.sync_interval), durability.max_log_bytes) == (float, 128 * MIB)


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({"mode": "disk"}, ValueError, ['"process"', '"power"', "'disk'"]),
        ({"mode": ""}, ValueError, ['"process"', '"power"']),
        ({"mode": None}, TypeError, ["mode", "str"]),
        ({"sync_interval": 0}, ValueError, ["sync_interval", "seconds", "0.0"]),
        ({"sync_interval": -1.0}, ValueError, ["sync_interval", "-1.0"]),
        ({"sync_interval": math.inf}, ValueError, ["sync_interval", "inf"]),
        ({"sync_interval": math.nan}, ValueError, ["sync_interval", "nan"]),
        ({"sync_interval": "1"}, TypeError, ["sync_interval", "number"]),
        ({"max_log_bytes": 128 * MIB - 1}, ValueError, ["max_log_bytes", "134217728 bytes", "134217727"]),
        ({"max_log_bytes": 1 << 63}, ValueError, ["max_log_bytes", str(1 << 63)]),
        ({"max_log_bytes": 1e9}, TypeError, ["max_log_bytes", "int"]),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, parts):
    with pytest.raises(error) as raised:
        reverb.Durability(**{"mode": "process", **arguments})
    for part in parts:
        assert part in str(raised.value)


@pytest.mark.parametrize("durability", ["process", "power", reverb.Durability("power", 0.5, 128 * MIB)])
def test_a_server_takes_a_mode_or_a_durability(tmp_path, durability):
    with serve(reverb.checkpointers.DefaultCheckpointer(tmp_path / "kept"), durability=durability) as server:
        client = server.localhost_client()
        client.insert(1.0, {"table": 1.0})
        assert client.server_info()["table"].current_size == 1


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"durability": "disk"}, ValueError, 'durability must be "process".*"power".*got \'disk\''),
        ({"durability": True}, TypeError, "durability.*reverb.Durability"),
        ({"accept_loss": "no"}, TypeError, "accept_loss.*bool"),
    ],
)
def test_wrong_options_of_a_server_are_refused(tmp_path, options, error, text):
    with pytest.raises(error, match=text):
        serve(reverb.checkpointers.DefaultCheckpointer(tmp_path / "kept"), **options)
    assert not (tmp_path / "kept").exists()


def test_a_durability_needs_a_folder_that_the_next_start_finds_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="DefaultCheckpointer"):
        serve(durability="process")
    # Nothing was made for it, and the table is free.
    assert os.listdir(tmp_path) == []
    for temporary in (reverb.checkpointers.TempDirCheckpointer(), reverb.checkpointers.default_checkpointer()):
        with pytest.raises(ValueError, match="not a temporary one.*DefaultCheckpointer"):
            serve(temporary, durability="power")


def test_a_durable_server_refuses_a_folder_that_it_cannot_write_to(tmp_path):
    kept = tmp_path / "kept"
    # What stands in the way of every user, root included.
    (kept / ".reverb-lock").mkdir(parents=True)
    checkpointer = reverb.checkpointers.DefaultCheckpointer(kept)
    with pytest.raises(reverb.errors.StorageError, match=r"kept/\.reverb-lock"):
        serve(checkpointer, durability="process")
    # Without it, it saves when it is asked to.
    serve(checkpointer).stop()


def checked(path, *arguments, **environment):
    """What `reverb serve --check` prints, and its exit status."""
    pytest.importorskip("typer", reason="the extra `cli` is not installed")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("REVERB_")}
    done = subprocess.run(
        [*COMMAND, "serve", "--check", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=clean | environment,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def file(tmp_path):
    """A file of `reverb serve` with a table and a folder for checkpoints."""
    path = tmp_path / "tables.toml"
    path.write_text(f'[tables.queue]\nqueue = 3\n[checkpoint]\npath = "{tmp_path}/kept"\n')
    return path


def test_the_command_takes_a_durability_from_flags_variables_and_the_file(file):
    status, text = checked(file, "--durability", "power", "--accept-loss", REVERB_SYNC_INTERVAL="0.5")
    assert status == 0, text
    for line in ("durability +power +\\(--durability\\)", "sync_interval +0.5", "accept_loss +yes"):
        assert_line(line, text)
    file.write_text(file.read_text() + f'[durability]\nmode = "process"\nmax_log_bytes = {256 * MIB}\n')
    status, text = checked(file)
    assert status == 0, text
    for line in ("durability +process +\\(file\\)", f"max_log_bytes +{256 * MIB} +\\(file\\)", "accept_loss +no"):
        assert_line(line, text)


def assert_line(pattern, text):
    assert re.search(f"^ +{pattern}", text, re.MULTILINE), text


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--durability", "disk"], ["process", "power", "disk"]),
        (["--sync-interval", "1"], ["sync_interval needs durability", "process, power"]),
        (["--max-log-bytes", str(256 * MIB)], ["max_log_bytes needs durability"]),
        (["--durability", "power", "--sync-interval", "0"], ["sync_interval", "seconds"]),
        (["--durability", "power", "--max-log-bytes", "1000"], ["max_log_bytes", "134217728 bytes"]),
    ],
)
def test_the_command_refuses_wrong_values(file, arguments, parts):
    status, text = checked(file, *arguments)
    assert status != 0
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ('mode = "disk"', ["durability.mode must be one of process, power", "'disk'"]),
        ('mode = "power"\nsync_interval = 0', ["durability.sync_interval: ", "seconds"]),
        ('mode = "power"\nmax_log_bytes = 1', ["durability.max_log_bytes: ", "134217728 bytes"]),
        ('mode = "power"\naccept_loss = "no"', ["durability.accept_loss must be true or false"]),
        ("speed = 1", ["[durability] has an unknown key 'speed'"]),
    ],
)
def test_an_error_of_the_file_names_the_file_and_the_key(file, lines, parts):
    file.write_text(f"{file.read_text()}[durability]\n{lines}\n")
    status, text = checked(file)
    assert status != 0
    for part in [str(file), *parts]:
        assert part in text


def test_the_command_says_that_a_durability_needs_a_path(file):
    file.write_text("[tables.queue]\nqueue = 3\n")
    status, text = checked(file, "--durability", "process")
    assert status != 0
    assert "--checkpoint-path" in text


def test_check_says_what_becomes_of_the_log(file, tmp_path):
    folder = tmp_path / "kept"
    with serve(reverb.checkpointers.DefaultCheckpointer(folder), durability="process") as server:
        server.localhost_client().insert([1.0], {"table": 1.0})
    file.write_text(file.read_text().replace("tables.queue", "tables.table"))
    before = contents(folder)
    status, text = checked(file, "--durability", "process")
    assert status == 0, text
    assert_line("It would load the newest checkpoint", text)
    assert_line("It would replay the log after it, [1-9] groups of changes in", text)
    # Without a durability, nothing would replay what is confirmed.
    status, text = checked(file)
    assert status == DAMAGED
    assert "has confirmed changes that are in no checkpoint that is loaded" in text
    assert contents(folder) == before


def test_check_says_that_a_damaged_log_would_be_refused_or_set_aside(file, tmp_path):
    folder = tmp_path / "kept"
    with serve(reverb.checkpointers.DefaultCheckpointer(folder), durability="process"):
        pass
    file.write_text(file.read_text().replace("tables.queue", "tables.table"))
    for log in folder.glob("*.rvlog"):
        log.write_bytes(bytes(100))
    before = contents(folder)
    status, text = checked(file, "--durability", "process")
    assert status == DAMAGED
    assert "--accept-loss" in text
    status, text = checked(file, "--durability", "process", "--accept-loss")
    assert status == 0, text
    assert_line(f"It would set the log aside, and lose what is in it: .*{folder}", text)
    assert contents(folder) == before


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
