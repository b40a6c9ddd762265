"""Several writers of one client: the limit that they share, and how they end."""

import os
import pickle
import threading

import numpy as np
import pytest
from behaviour_support import Background, at_rest, draw, eventually, info_of, make_table, program

import reverb
from reverb import _binding, structured

ITEM_BYTES = 10_000
CLOSED = "closed: "

# Three writers with one item each, whose chunk is open.
BLOCKED_WRITERS = """
import sys, reverb
client = reverb.Client(sys.argv[1])
writers = [client.trajectory_writer(9, max_chunk_length=9) for _ in range(3)]
for writer in writers:
    writer.append([1])
    writer.create_item("blocked", 1.0, [writer.history[0][-1:]])
"""


def write(writer, items, table="blocked"):
    for i in range(items):
        writer.append(np.full(ITEM_BYTES, i, np.uint8))
        writer.create_item(table, 1.0, writer.history[-1:])


def num_pending(writer):
    return writer.sender.num_pending_items


def full_queue(serve, *others):
    """Starts a server whose table `blocked` is full."""
    serve(reverb.Table.queue("blocked", 1), *others).insert(np.zeros(1, np.uint8), {"blocked": 1.0})


class TestLimit:
    def test_writers_that_run_ahead_hold_the_limit_of_their_client_together(self, serve):
        full_queue(serve)
        client = reverb.Client(serve.address, max_pending_bytes=1_000_000)
        writers = [client.trajectory_writer(1) for _ in range(8)]
        for writer in writers:
            write(writer, 1)
        writing = [Background(write, writer, 39) for writer in writers]

        def pending():
            return sum(map(num_pending, writers))

        eventually(lambda: min(map(num_pending, writers)) * ITEM_BYTES >= 1_000_000 / 2 / 8)
        eventually(at_rest(pending))
        # Each writer may exceed its share by one item.
        assert 500_000 <= pending() * ITEM_BYTES <= 1_000_000 + 8 * ITEM_BYTES
        assert len(draw(serve.connect(), 321, "blocked")) == 321
        for one in writing:
            one.result()

    def test_a_blocked_table_does_not_stop_a_writer_of_another(self, serve):
        full_queue(serve, make_table())
        client = reverb.Client(serve.address, max_pending_bytes=100_000)
        blocked, free = client.trajectory_writer(1), client.trajectory_writer(1)
        writing = Background(write, blocked, 30)
        eventually(lambda: num_pending(blocked) * ITEM_BYTES >= 50_000)
        write(free, 100, "table")
        free.flush()
        assert info_of(serve.connect()).current_size == 100
        assert num_pending(blocked) >= 5
        draw(serve.connect(), 31, "blocked")
        writing.result()

    def test_each_writer_may_have_one_item_of_any_size(self, serve):
        full_queue(serve)
        client = reverb.Client(serve.address, max_pending_bytes=1)
        writers = [client.trajectory_writer(1) for _ in range(4)]
        for writer in writers:
            write(writer, 1)
        assert [num_pending(writer) for writer in writers] == [1] * 4
        draw(serve.connect(), 5, "blocked")

    def test_the_limit_is_checked_and_pickled(self):
        with pytest.raises(ValueError, match="max_pending_bytes"):
            reverb.Client("localhost:1", max_pending_bytes=0)
        with pytest.raises(TypeError, match="max_pending_bytes"):
            reverb.Client("localhost:1", max_pending_bytes=1.5)
        client = pickle.loads(pickle.dumps(reverb.Client("localhost:1", max_pending_bytes=7)))
        assert (client.server_address, client._max_pending_bytes) == ("localhost:1", 7)


