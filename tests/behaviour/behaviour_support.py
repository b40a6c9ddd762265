"""Helpers of the behaviour tests: tables, drawing values, waiting without guessing a duration."""

import contextlib
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np

import reverb
from reverb import rate_limiters, selectors

# Far longer than any machine needs: only a call that hangs reaches it.
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
    """Makes a table. Selectors are given by name or as objects; inserts are not limited by default."""
    return reverb.Table(
        name=name,
        sampler=SELECTORS[sampler]() if isinstance(sampler, str) else sampler,
        remover=SELECTORS[remover]() if isinstance(remover, str) else remover,
        max_size=max_size,
        rate_limiter=limiter or rate_limiters.MinSize(1),
        **options,
    )


def insert_values(client, values, table="table", priority=1.0):
    """Inserts one item per value, in order. `priority` is one number, or a list with one per value."""
    priorities = priority if isinstance(priority, (list, tuple)) else [priority] * len(values)
    for value, one in zip(values, priorities, strict=True):
        client.insert(np.int64(value), {table: one})


def draw(client, count=1, table="table"):
    """Returns the samples of `count` draws, in order."""
    return list(client.sample(table, num_samples=count, emit_timesteps=False))


def value_of(sample):
    """Returns the number that `insert_values` put into the item."""
    return int(sample.data[0][0])


def draw_values(client, count=1, table="table"):
    return [value_of(sample) for sample in draw(client, count, table)]


def contents(client, table="table"):
    """Returns the keys of a table by value, found by drawing often."""
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
    """Waits until `condition()` is true. Fails if that never happens."""
    assert comes_true(condition, patience_s), "the awaited state never came"


def at_rest(number):
    """Returns a condition: the number has been the same for a while."""
    seen = []

    def is_at_rest():
        seen.append(number())
        return len(seen) > 50 and len(set(seen[-50:])) == 1

    return is_at_rest


def comes_true(condition, patience_s):
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Background:
    """A call on a separate thread, which a test may abandon.

    Args:
      function: Function to call with the arguments that follow.
    """

    def __init__(self, function, *args, **kwargs):
        self._outcome = None
        self._thread = threading.Thread(target=self._run, args=(function, args, kwargs), daemon=True)
        self._thread.start()

    def _run(self, function, args, kwargs):
        try:
            self._outcome = (function(*args, **kwargs), None)
        except BaseException as error:  # `result` raises it in the test.
            self._outcome = (None, error)

    @property
    def is_running(self):
        return self._thread.is_alive()

    def result(self, patience_s=PATIENCE_S):
        """Returns or raises what the call returned or raised. Fails if it does neither in time."""
        self._thread.join(patience_s)
        assert not self._thread.is_alive(), f"still waiting after {patience_s} s"
        value, error = self._outcome
        if error is not None:
            raise error
        return value


class Proxy:
    """Forwards bytes between a client and a server, and can stop doing so.

    Args:
      port: Port of the server.
    """

    def __init__(self, port):
        self._target = port
        self._listener = self._listen()
        self._pairs = []
        self._is_closed = False
        # Whether the server's bytes reach the client. The client's bytes always reach the server.
        self.answers = True
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self):
        return self._listener.getsockname()[1]

    def _listen(self):
        return socket.create_server(("127.0.0.1", 0))

    def _connect(self):
        return socket.create_connection(("127.0.0.1", self._target))

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._connect()
                except OSError:
                    # Left open, it would be a warning in whatever test runs then.
                    client.close()
                    raise
                self._pairs.append((client, server))
                if self._is_closed:
                    return self.cut()
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pump, args=(source, target, is_answer), daemon=True).start()

    def _pump(self, source, target, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.answers or not is_answer:
                    target.sendall(data)

    def cut(self):
        """Ends all connections. New ones are accepted."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def close(self):
        # An accept that waits does not end with `close` alone, and would take another connection.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._is_closed = True
        self.cut()


class SlowProxy(Proxy):
    """Forwards the answers of a server 40 ms late."""

    def _pump(self, source, target, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if is_answer:
                    time.sleep(0.04)
                target.sendall(data)


class program:  # noqa: N801 - reads as the call that it is
    """A running Python program with text pipes. A context manager that kills it on exit.

    Args:
      source: Source of the program, with any common indentation.
      *arguments: Values of the program's `sys.argv[1:]`.
    """

    def __init__(self, source, *arguments):
        # Ctrl-C works even if the process that runs the tests ignores it, as shells make background jobs do.
        hear = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", hear + textwrap.dedent(source), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self):
        """Returns the next line that the program prints. Fails with its output if it ends instead."""
        # Byte by byte, since `communicate` does not return what `readline` has left in its buffer.
        pipe, line = self.process.stdout.fileno(), b""
        while not line.endswith(b"\n") and (byte := os.read(pipe, 1)):
            line += byte
        assert line, f"the program has ended\n{self.process.stderr.read()}"
        return line.decode().rstrip("\n")

    def end(self, patience_s=PATIENCE_S):
        """Returns what the program still prints until it ends, and its stderr. Fails if it fails, or does not end."""
        out, err = self.process.communicate(timeout=patience_s)
        assert self.process.returncode == 0, f"exit status {self.process.returncode}\n{out}\n{err}"
        return out, err

    def kill(self):
        """Kills the program, and returns what it had printed."""
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
    """Runs a Python program to its end, and returns what it printed. Fails if the program fails."""
    with program(source, *arguments) as running:
        return running.end(patience_s)
