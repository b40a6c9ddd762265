"""Draws of a cluster over sockets have the probabilities of one table.

A model knows the items of each shard. Draws are counted by shard and tenth of the priority, and compared with what the
model predicts at the moment of each batch: `crates/reverb-core/tests/behaviour/race_statistics.rs` does the same with
simulated shards. Where weights change, the changes follow what was drawn: others would cancel out over time, and hide
mistakes.

Clients with mistakes had these statistics in the tests that catch them. Equal shares of all shards: 228 to 5000. First
answers win: 12 to 290. Shares by the sums of an earlier message: 396, only where weights change within a draw. Shares
by sums that are remembered, thinned: 13 to 299. Batches without the shard that misses a deadline: 51.
"""

import contextlib
from collections import Counter

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, Background, Proxy, SlowProxy, eventually, make_table

import reverb
from reverb import selectors
from reverb.cluster import Shard, connect

# What the statistic of correct draws stays below. It has mean 0 and standard deviation 1 if draws are correct.
PASSES_BELOW = 5.0
NUM_SHARDS = 32
BATCH = 64
TENTHS = 10
SIZES = [(16, 24, 40, 200)[shard % 4] for shard in range(NUM_SHARDS)]
# Every eighth shard is full at first.
FULL = 3
UNLIMITED = 1 << 20
SLOW = 5


