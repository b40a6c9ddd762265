"""`reverb top` in a real terminal, tmux: what it shows of a loaded and of a blocked server, and what it leaves."""

import re
import shutil
import subprocess
import sys
import time
import urllib.request
import uuid

import pytest
from behaviour_support import eventually, program

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

SERVER = """
import threading, time
import numpy as np
import reverb

tables = [
    reverb.Table.queue("full", 2),
    reverb.Table("loaded", reverb.selectors.Fifo(), reverb.selectors.Fifo(), 1000, reverb.rate_limiters.MinSize(1)),
]
server = reverb.Server(tables)
client = reverb.Client(f"ipv4:127.0.0.1:{server.port}")
for number in range(2):
    client.insert([np.float32(number)], {"full": 1.0})
threading.Thread(target=lambda: client.insert([np.float32(0)], {"full": 1.0}), daemon=True).start()
print(server.port, server.http_port, flush=True)
begun, number = time.monotonic(), 0
while True:
    client.insert([np.float32(0)], {"loaded": 1.0})
    client.sample_batch("loaded", 3)
    number += 1
    time.sleep(max(0.0, begun + number / 50 - time.monotonic()))
"""
COMMAND = f"{sys.executable} -c 'from reverb.cli import main; main()'"


@pytest.fixture(scope="module")
def serving():
    """The program of a server with a table under load and a full queue, its address, and that of its metrics."""
    with program(SERVER) as running:
        port, http_port = running.line().split()
        yield running, f"localhost:{port}", f"http://localhost:{http_port}/metrics"


@pytest.fixture
def tmux():
    """Runs tmux with a server of the test's own, in which a shell runs."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    name = f"reverb-{uuid.uuid4().hex}"

    def run(*arguments):
        return subprocess.run(
            ["tmux", "-L", name, "-f", "/dev/null", *arguments], check=True, capture_output=True, text=True
        ).stdout

    shell = "env -u COLUMNS -u LINES PS1='ready> ' bash --norc -i"
    run("new-session", "-d", "-x", "150", "-y", "40", "-s", "test", shell)
    yield run
    run("kill-server")


class Pane:
    """The terminal of a test.

    Args:
      tmux: Runs tmux.
    """

    def __init__(self, tmux):
        self._tmux = tmux
        self.type("echo before; stty -g > /dev/tty")
        # The shell has set its modes once its prompt is there.
        eventually(lambda: re.search(r"^before\n[0-9a-f:]+\nready>", self.text(), re.MULTILINE))
        self._before = self._state()

    def type(self, line):
        self._tmux("send-keys", "-t", "test", "-l", line)
        self.press("Enter")

    def press(self, key):
        self._tmux("send-keys", "-t", "test", key)

    def text(self):
        return self._tmux("capture-pane", "-p", "-t", "test")

    def _state(self):
        """Whether another screen is shown, whether the cursor is, and how input is treated."""
        flags = self._tmux("display-message", "-p", "-t", "test", "#{alternate_on} #{cursor_flag}").strip()
        tty = self._tmux("display-message", "-p", "-t", "test", "#{pane_tty}").strip()
        # Readline changes modes while the shell waits, so those of a running command count.
        modes = subprocess.run(["stty", "-F", tty, "-a"], check=True, capture_output=True, text=True).stdout
        return flags, modes

    def check_restored(self, status):
        """Checks that the command has ended with a status, and left the terminal as it was."""
        eventually(lambda: self.text().rstrip().endswith("ready>"))
        assert "q quit" not in self.text()
        assert "before" in self.text()
        self.type("echo status $?")
        eventually(lambda: f"status {status}\n" in self.text())
        eventually(lambda: self._state() == self._before)


def rate_of(text, table):
    """The inserts and samples a second that a screen shows for a table; None if it shows none yet."""
    found = re.search(rf"^{table} .*", text, re.MULTILINE)
    numbers = re.findall(r"(?<=\s)[\d,]+(?:\.\d)?(?=\s|$)", found[0]) if found else []
    # Items are `number/number`, and bytes have a unit.
    return [float(number.replace(",", "")) for number in numbers] if len(numbers) == 2 else None


def totals(metrics, table):
    text = urllib.request.urlopen(metrics, timeout=20).read().decode()
    return [
        float(re.search(rf'^reverb_table_{what}_total{{table="{table}"}} (\S+)', text, re.MULTILINE)[1])
        for what in ("inserts", "samples")
    ]


def test_rates_are_those_of_the_metrics_and_the_sentence_is_there(serving, tmux):
    _, address, metrics = serving
    pane = Pane(tmux)
    pane.type(f"{COMMAND} top {address}")
    eventually(lambda: rate_of(pane.text(), "loaded"))
    begun, before = time.monotonic(), totals(metrics, "loaded")
    time.sleep(3)

    def is_near():
        passed = time.monotonic() - begun
        real = [(now - then) / passed for now, then in zip(totals(metrics, "loaded"), before, strict=True)]
        shown = rate_of(pane.text(), "loaded")
        return shown and all(abs(one - other) <= 0.1 * other for one, other in zip(shown, real, strict=True))

    eventually(is_near)
    text = pane.text()
    assert (
        "insert into table `full` waits: the queue is full (2 of 2 items); 1 more sample until an insert may go"
        in " ".join(text.split())
    )
    assert re.search(r"^full .*\[···\|······●\|···\]  1 insert ", text, re.MULTILINE)
    pane.press("q")
    pane.check_restored(0)


@pytest.mark.parametrize(("key", "status"), [("q", 0), ("C-c", 130)])
def test_terminal_is_as_before(serving, tmux, key, status):
    pane = Pane(tmux)
    pane.type(f"{COMMAND} top {serving[1]}")
    eventually(lambda: "q quit" in pane.text())
    pane.press(key)
    pane.check_restored(status)


def test_terminal_is_as_before_when_the_server_is_killed(tmux):
    with program(SERVER) as running:
        port = running.line().split()[0]
        pane = Pane(tmux)
        pane.type(f"{COMMAND} top localhost:{port} --timeout 3")
        eventually(lambda: "q quit" in pane.text())
        running.process.kill()
        pane.check_restored(4)
        assert f"reverb: no server at localhost:{port}: " in pane.text()
