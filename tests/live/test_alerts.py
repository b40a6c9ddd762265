"""Each alert of packaging/prometheus/alerts.yml in a real Prometheus, beside healthy servers and broken ones."""

import contextlib
import http.server
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import prometheus_support
import pytest
from prometheus_support import PATIENCE_S
from token_support import token_of, write_tokens

import reverb

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

RULES = pathlib.Path(__file__).parents[2] / "packaging/prometheus/alerts.yml"
COMMAND = [sys.executable, "-c", "from reverb.cli import main; main()", "serve"]
# In tests seconds stand for what are minutes, at one scrape a second.
QUICK = {"for: 1m": "for: 5s", "for: 2m": "for: 5s", "for: 10m": "for: 10s", "[5m]": "[5s]", "15 * 60": "15 * 1"}
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())
# What only a broken disk brings about; test_prometheus.py has made series for them.
OF_DISKS = {"ReverbLogClosed", "ReverbLogLate", "ReverbLogDiskLow"}
# What is broken, and which alerts say so.
DUE = {
    "healthy": set(),
    "asked": set(),
    "patient": {"ReverbNoInserts"},
    "stuck": {"ReverbBlocked", "ReverbNoInserts"},
    "unsaved": {"ReverbNeverSaved", "ReverbSaveFailed"},
    "stale": {"ReverbCheckpointOld", "ReverbSaveFailed"},
    "dead": {"ReverbDown"},
    "mistaken": set(),
    "guessed": {"ReverbAuthFailures"},
    "full": {"ReverbMemoryNearLimit"},
}


# A learner that draws an item, and then learns from it until its input ends.
LEARNER = """
import sys, reverb
client = reverb.Client(sys.argv[1])
list(client.sample("queue", num_samples=1))
print("learns", flush=True)
sys.stdin.read()
"""


class Served:
    """A `reverb serve` in a process of its own.

    Args:
      folder: Folder for its file, its log and its checkpoints.
      further: Further lines of its file, of the section [checkpoint] first.
    """

    def __init__(self, folder, further=""):
        folder.mkdir()
        self.kept, self._log = folder / "kept", folder / "log"
        file = folder / "tables.toml"
        file.write_text(f'[tables.queue]\nqueue = 3\n[checkpoint]\npath = "{self.kept}"\n{further}')
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*COMMAND, str(file)], stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_S
        while ", tables: " not in self._log.read_text():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.1)
        self.client = reverb.Client(f"ipv4:127.0.0.1:{self._find(r'^reverb: .* port ([0-9]+),')}")
        self.address = f"127.0.0.1:{self._find(r'http://localhost:([0-9]+)')}"

    def _find(self, pattern):
        return re.search(pattern, self._log.read_text(), re.MULTILINE)[1]

    def insert(self):
        self.client.insert(np.float32(1), {"queue": 1.0})

    def break_disk(self):
        """Puts a file in the place of the folder: not even root can save there."""
        shutil.rmtree(self.kept)
        self.kept.write_text("")

    def stop(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)