class TestEnd:
    @pytest.fixture
    def writers(self, serve_far):
        """Three writers with one item each that waits."""
        full_queue(serve_far)
        client = reverb.Client(serve_far.address)
        writers = [client.trajectory_writer(1) for _ in range(3)]
        for writer in writers:
            write(writer, 1)
        return writers

    def test_writers_that_are_deleted_together_log_one_line(self, serve_far):
        full_queue(serve_far)
        with program(
            BLOCKED_WRITERS + "del writer; writers.clear(); sys.stdin.readline()", serve_far.address
        ) as deleting:
            line = deleting.process.stderr.readline()
            assert line.startswith(
                "3 writers were closed: 3 items were not confirmed and are given up (3 for table `blocked`)"
            )
            assert deleting.end() == ("", "")

    def test_a_writer_that_is_deleted_alone_logs_before_the_program_goes_on(self, serve_far):
        full_queue(serve_far)
        source = BLOCKED_WRITERS.replace("range(3)", "range(1)") + "del writer; writers.clear(); sys.stderr.write('on')"
        with program(source, serve_far.address) as deleting:
            out, err = deleting.end()
        assert (out, err.startswith("A writer was closed: 1 items"), err.endswith("on")) == ("", True, True)

    def test_writers_that_are_closed_at_the_same_time_log_one_line(self, writers, caplog):
        begin = threading.Barrier(3)

        def close(writer):
            begin.wait()
            writer.close()

        for one in [Background(close, writer) for writer in writers]:
            one.result()
        [line] = [message for message in caplog.messages if CLOSED in message]
        assert line.startswith(
            "3 writers were closed: 3 items were not confirmed and are given up (3 for table `blocked`)"
        )

    def test_a_refusal_of_many_items_is_logged_once_with_their_number(self, serve, caplog):
        spec = reverb.TensorSpec((1,), np.float32)
        client = serve(make_table(signature={f"a_long_name_of_column_{i}": spec for i in range(50)}))
        pattern = structured.pattern_from_transform({"x": 0.0}, lambda x: x["x"][-1])
        writer = client.batched_writer(64, configs=[structured.create_config(pattern, "table")])
        writer.append({"x": np.zeros(64, np.float32)})
        writer.close()
        [line] = [message for message in caplog.messages if CLOSED in message]
        assert line.startswith("A writer was closed: ")
        assert line.count("table 'table'") == 1
        assert line.endswith(" (64 times)")
        assert len(line) < 1000
        assert "\n" not in line

    def test_writers_that_end_with_the_program_log_one_line(self, serve_far):
        full_queue(serve_far, make_table())
        last = """
last = client.trajectory_writer(9, max_chunk_length=9)
last.append([1])
last.create_item("table", 1.0, [last.history[0][-1:]])
"""
        with program(BLOCKED_WRITERS + last, serve_far.address) as ending:
            out, err = ending.end()
        [line] = err.splitlines()
        assert "3 writers were closed: 3 items were not confirmed and are given up (3 for table `blocked`)" in line
        assert (out, info_of(serve_far.connect()).current_size) == ("", 1)


class TestUnconfirmed:
    def unconfirmed(self, serve):
        """What the writers of the last server have not confirmed. Writers of other tests may not be gone yet."""
        return [(items, size) for address, items, size in _binding.unconfirmed() if address == serve.address]

    def test_the_items_of_all_writers_of_the_process_are_counted(self, serve):
        full_queue(serve, reverb.Table.queue("other", 1))
        first, second = (reverb.Client(serve.address).trajectory_writer(1) for _ in range(2))
        assert self.unconfirmed(serve) == []
        write(first, 3)
        write(second, 2, "other")
        write(second, 4)
        counted = [{"blocked": 3}, {"blocked": 4, "other": 1}]
        eventually(lambda: [items for items, _ in self.unconfirmed(serve)] == counted)
        [(_, first_bytes), (_, second_bytes)] = self.unconfirmed(serve)
        assert 3 * ITEM_BYTES <= first_bytes < 4 * ITEM_BYTES
        # The row of the item that is confirmed may lie in one chunk with others.
        assert 5 * ITEM_BYTES <= second_bytes < 7 * ITEM_BYTES
        assert len(draw(serve.connect(), 8, "blocked")) == 8
        first.flush()
        eventually(lambda: [items for items, _ in self.unconfirmed(serve)] == [{"other": 1}])
        second.sender.close(0.0)
        assert self.unconfirmed(serve) == []

    def test_a_forked_child_does_not_count_the_items_of_its_parent(self, serve):
        full_queue(serve)
        writer = serve.connect().trajectory_writer(1)
        write(writer, 1)
        child = os.fork()
        if child == 0:
            os._exit(len(_binding.unconfirmed()))
        assert os.waitpid(child, 0)[1] == 0
        assert self.unconfirmed(serve)[0][0] == {"blocked": 1}
        writer.sender.close(0.0)
