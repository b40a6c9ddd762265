"""Brief calls to a server of this process keep the GIL, so that threads which compute do not delay them."""

import collections
import contextlib
import itertools
import threading

import numpy as np
import pytest
from behaviour_support import PATIENCE_S, make_table

import reverb

# Rows of 280 bytes, of which a batch is small, and of 40 kB.
SMALL, LARGE = 35, 5_000


def lets_go(function, *arguments):
    """Whether calls of a function of an extension let go of the GIL while another thread waits for it.

    A thread that lets go of the GIL once it was asked to gets it back only after another has had it; it is asked after
    5 ms. Bytecode would let go too, so none runs between the release of the lock that the other thread waits for and
    the look at whether that thread has run.
    """
    lock, ran, seen = threading.Lock(), [], []
    lock.acquire()
    thread = threading.Thread(target=lambda: (lock.acquire(), ran.append(True)))
    thread.start()
    steps = itertools.chain(
        itertools.starmap(lock.release, [()]),
        # Takes a tenth of a second, with the GIL.
        itertools.starmap(sum, [(range(5_000_000),)]),
        itertools.starmap(function, itertools.repeat(arguments, 50)),
        itertools.starmap(seen.extend, [(ran,)]),
    )
    collections.deque(steps, maxlen=0)
    thread.join(PATIENCE_S)
    return bool(seen)


@contextlib.contextmanager
def serving(width, **options):
    signature = {"a": reverb.TensorSpec([width], np.float64)}
    table = make_table(sampler="prioritized", max_size=200, signature=signature)
    with reverb.Server([table], **options) as server:
        client = reverb.Client(f"localhost:{server.port}")
        keys = client.insert_batch({"a": np.zeros((200, width))}, {"table": 1.0})
        yield client, keys


def calls_of(client, keys, width, stack):
    """Functions of the extension with their arguments, by the names of the calls that use them."""
    engine, priorities = client.engine, {"table": 1.0}
    loader = stack.enter_context(reverb.loaders.NumpyLoader(client, "table", batch_size=32))
    writer = stack.enter_context(client.trajectory_writer(1))
    writer.append({"a": np.zeros(width)})
    for _ in range(3):
        # The first do not come from the extension alone.
        next(loader)
    return {
        "insert": (engine.insert, {"a": np.zeros(width)}, priorities, None),
        "insert_batch": (engine.insert_batch, {"a": np.zeros((32, width))}, priorities, None),
        "sample_batch": (engine.sample, "table", 32, 32, 0, None, False),
        "update_priorities": (engine.update_priorities, "table", keys[:32], np.full(32, 2.0), None),
        "loader": (loader.__next__,),
        "writer": (writer._create_item, "table", 1.0, {"a": writer.history["a"][-1]}, None),
    }


def test_brief_calls_keep_the_gil():
    with serving(SMALL) as (client, keys), contextlib.ExitStack() as stack:
        for name, call in calls_of(client, keys, SMALL, stack).items():
            # Now and then a thread of the server holds what a call needs, and then it lets go.
            assert not all(lets_go(*call) for _ in range(10)), name


@pytest.mark.parametrize("name", ["insert_batch", "sample_batch", "loader"])
def test_calls_that_copy_much_let_go_of_it(name):
    with serving(LARGE) as (client, keys), contextlib.ExitStack() as stack:
        assert lets_go(*calls_of(client, keys, LARGE, stack)[name])


def test_inserts_that_a_log_keeps_let_go_of_it(tmp_path):
    options = {"checkpointer": reverb.checkpointers.DefaultCheckpointer(tmp_path), "durability": "process"}
    with serving(SMALL, **options) as (client, keys), contextlib.ExitStack() as stack:
        assert lets_go(*calls_of(client, keys, SMALL, stack)["insert"])


@pytest.mark.parametrize(("width", "expected"), [(SMALL, False), (LARGE, True)], ids=["small", "large"])
def test_buffers_keep_the_gil_while_they_copy_little(width, expected):
    buffer = reverb.buffers.PrioritizedBuffer({"a": reverb.TensorSpec([width], np.float64)}, 100)
    for _ in range(100):
        buffer.add({"a": np.zeros((1, width))})
    call = (buffer._nest.frames.sample, 32, 1, [32])
    assert all(lets_go(*call) for _ in range(10)) is expected
