"""Kills clients and servers that share memory (kill -9) at random moments, and checks what is left of them.

    python tests/kills/killed_sharers.py                                    # 200 kills, half of them of servers
    python tests/kills/killed_sharers.py --kills 20 --victims client --record /tmp/record.json

A client writes, inserts and draws rows of 400 kB over a Unix socket, and small ones, so that segments are out both ways
when one end is killed. After it the survivor must lose all segments that it had in common with the victim: descriptors,
mappings, and the bytes that a server says it shares. No row may be torn. When a client is killed, each row that its
server had confirmed comes exactly once, or again if it was here for less than a second. When a server is killed, the
next one starts empty at its place, and the client goes on: what a writer had not confirmed comes from one of them or
from both, and nothing else comes twice.

`tests/kills/sharers_record.json` has the counts of the last whole run.
"""

import argparse
import collections
import contextlib
import json
import logging
import os
import pathlib
import random
import re
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import kill_records
from killed_sharers_clients import (
    SOURCES,
    WIDTHS,
    Notes,
    Sharer,
    check_killed_client,
    check_killed_servers,
    numbers_of,
    rows,
    tables,
)

import reverb

RECORD = pathlib.Path(__file__).parent / "sharers_record.json"
VICTIMS = ("client", "server")
PATIENCE_S = 60.0
# The longest time between work in both directions and a kill.
LONGEST_S = 0.5
# The share of kills that do not wait for work.
EARLY = 0.15
# By how much the median of the last quarter of a survivor's measures may exceed that of the second one.
GROWTH = {"memory_mib": 16.0, "descriptors": 2}
# Fewer kills do not tell whether something grows.
LEAST_MEASURED = 40
KEPT_ROWS = 4


# What the system knows of a process.


def segments(pid):
    """Returns the numbers of the segments that a process has mapped or open, with its access to them."""
    found = {}
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            if "memfd:reverb" in line:
                _, access, _, _, inode, *_ = line.split()
                found[int(inode)] = access
    for name in os.listdir(f"/proc/{pid}/fd"):
        # It may be closed by now.
        with contextlib.suppress(FileNotFoundError):
            path = f"/proc/{pid}/fd/{name}"
            if "memfd:reverb" in os.readlink(path):
                found.setdefault(os.stat(path).st_ino, "fd")
    return found


