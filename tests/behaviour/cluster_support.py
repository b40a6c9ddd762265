"""Shards of a cluster, in this process and in processes of their own, and clients of them."""

import numpy as np
from behaviour_support import SELECTORS, make_table, program

import reverb
from reverb.cluster import Shard, connect

# A shard whose table is `table`, on a port. Ends when its stdin does.
SHARD = """
import sys, tempfile
import numpy as np
import reverb
from reverb import rate_limiters, selectors

port, id = map(int, sys.argv[1:])
table = reverb.Table("table", selectors.Prioritized(1.0), selectors.Fifo(), 1000, rate_limiters.MinSize(1),
                     signature={"x": reverb.TensorSpec([], np.int64)})
with tempfile.TemporaryDirectory() as folder:
    server = reverb.Server([table], port, checkpointer=reverb.checkpointers.DefaultCheckpointer(folder),
                           shard=reverb.cluster.Shard(id=id, cluster="replay"))
    print(server.port, flush=True)
    sys.stdin.read()
"""

SIGNATURE = {"x": reverb.TensorSpec([], np.int64)}


def prioritized_table(**options):
    return make_table(sampler=SELECTORS["prioritized"](), signature=SIGNATURE, **options)


def address_of(ports, road="tcp"):
    """The address at which a client of this road reaches the shards."""
    if road == "tcp":
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
    return [f"localhost:{port}" for port in ports]


class Shards:
    """Shards of a cluster in this process.

    Args:
      road: Name of the road of clients, `unix` or `tcp`.
    """

    def __init__(self, road):
        self.road = road
        self.servers = []

    def start(self, count=3, tables=lambda: [prioritized_table()], **options):
        """Starts shards 0, 1 and so on, and returns a client of all."""
        for number in range(count):
            self.add(number, tables(), **options)
        return self.connect()

    def add(self, number, tables, cluster="replay", **options):
        shard = None if number is None else Shard(number, cluster)
        self.servers.append(reverb.Server(tables, shard=shard, **options))
        return self.servers[-1]

    @property
    def ports(self):
        return [server.port for server in self.servers]

    @property
    def address(self):
        return address_of(self.ports, self.road)

    def connect(self, **options):
        """Returns another client of the shards."""
        return connect(self.address, **options)

    def each(self):
        """A client of each shard alone."""
        return [server.localhost_client() for server in self.servers]

    def sizes(self, table="table"):
        return [client.server_info()[table].current_size for client in self.each()]

    def keys(self, table="table"):
        """The keys of the items of each shard. Only where all items have a positive priority."""
        return [_keys(client, table) for client in self.each()]

    def assert_own(self, table="table"):
        """Asserts that each shard has items, and only such whose keys it owns."""
        keys = self.keys(table)
        assert [{key >> 56 for key in of} for of in keys] == [{number} for number in range(len(keys))]

    def stop(self):
        for server in self.servers:
            server.stop()


def _keys(client, table):
    size = client.server_info()[table].current_size
    keys = set()
    while len(keys) < size:
        keys |= {int(key) for key in client.sample_batch(table, 50 * size).info.key}
    return keys


class ShardProcesses:
    """Shards of a cluster in processes of their own.

    Args:
      stack: Ends the processes.
      count: Number of shards that are started at once.
    """

    def __init__(self, stack, count):
        self._stack = stack
        self._running = {}
        self.ports = {}
        for number in range(count):
            self.start(number)

    def start(self, number):
        """Starts a shard, on the port that it had before."""
        running = self._stack.enter_context(program(SHARD, self.ports.get(number, 0), number))
        self.ports[number] = int(running.line())
        self._running[number] = running

    def kill(self, number):
        self._running[number].kill()

    def address(self, road):
        return address_of(self.ports.values(), road)

    def peer(self, number, road):
        """The address of one shard, as clients name it."""
        return f"ipv4:127.0.0.1:{self.ports[number]}" if road == "tcp" else f"localhost:{self.ports[number]}"


def insert_each(client, values, priority=None):
    """Inserts items one by one, with these values as their priorities. Returns their keys by value."""
    return {value: client.insert({"x": np.int64(value)}, {"table": priority or value}) for value in values}