def full(address):
    """A server in whose metrics the limit of memory is what the process has."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": "text/plain"})
            with urllib.request.urlopen(request, timeout=10) as response:
                text = response.read().decode()
            used = re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)[1]
            text = re.sub(r"(?m)^(reverb_memory_limit_bytes) \S+$", rf"\1 {used}", text)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def is_refused(server):
    """Whether a server refuses somebody who shows a wrong token."""
    request = urllib.request.Request(f"http://{server.address}/metrics", headers={"Authorization": "Bearer guessed"})
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        return error.code in (401, 429)
    return False


@contextlib.contextmanager
def overfull(server):
    """Inserts more than fits, and at the end makes room for it."""
    actor = threading.Thread(target=lambda: [server.insert() for _ in range(5)], daemon=True)
    actor.start()
    try:
        yield
    finally:
        list(server.client.sample("queue", num_samples=2))
        actor.join(PATIENCE_S)


@contextlib.contextmanager
def busy_learner(server):
    """A learner that is connected, and has drawn an item."""
    command = [sys.executable, "-c", LEARNER, server.client.server_address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as learner:
        assert learner.stdout.readline() == "learns\n"
        try:
            yield
        finally:
            learner.stdin.close()


def quick_rules(folder):
    """Writes the rules with seconds for minutes, and returns the path."""
    rules = RULES.read_text()
    for slow, quick in QUICK.items():
        assert slow in rules
        rules = rules.replace(slow, quick)
    (folder / "alerts.yml").write_text(rules)
    return folder / "alerts.yml"


@pytest.fixture(scope="module")
def firing(tmp_path_factory):
    """The names of alerts that were ever due, by what is broken."""
    folder = tmp_path_factory.mktemp("alerts")
    auth = f'[auth]\ntokens_file = "{write_tokens(folder / "tokens.toml", prometheus="view")}"\n'
    servers = {
        "healthy": Served(folder / "healthy", "interval = 2.0\n"),
        "asked": Served(folder / "asked"),
        "patient": Served(folder / "patient"),
        "stuck": Served(folder / "stuck"),
        "unsaved": Served(folder / "unsaved", "interval = 10.0\n"),
        "stale": Served(folder / "stale", "interval = 2.0\n"),
        "dead": Served(folder / "dead"),
        "mistaken": Served(folder / "mistaken", auth),
        "guessed": Served(folder / "guessed", auth),
    }
    servers["unsaved"].break_disk()
    proxy = full(servers["asked"].address)
    addresses = {what: server.address for what, server in servers.items()}
    addresses["full"] = f"127.0.0.1:{proxy.server_port}"
    rules = quick_rules(folder)
    done = threading.Event()

    def act():
        # One insert each second: the reader below waits all the time, and so it should.
        while not done.wait(0.2):
            servers["healthy"].insert()

    def learn():
        while not done.is_set():
            list(servers["healthy"].client.sample("queue", num_samples=1))

    def guess():
        while not done.wait(0.2):
            is_refused(servers["guessed"])

    threads = [threading.Thread(target=work, daemon=True) for work in (act, learn, guess)]
    for thread in threads:
        thread.start()
    try:
        running = prometheus_support.running(folder, rules, list(addresses.values()), token_of("prometheus"))
        patient = servers["patient"]
        with overfull(servers["stuck"]), overfull(patient), busy_learner(patient), running as prometheus:
            prometheus.wait_for("sum(up)", lambda count: count == len(addresses))
            prometheus.wait_for(
                f'reverb_checkpoints_total{{instance="{addresses["stale"]}", result="ok"}}', lambda count: count > 0
            )
            assert is_refused(servers["mistaken"])
            servers["stale"].break_disk()
            servers["dead"].stop()
            expected = sum(map(len, DUE.values()))
            prometheus.wait_for('sum(ALERTS{alertstate="firing"})', lambda count: count >= expected)
            seen = {what: set() for what in addresses}
            names = {address: what for what, address in addresses.items()}
            for one in prometheus.series('last_over_time(ALERTS{alertstate="firing"}[10m])'):
                seen[names[one["metric"]["instance"]]].add(one["metric"]["alertname"])
            assert {rule["health"] for group in prometheus.ask("rules")["groups"] for rule in group["rules"]} == {"ok"}
            yield seen
    finally:
        done.set()
        servers["healthy"].insert()
        for thread in threads:
            thread.join(PATIENCE_S)
        proxy.shutdown()
        proxy.server_close()
        for server in servers.values():
            server.stop()


def test_each_alert_is_due_in_some_broken_state():
    assert set().union(*DUE.values()) == set(ALERTS) - OF_DISKS


@pytest.mark.parametrize("what", DUE)
def test_the_alerts_of_a_server_are_those_of_its_state(firing, what):
    assert firing[what] == DUE[what]
