"""Brief calls to a server of this process keep the GIL, so that threads which compute do not delay them."""

import contextlib
import sys
import threading
import time

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, make_table

import reverb

# Rows of 280 bytes, of which a batch is small, and of 40 kB.
SMALL, LARGE = 35, 5_000


@contextlib.contextmanager
def waiting_thread():
    """A thread that waits for the GIL, and gets it only if this one lets go of it. Yields whether it has had it."""
    before, go, ran = sys.getswitchinterval(), threading.Lock(), threading.Event()
    go.acquire()
    thread = threading.Thread(target=lambda: (go.acquire(), ran.set()))
    thread.start()
    # No thread is asked to let go of the GIL before the test is over.
    sys.setswitchinterval(2 * PATIENCE_S)
    try:
        go.release()
        # By the end of this, the thread asks for the GIL.
        begun = time.perf_counter()
        while time.perf_counter() < begun + 0.1:
            pass
        yield ran.is_set
    finally:
        sys.setswitchinterval(before)
        thread.join(PATIENCE_S)
        assert ran.is_set()


@contextlib.contextmanager
def serving(width, **options):
    signature = {"a": reverb.TensorSpec([width], np.float64)}
    table = make_table(sampler="prioritized", max_size=200, signature=signature)
    with reverb.Server([table], **options) as server:
        client = reverb.Client(f"localhost:{server.port}")
        keys = client.insert_batch({"a": np.zeros((200, width))}, {"table": 1.0})
        yield client, keys


def lets_go(call):
    """Whether a call lets go of the GIL. Often a thread has it back before another one wakes up."""
    with waiting_thread() as has_run:
        for _ in range(200):
            call()
            if has_run():
                return True
        return False


def calls_of(client, keys, width, stack):
    """The calls of a client, by their names."""
    row, rows = {"a": np.zeros(width)}, {"a": np.zeros((32, width))}
    writer = client.trajectory_writer(2)
    loaders = {
        "loader that confirms later": reverb.loaders.NumpyLoader(client, "table", batch_size=32, receipt="next"),
        "loader": reverb.loaders.NumpyLoader(client, "table", batch_size=32),
    }

    def write():
        writer.append(row)
        writer.create_item("table", 1.0, {"a": writer.history["a"][-1:]})

    calls = {
        "insert": lambda: client.insert(row, {"table": 1.0}),
        "insert_batch": lambda: client.insert_batch(rows, {"table": 1.0}),
        "sample_batch": lambda: client.sample_batch("table", 32),
        "update_priorities": lambda: client.update_priorities("table", keys[:32], np.full(32, 2.0)),
        "writer": write,
    }
    for name, loader in loaders.items():
        batches = iter(stack.enter_context(loader))
        calls[name] = lambda batches=batches: next(batches)
    for call in calls.values():
        # The first may connect, and take longer.
        call()
    return calls


def test_brief_calls_keep_the_gil():
    with serving(SMALL) as (client, keys), contextlib.ExitStack() as stack:
        for name, call in calls_of(client, keys, SMALL, stack).items():
            assert not lets_go(call), name


@pytest.mark.parametrize("name", ["insert_batch", "sample_batch", "loader"])
def test_calls_that_copy_much_let_go_of_it(name):
    with serving(LARGE) as (client, keys), contextlib.ExitStack() as stack:
        assert lets_go(calls_of(client, keys, LARGE, stack)[name])


def test_inserts_that_a_log_keeps_let_go_of_it(tmp_path):
    options = {"checkpointer": reverb.checkpointers.DefaultCheckpointer(tmp_path), "durability": "process"}
    with serving(SMALL, **options) as (client, keys), contextlib.ExitStack() as stack:
        assert lets_go(calls_of(client, keys, SMALL, stack)["insert"])


def test_calls_that_wait_let_go_of_it():
    with reverb.Server([reverb.Table.queue("queue", 1)]) as server:
        client = reverb.Client(f"localhost:{server.port}")
        client.insert([1.0], {"queue": 1.0})
        with waiting_thread() as has_run:
            with pytest.raises(reverb.errors.DeadlineExceededError):
                client.insert([1.0], {"queue": 1.0}, timeout=0.1)
            assert has_run()


@pytest.mark.parametrize(("width", "expected"), [(SMALL, False), (LARGE, True)], ids=["small", "large"])
def test_buffers_keep_the_gil_while_they_copy_little(width, expected):
    buffer = reverb.buffers.PrioritizedBuffer({"a": reverb.TensorSpec([width], np.float64)}, 100)
    for _ in range(100):
        buffer.add({"a": np.zeros((1, width))})
    assert lets_go(lambda: buffer.update_priorities(buffer.sample(32), np.ones(32))) is expected
