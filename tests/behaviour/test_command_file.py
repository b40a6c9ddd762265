"""The file of `reverb serve` beside a checkpoint: what holds, what is refused, and what `--check` says of it before."""

import contextlib
import inspect
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, eventually, make_table

import reverb

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

from typer.testing import CliRunner

from reverb.cli import app, config

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()", "serve"]
GUIDE = (pathlib.Path(__file__).parents[2] / "docs/operate.md").read_text()


def uniform(name="replay", **options):
    lines = {"sampler": "'uniform'", "remover": "'fifo'", "max_size": 10, "rate_limiter.min_size": 1, **options}
    return f"[tables.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())


class Place:
    """A folder with a file for `reverb serve` and a folder of checkpoints."""

    def __init__(self, folder):
        self.file, self.kept, self._log = folder / "tables.toml", folder / "kept", folder / "log"

    def write(self, *tables, checkpoint=""):
        self.file.write_text("".join(tables) + f'[checkpoint]\npath = "{self.kept}"\nsave_on_stop = true\n{checkpoint}')

    def checked(self):
        """What `--check` prints."""
        done = CliRunner().invoke(app.app, ["serve", "--check", str(self.file)])
        assert done.exit_code == 0, done.output + repr(done.exception)
        return done.output

    def refused(self):
        """What `--check` complains of. A start fails in the same way."""
        done = CliRunner().invoke(app.app, ["serve", "--check", str(self.file)])
        assert isinstance(done.exception, (ValueError, reverb.errors.DataLossError)), done.output
        text = str(done.exception)
        start = subprocess.run([*COMMAND, self.file], capture_output=True, text=True, timeout=60)
        assert start.returncode == (3 if isinstance(done.exception, reverb.errors.DataLossError) else 1)
        assert text in start.stderr
        assert "Traceback" not in start.stderr
        return text

    @contextlib.contextmanager
    def served(self):
        """A client of a server of the file. The server is stopped by SIGTERM at the end, and saves."""
        with self._log.open("wb") as log:
            process = subprocess.Popen([*COMMAND, self.file], stdout=log, stderr=log)
        try:
            eventually(lambda: process.poll() is not None or ", tables: " in self.log())
            line = next((line for line in self.log().splitlines() if ", tables: " in line), None)
            assert line, self.log()
            yield reverb.Client(f"ipv4:127.0.0.1:{line.split('port ')[1].split(',')[0]}")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 143, self.log()
        finally:
            process.kill()
            process.wait()

    def log(self):
        return self._log.read_text()


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def fill(client, count, table="replay"):
    client.insert_batch({"x": np.arange(count)}, {table: 1.0})


def size(client, table="replay"):
    info = client.server_info()[table]
    return info.max_size, info.current_size


def row(text, option):
    """What `--check` prints of an option: the file, the checkpoint, and what would be served."""
    [line] = [line.split()[1:] for line in text.splitlines() if line.split()[:1] == [option]]
    return line


def test_an_edited_limit_holds_and_check_says_so(place):
    place.write(uniform())
    with place.served() as client:
        fill(client, 8)
    place.write(uniform(max_size=5, max_bytes=1_000_000, **{"rate_limiter.min_size": 3}))
    text = place.checked()
    assert "table replay, 8 items in the checkpoint" in text
    assert row(text, "max_size") == ["5", "10", "5"]
    assert row(text, "max_bytes") == ["1000000", "none", "1000000"]
    assert row(text, "min_size") == ["3", "1", "3"]
    assert row(text, "sampler") == ["uniform"] * 3
    with place.served() as client:
        assert size(client) == (5, 5)
        info = client.server_info()["replay"]
        assert (info.max_bytes, info.rate_limiter_info.min_size_to_sample) == (1_000_000, 3)
    assert "max_size=5 replaces 10 of the checkpoint" in place.log()
    with place.served() as client:
        assert size(client) == (5, 5)
    assert "replaces" not in place.log()


def test_a_limit_that_was_changed_while_the_server_ran_stays_until_the_file_is_edited(place):
    place.write(uniform())
    with place.served() as client:
        client.configure_table("replay", max_size=20)
        fill(client, 15)
    for _ in range(2):
        assert row(place.checked(), "max_size") == ["10", "20", "20"]
        with place.served() as client:
            assert size(client) == (20, 15)
        assert "max_size=20 of the checkpoint holds, not 10" in place.log()
    place.write(uniform(max_size=12))
    assert row(place.checked(), "max_size") == ["12", "20", "12"]
    with place.served() as client:
        assert size(client) == (12, 12)


