"""Servers in processes of their own, for clients of several servers."""

import socket

import numpy as np
from behaviour_support import program

import reverb

# A server whose tables are given by name. Ends when its stdin does.
SERVER = """
import sys, tempfile
import numpy as np
import reverb
from reverb import rate_limiters, selectors

def table(name):
    name, _, size = name.partition(":")
    signature = {"x": reverb.TensorSpec([], np.float32)} if name == "signed" else None
    if name == "queue":
        return reverb.Table.queue(name, 1000)
    return reverb.Table(name, selectors.Prioritized(1.0), selectors.Fifo(), int(size or 1000),
                        rate_limiters.MinSize(1), signature=signature)

port, host, *names = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    checkpointer = reverb.checkpointers.DefaultCheckpointer(folder)
    server = reverb.Server([table(name) for name in names], int(port), host=host, checkpointer=checkpointer)
    print("ready", flush=True)
    sys.stdin.read()
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return probe.getsockname()[1]


class Servers:
    """Servers in processes of their own, each with its port.

    Args:
      stack: Ends the processes.
    """

    def __init__(self, stack):
        self._stack = stack
        self._programs = {}
        self.ports = []

    def start(self, *names, port=None, host="127.0.0.1"):
        """Starts a server, and returns its port."""
        port = free_port() if port is None else port
        running = self._stack.enter_context(program(SERVER, port, host, *(names or ("table", "queue", "signed"))))
        assert running.line() == "ready"
        self._programs[port] = running
        if port not in self.ports:
            self.ports.append(port)
        return port

    def kill(self, port):
        self._programs[port].kill()

    @property
    def address(self):
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def each(self):
        """A client of each server."""
        return [reverb.Client(f"ipv4:127.0.0.1:{port}") for port in self.ports]

    def sizes(self, table="table"):
        return [client.server_info()[table].current_size for client in self.each()]

    def keys(self, table="table"):
        """The keys of the table's items, by server. Only for tables of at most 20 items of equal priority."""
        return [
            {int(key) for _ in range(20) for key in client.sample_batch(table, 100).info.key} for client in self.each()
        ]


def insert(client, count, table="table"):
    for number in range(count):
        client.insert(np.float32(number), {table: 1.0})
