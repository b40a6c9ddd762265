"""A server whose saves fail says so wherever its people look first, and a last save that fails says what is lost."""

import json
import re
import shutil
import signal
import subprocess
import sys

import http_support
import numpy as np
import pytest
from behaviour_support import PATIENCE_S, eventually, insert_values, make_table
from metrics_support import Metrics

import reverb

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()"]


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "kept"


def stand_in_the_way(folder):
    """Puts a file in the place of the folder: not even root can save there."""
    shutil.move(folder, f"{folder}.away")
    folder.write_text("")


def step_aside(folder):
    folder.unlink()
    shutil.move(f"{folder}.away", folder)


def output(*arguments):
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def test_failed_saves_are_in_the_metrics_from_the_first_moment(start, kept):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(kept, interval=3600.0)
    server, client = start(make_table(), checkpointer=checkpointer)
    metrics = Metrics(server)
    assert metrics("reverb_checkpoint_last_success_timestamp_seconds") == 0
    assert metrics("reverb_checkpoint_last_failed") == 0
    assert metrics("reverb_checkpoint_interval_seconds") == 3600
    stand_in_the_way(kept)
    with pytest.raises(reverb.errors.StorageError):
        client.checkpoint()
    metrics = Metrics(server)
    assert metrics("reverb_checkpoint_last_failed") == 1
    assert metrics("reverb_checkpoint_last_success_timestamp_seconds") == 0
    step_aside(kept)
    client.checkpoint()
    metrics = Metrics(server)
    assert metrics("reverb_checkpoint_last_failed") == 0
    assert metrics("reverb_checkpoint_last_success_timestamp_seconds") > 0
    assert metrics("reverb_checkpoints_total", result="failed") == 1


def test_a_server_that_saves_only_when_asked_has_no_interval(start):
    server, _ = start(make_table())
    assert "reverb_checkpoint_interval_seconds" not in {name for name, _ in Metrics(server).values}


def test_probes_and_commands_say_it_first(start, kept):
    server, client = start(make_table(), checkpointer=reverb.checkpointers.DefaultCheckpointer(kept))
    address = f"127.0.0.1:{server.port}"
    told = "latest save failed: cannot "

    def ready():
        answer = http_support.ask(server.http_port, "/readyz")
        return answer.status, answer.text.strip()

    assert (ready()[0], told in ready()[1], told in output("info", address).stdout) == (200, False, False)
    stand_in_the_way(kept)
    with pytest.raises(reverb.errors.StorageError):
        client.checkpoint()
    status, text = ready()
    assert (status, text.startswith("ready. "), f"; the {told}" in text) == (200, True, True)
    assert str(kept) in text
    assert http_support.ask(server.http_port, "/healthz").text.strip() == "ok"
    for command in ("info", "top"):
        eventually(lambda command=command: told in " ".join(output(command, address).stdout.split()))
    done = output("info", address, "--json")
    assert [table["name"] for table in json.loads(done.stdout)] == ["table"]
    assert f"; the {told}" in done.stderr
    step_aside(kept)
    client.checkpoint()
    eventually(lambda: told not in ready()[1])
    assert told not in output("info", address).stdout
    assert told not in output("top", address).stdout


def test_a_last_save_that_fails_says_what_is_lost(start, kept):
    checkpointer = reverb.checkpointers.DefaultCheckpointer(kept, save_on_stop=True)
    server, client = start(make_table(), checkpointer=checkpointer)
    insert_values(client, range(7))
    stand_in_the_way(kept)
    with pytest.raises(reverb.errors.StorageError) as raised:
        server.stop()
    text = str(raised.value)
    assert text.startswith("the last checkpoint could not be saved: cannot ")
    assert "The tables have 7 items; all of it is lost, because there is no checkpoint" in text
    # It has stopped nevertheless.
    server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are set by Linux alone")
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_last_save_that_fails_on_sigterm_is_a_line_of_the_log(tmp_path, kept, log_format):
    import resource

    file, log = tmp_path / "tables.toml", tmp_path / "log"
    file.write_text(f'[tables.queue]\nqueue = 3\n[checkpoint]\npath = "{kept}"\nsave_on_stop = true\n')
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, "serve", str(file), "--log-format", log_format], stdout=output, stderr=output
        )
    try:
        eventually(lambda: process.poll() is not None or "port" in log.read_text())
        port = re.search(r"port\W+([0-9]+)", log.read_text().splitlines()[-1])[1]
        client = reverb.Client(f"ipv4:127.0.0.1:{port}")
        path = client.checkpoint()
        client.insert(np.random.default_rng(1).bytes(1 << 20), {"queue": 1.0})
        # As a quota would, it takes a log and no checkpoint.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 1
    finally:
        process.kill()
        process.wait()
    [line] = [line for line in log.read_text().splitlines() if "could not be saved" in line]
    if log_format == "json":
        fields = json.loads(line)
        assert (fields["level"], fields["logger"], bool(fields["ts"])) == ("error", "reverb", True)
        line = fields["msg"]
    else:
        assert re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:,]+ ERROR the last checkpoint", line)
    assert "the disk" in line or "File too large" in line
    assert f"The tables have 1 items; all that was done since {path} was saved is lost" in line