def test_override_definitions_takes_all_options_of_the_file(place):
    place.write(uniform())
    with place.served() as client:
        client.configure_table("replay", max_size=20)
        fill(client, 15)
    place.write(uniform(sampler="'lifo'"), checkpoint="override_definitions = true\n")
    text = place.checked()
    assert (row(text, "sampler"), row(text, "max_size")) == (["lifo", "uniform", "lifo"], ["10", "20", "10"])
    with place.served() as client:
        assert size(client) == (10, 10)
        assert client.server_info()["replay"].sampler_options.lifo


@pytest.mark.parametrize("option", ["sampler", "remover"])
def test_an_option_that_a_table_keeps_is_refused_by_name(place, option):
    place.write(uniform())
    with place.served() as client:
        fill(client, 3)
    place.write(uniform(**{option: "'max_heap'"}))
    text = place.refused()
    for part in (str(place.file), "[tables.replay]", option, "max_heap", "override_definitions = true"):
        assert part in text
    place.write(uniform())
    with place.served() as client:
        assert size(client) == (10, 3)


def test_a_table_that_was_removed_from_the_file_is_refused_with_what_to_do(place):
    place.write(uniform(), uniform("q"))
    with place.served() as client:
        fill(client, 3)
        fill(client, 2, "q")
    place.write(uniform())
    text = place.refused()
    for part in (str(place.file), "[tables.q]", "'q' with 2 items", 'tables = ["replay"]', "[checkpoint]"):
        assert part in text
    # The remedy.
    place.write(uniform(), checkpoint='tables = ["replay"]\n')
    assert "would not load table q of that checkpoint" in place.checked()
    with place.served() as client:
        assert (list(client.server_info()), size(client)) == (["replay"], (10, 3))
    assert "not loaded" in place.log()
    place.write(uniform())
    with place.served() as client:
        assert size(client) == (10, 3)


def test_a_table_that_is_new_in_the_file_starts_empty(place):
    place.write(uniform())
    with place.served() as client:
        fill(client, 3)
    place.write(uniform(), uniform("new"))
    text = place.checked()
    [line] = [line for line in text.splitlines() if "table new" in line]
    assert line.endswith("not in the checkpoint, so empty")
    with place.served() as client:
        assert (size(client), size(client, "new")) == ((10, 3), (10, 0))


def test_another_signature_is_refused(place):
    place.write(uniform(signature="{ x = 'int64' }"))
    with place.served() as client:
        fill(client, 3)
    place.write(uniform(signature="{ x = 'float32' }"))
    text = place.refused()
    assert str(place.file) in text
    assert "`replay` has another signature in the checkpoint" in text


@pytest.mark.parametrize(
    ("configured", "edited", "parts"),
    [
        (
            {"rate_limiter": reverb.rate_limiters.MinSize(8)},
            {"max_size": 5},
            ["max_size is 5", "min_size is 8"],
        ),
        ({"max_size": 5}, {"rate_limiter.min_size": 8}, ["rate_limiter.min_size is 8", "max_size is 5"]),
    ],
    ids=["max_size", "min_size"],
)
def test_limits_that_contradict_those_of_the_checkpoint_are_refused(place, configured, edited, parts):
    place.write(uniform())
    with place.served() as client:
        client.configure_table("replay", **configured)
        fill(client, 5)
    place.write(uniform(**edited))
    text = place.refused()
    for part in (str(place.file), "[tables.replay]", *parts, "checkpoint"):
        assert part in text
    # The remedies: both limits in the file, or none of the checkpoint.
    place.write(uniform(**{"max_size": 5, "rate_limiter.min_size": 4}))
    with place.served() as client:
        assert size(client) == (5, 5)
        assert client.server_info()["replay"].rate_limiter_info.min_size_to_sample == 4


def test_a_limit_below_one_is_refused(place):
    place.write(uniform())
    with place.served() as client:
        fill(client, 3)
    place.write(uniform(max_size=0))
    assert "max_size" in place.refused()


