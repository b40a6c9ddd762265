"""The clients of `killed_servers.py`: what they do to a server, and what must be there after it was killed.

A client notes what it attempts before a call, and what was confirmed after it. A value belongs to one client.
"""

import collections
import contextlib
import itertools
import random
import threading
import time

import numpy as np

import reverb
from reverb import errors, rate_limiters, selectors

# Far longer than any machine needs.
PATIENCE_S = 60.0
# More than a client uses in a round.
VALUES_A_CLIENT = 1_000_000_000
LIMIT = 10_000_000
MOST_TIMES = 3
MOST_ITEMS = 16
# Steps of an item, which lie in chunks of two, so that items of different calls share chunks.
MOST_STEPS = 5


def tables():
    fifo, any_time = selectors.Fifo, rate_limiters.MinSize
    return [
        reverb.Table("replay", selectors.Prioritized(1.0), fifo(), LIMIT, any_time(1)),
        reverb.Table.queue("queue", LIMIT),
        reverb.Table("few", fifo(), fifo(), LIMIT, any_time(1), max_times_sampled=MOST_TIMES),
        reverb.Table("reset", fifo(), fifo(), LIMIT, any_time(1)),
        # A queue whose writers wait. It has room for what comes back after a kill, which no change of options evicts.
        reverb.Table("narrow", fifo(), fifo(), LIMIT, rate_limiters.Queue(3), max_times_sampled=1),
        reverb.Table("evicting", fifo(), fifo(), MOST_ITEMS, any_time(1)),
    ]


def last_of(steps):
    """Returns the last value of an item, by which it is known. Fails if the steps before are others."""
    values = np.ravel(steps).tolist()
    assert values == list(range(values[0], values[0] + len(values))), f"steps that nobody wrote: {values}"
    return values[-1]


class Servers:
    """Which server process there is, counted by kills. Each counts twice: before it, and when the process has ended.

    So what a server gives between the first count and its end has a number of its own, and no other server confirms it.
    """

    def __init__(self):
        self.number = 0


