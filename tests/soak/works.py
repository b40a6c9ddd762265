"""What the processes of a soak do, over and over: each kind of work in a thread of its own, at a moderate rate."""

import collections
import contextlib
import itertools
import json
import sys
import threading
import time
import traceback

import numpy as np

import reverb
from reverb import errors
from reverb.loaders import NumpyLoader

REPLAY, QUEUE, LARGE = "replay", "queue", "large"
OBSERVATION = (64,)
# Rows of 400 kB, which lie in shared memory on the Unix socket, and the number of them in a round.
LARGE_ROW = np.zeros(100_000, np.float32)
LARGE_ROWS = 8
# Objects that live long are closed and made again after so many rounds.
ROUNDS_OF_ONE_OBJECT = 50
REPORT_EVERY_S = 5.0
# Longer than any pause of the others, so that only a soak that hangs reaches it.
PATIENCE_S = 60.0

_STEPS_OF_ROUND = 100
_STEP = {"observation": np.zeros(OBSERVATION, np.float32), "reward": np.float32(1.0)}


def tables():
    """Returns the tables of the server: two are full soon, of small and of large rows, and a queue."""
    signature = {
        "observation": reverb.TensorSpec((None, *OBSERVATION), np.float32),
        "reward": reverb.TensorSpec((None,), np.float32),
    }
    return [
        reverb.Table(
            REPLAY,
            sampler=reverb.selectors.Prioritized(0.6),
            remover=reverb.selectors.Fifo(),
            max_size=20_000,
            rate_limiter=reverb.rate_limiters.MinSize(100),
            signature=signature,
        ),
        reverb.Table.queue(QUEUE, 1000, signature=signature),
        reverb.Table(
            LARGE,
            sampler=reverb.selectors.Uniform(),
            remover=reverb.selectors.Fifo(),
            max_size=64,
            rate_limiter=reverb.rate_limiters.MinSize(1),
        ),
    ]


class Works:
    """Threads that repeat one kind of work each, and count how often they have done it.

    Args:
      client: The client that they share.
      may_be_cut: Whether calls may fail because a connection was cut.
    """

    def __init__(self, client, *, may_be_cut):
        self._client = client
        self._expected = (errors.UnavailableError, errors.CancelledError) if may_be_cut else ()
        self._end = threading.Event()
        self._counts = {}
        self._threads = []
        self.failure = None

    def start(self, *, saves):
        kinds = [(_write, 0.15), (_insert, 0.15), (_learn, 0.1), (_load, 0.03), (_visit, 4.0)]
        kinds += [(_write_large, 0.3), (_insert_large, 0.3), (_learn_large, 0.2)]
        for kind, pause_s in kinds + [(_save, 10.0)] * saves:
            thread = threading.Thread(target=self._repeat, args=(kind, pause_s), name=kind.__name__)
            self._threads.append(thread)
            thread.start()

    def report(self):
        """Prints how often each kind of work was done, and when, as a line of JSON."""
        print(json.dumps([time.monotonic(), self._counts]), flush=True)

    def stop(self):
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, kind, pause_s):
        try:
            while not self._end.is_set():
                try:
                    for _ in kind(self._client):
                        self._count(kind.__name__)
                        if self._end.wait(pause_s):
                            break
                except self._expected:
                    self._count(kind.__name__ + "_cut")
                    self._end.wait(pause_s)
        except BaseException:
            self.failure = traceback.format_exc()

    def _count(self, name):
        self._counts[name] = self._counts.get(name, 0) + 1


def work(client, *, may_be_cut=False, saves=False):
    """Works until the input of the process ends. Returns its exit status."""
    works = Works(client, may_be_cut=may_be_cut)
    works.start(saves=saves)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(REPORT_EVERY_S) and works.failure is None:
        works.report()
    works.stop()
    works.report()
    if works.failure is not None:
        print(works.failure, file=sys.stderr)
    return int(works.failure is not None)


# Each is a generator that does one round of its work between two `yield`s, and is made again after the last.


def _write(client):
    """Writes pairs of steps to the table with priorities, and every tenth also to the queue."""
    with client.trajectory_writer(num_keep_alive_refs=2) as writer:
        for _ in range(ROUNDS_OF_ONE_OBJECT):
            for step in range(_STEPS_OF_ROUND):
                writer.append(_STEP)
                if step > 0:
                    pair = {name: column[-2:] for name, column in writer.history.items()}
                    writer.create_item(REPLAY, float(1 + step % 7), pair)
                    if step % 10 == 0:
                        writer.create_item(QUEUE, 1.0, pair)
            writer.end_episode()
            yield


def _insert(client):
    steps = {name: np.stack([value] * _STEPS_OF_ROUND) for name, value in _STEP.items()}
    for _ in range(ROUNDS_OF_ONE_OBJECT):
        client.insert_batch(steps, {REPLAY: 1.0})
        client.insert(_STEP, {REPLAY: 1.0})
        yield


def _learn(client):
    """Draws by priority, and sets the priorities anew."""
    for number in range(ROUNDS_OF_ONE_OBJECT):
        batch = client.sample_batch(REPLAY, 64, timeout=PATIENCE_S)
        client.update_priorities(REPLAY, batch.info.key, 1.0 + (number + np.arange(len(batch.info.key))) % 5)
        yield


def _write_large(client):
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for number in range(ROUNDS_OF_ONE_OBJECT):
            for _ in range(LARGE_ROWS):
                writer.append(LARGE_ROW + number)
                writer.create_item(LARGE, 1.0, writer.history[-1:])
            writer.flush()
            yield


def _insert_large(client):
    for number in range(ROUNDS_OF_ONE_OBJECT):
        client.insert_batch(np.stack([LARGE_ROW + number] * LARGE_ROWS), {LARGE: 1.0})
        yield


def _learn_large(client):
    """Draws large rows, and keeps each batch until the next but one is here. No row may be torn."""
    kept = collections.deque(maxlen=2)
    for _ in range(ROUNDS_OF_ONE_OBJECT):
        kept.append(client.sample_batch(LARGE, LARGE_ROWS, timeout=PATIENCE_S).data[0])
        for data in kept:
            assert (data == data[..., :1]).all(), "a torn row"
        yield


def _load(client):
    """Takes batches from the queue. A loader that is closed has drawn others ahead, which go back."""
    with NumpyLoader(client, QUEUE, batch_size=4, prefetch=2, timeout=1.0, on_timeout="stop") as loader:
        for _ in itertools.islice(loader, ROUNDS_OF_ONE_OBJECT):
            yield


def _visit(client):
    """Makes a client of its own, and uses it for a moment."""
    visitor = reverb.Client(client.server_address)
    with visitor.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append(_STEP)
        writer.create_item(REPLAY, 1.0, {name: column[-1:] for name, column in writer.history.items()})
    list(visitor.sample(REPLAY, 3, timeout=PATIENCE_S))
    # A draw that gives up: the queue never holds so many.
    with contextlib.suppress(errors.DeadlineExceededError):
        visitor.sample_batch(QUEUE, 2000, timeout=0.01)
    visitor.server_info()
    yield


def _save(client):
    client.checkpoint()
    yield
