"""Writers, a loader and waiting draws that work on one queue at the same time, and a ledger of what they did."""

import collections
import contextlib
import itertools
import threading
import time

import numpy as np
from behaviour_support import eventually

import reverb
from reverb import checkpointers, errors
from reverb.loaders import NumpyLoader

NUM_WRITERS = 2
# Items of a writer between two flushes.
ITEMS_A_FLUSH = 4
BATCH_SIZE, PREFETCH = 3, 2
# More than is mostly there, so that these draws take some items and wait for the rest.
DRAW_SIZE = 7
# What readers may get again once a connection breaks: batches whose receipts had not arrived.
UNRECEIPTED = BATCH_SIZE * (PREFETCH + 1) + DRAW_SIZE
# What writers may send again to the next server.
UNCONFIRMED = NUM_WRITERS * ITEMS_A_FLUSH
# Fills up the draws that wait at the end. All other values differ.
FILLER = -1


def queue():
    return reverb.Table.queue("queue", 1000)


class Workers:
    """Two writers, a loader and a loop of large draws, each with a client of its own, until `finish`.

    Args:
      address: Address at which all of them reach the server, also after it was started again.
    """

    def __init__(self, address):
        self.address = address
        self._numbers = itertools.count()
        self._ending, self._draining = threading.Event(), threading.Event()
        # Values in the order of the events. A value is attempted before it is confirmed.
        self.attempted, self.confirmed, self.delivered = [], [], []
        self.failures = []
        self.fillers = 0
        writers = [self._start(self._write) for _ in range(NUM_WRITERS)]
        self._writers, self._readers = writers, [self._start(self._load), self._start(self._draw)]

    def _start(self, work):
        def run():
            try:
                work()
            except BaseException as failure:  # `finish` raises it in the test.
                self.failures.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _write(self):
        with reverb.Client(self.address).trajectory_writer(1) as writer:
            while not self._ending.is_set():
                values = [next(self._numbers) for _ in range(ITEMS_A_FLUSH)]
                self.attempted += values
                for value in values:
                    writer.append([np.int64(value)])
                    writer.create_item("queue", 1.0, [writer.history[0][-1:]])
                writer.flush()
                self.confirmed += values
                # Slower than the readers, so that these wait.
                time.sleep(0.002)

    def _load(self):
        while not self._draining.is_set():
            # It begins again if a server stays away for longer than a loader waits.
            with (
                contextlib.suppress(errors.ReverbError),
                NumpyLoader(reverb.Client(self.address), "queue", batch_size=BATCH_SIZE, prefetch=PREFETCH) as loader,
            ):
                while not self._draining.is_set():
                    self.delivered += values_of(next(loader))

    def _draw(self):
        client = reverb.Client(self.address)
        while not self._draining.is_set():
            try:
                self.delivered += values_of(client.sample_batch("queue", DRAW_SIZE))
            except errors.ReverbError:
                # The server is away.
                time.sleep(0.01)

    def deliver_more(self, items=60):
        """Waits until so many more items were confirmed and delivered."""
        confirmed, delivered = len(self.confirmed) + items, len(self.delivered) + items

        def is_done():
            return bool(self.failures) or (len(self.confirmed) >= confirmed and len(self.delivered) >= delivered)

        eventually(is_done, 60)
        assert not self.failures, self.failures

    def check_checkpoint(self, is_near):
        """Saves a checkpoint while all are at work. Returns its path and what it holds: its values and its counts."""
        confirmed, delivered = set(self.confirmed), set(self.delivered)
        path = reverb.Client(self.address).checkpoint()
        saved, counts = read(path)
        assert len(saved) == len(set(saved))
        assert set(saved) <= set(self.attempted)
        # A batch is here slightly before the reader has noted it.
        eventually(lambda: confirmed <= set(saved) | set(self.delivered))
        # A loader's receipt travels with its next request.
        assert len(delivered & set(saved)) <= (0 if is_near else UNRECEIPTED)
        return path, saved, counts

    def finish(self, client, lost=frozenset()):
        """Ends all of them, and draws what is left. Returns the number of times that each value was delivered.

        Args:
          client: A client of the server that nothing has cut off.
          lost: Values that may never be delivered.
        """
        self._ending.set()
        for writer in self._writers:
            writer.join(60)
        self._draining.set()
        while any(reader.is_alive() for reader in self._readers):
            client.insert([np.int64(FILLER)], {"queue": 1.0})
            self.fillers += 1
            time.sleep(0.01)
        assert not self.failures, self.failures
        assert not any(writer.is_alive() for writer in self._writers)

        def is_drained():
            # What the loader had drawn ahead goes back some time after it was closed.
            left = client.server_info()["queue"].current_size
            if left:
                self.delivered += values_of(client.sample_batch("queue", left, timeout=60))
            missing = set(self.attempted) - set(self.delivered)
            return missing <= lost and client.server_info()["queue"].current_size == 0

        eventually(is_drained, 30)
        assert set(self.confirmed) == set(self.attempted)
        counted = collections.Counter(self.delivered)
        del counted[FILLER]
        return counted


def values_of(batch):
    return np.asarray(batch.data[0]).ravel().tolist()


def counts_of(info):
    """Returns the numbers of inserts, of samples and of items of a table."""
    limiter = info.rate_limiter_info
    return limiter.insert_stats.completed, limiter.sample_stats.completed, info.current_size


def read(path):
    """Returns the values of a checkpoint in order, and its counts. Fails if the counts do not fit the values."""
    table = checkpointers.open(path).table("queue")
    saved = [int(sample.data[0][0]) for sample in table]
    counts = counts_of(table.info)
    assert counts[0] - counts[1] == counts[2] == len(saved), (counts, len(saved))
    return saved, counts
