"""Short words for the behaviour tests: tables, drawing values, waiting without guessing a duration."""

import subprocess
import sys
import textwrap
import threading
import time

import numpy as np

import reverb
from reverb import rate_limiters, selectors

# Far beyond what any machine needs; only a call that hangs reaches it.
PATIENCE_S = 20.0

SELECTORS = {
    "fifo": selectors.Fifo,
    "lifo": selectors.Lifo,
    "uniform": selectors.Uniform,
    "prioritized": lambda: selectors.Prioritized(1.0),
    "min_heap": selectors.MinHeap,
    "max_heap": selectors.MaxHeap,
}


def make_table(name="table", *, sampler="fifo", remover="fifo", max_size=1000, limiter=None, **options):
    """A table; selectors by name or as objects, and no limit on inserts unless given."""
    return reverb.Table(
        name=name,
        sampler=SELECTORS[sampler]() if isinstance(sampler, str) else sampler,
        remover=SELECTORS[remover]() if isinstance(remover, str) else remover,
        max_size=max_size,
        rate_limiter=limiter or rate_limiters.MinSize(1),
        **options,
    )


def insert_values(client, values, table="table", priority=1.0):
    """One item a value, in order; `priority` is one number, or a list of one a value."""
    priorities = priority if isinstance(priority, (list, tuple)) else [priority] * len(values)
    for value, one in zip(values, priorities, strict=True):
        client.insert(np.int64(value), {table: one})


def draw(client, count=1, table="table"):
    """Samples of `count` draws, in order."""
    return list(client.sample(table, num_samples=count, emit_timesteps=False))


def value_of(sample):
    """The number that `insert_values` put into the item."""
    return int(sample.data[0][0])


def draw_values(client, count=1, table="table"):
    return [value_of(sample) for sample in draw(client, count, table)]


def contents(client, table="table"):
    """Keys by value, of a table that draws in turn or at random; found by drawing often."""
    size = client.server_info()[table].current_size
    found = {}
    for _ in range(200):
        for sample in draw(client, 10 * size, table):
            found[value_of(sample)] = sample.info.key
        if len(found) == size:
            return found
    raise AssertionError(f"{size} items, but only {sorted(found)} were ever drawn")


def info_of(client, table="table"):
    return client.server_info()[table]


def num_samples(client, table="table"):
    return info_of(client, table).rate_limiter_info.sample_stats.completed


def num_inserts(client, table="table"):
    return info_of(client, table).rate_limiter_info.insert_stats.completed


def eventually(condition, patience_s=PATIENCE_S):
    """Waits until `condition()` is true; fails if that never happens."""
    assert comes_true(condition, patience_s), "the awaited state never came"


def comes_true(condition, patience_s):
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Background:
    """A call on a thread of its own, which a test may abandon.

    Args:
      function: Called with the arguments that follow.
    """

    def __init__(self, function, *args, **kwargs):
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(function, args, kwargs), daemon=True)
        self._thread.start()

    def _run(self, function, args, kwargs):
        try:
            self._outcome = (function(*args, **kwargs), None)
        except BaseException as error:  # Handed to the test.
            self._outcome = (None, error)

    @property
    def is_running(self):
        return self._thread.is_alive()

    def result(self, patience_s=PATIENCE_S):
        """What the call returned or raised; fails if it does neither."""
        self._thread.join(patience_s)
        assert not self._thread.is_alive(), f"still waiting after {patience_s} s"
        value, error = self._outcome
        if error is not None:
            raise error
        return value


class program:  # noqa: N801 - reads as the call that it is
    """A running Python program with text pipes; a context manager that kills it.

    Args:
      source: What it runs, indented as one likes.
      *arguments: Its `sys.argv[1:]`.
    """

    def __init__(self, source, *arguments):
        # Ctrl-C is heard even if whoever runs the tests ignores it, as shells make background jobs do.
        hear = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", hear + textwrap.dedent(source), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self):
        """The next line that it prints; fails, with what it had to say, if it ends instead."""
        line = self.process.stdout.readline()
        assert line, f"the program has ended\n{self.process.stderr.read()}"
        return line.rstrip("\n")

    def end(self, patience_s=PATIENCE_S):
        """What it still prints until it ends, and its errors; fails if it fails, or does not end."""
        out, err = self.process.communicate(timeout=patience_s)
        assert self.process.returncode == 0, f"exit status {self.process.returncode}\n{out}\n{err}"
        return out, err

    def kill(self):
        """Kills it at once, and returns what it had printed."""
        self.process.kill()
        return self.process.communicate()[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        self.process.wait()


def run_program(source, *arguments, patience_s=2 * PATIENCE_S):
    """Runs a Python program to its end and returns what it printed; fails if it fails."""
    with program(source, *arguments) as running:
        return running.end(patience_s)
