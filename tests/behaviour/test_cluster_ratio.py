"""The ratio that four shards, processes of their own, keep together while processes of each kind are killed or stopped.

Actors and learners count what they did in memory that the test reads: what was asked for, and what was confirmed.
"""

import contextlib
import signal

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, at_rest, eventually, program

import reverb

pytestmark = [pytest.mark.ports, pytest.mark.timeout(240)]

SHARD = """
import sys, reverb
from reverb import rate_limiters, selectors

table = reverb.Table("table", selectors.Uniform(), selectors.Fifo(), 100_000,
                     rate_limiters.SampleToInsertRatio(2.0, 1, (-100.0, 100.0)))
server = reverb.Server([table], int(sys.argv[1]) or None, shard=reverb.cluster.Shard(int(sys.argv[2]), "replay"))
print(server.port, flush=True)
sys.stdin.read()
"""
# The row of `counts` is asked for, and confirmed.
WORKER = """
import sys, numpy as np, reverb

address, path, place, kind = sys.argv[1:]
counts = np.memmap(path, np.int64, "r+").reshape(-1, 2)[int(place)]
client = reverb.cluster.connect(address, shard_timeout=2.0)
print(flush=True)
while True:
    try:
        if kind == "actor":
            counts[0] += 1
            client.insert({"x": np.int64(1)}, {"table": 1.0})
            counts[1] += 1
        else:
            counts[0] += 8
            counts[1] += len(client.sample_batch("table", 8).info.key)
    except reverb.errors.ReverbError as error:
        print(error, file=sys.stderr)
"""
SHARDS, ACTORS, LEARNERS = 4, 3, 2
SAMPLES_PER_INSERT, WINDOW = 2.0, 200.0
# The room of one publication may be in excess of the bounds, which are half a window away from 0.
MOST = 1.5 * WINDOW


class Work:
    """Shards and those that use them, in processes of their own.

    Args:
      stack: Ends the processes.
      path: Path of a new file for the counts.
    """

    def __init__(self, stack, path):
        self._stack, self._path = stack, path
        self.counts = np.memmap(path, np.int64, "w+", shape=(ACTORS + LEARNERS, 2))
        self.ports, self.shards = {}, {}
        for number in range(SHARDS):
            self.start_shard(number)
        self.workers = [self.start_worker(place) for place in range(ACTORS + LEARNERS)]

    @property
    def address(self):
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start_shard(self, number):
        self.shards[number] = self._stack.enter_context(program(SHARD, self.ports.get(number, 0), number))
        self.ports[number] = int(self.shards[number].line())

    def start_worker(self, place):
        kind = "actor" if place < ACTORS else "learner"
        worker = self._stack.enter_context(program(WORKER, self.address, self._path, place, kind))
        worker.line()
        return worker

    def check(self):
        """Checks the bounds by what was confirmed and what may have happened beside it."""
        (asked, confirmed), (taken_at_most, taken) = (
            self.counts[part].sum(axis=0).tolist() for part in (slice(ACTORS), slice(ACTORS, None))
        )
        least, most = SAMPLES_PER_INSERT * confirmed - taken_at_most, SAMPLES_PER_INSERT * asked - taken
        text = f"{asked}, {confirmed} inserts; {taken}, {taken_at_most} samples"
        assert least <= MOST, text
        assert most >= -MOST, text

    def go_on(self, inserts=200):
        """Waits for so many inserts and the samples that belong to them."""
        before = self.counts.copy()

        def went_on():
            self.check()
            done = (self.counts - before)[:, 1]
            return done[:ACTORS].sum() >= inserts and done[ACTORS:].sum() >= SAMPLES_PER_INSERT * inserts

        eventually(went_on, 3 * PATIENCE_S)


@pytest.fixture
def work(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Work(stack, tmp_path / "counts")


@pytest.mark.parametrize("lost", [0, 2], ids=["the home of the sums", "another shard"])
def test_the_ratio_holds_while_a_shard_is_killed_and_returns(work, lost):
    work.go_on()
    work.shards[lost].kill()
    work.go_on()
    work.start_shard(lost)
    work.go_on()


@pytest.mark.parametrize("place", [0, ACTORS], ids=["actor", "learner"])
def test_the_ratio_holds_while_an_actor_or_a_learner_is_stopped_and_killed(work, place):
    work.go_on()
    work.workers[place].process.send_signal(signal.SIGSTOP)
    work.go_on()
    work.workers[place].process.send_signal(signal.SIGCONT)
    work.go_on()
    work.workers[place].kill()
    work.go_on()


def test_the_ratio_holds_while_a_shard_is_stopped(work):
    work.go_on()
    work.shards[1].process.send_signal(signal.SIGSTOP)
    work.go_on()
    work.shards[1].process.send_signal(signal.SIGCONT)
    work.go_on()


def test_learners_alone_stop_at_the_bound_and_go_on_with_inserts(work):
    for place in range(ACTORS):
        work.workers[place].kill()
    samples = work.counts[ACTORS:, 1]
    eventually(at_rest(lambda: int(samples.sum())))
    work.check()
    before = int(samples.sum())
    client = reverb.cluster.connect(work.address)
    for _ in range(50):
        work.counts[0, 0] += 1
        client.insert({"x": np.int64(1)}, {"table": 1.0})
        work.counts[0, 1] += 1
    eventually(lambda: samples.sum() >= before + 50 * SAMPLES_PER_INSERT - 8 * LEARNERS)
    work.check()
