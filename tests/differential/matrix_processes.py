"""The processes of the matrix: of either side one that serves and one that is a client, for all tests of a session.

Both clients run in the reference's interpreter, ours with our package in front of the reference's, so that both have
TensorFlow. Our server runs in the interpreter of the tests.
"""

import contextlib
import importlib.util
import itertools
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time

from both_sides import SIDES, python_of

# Far longer than any machine needs: only a call that hangs reaches it.
PATIENCE_S = 150


def table(name, sampler=("fifo",), remover=("fifo",), limiter=("MinSize", 1), max_times_sampled=0, **options):
    """Returns the spec of a table, as in driver.py."""
    parts = {"sampler": list(sampler), "remover": list(remover), "limiter": list(limiter)}
    return {"name": name, "max_size": 1000, "max_times_sampled": max_times_sampled, **parts, **options}


SELECTORS = {
    "fifo": ["fifo"],
    "lifo": ["lifo"],
    "uniform": ["uniform"],
    "prioritized": ["prioritized", 0.5],
    "min heap": ["min_heap"],
    "max heap": ["max_heap"],
}
# What every server of the matrix has.
TABLES = (
    table("once", max_times_sampled=1),
    *(table(name, selector) for name, selector in SELECTORS.items()),
    *(table(f"removes {name}", remover=selector) for name, selector in SELECTORS.items()),
    table("once three", limiter=["MinSize", 3], max_times_sampled=1),
    table("ratio", limiter=["SampleToInsertRatio", 2.0, 3, 4.0]),
    table("victim", ["prioritized", 1.0]),
    table("signed", max_times_sampled=1, signature=[["a", "float32", [2]], ["b", "int64", []]]),
    table("nests", signature="nests"),
    {"name": "queue", "kind": "queue", "max_size": 2},
    {"name": "stack", "kind": "stack", "max_size": 5},
)


def eventually(condition):
    """Waits until `condition()` is true. Fails if that never happens."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "the awaited state never came"
        time.sleep(0.02)


class PeerError(Exception):
    """An error that a peer's task raised.

    Args:
      outcome: Answer of the peer.
    """

    def __init__(self, outcome):
        super().__init__(outcome["trace"])
        self.classes = outcome["error"]
        self.text = outcome["text"]


class Call:
    """A call whose answer may still be on its way.

    Args:
      process: Process that answers.
      what: Task and arguments, for messages.
    """

    def __init__(self, process, what):
        self._process = process
        self._what = what
        self._answered = threading.Event()
        self._outcome = None

    def answer(self, outcome):
        self._outcome = outcome
        self._answered.set()

    @property
    def is_running(self):
        return not self._answered.is_set()

    def result(self, patience_s=PATIENCE_S):
        """Returns or raises what the task did. A process that does not answer is ended, so that others can go on."""
        if not self._answered.wait(patience_s):
            self._process.end()
            raise AssertionError(f"{self._process.name} did not answer within {patience_s} s: {self._what}")
        if "error" in self._outcome:
            raise PeerError(self._outcome)
        return self._outcome["value"]

    def error(self, patience_s=PATIENCE_S):
        """Returns the error that the task must have raised."""
        try:
            value = self.result(patience_s)
        except PeerError as error:
            return error
        raise AssertionError(f"{self._what} of {self._process.name} did not fail, but returned {value!r}")


class Process:
    """A process that runs matrix_peer.py; started by the first call, and again by the first one after its end.

    Args:
      side: `ours` or `reference`.
      role: `server` or `client`.
      folder: Folder for its log, and for the path by which it finds our package.
    """

    def __init__(self, side, role, folder):
        self.name = f"{side} {role}"
        self.starts = 0
        self._log = pathlib.Path(folder) / f"{side}-{role}.log"
        self._python = sys.executable if (side, role) == ("ours", "server") else python_of("reference")
        self._environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if side == "ours":
            self._environment["PYTHONPATH"] = str(path_of_ours(folder))
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._calls = {}
        self._running = None

    @property
    def is_running(self):
        return self._running is not None and self._running.poll() is None

    def call(self, task, **arguments):
        """Returns or raises what the task did."""
        return self.begin(task, **arguments).result()

    def begin(self, task, **arguments):
        """Starts a task and returns the call, which goes on while the test does other things."""
        call = Call(self, f"{task}({arguments})"[:500])
        with self._lock:
            if not self.is_running:
                self._start()
            number = next(self._numbers)
            self._calls[number] = call
            pickle.dump((number, task, arguments), self._running.stdin)
            self._running.stdin.flush()
        return call

    def _start(self):
        self._close_pipes()
        self.starts += 1
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                [self._python, str(pathlib.Path(__file__).with_name("matrix_peer.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
            )
        self._calls = {}
        threading.Thread(target=self._listen, args=(self._running, self._calls), daemon=True).start()

    def _listen(self, running, calls):
        """Hands out the answers of a process until it ends. What it has not answered then has failed."""
        while True:
            try:
                number, outcome = pickle.load(running.stdout)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                break
            calls.pop(number).answer(outcome)
        running.wait()
        for call in list(calls.values()):
            trace = f"{self.name} ended before it answered\n{self._log.read_text(errors='replace')[-3000:]}"
            call.answer({"error": ["ProcessEnded"], "text": "", "trace": trace})

    def _close_pipes(self):
        if self._running is not None:
            self._running.wait()
            self._running.stdout.close()
            try:
                self._running.stdin.close()
            except BrokenPipeError:
                pass

    def end(self):
        """Ends the process, whatever it does."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def close(self):
        self.end()
        self._close_pipes()


def path_of_ours(folder):
    """Returns a folder that has our package and none of those that are installed beside it."""
    path = pathlib.Path(folder) / "ours"
    path.mkdir(exist_ok=True)
    link = path / "reverb"
    if not link.exists():
        [package] = importlib.util.find_spec("reverb").submodule_search_locations
        link.symlink_to(package)
    return path


class Processes:
    """A server and a client of each side.

    Args:
      folder: Folder for logs.
    """

    def __init__(self, folder):
        self.clients = {side: Process(side, "client", folder) for side in SIDES}
        self.servers = {side: Process(side, "server", folder) for side in SIDES}
        self._ports = {}

    def address(self, side):
        """Returns the address of a side's server that has the tables `TABLES`."""
        server = self.servers[side]
        if self._ports.get(side, (0, None))[0] != server.starts or not server.is_running:
            port = server.call("serve", name="matrix", tables=TABLES)
            self._ports[side] = server.starts, port
        return f"localhost:{self._ports[side][1]}"

    def clear(self, side):
        """Removes all items of a side's server."""
        address = self.address(side)
        self.servers[side].call("clear", name="matrix", tables=[spec["name"] for spec in TABLES])
        return address

    def sizes(self, side, name="matrix"):
        """Returns the sizes of the tables of a side's server."""
        return self.servers[side].call("sizes", name=name)

    @contextlib.contextmanager
    def server(self, side, name, tables, **options):
        """Starts another server, and stops it in the end. Returns its port."""
        try:
            yield self.servers[side].call("serve", name=name, tables=tables, **options)
        finally:
            self.servers[side].call("stop", name=name)

    def close(self):
        for process in (*self.clients.values(), *self.servers.values()):
            process.close()
