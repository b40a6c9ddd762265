"""`reverb serve` under a manager of services that it tells when it is ready, and when it stops: here a real socket."""

import os
import signal
import socket
import subprocess
import sys

import pytest
from behaviour_support import PATIENCE_S, eventually, insert_values

import reverb

pytest.importorskip("typer", reason="the extra `cli` is not installed")
pytest.importorskip("rich", reason="the extra `cli` is not installed")

notifying = pytest.importorskip("reverb.cli.notifying")

COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()", "serve"]


class Manager:
    """Listens as systemd does, and runs `reverb serve`. A context manager that kills it on exit."""

    def __init__(self, folder, address=None):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE_S)
        self._socket.bind(address or str(folder / "notify"))
        name = self._socket.getsockname()
        self._variable = "@" + name[1:].decode() if isinstance(name, bytes) else name
        self._kept = folder / "kept"
        self._log = folder / "log"
        self._file = folder / "tables.toml"
        self._file.write_text(f'[tables.queue]\nqueue = 3\n[checkpoint]\npath = "{self._kept}"\nsave_on_stop = true\n')
        self.process = None

    def start(self, variable=None):
        with self._log.open("w") as log:
            environment = {**os.environ, "NOTIFY_SOCKET": variable or self._variable}
            self.process = subprocess.Popen(
                [*COMMAND, str(self._file), "--log-format", "json"], stderr=log, env=environment
            )

    def state(self):
        return self._socket.recv(1024).decode()

    def has_heard_nothing(self):
        """Whether nothing has come. The process must have ended."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1024)
        except BlockingIOError:
            return True
        return False

    def log(self):
        return self._log.read_text()

    def client(self):
        """A client of the server, whose port is in the log by now."""
        port = self.log().rpartition('"port": ')[2]
        return reverb.Client(f"localhost:{int(port.partition(',')[0])}")

    def checkpoints(self):
        return sorted(path for path in self._kept.glob("*") if path.is_dir())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self._socket.close()


@pytest.mark.parametrize("address", [None, "\0reverb-test-{pid}"], ids=["path", "abstract"])
def test_a_manager_is_told_that_the_server_serves_and_that_it_stops(tmp_path, address):
    if address is not None and sys.platform != "linux":
        pytest.skip("only Linux has abstract sockets")
    with Manager(tmp_path, address and address.format(pid=os.getpid())) as manager:
        manager.start()
        assert manager.state() == "READY=1"
        # It serves at once.
        insert_values(manager.client(), [1], "queue")
        manager.process.send_signal(signal.SIGTERM)
        assert manager.state() == "STOPPING=1"
        assert manager.process.wait(PATIENCE_S) == 143
        assert len(manager.checkpoints()) == 1
        # Again, with a checkpoint to load, and until Ctrl-C.
        manager.start()
        assert manager.state() == "READY=1"
        assert manager.client().server_info()["queue"].current_size == 1
        manager.process.send_signal(signal.SIGINT)
        assert manager.state() == "STOPPING=1"
        assert manager.process.wait(PATIENCE_S) == 130


def test_the_manager_is_told_once_and_before_the_last_save(monkeypatch):
    calls = []
    monkeypatch.setattr(notifying, "notify", calls.append)
    monkeypatch.setattr(reverb.Server, "stop", lambda self, *, returns: calls.append("save"))
    server = notifying.NotifyingServer.__new__(notifying.NotifyingServer)
    server.stop()
    server.stop(returns=True)
    assert calls == ["STOPPING=1", "save", "save"]


def test_a_server_serves_without_the_manager_that_it_should_tell(tmp_path):
    with Manager(tmp_path) as manager:
        manager.start(variable=str(tmp_path / "gone"))
        eventually(lambda: "systemd was not told READY=1" in manager.log())
        insert_values(manager.client(), [1], "queue")
        manager.process.send_signal(signal.SIGTERM)
        assert manager.process.wait(PATIENCE_S) == 143
    assert len(manager.checkpoints()) == 1


def test_a_server_that_cannot_start_is_never_ready(tmp_path):
    with Manager(tmp_path) as manager:
        (tmp_path / "tables.toml").write_text('[tables.queue]\nqueue = "many"\n')
        manager.start()
        assert manager.process.wait(PATIENCE_S) == 1
        assert manager.has_heard_nothing()