@pytest.mark.parametrize("damaged", [1, 2])
def test_damaged_checkpoints_are_passed_over_and_only_they_are_refused(place, damaged):
    place.write(uniform(), checkpoint="keep = 2\n")
    for count in (2, 3):
        with place.served() as client:
            fill(client, count)
    paths = sorted(path for path in place.kept.iterdir() if not path.name.startswith("."))
    for path in paths[-damaged:]:
        (path / "tables.tfrecord").write_bytes(b"torn")
    if damaged == 1:
        text = place.checked()
        assert ("2 items in the checkpoint" in text, "damaged checkpoint" in text) == (True, True)
        assert str(paths[-1]) in text
    else:
        assert all(str(path) in place.refused() for path in paths)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('compression = "zstd"', ["checkpoint.compression must be a number, got 'zstd'"]),
        ("compression = 10", ["checkpoint.compression", "between 0 and 9"]),
        ("interval = -1", ["checkpoint.interval", "positive number"]),
        ('interval = "often"', ["checkpoint.interval must be a number of seconds, got 'often'"]),
        ("keep = 0", ["checkpoint.keep"]),
        ("keep = true", ["checkpoint.keep must be a number, got True"]),
        ('tables = "replay"', ["checkpoint.tables must be a list of names", "'replay'"]),
        ("tables = [1]", ["checkpoint.tables", "got 1"]),
        ('tables = ["nowhere"]', ["no table 'nowhere'"]),
        ('override_definitions = "yes"', ["checkpoint.override_definitions must be true or false, got 'yes'"]),
        ('load_path = ""', ["checkpoint.load_path", "empty"]),
        ('load_path = "/nowhere/at/all"', ["checkpoint.load_path: /nowhere/at/all does not exist"]),
        ('load_path = "/"', ["checkpoint.load_path: / is not a checkpoint; it may be a folder of checkpoints"]),
        ('fallback_checkpoint_path = "gs://a/b"', ["checkpoint.fallback_checkpoint_path", "not on this machine"]),
        ("[http]\nport = 70000", ["http.port", "70000"]),
        ("[http]\nhost = '0.0.0.0'", ["0.0.0.0", "allow_insecure"]),
        ("[http]\nallowed_hosts = ['a b']", ["http.allowed_hosts", "'a b'"]),
    ],
)
def test_an_error_names_the_file_and_the_key(place, lines, expected):
    place.write(uniform())
    with reverb.Server(
        [make_table("replay", sampler="uniform", max_size=10)],
        checkpointer=reverb.checkpointers.DefaultCheckpointer(place.kept),
    ) as server:
        server.localhost_client().checkpoint()
    place.write(uniform(), checkpoint=f"{lines}\n")
    text = place.refused()
    for part in [str(place.file), *expected]:
        assert part in text


def test_an_error_in_a_setting_of_the_server_names_the_file_and_the_key(place):
    place.file.write_text("heartbeat = 0.0\n" + uniform())
    text = place.refused()
    assert f"{place.file}: heartbeat: " in text


def test_a_folder_that_cannot_be_written_to_is_refused(place):
    place.write(uniform())
    place.kept.write_text("a file, and no folder")
    text = place.refused()
    assert f"{place.file}: checkpoint.path: " in text
    place.kept.unlink()
    with place.served() as client:
        fill(client, 3)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_else_is_refused(place):
    place.write(uniform())
    place.kept.mkdir(mode=0o500)
    assert "this user cannot write to" in place.refused()


@pytest.mark.parametrize("options", [{"interval": 600.0}, {"save_on_stop": True}])
def test_a_program_whose_server_saves_on_its_own_is_refused_as_well(tmp_path, options):
    kept = tmp_path / "kept"
    # What stands in the way of every user, root included.
    (kept / ".reverb-lock").mkdir(parents=True)
    table = reverb.Table.queue("queue", 3)
    with pytest.raises(reverb.errors.StorageError, match=r"kept/\.reverb-lock.*load_path"):
        reverb.Server([table], checkpointer=reverb.checkpointers.DefaultCheckpointer(kept, **options))
    # The table is free for another server, which saves when it is asked to.
    with (
        reverb.Server([table], checkpointer=reverb.checkpointers.DefaultCheckpointer(kept)) as server,
        pytest.raises(reverb.errors.StorageError),
    ):
        server.localhost_client().checkpoint()


def test_every_key_is_in_the_help_and_in_the_guide():
    help_text = subprocess.run(
        [*COMMAND, "--help"], capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "100"}
    ).stdout
    known = config.key_names()
    assert {"port", "checkpoint.compression", "tables.NAME.queue", "tables.NAME.rate_limiter.max_diff"} <= set(known)
    for key in known:
        name = key.removeprefix("tables.NAME.").rpartition(".")[2]
        assert re.search(rf"[ .]{name}( =|\.)", help_text), key
        assert f"`{key}`" in GUIDE, key


def test_keys_of_a_checkpointer_are_its_arguments():
    arguments = set(inspect.signature(reverb.checkpointers.DefaultCheckpointer).parameters) - {"group"}
    assert {key.removeprefix("checkpoint.") for key in config.key_names() if key.startswith("checkpoint.")} == arguments