class Worker:
    """A client that works on a thread of its own, and waits while the server is away.

    Args:
      number: Its number among the clients.
      address: Address of the server.
      servers: The count of server processes.
      seed: Seed of what it does.
    """

    def __init__(self, number, address, servers, seed):
        self.client = reverb.Client(address)
        self.servers = servers
        self.random = random.Random(f"{seed} {number}")
        self.values = itertools.count(number * VALUES_A_CLIENT)
        # Steps that ended, and the server process when the last one began.
        self.steps, self.began_at = 0, 0
        self.failure = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()

    def _run(self):
        try:
            while not self._ending.is_set():
                self.began_at = self.servers.number
                try:
                    self.step()
                    self.steps += 1
                except errors.UnavailableError:
                    time.sleep(0.01)
                time.sleep(self.random.uniform(0.0, 0.004))
            self.close()
        except BaseException as failure:  # The main thread raises it.
            self.failure = failure

    def end(self):
        self._ending.set()

    def join(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{type(self).__name__} still works"
        self.check_failure()

    def check_failure(self):
        if self.failure is not None:
            raise AssertionError(f"{type(self).__name__} has failed") from self.failure

    def step(self):
        raise NotImplementedError

    def close(self):
        """Ends what the client has begun."""

    def confirmed(self):
        """Returns what must be there, for `check`. Called while no server lives."""

    def check(self, confirmed, found):
        """Fails if a server that has `found` lacks something confirmed, or has something that was never attempted."""

    def counts(self):
        return {f"steps of {type(self).__name__}": self.steps}


class FlushingWriter(Worker):
    """Writes overlapping items to several tables, and flushes. The writer lives as long as the client."""

    tables = ("replay", "queue", "few", "narrow")

    def __init__(self, *args):
        super().__init__(*args)
        self.attempted = {table: set() for table in self.tables}
        self.flushed = {table: set() for table in self.tables}
        self._writer = self.client.trajectory_writer(MOST_STEPS, max_chunk_length=2)

    def step(self):
        values = {next(self.values): self.random.choice(self.tables) for _ in range(self.random.randrange(1, 8))}
        for value, table in values.items():
            self.attempted[table].add(value)
            self._writer.append([np.int64(value)])
            steps = self._writer.history[0]
            count = min(len(steps), self.random.randrange(1, MOST_STEPS + 1))
            self._writer.create_item(table, 1.0, [steps[-count:]])
        self._writer.flush()
        for value, table in values.items():
            self.flushed[table].add(value)

    def close(self):
        self._writer.close()

    def confirmed(self):
        return {table: (set(self.flushed[table]), set(self.attempted[table])) for table in self.tables}


class Inserter(Worker):
    """Inserts each value with one call, and does not repeat it."""

    tables = ("replay", "queue", "few")

    def __init__(self, *args):
        super().__init__(*args)
        self.attempted = {table: set() for table in self.tables}
        self.inserted = {table: set() for table in self.tables}

    def step(self):
        value, into = next(self.values), self.random.sample(self.tables, self.random.randrange(1, 4))
        for table in into:
            self.attempted[table].add(value)
        self.client.insert([np.int64(value)], dict.fromkeys(into, 1.0))
        for table in into:
            self.inserted[table].add(value)

    def confirmed(self):
        return {table: (set(self.inserted[table]), set(self.attempted[table])) for table in self.tables}


class Reader(Worker):
    """Draws from a table that draws take from, and now and then has the receipts confirmed.

    Attributes:
      delivered: How often each value was delivered.
      settled: How often each value was delivered with a receipt that is in the log.
    """

    table, times = "queue", 1

    def __init__(self, *args):
        super().__init__(*args)
        self.delivered, self.settled = collections.Counter(), collections.Counter()
        self._unsettled = []

    def step(self):
        server = self.servers.number
        # Receipts of a server that was killed meanwhile may be lost.
        self._unsettled = [one for one in self._unsettled if one[0] == server]
        for _ in range(self.random.randrange(1, 8)):
            try:
                # One, since items differ in length.
                batch = self.client.sample_batch(self.table, 1, timeout=0.05)
            except errors.DeadlineExceededError:
                break
            value = last_of(batch.data[0])
            self.delivered[value] += 1
            assert self.settled[value] < self.times, f"{value} came back"
            self._unsettled.append((server, value))
        if self.random.random() < 0.2:
            self._settle(server)

    def _settle(self, server):
        """Waits until the server has all receipts, and for a confirmation after them."""
        while self.client.server_info()[self.table].undelivered_samples > 0:
            if self.servers.number != server:
                return
            time.sleep(0.005)
        self.client.configure_table(self.table, max_bytes=self.random.randrange(1 << 40, 1 << 50))
        if self.servers.number == server:
            self.settled.update(value for number, value in self._unsettled if number == server)
            self._unsettled = []

    def confirmed(self):
        return collections.Counter(self.settled)

    def check(self, confirmed, found):
        for value, infos in found.items[self.table].items():
            [info] = infos
            assert confirmed[value] <= info.times_sampled < self.times, (value, confirmed[value], info)
            assert info.times_sampled <= self.delivered[value]

    def counts(self):
        return {f"settled samples of {self.table}": sum(self.settled.values())}


class NarrowReader(Reader):
    """Draws from a queue for which writers wait."""

    table = "narrow"


class FewTimesReader(Reader):
    """Draws each item of a table three times."""

    table, times = "few", MOST_TIMES


class Owner(Worker):
    """Inserts items, sets their priorities and deletes them. Nobody else touches them.

    Attributes:
      possible: The states that each value may have: a priority, or None if it is not there.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.possible, self._keys = {}, {}

    def step(self):
        kinds = (self._insert, self._update, self._update, self._delete)
        self.random.choice(kinds)()

    def _priority(self):
        return float(self.random.randrange(1, 1_000_000))

    def _insert(self):
        value, priority = next(self.values), self._priority()
        self.possible[value] = (None, priority)
        key = self.client.insert([np.int64(value)], {"replay": priority})
        self.possible[value] = (priority,)
        self._keys[value] = key

    def _chosen(self):
        return self.random.sample(list(self._keys), min(len(self._keys), self.random.randrange(1, 6)))

    def _update(self):
        updates = {value: self._priority() for value in self._chosen()}
        before = {value: self.possible[value] for value in updates}
        for value, priority in updates.items():
            self.possible[value] += (priority,)
        self.client.mutate_priorities("replay", {self._keys[value]: updates[value] for value in updates})
        for value, priority in updates.items():
            # What may be gone stays so.
            self.possible[value] = (None, priority) if None in before[value] else (priority,)

    def _delete(self):
        values = self._chosen()[:2]
        for value in values:
            self.possible[value] += (None,)
        self.client.delete("replay", [self._keys[value] for value in values])
        for value in values:
            self.possible[value] = (None,)
            del self._keys[value]

    def confirmed(self):
        return dict(self.possible)

    def check(self, confirmed, found):
        for value, states in confirmed.items():
            infos = found.items["replay"].get(value, [])
            assert len(infos) <= 1, f"{value} is there {len(infos)} times"
            state = infos[0].priority if infos else None
            assert state in states, f"{value} has priority {state}, and may have {states}"

    def counts(self):
        return {"changes of an owner": self.steps}


class Resetter(Worker):
    """Inserts into a table of its own, resets it and changes its size.

    Attributes:
      present: The values since the last reset that was confirmed: confirmed, and attempted.
      may_be_empty: Whether a reset was attempted since.
      sizes: The largest sizes that the table may have.
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.state = (frozenset(), frozenset(), False)
        self.sizes = (LIMIT,)

    def step(self):
        inserted, attempted, may_be_empty = self.state
        choice = self.random.random()
        if may_be_empty or choice < 0.1:
            self.state = (inserted, attempted, True)
            self.client.reset("reset")
            self.state = (frozenset(), frozenset(), False)
        elif choice < 0.2:
            size = LIMIT + self.random.randrange(1, 1_000_000)
            self.sizes += (size,)
            self.client.configure_table("reset", max_size=size)
            self.sizes = (size,)
        else:
            value = next(self.values)
            self.state = (inserted, attempted | {value}, False)
            self.client.insert([np.int64(value)], {"reset": 1.0})
            self.state = (inserted | {value}, attempted | {value}, False)

    def confirmed(self):
        return self.state, self.sizes

    def check(self, confirmed, found):
        (inserted, attempted, may_be_empty), sizes = confirmed
        values = set(found.items["reset"])
        assert values <= attempted, f"there again after a reset: {values - attempted}"
        assert values >= inserted or (may_be_empty and not values), f"missing: {inserted - values}"
        assert found.infos["reset"].max_size in sizes

    def counts(self):
        return {"changes of a resetter": self.steps}


class Evicter(Worker):
    """Inserts into a small table of its own."""

    def __init__(self, *args):
        super().__init__(*args)
        self.attempted, self.inserted = [], set()

    def step(self):
        value = next(self.values)
        self.attempted.append(value)
        self.client.insert([np.int64(value)], {"evicting": 1.0})
        self.inserted.add(value)

    def confirmed(self):
        return list(self.attempted), set(self.inserted)

    def check(self, confirmed, found):
        (attempted, inserted), values = confirmed, set(found.items["evicting"])
        newest = [value for value in attempted if value in inserted or value in values][-MOST_ITEMS:]
        assert values == set(newest), f"{sorted(values)} are not the newest, {newest}"


class Saver(Worker):
    """Saves checkpoints."""

    def step(self):
        time.sleep(self.random.uniform(0.0, 0.2))
        self.client.checkpoint()


class Clients:
    """All clients of a server, over all roads.

    Args:
      addresses: Addresses of the server.
      seed: Seed of what they do.
    """

    def __init__(self, addresses, seed):
        self._servers = Servers()
        kinds = (FlushingWriter, FlushingWriter, Inserter, Inserter, Reader, NarrowReader, FewTimesReader)
        kinds += (Owner, Owner, Resetter, Evicter, Saver)
        places = itertools.cycle(addresses)
        self._all = [kind(number, next(places), self._servers, seed) for number, kind in enumerate(kinds)]
        self._readers = [one for one in self._all if isinstance(one, Reader)]
        self._inserting = [one for one in self._all if isinstance(one, (FlushingWriter, Inserter))]
        self._owners = [one for one in self._all if isinstance(one, Owner)]
        for one in self._all:
            one.start()

    def wait_for_work(self):
        """Waits until the clients work with the server again."""
        busy = [one for one in self._all if not isinstance(one, Saver)]
        before = [one.steps for one in busy]
        self._wait(lambda: all(one.steps > steps for one, steps in zip(busy, before, strict=True)))

    @contextlib.contextmanager
    def server_ends(self):
        """Notes that the server process will be killed, and then that it was."""
        self._servers.number += 1
        yield
        self._servers.number += 1

    def wait_for_readers(self):
        """Waits until the readers have noted all that servers before this one had given them."""
        self._wait(lambda: all(one.began_at == self._servers.number for one in self._readers))

    def _wait(self, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            for one in self._all:
                one.check_failure()
            assert time.monotonic() < end, "the clients do not go on"
            time.sleep(0.005)

    def confirmed(self):
        """Returns what must be there now. Called while no server lives."""
        return [one.confirmed() for one in self._all]

    def check(self, confirmed, found):
        """Fails if something of `confirmed` is missing in `found`, or something is there that was not attempted."""
        by_client = dict(zip(self._all, confirmed, strict=True))
        for one, its_own in by_client.items():
            one.check(its_own, found)
        for table in FlushingWriter.tables:
            inserted, attempted = set(), set()
            for one in self._inserting:
                of_client = by_client[one].get(table, ((), ()))
                inserted.update(of_client[0])
                attempted.update(of_client[1])
            self._check_table(table, inserted, attempted, found)

    def _check_table(self, table, inserted, attempted, found):
        items = found.items[table]
        twice = [value for value, infos in items.items() if len(infos) > 1]
        assert not twice, f"{table} has these twice: {twice}"
        used_up = set()
        for reader in self._readers:
            if reader.table == table:
                used_up |= {value for value, times in dict(reader.delivered).items() if times >= reader.times}
        if table == "replay":
            for owner in self._owners:
                attempted = attempted | dict(owner.possible).keys()
        lost, invented = inserted - items.keys() - used_up, items.keys() - attempted
        assert not lost, f"{table} has lost {sorted(lost)}"
        assert not invented, f"{table} has these of nobody: {sorted(invented)}"
        stats = found.infos[table].rate_limiter_info
        if table in ("queue", "narrow"):
            counts = stats.insert_stats.completed, stats.sample_stats.completed, len(items)
            assert counts[0] - counts[1] == counts[2], f"counts of {table}: {counts}"

    def end(self):
        for one in self._all:
            one.end()

    def finish(self):
        """Ends all clients, and waits for them."""
        # Writers wait for readers.
        others = [one for one in self._all if one not in self._readers]
        for ending in (others, self._readers):
            for one in ending:
                one.end()
            for one in ending:
                one.join()

    def counts(self):
        counts = collections.Counter()
        for one in self._all:
            counts.update(one.counts())
        return counts
