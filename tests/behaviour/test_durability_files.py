"""Folders of durable servers: which are refused, how logs become shorter, two servers on one, and a full disk."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from behaviour_support import Background, eventually, make_table, program
from durability_support import MODES, DurableServer, items_of, segments, values_of
from http_support import ask

import reverb
from reverb import checkpointers, errors

pytestmark = pytest.mark.ports

TABLES = ("replay", "queue", "few", "configured", "reset", "largest", "small")
MIB = 1 << 20


def insert(client, value, table="replay"):
    return client.insert([np.int64(value)], {table: 1.0})


def serve(folder, durability=None, accept_loss=None, **options):
    """Starts a server in this process on a folder of a `DurableServer`."""
    checkpointer = checkpointers.DefaultCheckpointer(folder, **options)
    tables = [make_table(name) for name in TABLES]
    return reverb.Server(
        tables, checkpointer=checkpointer, durability=durability, accept_loss=accept_loss, http_port="off"
    )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def killed(folder):
    """Leaves a folder whose newest checkpoint has 0, and whose log also has 1. Returns the path of the checkpoint."""
    with DurableServer(folder) as server:
        client = reverb.Client(server.address())
        insert(client, 0)
        path = client.checkpoint()
        insert(client, 1)
        server.end_by("kill")
    return path


def damaged_of(folder):
    return [name for name in os.listdir(folder) if name.endswith(".rvlog.damaged-1")]


@pytest.mark.parametrize("is_load_path_given", [False, True], ids=["without a durability", "with a load_path"])
def test_a_log_that_would_not_be_replayed_is_refused_unless_its_loss_is_accepted(folder, killed, is_load_path_given):
    options = {"durability": "process", "load_path": killed} if is_load_path_given else {}
    before = segments(folder)
    with pytest.raises(errors.DataLossError) as raised:
        serve(folder, **options)
    for part in (str(folder), "accept_loss"):
        assert part in str(raised.value)
    # Nothing has changed, so that the log can still be replayed.
    assert (segments(folder), damaged_of(folder)) == (before, [])
    with serve(folder, accept_loss=True, **options) as server:
        assert values_of(server.localhost_client(), "replay") == [0]
    assert set(damaged_of(folder)) <= {f"{name}.damaged-1" for name in before}
    assert damaged_of(folder)


def test_a_refused_folder_can_still_be_started_with_its_durability(folder, killed):
    with pytest.raises(errors.DataLossError):
        serve(folder)
    with serve(folder, "process") as server:
        assert values_of(server.localhost_client(), "replay") == [0, 1]


def test_a_durability_is_switched_off_after_a_checkpoint(folder, killed):
    with serve(folder, "process") as server:
        server.localhost_client().checkpoint()
    with serve(folder) as server:
        assert values_of(server.localhost_client(), "replay") == [0, 1]


def test_a_missing_segment_is_refused_by_its_name(folder, killed):
    first = segments(folder)[0]
    (folder / first).unlink()
    with pytest.raises(errors.DataLossError, match=str(folder)):
        serve(folder, "process")
    with serve(folder, "process", accept_loss=True) as server:
        assert 0 in values_of(server.localhost_client(), "replay")


@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_make_the_log_shorter(folder, mode):
    with DurableServer(folder, mode) as server:
        client = reverb.Client(server.address())
        for value in range(3):
            insert(client, value)
            client.checkpoint()
        insert(client, 3)
        # Of the epochs before the checkpoint that is kept, nothing is left.
        eventually(lambda: all(int(name.split("-")[1]) >= 3 for name in segments(folder)))
        server.end_by("kill")
    with DurableServer(folder, mode, server.port) as again:
        assert values_of(reverb.Client(again.address()), "replay") == [0, 1, 2, 3]


def test_an_interval_makes_the_log_shorter(folder):
    with DurableServer(folder, interval=0.1) as server:
        insert(reverb.Client(server.address()), 0)
        eventually(lambda: not any(name.startswith("log-1-") for name in segments(folder)))
        server.end_by("kill")
    with DurableServer(folder, port=server.port) as again:
        assert values_of(reverb.Client(again.address()), "replay") == [0]


def insert_large(client, value, size=4 * MIB):
    client.insert([np.int64(value), np.random.default_rng(value).integers(0, 256, size, np.uint8)], {"small": 1.0})


def test_a_log_that_has_become_large_is_made_shorter(folder):
    values = []
    with DurableServer(folder, max_log_bytes=128 * MIB) as server:
        client = reverb.Client(server.address())

        def is_shorter():
            insert_large(client, len(values))
            values.append(len(values))
            return not any(name.startswith("log-1-") for name in segments(folder))

        eventually(is_shorter, 40)
        # No sooner than it should.
        assert len(values) * 4 * MIB >= 128 * MIB
        server.end_by("kill")
    with DurableServer(folder, port=server.port) as again:
        assert values_of(reverb.Client(again.address()), "small") == values[-8:]


def test_a_second_server_is_refused_while_the_first_has_the_folder(folder):
    with DurableServer(folder) as server:
        with pytest.raises(ValueError, match=str(folder)):
            serve(folder, "process")
        insert(reverb.Client(server.address()), 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_was_replaced_refuses_all_changes(folder, mode):
    with DurableServer(folder, mode, sync_interval=0.05) as cut_off:
        old = reverb.Client(cut_off.address())
        key = insert(old, 0)
        cut_off.process.send_signal(signal.SIGSTOP)
        # As on a file system whose locks do not reach other machines.
        (folder / ".reverb-lock").unlink()
        with DurableServer(folder, mode, sync_interval=0.05) as replacing:
            new = reverb.Client(replacing.address())
            insert(new, 1)
            # Longer than its sync interval, within which it may still confirm.
            time.sleep(0.2)
            cut_off.process.send_signal(signal.SIGCONT)
            changes = (
                lambda: insert(old, 2),
                lambda: old.delete("replay", [key]),
                lambda: old.reset("replay"),
                lambda: old.configure_table("replay", max_size=3),
            )
            for change in changes:
                with pytest.raises(errors.StorageError, match="another server has started on this folder"):
                    change()
            # The first change has met the newer server only after it was made, and nobody confirmed it.
            assert old.sample_batch("replay", 1).data[0].ravel().tolist() in ([0], [2])
            insert(new, 3)
            cut_off.end_by("kill")
            replacing.end_by("kill")
    with DurableServer(folder, mode) as again:
        client = reverb.Client(again.address())
        assert values_of(client, "replay") == [0, 1, 3]
        assert client.server_info()["replay"].max_size == 1000


def test_a_forked_process_does_not_harm_the_log(folder):
    source = """
        import os, sys, numpy as np, reverb
        server = reverb.Server(
            [reverb.Table.queue(name, 10) for name in sys.argv[2:]],
            checkpointer=reverb.checkpointers.DefaultCheckpointer(sys.argv[1]),
            durability="process",
        )
        client = server.localhost_client()
        client.insert([np.int64(0)], {"replay": 1.0})
        pid = os.fork()
        if pid == 0:
            del client, server
            sys.exit()
        os.waitpid(pid, 0)
        client.insert([np.int64(1)], {"replay": 1.0})
        print("done", flush=True)
        sys.stdin.read()
    """
    with program(source, folder, *TABLES) as forking:
        assert forking.line() == "done"
        forking.kill()
    with serve(folder, "process") as server:
        assert values_of(server.localhost_client(), "replay") == [0, 1]


def log_of(server):
    """What a server shows of its log."""
    return json.loads(ask(server.http_port, "/api/v1/checkpoints").text)["log"]


def test_a_server_shows_its_log(folder):
    with DurableServer(folder, "power", sync_interval=0.5) as server:
        client = reverb.Client(server.address())
        before = log_of(server)
        assert (before["mode"], before["sync_interval_seconds"], before["failure"]) == ("power", 0.5, None)
        insert_large(client, 0, MIB)
        assert log_of(server)["size_bytes"] >= before["size_bytes"] + MIB
        metrics = ask(server.http_port, "/metrics").text
        assert 'reverb_log_info{mode="power"} 1' in metrics
        assert "reverb_log_failed 0" in metrics


@contextlib.contextmanager
def small_disk(path, size_mib):
    """A file system in memory. Skips the test where none can be mounted."""
    path.mkdir()
    options = f"size={size_mib}m"
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount")
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted: {done.stderr.decode()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", MODES)
def test_a_full_disk_refuses_inserts_until_there_is_room(tmp_path, mode):
    with small_disk(tmp_path / "disk", 400) as disk:
        with DurableServer(disk / "kept", mode) as server:
            client = reverb.Client(server.address())
            key = insert(client, 0)
            # Its first segments are there with all their room, and the next one has none.
            eventually(lambda: segments(disk / "kept") == ["log-1-0.rvlog", "log-1-1.rvlog"])
            eventually(lambda: all(taken(disk / "kept" / name) >= 64 * MIB for name in segments(disk / "kept")))
            ballast = disk / "ballast"
            ballast.write_bytes(bytes(shutil.disk_usage(disk).free - 40 * MIB))
            confirmed = fill(client)
            assert confirmed >= 0
            assert log_of(server)["failure"] is not None
            assert "reverb_log_failed 1" in ask(server.http_port, "/metrics").text
            check_refused(client, key)
            ballast.unlink()
            eventually(lambda: accepts(client, 1), 60)
            eventually(lambda: log_of(server)["failure"] is None)
            insert(client, 2)
            server.end_by("kill")
        with DurableServer(disk / "kept", mode, server.port) as again:
            client = reverb.Client(again.address())
            assert set(values_of(client, "replay")) == {0, 1, 2}
            assert items_of(client, "replay")[0][0] == 7.0
            # The one that was refused last may be there, as its writer was told.
            *_, last = small = values_of(client, "small")
            assert last in (confirmed, confirmed + 1)
            assert small == list(range(last + 1 - len(small), last + 1))


def taken(path):
    """Number of bytes that a file takes on its disk."""
    return path.stat().st_blocks * 512


def fill(client):
    """Inserts until the disk is full. Returns the last value that was confirmed."""
    for value in range(1000):
        try:
            insert_large(client, value)
        except errors.StorageError:
            return value - 1
    raise AssertionError("the disk is never full")


def accepts(client, value):
    try:
        insert(client, value)
    except errors.StorageError:
        return False
    return True


def check_refused(client, key):
    """Checks what a server does whose log has failed."""
    with pytest.raises(errors.StorageError):
        client.delete("replay", [key])
    with pytest.raises(errors.StorageError):
        client.reset("replay")
    with pytest.raises(errors.StorageError):
        client.configure_table("replay", max_size=3)
    assert client.sample_batch("replay", 1).data[0].ravel().tolist() == [0]
    assert client.update_priorities("replay", [key], [7.0]) == 1
    writer = client.trajectory_writer(1)
    writer.append([np.int64(9)])
    writer.create_item("replay", 1.0, [writer.history[0][-1:]])
    with pytest.raises(errors.StorageError):
        Background(writer.flush).result()
