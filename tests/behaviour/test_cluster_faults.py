"""Shards, readers and writers of a cluster that are killed or stopped, or lose their connections, and what clients see.

Shards are processes of their own. They have so many items that the `table_size` of a row tells which shards it was
drawn from.
"""

import contextlib
import itertools
import signal
import threading
from collections import Counter

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, Proxy, eventually, program

import reverb
from reverb.cluster import connect

pytestmark = [pytest.mark.ports, pytest.mark.timeout(180)]

SHARD = """
import sys, reverb
from reverb import rate_limiters, selectors

port, number, folder = sys.argv[1:]

def table(name, **options):
    return reverb.Table(name, selectors.Prioritized(1.0), selectors.Fifo(), 100_000, rate_limiters.MinSize(1),
                        **options)

server = reverb.Server([table("table"), table("once", max_times_sampled=1)], int(port) or None,
                       checkpointer=reverb.checkpointers.DefaultCheckpointer(folder),
                       shard=reverb.cluster.Shard(id=int(number), cluster="replay"))
print(server.port, flush=True)
sys.stdin.read()
"""
SIZES = (10, 20, 40)
LOST = 1
REST = sum(SIZES) - SIZES[LOST]
BATCH = 64
# Time after which a shard is missing that does not answer: long enough for one that is only slow.
SHORT_S = 3.0
LONG_S = 3 * PATIENCE_S


class Cluster:
    """Three shards in processes of their own.

    Args:
      stack: Ends the processes.
      folder: Empty folder for their checkpoints.
    """

    def __init__(self, stack, folder):
        self._stack = stack
        self._folder = folder
        self.programs, self.ports, self.proxy = {}, {}, None
        for number in range(len(SIZES)):
            self.start(number)

    def start(self, number):
        """Starts a shard, on the port that it had before and from its last checkpoint."""
        arguments = self.ports.get(number, 0), number, self._folder / str(number)
        self.programs[number] = self._stack.enter_context(program(SHARD, *arguments))
        self.ports[number] = int(self.programs[number].line())

    def send(self, number, what):
        self.programs[number].process.send_signal(what)

    def connect(self, **options):
        """A client of all shards, which reaches the one that is lost through a proxy if there is one."""
        return connect(self.address, **{"shard_timeout": SHORT_S, **options})

    def add_proxy(self):
        self.proxy = Proxy(self.ports[LOST])
        self._stack.callback(self.proxy.close)

    @property
    def peer(self):
        """The name of the shard that is lost."""
        return f"ipv4:127.0.0.1:{self.proxy.port if self.proxy else self.ports[LOST]}"

    @property
    def address(self):
        peers = [self.peer if number == LOST else f"ipv4:127.0.0.1:{port}" for number, port in self.ports.items()]
        return "ipv4:" + ",".join(peer.removeprefix("ipv4:") for peer in peers)

    def each(self):
        """A client of each shard alone."""
        return [reverb.Client(f"ipv4:127.0.0.1:{port}") for port in self.ports.values()]

    def fill(self, table="table", sizes=SIZES):
        """Inserts numbers into the shards, and saves them. Returns the keys."""
        parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        keys = [client.insert_batch(part, {table: 1.0}) for client, part in zip(self.each(), parts, strict=True)]
        self.save()
        return np.concatenate(keys).tolist()

    def save(self):
        for client in self.each():
            client.checkpoint()

    def values(self, table):
        """Takes all items of all shards, and returns their values."""
        sizes = [client.server_info()[table].current_size for client in self.each()]
        drawn = [
            client.sample_batch(table, size, timeout=PATIENCE_S).data[0].ravel().tolist()
            for client, size in zip(self.each(), sizes, strict=True)
            if size
        ]
        return list(itertools.chain(*drawn))