class MeddlingProxy(Proxy):
    """Calls a function before each message that it forwards to a server.

    Args:
      port: Port of the server.
      meddle: The function.
    """

    def __init__(self, port, meddle):
        self._meddle = meddle
        super().__init__(port)

    def _pump(self, source, target, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not is_answer:
                    self._meddle()
                target.sendall(data)


class Shards:
    """Shards of a cluster in this process, with a table each, and its sizes and priorities in a model.

    Args:
      stack: Ends the servers.
      make: Makes the table of a shard, given its number.
      count: Number of shards.
    """

    def __init__(self, stack, make, count=NUM_SHARDS):
        self._stack = stack
        self.rng = np.random.default_rng(7)
        self.servers = [reverb.Server([make(shard)], shard=Shard(shard, "replay")) for shard in range(count)]
        for server in self.servers:
            stack.callback(server.stop)
        self.clients = [server.localhost_client() for server in self.servers]
        # The priorities of the items of each shard by their keys, the oldest first.
        self.items = [{} for _ in self.servers]

    def connect(self, proxies=(), **options):
        """Returns a client of all over TCP, of some through proxies that are given by shard."""
        ports = [server.port for server in self.servers]
        for shard, proxy in dict(proxies).items():
            self._stack.callback(proxy.close)
            ports[shard] = proxy.port
        return connect("ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports), **options)

    def insert(self, shard, priorities, max_size=UNLIMITED):
        """Inserts items into one shard, whose oldest leave if it is full. Returns their keys."""
        keys = self.clients[shard].insert_batch(np.zeros(len(priorities), np.int8), {"table": priorities}).tolist()
        items = self.items[shard]
        items.update(zip(keys, priorities.tolist(), strict=True))
        for oldest in list(items)[: max(0, len(items) - max_size)]:
            del items[oldest]
        return keys

    def update(self, client, keys, priorities):
        assert client.update_priorities("table", np.array(keys, np.uint64), priorities) == len(keys)
        for key, priority in zip(keys, priorities.tolist(), strict=True):
            self.items[key >> 56][key] = priority

    def delete(self, client, keys):
        client.delete("table", np.array(keys, np.uint64))
        for key in keys:
            self.items[key >> 56].pop(key, None)

    def scale(self, shard, factor):
        """Multiplies the priorities of all items of a shard."""
        keys = list(self.items[shard])
        self.update(self.clients[shard], keys, factor * np.array([self.items[shard][key] for key in keys]))


class Counts:
    """How often items of each cell were drawn, and were to be drawn. A cell is a shard and a tenth of the priority."""

    def __init__(self, shards, exponent):
        self.shards = shards
        self._exponent = exponent
        self.observed = np.zeros(len(shards.items) * TENTHS)
        self.expected = np.zeros_like(self.observed)

    def weights(self):
        """The weight of each cell."""
        shard = np.repeat(np.arange(len(self.shards.items)), [len(items) for items in self.shards.items])
        priority = np.array([priority for items in self.shards.items for priority in items.values()])
        return np.bincount(_cell(shard, priority), priority**self._exponent, len(self.observed))

    def draw(self, client):
        """Draws a batch, and counts it. Checks what it says of its draws. Returns the keys."""
        info = client.sample_batch("table", BATCH, timeout=PATIENCE_S).info
        assert info.table_size.tolist() == [sum(map(len, self.shards.items))] * BATCH
        keys, weights = info.key.tolist(), self.weights()
        priority = self.add(keys, weights)
        np.testing.assert_allclose(info.probability, priority**self._exponent / weights.sum(), rtol=1e-9)
        return keys

    def add(self, keys, weights):
        """Counts draws from cells of these weights. Returns the priorities."""
        priority = np.array([self.shards.items[key >> 56][key] for key in keys])
        np.add.at(self.observed, _cell([key >> 56 for key in keys], priority), 1)
        self.expected += len(keys) * weights / weights.sum()
        return priority

    def assert_passes(self):
        """Asserts that chi-square of all cells, those that expect few draws taken together, is small. As a normal
        deviate."""
        many = self.expected >= 5
        pairs = np.array([self.observed, self.expected])
        observed, expected = np.column_stack([pairs[:, many], pairs[:, ~many].sum(axis=1)])
        possible = expected > 0
        terms = (observed - expected)[possible] ** 2 / expected[possible]
        assert observed[~possible].sum() == 0
        _assert_passes(terms, len(terms) - 1)


def _assert_passes(terms, freedom):
    z = (terms.sum() - freedom) / np.sqrt(2 * freedom)
    print(f"z = {z:.2f}")
    assert z < PASSES_BELOW


def _cell(shard, priority):
    return np.asarray(shard, np.int64) * TENTHS + np.minimum((priority * TENTHS).astype(np.int64), TENTHS - 1)


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:
        yield lambda *arguments: Shards(stack, *arguments)


def table_of(shard, exponent, max_size=UNLIMITED, **options):
    """The table of a shard. None: draws are uniform."""
    sampler = "uniform" if exponent is None else selectors.Prioritized(exponent)
    return make_table(sampler=sampler, max_size=max_size, seed=shard + 1, **options)


def prioritized(exponent):
    return lambda shard: table_of(shard, exponent)


def once(shard):
    return table_of(shard, 1.0, max_times_sampled=1)


def fill(shards, sizes):
    for shard, size in enumerate(sizes):
        if size:
            shards.insert(shard, shards.rng.random(size))


@pytest.mark.parametrize("exponent", [None, 0.0, 0.6, 1.0])
def test_draws_of_shards_that_change_with_them_are_those_of_one_table(start, exponent):
    """The shard that was drawn most grows by far before the next batch, and shrinks again after it. What was drawn gets
    new priorities."""
    sizes = [SIZES[shard] if shard % 8 == FULL else UNLIMITED for shard in range(NUM_SHARDS)]
    shards = start(lambda shard: table_of(shard, exponent, max_size=sizes[shard]))
    client, counts, grown = shards.connect(), Counts(shards, exponent or 0.0), 0
    fill(shards, SIZES)
    keys = counts.draw(client)
    for _ in range(120):
        draws = Counter(key >> 56 for key in keys)
        del draws[grown]
        (grown, _), *_ = draws.most_common()
        more = shards.insert(grown, shards.rng.uniform(0.5, 1.0, 800), sizes[grown])
        keys = counts.draw(client)
        drawn = sorted(set(keys))
        shards.update(client, drawn, shards.rng.random(len(drawn)))
        shards.delete(client, more)
        shards.insert(grown, shards.rng.random(max(0, SIZES[grown] - len(shards.items[grown]))))
    counts.assert_passes()


def test_an_empty_shard_that_fills_is_drawn_as_soon_as_it_has_items(start):
    shards = start(prioritized(0.6))
    client, counts = shards.connect(), Counts(shards, 0.6)
    fill(shards, [0 if shard == 30 else 32 for shard in range(NUM_SHARDS)])
    for batch in range(200):
        if batch in range(20, 100):
            shards.insert(30, shards.rng.random(10))
        counts.draw(client)
    counts.assert_passes()


def test_sums_that_jump_tenfold_do_not_bias_draws(start):
    shards = start(prioritized(1.0))
    client, counts, factors = shards.connect(), Counts(shards, 1.0), np.ones(NUM_SHARDS)
    fill(shards, SIZES)
    batches = 300
    for _ in range(batches):
        for shard in np.flatnonzero(shards.rng.random(NUM_SHARDS) < 0.5):
            factor = 10.0 if factors[shard] == 1.0 else 0.1
            factors[shard] *= factor
            shards.scale(shard, factor)
        counts.draw(client)
    counts.assert_passes()
    assert client.stats().rounds > 1.1 * batches, "batches of several rounds are too few for a test of them"


def test_weights_that_change_between_the_messages_of_a_draw_do_not_bias_it(start):
    """A shard has one or ten times its weight, by chance before each message to it.

    Each row says which, by the sum of all weights. Those of either sum are counted by themselves: together, too many
    draws of the one would make up for too few of the other.
    """
    shards = start(prioritized(1.0), 4)
    fill(shards, [40, 20, 60, 100])
    keys, priorities = (np.array(column) for column in zip(*shards.items[0].items(), strict=True))
    counts, rng = [Counts(shards, 1.0), Counts(shards, 1.0)], np.random.default_rng(8)
    weights = [counts[0].weights() * np.where(np.arange(4 * TENTHS) < TENTHS, factor, 1.0) for factor in (1.0, 10.0)]

    def meddle():
        shards.clients[0].update_priorities("table", keys, priorities * rng.choice([1.0, 10.0]))

    client = shards.connect({0: MeddlingProxy(shards.servers[0].port, meddle)})
    for _ in range(300):
        info = client.sample_batch("table", BATCH, timeout=PATIENCE_S).info
        sums = info.priority / info.probability
        assert len(sums) == BATCH
        of_either = [np.isclose(sums, of.sum(), rtol=1e-9) for of in weights]
        assert np.logical_xor(*of_either).all()
        for of_one, one, cells in zip(counts, of_either, weights, strict=True):
            of_one.add(info.key[one].tolist(), cells)
    for of_one in counts:
        of_one.assert_passes()


def test_a_slow_shard_has_its_share(start):
    shards = start(prioritized(0.6))
    fill(shards, [500 if shard == SLOW else size for shard, size in enumerate(SIZES)])
    client, counts = shards.connect({SLOW: SlowProxy(shards.servers[SLOW].port)}), Counts(shards, 0.6)
    for _ in range(60):
        counts.draw(client)
    counts.assert_passes()
    assert client.stats().missing == ()


def test_draws_that_remove_items_have_the_order_of_those_of_one_table(start):
    """The first half of all items and the rest are drawn. Counts items by place, by size of their shard, and by weight.

    Priorities are 1, 2, 4 and 8, so that heavy items come first.
    """
    shards = start(once)
    single = reverb.Server([once(NUM_SHARDS)])
    ends = np.cumsum([1 + shard % 8 for shard in range(NUM_SHARDS)])
    values = np.arange(ends[-1])
    kinds = 4 * (np.searchsorted(ends, values, side="right") % 8) + values % 4
    groups = values // (BATCH // 4)

    def count(client, inserters, ends, batches=120):
        counts = np.zeros((groups[-1] + 1, 32))
        for _ in range(batches):
            for inserter, part in zip(inserters, np.split(values, ends[:-1]), strict=True):
                inserter.insert_batch(part, {"table": 2.0 ** (part % 4)})
            sizes = BATCH, len(values) - BATCH
            halves = [client.sample_batch("table", size, timeout=PATIENCE_S, squeeze_time=True) for size in sizes]
            drawn = np.concatenate([half.data[0] for half in halves])
            assert sorted(drawn) == values.tolist()
            np.add.at(counts, (groups, kinds[drawn]), 1)
        return counts

    of_cluster = count(shards.connect(), shards.clients, ends)
    of_one = count(reverb.Client(f"ipv4:127.0.0.1:{single.port}"), [single.localhost_client()], ends[-1:])
    single.stop()
    terms = (of_cluster - of_one) ** 2 / np.maximum(of_cluster + of_one, 1)
    # The numbers of items of each kind and of each place are the same.
    _assert_passes(terms.ravel(), (terms.shape[0] - 1) * (terms.shape[1] - 1))


def test_two_draws_that_remove_more_items_than_there_are_both_go_on(start):
    """Each may race for a part of the last items. Neither keeps it from the other for ever."""
    shards, count, half = start(once), 96, BATCH // 2
    clients = [shards.connect() for _ in range(2)]
    for first in range(0, 10 * count, count):
        draws = [Background(client.sample_batch, "table", BATCH, timeout=PATIENCE_S) for client in clients]
        values = np.arange(first, first + count)
        for client, part in zip(shards.clients, np.split(values, NUM_SHARDS), strict=True):
            client.insert_batch(part, {"table": 1.0 + part % 4})
        eventually(lambda draws=draws: not all(draw.is_running for draw in draws))
        more = -1 - values[:half]
        shards.clients[first // count].insert_batch(more, {"table": 1.0})
        drawn = [draw.result().data[0].ravel() for draw in draws]
        assert sorted(np.concatenate(drawn)) == sorted([*values, *more])