def lasting_port():
    """Returns a free port that nobody gets who asks for any, as far as the system is set up as usual."""
    while True:
        port = random.randrange(10_000, 32_768)
        # It may be taken.
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def measures_of(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return {
        # Without that of segments, which are counted.
        "memory_mib": int(re.search(r"RssAnon:\s*(\d+)", status)[1]) / 1024,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


class Process:
    """A process of this file's roles.

    Args:
      *arguments: Its role, and the arguments of that.
    """

    def __init__(self, *arguments):
        command = [sys.executable, __file__, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def line(self):
        """Waits for a line of its output."""
        line = self._process.stdout.readline()
        assert line, f"a process has ended with status {self._process.wait()}"
        return line

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def tell_to_end(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()


class ServerProcess(Process):
    """A server in a process of its own.

    Args:
      port: Its port; 0 is any.
    """

    def __init__(self, port=0):
        super().__init__("serve", port)
        port, self.address, self._http_port = self.line().split()
        self.port = int(port)

    def shared_bytes(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/api/v1/server", timeout=PATIENCE_S) as answer:
            return json.load(answer)["shared_bytes"]


def serve(port):
    server = reverb.Server([*tables(), reverb.Table.queue("kept", KEPT_ROWS)], int(port) or None)
    print(server.port, f"unix:{server.unix_path}", server.http_port, flush=True)
    server.wait()


def use(address, path):
    Sharer(address, Notes(path)).work()


# The side that kills them.


def wait_until(condition, what):
    """Waits until a condition is true. `what` tells what is wrong otherwise."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.005)


def wait_until_gone(left, whose):
    """Waits until nothing is left. `whose` tells of what."""
    wait_until(lambda: not left(), lambda: f"left of {whose}: {left()}")


class Killing:
    """What both kinds of kills have in common.

    Args:
      seed: Seed of the moments.

    Attributes:
      counts: What was counted.
    """

    def __init__(self, seed):
        self.counts = collections.Counter()
        self._random = random.Random(seed)
        self._measures = []

    def wait_for_moment(self, notes, begun=0):
        """Waits for the moment of a kill: mostly when a client works, or as it starts or looks for a server."""
        if self._random.random() >= EARLY:
            self.wait_for_work(notes, begun)
        time.sleep(self._random.uniform(0.0, LONGEST_S))

    def wait_for_work(self, notes, begun):
        """Waits until a client has noted work with all sources and tables, after so many notes."""

        def has_worked():
            done = {(what, *details[:1]) for _, what, *details in notes.read()[begun:]}
            written = {("confirmed", source) for source in SOURCES}
            return done >= written | {("read", table) for table in WIDTHS}

        wait_until(has_worked, lambda: f"the client does not go on: {notes.read()[-20:]}")

    def kill(self, victim):
        """Kills a process. Counts what it shared just before."""
        # Segments are written to by one end, and read by the other, for a client as its own.
        accesses = set(segments(victim.pid).values())
        batches, inserts = ("rw-s", "r--s") if isinstance(victim, ServerProcess) else ("rw-p", "rw-s")
        self.counts.update({"with batches out": batches in accesses, "with inserts out": inserts in accesses})
        victim.kill()
        self.counts["kills"] += 1

    def measure(self, pid):
        self._measures.append(measures_of(pid))

    def check_growth(self):
        """Checks that the survivor of all kills has not grown."""
        quarter = max(1, len(self._measures) // 4)
        for name, most in GROWTH.items():
            values = [measure[name] for measure in self._measures]
            parts = values[quarter : 2 * quarter] or values, values[-quarter:]
            before, now = (round(statistics.median(part), 1) for part in parts)
            self.counts.update({f"{name}, second quarter": before, f"{name}, last quarter": now})
            if len(values) >= LEAST_MEASURED:
                assert now <= before + most, f"{name} of the survivor grew from {before} to {now}"


class ClientKilling(Killing):
    """A server whose clients are killed, one after the other, and one that keeps a batch all the time."""

    def __init__(self, seed):
        super().__init__(seed)
        self._server = ServerProcess()
        self._bystander = reverb.Client(self._server.address)
        self._bystander.insert_batch(rows("large", range(KEPT_ROWS)), {"kept": 1.0})
        self._kept = self._bystander.sample_batch("kept", KEPT_ROWS).data[0]
        self._own = self._state()

    def _state(self):
        return segments(self._server.pid), self._server.shared_bytes()

    def _wait_for_rest(self, whose):
        """Waits until the server shares nothing but what it shares with the client that lives."""
        wait_until(lambda: self._state() == self._own, lambda: f"left of {whose}: {self._state()}, not {self._own}")

    def step(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.closing(Notes(pathlib.Path(folder, "notes"))) as notes:
            client = Process("use", self._server.address, notes.path)
            try:
                self.wait_for_moment(notes)
            finally:
                killed_at = time.monotonic()
                self.kill(client)
            self._wait_for_rest("a client that was killed")
            drained = self._drain()
            self._wait_for_rest("a client that was closed")
            self.counts.update(check_killed_client(notes.read(), killed_at, drained))
        assert numbers_of(self._kept) == list(range(KEPT_ROWS)), "an array has changed"
        self.measure(self._server.pid)

    def _drain(self):
        """Draws all that the tables still have."""
        drained = collections.defaultdict(list)
        with contextlib.closing(reverb.Client(self._server.address)) as client:
            for table in WIDTHS:
                # What the client had not received goes back to its place.
                wait_until_gone(
                    lambda table=table: client.server_info()[table].undelivered_samples, "draws of a client"
                )
                while size := client.server_info()[table].current_size:
                    drained[table] += numbers_of(client.sample_batch(table, size).data[0])
        return drained

    def finish(self):
        del self._kept
        self._bystander.close()
        wait_until_gone(lambda: any(self._state()) and self._state(), "all clients")
        self.check_growth()

    def close(self):
        self._bystander.close()
        self._server.kill()


class ServerKilling(Killing):
    """A client whose servers are killed, one after the other."""

    def __init__(self, seed):
        super().__init__(seed)
        self._folder = tempfile.TemporaryDirectory()
        self._notes = Notes(pathlib.Path(self._folder.name, "notes"))
        self._server = ServerProcess(lasting_port())
        self._client = Process("use", self._server.address, self._notes.path)
        self._begun = 0

    def step(self):
        self.wait_for_moment(self._notes, self._begun)
        self.kill(self._server)
        self._notes.note("killed")
        left = set(segments(self._client.pid))
        self._begun = len(self._notes.read())
        self._server = ServerProcess(self._server.port)
        wait_until_gone(lambda: left & set(segments(self._client.pid)), "a server that was killed")
        self.measure(self._client.pid)

    def finish(self):
        self.wait_for_work(self._notes, self._begun)
        self._client.tell_to_end()
        wait_until(lambda: self._notes.read()[-1][1] == "closed", lambda: "the client does not end")
        wait_until_gone(lambda: segments(self._client.pid), "a client that was closed")
        self.counts.update(check_killed_servers(self._notes.read()))
        self.check_growth()

    def close(self):
        self._client.kill()
        self._server.kill()
        self._notes.close()
        self._folder.cleanup()


KILLINGS = {"client": ClientKilling, "server": ServerKilling}


def run(victim, kills, seed=None):
    """Kills clients, or servers, so often. Returns counts. Fails if something is wrong.

    What threads do when does not follow from the seed, which is printed, but the moments do.
    """
    seed = seed or secrets.token_hex(4)
    with contextlib.closing(KILLINGS[victim](f"{victim} {seed}")) as killing:
        while killing.counts["kills"] < kills:
            killing.step()
            if killing.counts["kills"] % 25 == 0:
                print(f"{victim}, seed {seed}: {killing.counts['kills']} of {kills} kills", flush=True)
        killing.finish()
    return dict(killing.counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of all victims together")
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=VICTIMS)
    parser.add_argument("--seed", help="that of an earlier run; any by default")
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    arguments = parser.parse_args()
    kills = max(1, arguments.kills // len(arguments.victims))
    counts = {victim: run(victim, kills, arguments.seed) for victim in arguments.victims}
    kill_records.write(arguments.record, "killed_sharers.py", counts)
    print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    # Clients whose servers are killed say so.
    logging.getLogger("reverb").setLevel(logging.ERROR)
    if sys.argv[1:2] == ["serve"]:
        serve(*sys.argv[2:])
    elif sys.argv[1:2] == ["use"]:
        use(*sys.argv[2:])
    else:
        main()
