"""Items that enter with the largest priority that their table has seen: `priority="max"`."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from behaviour_support import (
    PATIENCE_S,
    Background,
    Proxy,
    draw,
    eventually,
    info_of,
    insert_values,
    make_table,
    program,
)
from writes_support import KINDS, write

import reverb
from reverb import checkpointers
from reverb.errors import InvalidPriorityError

SERVER = """
import reverb
server = reverb.Server([reverb.Table.queue("table", max_size=100)])
print(server.port, flush=True)
input()
"""

LEARNER = """
import sys, reverb
learner = reverb.Client(sys.argv[1])
sample = next(learner.sample("table", 1, emit_timesteps=False))
learner.update_priorities("table", [sample.info.key], [40.0])
"""


def priorities(client, table="table"):
    """The priorities of all items, in the order of their inserts."""
    return [sample.info.priority for sample in draw(client, info_of(client, table).current_size, table)]


def queue(name="table", **options):
    return make_table(name, max_times_sampled=1, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_gets_the_largest_priority_that_anybody_has_given(serve, kind):
    client = serve(make_table())
    write(client, kind)
    other = serve.connect()
    insert_values(other, [0, 0], priority=[0.5, 3.0])
    write(client, kind)
    keys = [sample.info.key for sample in draw(other, 1)]
    other.update_priorities("table", keys, [40.0])
    other.update_priorities("table", keys, [2.0])
    write(client, kind)
    write(client, kind, 4.0)
    other.mutate_priorities("table", deletes=keys)
    write(client, kind)
    tail = [sample.info.priority for sample in items_in_order(client)]
    assert tail == [0.5, 3.0, 3.0, 40.0, 4.0, 40.0]
    assert info_of(client).largest_priority == 40.0


def items_in_order(client):
    """The items of a Fifo table whose oldest item is drawn and deleted each time."""
    while info_of(client).current_size:
        (sample,) = draw(client)
        client.mutate_priorities("table", deletes=[sample.info.key])
        yield sample


def test_an_actor_hears_of_the_updates_of_a_learner_in_another_process(serve_far):
    client = serve_far(make_table())
    with reverb.adders.NStepTransitionAdder(client, "table", n=1, discount=0.9, priority="max") as adder:
        adder.add(0, 0, 0.0, 1)
        adder.flush()
        subprocess.run([sys.executable, "-c", LEARNER, serve_far.address], check=True, timeout=PATIENCE_S)
        adder.add(0, 0, 0.0, 1)
    assert [sample.info.priority for sample in items_in_order(client)] == [40.0, 40.0]


def test_each_table_of_a_call_has_its_own_largest_priority(serve):
    client = serve(queue("one"), queue("two"))
    client.insert(1, {"one": 5.0})
    client.insert(2, {"one": "max", "two": "max"})
    client.insert_batch(np.zeros(2), {"one": [1.0, 2.0], "two": "max"})
    assert priorities(client, "one") == [5.0, 5.0, 1.0, 2.0]
    assert priorities(client, "two") == [1.0, 1.0, 1.0]


def test_it_is_1_until_a_priority_above_0_was_seen(serve):
    client = serve(queue())
    assert info_of(client).largest_priority == 1.0
    insert_values(client, [0, 1], priority=[0.0, 0.25])
    client.insert(2, {"table": "max"})
    assert info_of(client).largest_priority == 0.25
    assert priorities(client) == [0.0, 0.25, 0.25]
    client.reset("table")
    insert_values(client, [0], priority=0.0)
    client.insert(1, {"table": "max"})
    assert priorities(client) == [0.0, 1.0]


def test_infinite_priorities_do_not_count(serve):
    client = serve(queue())
    insert_values(client, [0, 1], priority=[float("inf"), 2.0])
    client.insert(2, {"table": "max"})
    assert priorities(client) == [float("inf"), 2.0, 2.0]


def test_a_table_whose_remover_takes_the_highest_priority_refuses_it(serve):
    client = serve(make_table(remover="max_heap"))
    text = r'table `table` does not take priority "max": its remover, MaxHeap'
    with pytest.raises(InvalidPriorityError, match=text):
        client.insert(1, {"table": "max"})
    with client.trajectory_writer(1) as writer:
        writer.append(1)
        writer.create_item("table", "max", writer.history[-1:])
        with pytest.raises(InvalidPriorityError, match=text):
            writer.flush()
        writer.create_item("table", 2.0, writer.history[-1:])
    assert [sample.info.priority for sample in items_in_order(client)] == [2.0]


@pytest.mark.parametrize("kind", KINDS)
def test_other_words_are_refused(client, kind):
    with pytest.raises((TypeError, ValueError), match="'largest'"):
        write(client, kind, "largest")
    write(client, kind)
    assert info_of(client).current_size == 1


def test_a_checkpoint_keeps_the_largest_priority(tmp_path):
    largest = 40.1 + 2**-40
    options = {"checkpointer": checkpointers.DefaultCheckpointer(str(tmp_path))}
    with reverb.Server([queue()], **options) as server:
        client = server.localhost_client()
        insert_values(client, [0, 1], priority=[largest, 3.0])
        draw(client)
        client.checkpoint()
    with reverb.Server([queue()], **options) as server:
        client = server.localhost_client()
        client.insert(2, {"table": "max"})
        assert priorities(client) == [3.0, largest]


def test_a_checkpoint_that_does_not_tell_it_gives_that_of_its_items(tmp_path):
    options = {"checkpointer": checkpointers.DefaultCheckpointer(str(tmp_path))}
    with reverb.Server([make_table()], **options) as server:
        client = server.localhost_client()
        insert_values(client, [0, 1], priority=[40.0, 3.0])
        client.mutate_priorities("table", deletes=[draw(client)[0].info.key])
        path = client.checkpoint()
    os.remove(os.path.join(path, "reverb.jsonl"))
    with reverb.Server([make_table()], **options) as server:
        assert info_of(server.localhost_client()).largest_priority == 3.0


def test_an_item_that_waits_takes_the_largest_priority_of_when_it_enters(serve):
    client = serve(make_table(sampler="lifo", limiter=reverb.rate_limiters.Queue(2)))
    insert_values(client, [0, 1], priority=[2.0, 3.0])
    (drawn,) = draw(client)
    insert_values(client, [2])
    waiting = Background(serve.connect().insert, 3, {"table": "max"})
    eventually(lambda: info_of(client).waiting_inserts == 1)
    client.update_priorities("table", [drawn.info.key], [40.0])
    draw(client)
    waiting.result()
    assert draw(client)[0].info.priority == 40.0


class OlderServer(Proxy):
    """A server that does not know its largest priorities."""

    def _pump(self, source, target, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                # Without the Unix socket, the client stays here.
                target.sendall(data.replace(b"largest-priority", b"largest-priori--").replace(b".sock", b".none"))


def test_at_a_server_that_does_not_know_it_an_item_gets_what_the_process_knows():
    with program(SERVER) as server, contextlib.closing(OlderServer(int(server.line()))) as proxy:
        client = reverb.Client(f"127.0.0.1:{proxy.port}")
        assert info_of(client).largest_priority == 1.0
        assert client.road == "tcp"
        for kind in ("insert", "writer", "insert_batch"):
            write(client, kind)
        write(client, "insert", 3.0)
        write(client, "insert")
        write(client, "writer", 5.0)
        write(client, "adder")
        assert priorities(client) == [1.0, 1.0, 1.0, 3.0, 3.0, 5.0, 5.0]
        client.update_priorities("table", [1], [40.0])
        for kind in ("insert", "writer", "insert_batch"):
            write(client, kind)
        assert priorities(client) == [40.0] * 3
