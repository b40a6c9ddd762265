"""A soak: a server and clients of each road work for half an hour, and must neither grow nor slow down.

    make soak                   # or SECONDS=300 make soak

Beside calls within the server's process, one client process uses the Unix socket, one uses TCP through a proxy that
cuts its connections, and others are killed and started anew. All work with small rows and with rows of 400 kB. The exit
status is 1 if memory, threads or descriptors of the server or of the two lasting clients grow beyond `measures.BOUNDS`
after the warm-up, if they do less than 95 % of their work in the last minute, if a kind of work stands still, if large
rows of the Unix socket do not lie in shared memory, or if a process fails.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import threading
import time

import measures
import works
from behaviour_support import Proxy

import reverb
from reverb import checkpointers

MEASURE_EVERY_S = 5.0
CUT_EVERY_S = 20.0
RESTART_EVERY_S = 15.0
PATIENCE_S = 120.0


class Role:
    """A process of the soak, and what is known of it.

    Args:
      name: Name for the record.
      *arguments: Arguments that tell the process what it is.
      shares: Whether it shares memory with another process.
    """

    def __init__(self, name, *arguments, shares=False):
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", __file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = name
        self.first_line = json.loads(self._process.stdout.readline() or "null")
        self.measured = measures.Process(name, self._process.pid, shares)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            self.measured.reports.append(json.loads(line))

    @property
    def has_ended(self):
        return self._process.poll() is not None

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        """Ends the process. Returns what went wrong with it."""
        if not self.has_ended:
            self._process.stdin.close()
        try:
            status = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"{self.name}: did not end within {PATIENCE_S} s"]
        return [f"{self.name}: exit status {status}"] if status else []


def serve(folder):
    """The role of the server, which also works in its own process."""
    checkpointer = checkpointers.DefaultCheckpointer(folder, keep=2)
    with reverb.Server(works.tables(), checkpointer=checkpointer) as server:
        print(json.dumps({"port": server.port, "unix_path": server.unix_path}), flush=True)
        return works.work(server.localhost_client(), saves=True)


def use(address, *, may_be_cut):
    """The role of a client."""
    client = reverb.Client(address)
    print(json.dumps({"road": client.road}), flush=True)
    return works.work(client, may_be_cut=may_be_cut)


def soak(seconds, record):
    """Runs the soak, and prints its results. Returns what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        server = Role("server", "--serve", folder, shares=True)
        proxy = Proxy(server.first_line["port"])
        unix, tcp = "unix:" + server.first_line["unix_path"], f"ipv4:127.0.0.1:{server.first_line['port']}"
        roles = [
            server,
            Role("client on the Unix socket", "--use", unix, shares=True),
            Role("client on TCP, cut", "--use-cut", f"ipv4:127.0.0.1:{proxy.port}"),
        ]
        others = measures.Others([role.measured for role in roles])
        visitor, begun, next_cut, next_restart, restarts = None, time.monotonic(), CUT_EVERY_S, 0.0, 0
        while (at_s := time.monotonic() - begun) < seconds and not any(role.has_ended for role in roles):
            for role in roles:
                role.measured.measure(at_s, record)
            others.measure()
            if at_s >= next_cut:
                proxy.cut()
                next_cut = at_s + CUT_EVERY_S
            if at_s >= next_restart:
                if visitor is not None:
                    visitor.kill()
                visitor = Role("client that is killed", "--use", (unix, tcp)[restarts % 2])
                next_restart, restarts = at_s + RESTART_EVERY_S, restarts + 1
            time.sleep(MEASURE_EVERY_S)
        visitor.kill()
        failures = [failure for role in reversed(roles) for failure in role.stop()]
        proxy.close()
    first, last = measures.minutes(begun, seconds)
    used = [others.processors(*part) for part in (first, last)]
    print("all others: {:.2f} -> {:.2f} processors".format(*used))
    for role in roles:
        for lines, failed in (role.measured.verdict(seconds), role.measured.work((first, last), used[1] - used[0])):
            failures += failed
            print("\n".join(lines))
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long to work")
    parser.add_argument("--record", default="soak.jsonl", help="file for the measurements, one a line")
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--use", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--use-cut", metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(arguments.serve)
    if arguments.use or arguments.use_cut:
        return use(arguments.use or arguments.use_cut, may_be_cut=bool(arguments.use_cut))
    print(f"Python {platform.python_version()}, {platform.platform()}, {arguments.seconds:.0f} s, from {time.ctime()}")
    with open(arguments.record, "w") as record:
        failures = soak(arguments.seconds, record)
    for failure in failures:
        print("FAILED", failure)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
