"""Helpers of the tests of clusters on Ray: a Ray cluster of three nodes on this machine, tables, tasks."""

import contextlib
import os
import pathlib
import signal
import socket
import time

import numpy as np
import ray
from behaviour_support import comes_true
from ray.cluster_utils import Cluster

import reverb

# Ray takes seconds to start a process on a machine that does other work, too.
PATIENCE_S = 60.0
_NODE = {"object_store_memory": 80 << 20, "num_cpus": 1}


class Nodes:
    """A Ray cluster of a head with two CPUs and two nodes with one each, and a driver connected to it."""

    def __init__(self):
        # Workers of Ray import this module, and inherit the variable.
        paths = [str(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        options = {"metrics_report_interval_ms": 1000, "health_check_period_ms": 500}
        head = {**_NODE, "num_cpus": 2, "include_dashboard": False, "_system_config": options}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            self.add()
        self.cluster.wait_for_nodes()
        ray.init(address=self.cluster.address, log_to_driver=False)

    def add(self):
        """Adds a node with one CPU."""
        self.cluster.add_node(wait=False, **_NODE)

    @contextlib.contextmanager
    def without(self, node_id):
        """Kills a node, as the loss of a machine would, and has another one in its place in the end."""
        (node,) = [node for node in self.cluster.worker_nodes if node.node_id == node_id]
        self.cluster.remove_node(node, allow_graceful=False)
        try:
            yield
        finally:
            self.add()
            self.cluster.wait_for_nodes()

    def close(self):
        ray.shutdown()
        self.cluster.shutdown()


def make_tables():
    """The table `table` of a shard, which draws all items alike."""
    selectors = reverb.selectors
    return [reverb.Table("table", selectors.Uniform(), selectors.Fifo(), 10_000, reverb.rate_limiters.MinSize(1))]


def start(**options):
    """Starts a cluster of two shards that takes next to no CPU."""
    return reverb.ray.start(make_tables, **{"shards": 2, "cpus_per_shard": 0.5, "allow_insecure": True, **options})


def leftovers():
    """The actors and placement groups of all clusters of shards."""
    from ray.util.placement_group import placement_group_table

    actors = [actor for actor in ray.util.list_named_actors(all_namespaces=True) if actor["namespace"] == "reverb"]
    groups = [group["name"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
    return [actor["name"] for actor in actors], groups


def insert(replay, values, table="table"):
    """Inserts one item per value, each in a call of its own, which chooses a shard."""
    return [replay.insert(np.int64(value), {table: 1.0}) for value in values]


def insert_surely(replay, value):
    """Inserts a value, and again if the call had reached a shard that was just dying: nobody knows if it was in."""
    try:
        return insert(replay, [value])
    except reverb.errors.UnavailableError:
        return insert(replay, [value])


def items(replay):
    """The items of each shard that answers, by its number."""
    return {shard.id: shard.items for shard in replay.shards() if shard.alive}


def drawn(replay, count=200):
    """The values that many draws find."""
    return set(np.concatenate([leaf.ravel() for leaf in _leaves(replay.sample_batch("table", count).data)]).tolist())


def _leaves(data):
    return data if isinstance(data, list) else [data]


@ray.remote(num_cpus=0.1)
def insert_by_name(name, values):
    """A task that inserts values into a cluster, which it finds by its name."""
    return insert(reverb.ray.connect(name), values)


@ray.remote(num_cpus=0.1)
def draw_from(replay):
    """A task that draws from a cluster, with a client that its caller had."""
    return drawn(replay)


def fail():
    """Makes no tables."""
    raise KeyError("no such setting")


def kill(pid):
    """Kills a process as a crash would, and waits until it is gone."""
    os.kill(pid, signal.SIGKILL)
    assert comes_true(lambda: not is_alive(pid), PATIENCE_S)


def is_alive(pid):
    """Whether a process runs. One that its parent has not asked for yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def taken_port(address):
    """Takes the port of a server that was killed, before another takes it."""
    host, _, port = address.rpartition(":")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                taken.bind((host, int(port)))
                break
            except OSError:
                assert time.monotonic() < end
        taken.listen()
        yield