@pytest.fixture
def cluster(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Cluster(stack, tmp_path)


class Killed:
    """kill -9, and a new process with the last checkpoint."""

    def strike(self, cluster):
        cluster.programs[LOST].kill()

    def mend(self, cluster):
        cluster.start(LOST)


class Stopped:
    """A process that does nothing for a while."""

    def strike(self, cluster):
        cluster.send(LOST, signal.SIGSTOP)

    def mend(self, cluster):
        cluster.send(LOST, signal.SIGCONT)


class Cut:
    """A connection that ends at any byte. The next one is accepted."""

    def strike(self, cluster):
        cluster.proxy.cut()

    def mend(self, cluster):
        pass


FAULTS = pytest.mark.parametrize("fault", [Killed(), Stopped()], ids=["killed", "stopped"])


class Loop:
    """Calls a function again and again on a thread, until `end`. Keeps results and errors in their order.

    Args:
      function: The function.
      *errors: Classes of errors after which it goes on. Others are raised by `end`.
    """

    def __init__(self, function, *errors):
        self.results = []
        self._function, self._errors, self._ends = function, errors, threading.Event()
        self._running = Background(self._run)

    def _run(self):
        while not self._ends.is_set():
            try:
                self.results.append(self._function())
            except self._errors as error:
                self.results.append(error)

    def has(self, condition):
        """Waits for a result that comes from now on."""
        first = len(self.results)
        eventually(lambda: any(map(condition, self.results[first:])) or not self._running.is_running, LONG_S)
        if not self._running.is_running:
            self._running.result()

    def end(self):
        self._ends.set()
        self._running.result(LONG_S)
        return self.results


def drawn(client):
    """Draws a batch, and returns by how many items were drawn from, in each row's round, which shards gave rows."""
    info = client.sample_batch("table", BATCH, timeout=LONG_S).info
    assert len(info.key) == BATCH
    shards = {}
    for key, size in zip(info.key.tolist(), info.table_size.tolist(), strict=True):
        shards.setdefault(size, set()).add(key >> 56)
    return shards


def is_whole(result):
    return not isinstance(result, Exception) and set(result) == {sum(SIZES)}


def check(cluster, results, policy):
    """Checks that all rows come from rounds of all shards, or of all but the one that was lost if the policy allows it,
    and that errors name it."""
    for result in results:
        if isinstance(result, Exception):
            assert f"shard {LOST} at {cluster.peer} is missing: " in str(result)
        else:
            assert set(result) <= ({sum(SIZES), REST} if policy == "continue" else {sum(SIZES)})
            assert LOST not in result.get(REST, ())


def begin_draws(client, policy):
    return Loop(lambda: drawn(client), *([reverb.errors.UnavailableError] if policy == "raise" else []))


@FAULTS
@pytest.mark.parametrize("policy", ["continue", "wait", "raise"])
def test_draws_while_a_shard_is_lost_are_of_the_others_or_none(cluster, fault, policy, caplog):
    cluster.fill()
    client = cluster.connect(on_shard_loss=policy)
    draws = begin_draws(client, policy)
    draws.has(is_whole)
    fault.strike(cluster)
    if policy == "raise":
        draws.has(lambda result: isinstance(result, reverb.errors.UnavailableError))
    else:
        eventually(lambda: client.stats().missing == (cluster.peer,))
    if policy == "continue":
        draws.has(lambda result: set(result) == {REST})
    fault.mend(cluster)
    draws.has(is_whole)
    check(cluster, draws.end(), policy)
    assert client.stats().missing == client.stats().slow == ()
    if policy == "continue":
        assert cluster.peer in caplog.text
    assert set().union(*(drawn(client)[sum(SIZES)] for _ in range(5))) == {0, 1, 2}


@pytest.mark.parametrize("policy", ["continue", "wait", "raise"])
def test_draws_go_on_after_connections_are_cut(cluster, policy):
    cluster.fill()
    cluster.add_proxy()
    client = cluster.connect(on_shard_loss=policy)
    draws = begin_draws(client, policy)
    for _ in range(5):
        draws.has(is_whole)
        cluster.proxy.cut()
    draws.has(is_whole)
    check(cluster, draws.end(), policy)
    assert client.stats().missing == ()


@FAULTS
def test_items_that_are_drawn_once_survive_the_loss_of_a_shard(cluster, fault):
    """Once each; those of a shard that starts from a checkpoint also once since then."""
    sizes = (3000, 4000, 5000)
    cluster.fill("once", sizes)
    client = cluster.connect()
    values = []

    def draw():
        values.extend(client.sample_batch("once", 8, timeout=LONG_S).data[0].ravel().tolist())
        return client.stats().missing

    draws = Loop(draw)
    draws.has(lambda missing: missing == ())
    fault.strike(cluster)
    draws.has(lambda missing: missing == (cluster.peer,))
    # The client is idle when the shard returns, and gets none of what it was asked before.
    draws.end()
    fault.mend(cluster)

    def is_at_rest():
        infos = [client.server_info()["once"] for client in cluster.each()]
        left = sum(info.current_size for info in infos)
        # A shard that was killed has forgotten what was drawn.
        is_complete = isinstance(fault, Killed) or left == sum(sizes) - len(values)
        return is_complete and sum(info.undelivered_samples for info in infos) == 0

    eventually(is_at_rest, LONG_S)
    counts = Counter(values + cluster.values("once"))
    assert set(counts) == set(range(sum(sizes)))
    again = {value for value, count in counts.items() if count > 1}
    assert max(counts.values()) <= 2
    assert again <= (set(range(3000, 7000)) if isinstance(fault, Killed) else set())


READER = """
import sys, reverb
from reverb.loaders import NumpyLoader
client = reverb.cluster.connect(sys.argv[1])
if sys.argv[2] == "loader":
    for batch in NumpyLoader(client, "once", batch_size=8, prefetch=4, receipt="next"):
        print("has one", flush=True)
        sys.stdin.read()
while True:
    print(*client.sample_batch("once", 8).data[0].ravel(), flush=True)
"""


def test_what_a_killed_reader_had_not_acknowledged_goes_back(cluster):
    cluster.fill("once")
    with program(READER, cluster.address, "loader") as reader:
        assert reader.line() == "has one"
        reader.kill()
    eventually(lambda: cluster.connect().server_info()["once"].current_size == sum(SIZES))
    assert sorted(cluster.values("once")) == list(range(sum(SIZES)))


def test_a_reader_that_is_killed_while_it_draws_loses_one_batch_at_most(cluster):
    sizes = (2000, 3000, 4000)
    cluster.fill("once", sizes)
    with program(READER, cluster.address, "draws") as reader:
        printed = [int(value) for _ in range(20) for value in reader.line().split()]
        # A line may be cut.
        printed += [int(value) for line in reader.kill().split("\n")[:-1] for value in line.split()]
    tables = [lambda client=client: client.server_info()["once"] for client in cluster.each()]
    eventually(lambda: sum(table().undelivered_samples for table in tables) == 0)
    counts = Counter(printed + cluster.values("once"))
    assert max(counts.values()) <= 2
    lost = set(range(sum(sizes))) - set(counts)
    assert len(lost) <= 8
    assert not lost & set(printed)


WRITER = """
import sys, numpy as np, reverb
client = reverb.cluster.connect(sys.argv[1])
with client.trajectory_writer(1) as writer:
    for value in range(1_000_000):
        writer.append(np.int64(value))
        writer.create_item("once", 1.0, writer.history[-1:])
        writer.flush()
        print(value, flush=True)
        if value % 10 == 9:
            writer.end_episode()
"""


def test_a_writer_that_is_killed_leaves_each_item_once(cluster):
    with program(WRITER, cluster.address) as writer:
        confirmed = [int(writer.line()) for _ in range(50)]
        confirmed += [int(value) for value in writer.kill().split("\n")[:-1]]
    values = sorted(cluster.values("once"))
    # The last one may have been confirmed without a word of it.
    assert values in (confirmed, [*confirmed, len(confirmed)])
    insert = cluster.connect().insert
    insert(np.int64(-1), {"once": 1.0}, timeout=PATIENCE_S)
    assert cluster.values("once") == [-1]


@pytest.mark.parametrize("fault", [Killed(), Stopped(), Cut()], ids=["killed", "stopped", "cut"])
def test_confirmed_items_are_there_once_and_others_twice_at_most(cluster, fault):
    """Items that were on a shard when it was killed go with it. It has none at its return."""
    cluster.save()
    if isinstance(fault, Cut):
        cluster.add_proxy()
    client, numbers = cluster.connect(), itertools.count()

    def insert():
        value = next(numbers)
        return {value: client.insert(np.int64(value), {"once": 1.0}, timeout=LONG_S) >> 56}

    def write():
        with client.trajectory_writer(1) as writer:
            values = list(itertools.islice(numbers, 5))
            for value in values:
                writer.append(np.int64(value))
                writer.create_item("once", 1.0, writer.history[-1:])
            writer.flush(timeout=LONG_S)
        return dict.fromkeys(values)

    loops = [Loop(function, reverb.errors.UnavailableError) for function in (insert, write, write)]
    inserts = loops[0]
    inserts.has(is_of_lost)
    fault.strike(cluster)
    if not isinstance(fault, Cut):
        eventually(lambda: [shard.alive for shard in client.shards()] == [True, False, True], LONG_S)
    confirmed = all_of(loops)
    fault.mend(cluster)
    inserts.has(is_of_lost)
    for loop in loops:
        loop.has(lambda result: not isinstance(result, Exception))
        loop.end()
    errors = [result for loop in loops for result in loop.results if isinstance(result, Exception)]
    # The text of an unconfirmed insert is that of dm-reverb.
    assert [error for error in errors if cluster.peer not in f"{error} {error.__cause__}"] == []
    counts = Counter(cluster.values("once"))
    assert max(counts.values()) <= 2
    assert all(counts[value] <= 1 for value in all_of(loops))
    gone = {value for value in all_of(loops) if counts[value] == 0}
    if isinstance(fault, Killed):
        assert gone <= confirmed.keys()
        assert {confirmed[value] for value in gone} <= {LOST, None}
    else:
        assert not gone


def all_of(loops):
    """What several loops have returned, as one dict."""
    results = itertools.chain(*(list(loop.results) for loop in loops))
    return {value: shard for result in results if isinstance(result, dict) for value, shard in result.items()}


def is_of_lost(result):
    return isinstance(result, dict) and LOST in result.values()


def test_a_shard_that_returns_from_its_checkpoint_has_its_old_keys_and_no_later_ones(cluster):
    old = cluster.fill()
    new = [client.insert(np.int64(100), {"table": 1.0}) for client in cluster.each()]
    client = cluster.connect()
    assert client.update_priorities("table", old + new, 1.0) == sum(SIZES) + 3
    cluster.programs[LOST].kill()
    eventually(lambda: drawn(client).keys() == {REST + 2})
    assert client.update_priorities("table", old + new, 1.0) == REST + 2
    assert client.stats().keys_passed_over == SIZES[LOST] + 1
    cluster.start(LOST)
    eventually(lambda: drawn(client).keys() == {sum(SIZES) + 2}, LONG_S)
    priorities = [1e9 if key >> 56 == LOST else 1.0 for key in old + new]
    assert client.update_priorities("table", old + new, priorities) == sum(SIZES) + 2
    assert client.stats().keys_passed_over == SIZES[LOST] + 1
    # It has its small or large weight at once.
    assert drawn(client) == {sum(SIZES) + 2: {LOST}}
    assert client.delete("table", old + new) == sum(SIZES) + 2


def test_a_draw_that_waits_for_a_shard_says_so_after_ten_seconds(cluster, caplog):
    cluster.fill()
    client = cluster.connect(on_shard_loss="wait")
    assert is_whole(drawn(client))
    cluster.programs[LOST].kill()
    draw = Background(drawn, client)
    eventually(
        lambda: f"sample of table `table` waits: shard {LOST} at {cluster.peer} is missing: " in caplog.text, LONG_S
    )
    assert draw.is_running
    cluster.start(LOST)
    assert is_whole(draw.result(LONG_S))
    eventually(lambda: "sample of table `table` goes on after" in caplog.text)
