"""When and for what a trajectory writer waits, and how it ends."""

import datetime

import numpy as np
import pytest
from behaviour_support import Background, eventually, info_of, make_table
from writer_support import flat, rows, write_steps

import reverb
from reverb import errors


class TestFlush:
    def test_flush_waits_until_the_items_are_in_their_table(self, client):
        writer = client.trajectory_writer(10, max_chunk_length=10)
        for i in range(50):
            write_steps(writer, 1, i)
            writer.create_item("table", 1.0, writer.history["x"][-1:])
            writer.flush()
            assert info_of(client).current_size == i + 1

    def test_items_that_a_flush_may_leave_keep_their_chunk_open(self, client):
        writer = client.trajectory_writer(10, max_chunk_length=10)
        write_steps(writer, 3)
        writer.create_item("table", 1.0, writer.history["x"][-1:])
        writer.flush(1)
        assert info_of(client).current_size == 0
        writer.flush(0)
        assert info_of(client).current_size == 1

    def test_flush_waits_for_a_full_table_until_its_timeout(self, serve):
        client = serve(reverb.Table.queue("table", 1))
        writer = client.trajectory_writer(1)
        for i in range(3):
            writer.append(i)
            writer.create_item("table", 1.0, writer.history[-1:])
        with pytest.raises(errors.DeadlineExceededError) as error:
            writer.flush(timeout_ms=200)
        text = f"Flush call did not complete within provided timeout of {datetime.timedelta(milliseconds=200)}"
        why, theirs = str(error.value).splitlines()
        assert why.startswith(
            "2 items are not in their tables yet (2 for table `table`). insert into table `table` waits:"
        )
        assert theirs == text
        with pytest.raises(errors.DeadlineExceededError):
            writer.flush(timeout_ms=0)
        writer.flush(2)
        assert [flat(client) for _ in range(3)] == [[[0]], [[1]], [[2]]]
        writer.flush()

    def test_flush_continues_when_there_is_room(self, serve):
        client = serve(reverb.Table.queue("table", 1))
        writer = client.trajectory_writer(1)
        for i in range(3):
            writer.append(i)
            writer.create_item("table", 1.0, writer.history[-1:])
        flush = Background(writer.flush)
        assert [flat(client) for _ in range(3)] == [[[0]], [[1]], [[2]]]
        flush.result()

    def test_bad_arguments_are_refused(self, client):
        writer = client.trajectory_writer(1)
        with pytest.raises(ValueError, match="block_until_num_items must be >= 0, got -1"):
            writer.flush(-1)
        with pytest.raises(ValueError, match="timeout_ms"):
            writer.flush(timeout_ms=-1)
        with pytest.raises(TypeError):
            writer.flush(timeout_ms=1.5)
        for wrong in (0, -1):
            with pytest.raises(ValueError, match=f"num_keep_alive_refs \\({wrong}\\) must be a positive integer"):
                client.trajectory_writer(wrong)
        with pytest.raises(TypeError):
            client.trajectory_writer(1.5)
        with pytest.raises(ValueError, match=r"max_chunk_length \(5\) must be None or a positive integer <= "):
            writer.configure(("a",), num_keep_alive_refs=4, max_chunk_length=5)

    def test_items_arrive_without_flush(self, client):
        writer = client.trajectory_writer(5)
        writer.append(1)
        writer.create_item("table", 1.0, writer.history[-1:])
        assert flat(client) == [[1]]

    def test_every_item_of_a_slow_actor_arrives_without_flush(self, client):
        writer = client.trajectory_writer(5)
        for i in range(5):
            writer.append(i)
            writer.create_item("table", 1.0, writer.history[-1:])
            eventually(lambda size=i + 1: info_of(client).current_size == size)

    def test_a_blocked_table_does_not_delay_another(self, serve):
        client = serve(reverb.Table.queue("blocked", 1), make_table())
        writer = client.trajectory_writer(1)
        for i in range(5):
            writer.append(i)
            writer.create_item("blocked", 1.0, writer.history[-1:])
            writer.create_item("table", 1.0, writer.history[-1:])
        eventually(lambda: info_of(client).current_size == 5)
        assert info_of(client, "blocked").current_size == 1
        writer.flush(4)


class TestEpisodes:
    def test_steps_of_an_episode_are_counted(self, client):
        writer = client.trajectory_writer(3)
        write_steps(writer, 4)
        assert writer.episode_steps == 4
        writer.end_episode()
        assert writer.episode_steps == 0

    def test_items_can_span_episodes_if_the_buffers_are_kept(self, client):
        writer = client.trajectory_writer(3, max_chunk_length=3)
        write_steps(writer, 2)
        writer.end_episode(clear_buffers=False)
        write_steps(writer, 1, 2)
        writer.create_item("table", 1.0, writer.history["x"][-3:])
        writer.flush()
        assert flat(client) == [[0, 1, 2]]
        assert info_of(client).num_episodes == 2

    def test_an_episode_ends_even_if_its_items_are_late(self, serve):
        client = serve(reverb.Table.queue("table", 1))
        writer = client.trajectory_writer(3)
        for i in range(2):
            write_steps(writer, 1, i)
            writer.create_item("table", 1.0, writer.history["x"][-1:])
        with pytest.raises(errors.DeadlineExceededError, match="End episode call did not complete within"):
            writer.end_episode(timeout_ms=50)
        assert (writer.episode_steps, len(writer.history["x"])) == (0, 0)
        assert [flat(client) for _ in range(2)] == [[[0]], [[1]]]


class TestClose:
    def test_calls_of_a_closed_writer_are_refused(self, client):
        writer = client.trajectory_writer(3)
        write_steps(writer, 1)
        writer.close()
        writer.close()
        for call in (
            lambda: write_steps(writer, 1),
            writer.flush,
            writer.end_episode,
            lambda: writer.create_item("table", 1.0, writer.history["x"][-1:]),
        ):
            with pytest.raises(RuntimeError, match=r"TrajectoryWriter::Close has been called\."):
                call()
        assert rows(writer.history["x"]) == [0]
        assert writer.episode_steps == 1

    def test_close_delivers_what_can_be_delivered(self, client):
        writer = client.trajectory_writer(3, max_chunk_length=3)
        write_steps(writer, 1)
        writer.create_item("table", 1.0, writer.history["x"][-1:])
        writer.close()
        assert info_of(client).current_size == 1

    def test_close_names_the_items_it_drops(self, serve, caplog):
        client = serve(reverb.Table.queue("table", 1))
        writer = client.trajectory_writer(3)
        for i in range(3):
            write_steps(writer, 1, i)
            writer.create_item("table", 1.0, writer.history["x"][-1:])
        writer.close()
        assert any("2 items were not confirmed and are given up (2 for table `table`)" in m for m in caplog.messages)

    def test_a_dropped_writer_delivers_its_items(self, client):
        writer = client.trajectory_writer(3, max_chunk_length=3)
        write_steps(writer, 1)
        writer.create_item("table", 1.0, writer.history["x"][-1:])
        del writer
        eventually(lambda: info_of(client).current_size == 1)

    def test_with_flushes_and_leaves_the_writer_open(self, client):
        with client.trajectory_writer(3) as writer:
            write_steps(writer, 1)
            writer.create_item("table", 1.0, writer.history["x"][-1:])
        assert info_of(client).current_size == 1
        write_steps(writer, 1, 1)

    def test_with_flushes_after_an_error_of_the_body(self, client):
        def body():
            with client.trajectory_writer(3) as writer:
                write_steps(writer, 1)
                writer.create_item("table", 1.0, writer.history["x"][-1:])
                raise KeyError("body")

        with pytest.raises(KeyError):
            body()
        assert info_of(client).current_size == 1


class TestBackPressure:
    def test_a_writer_faster_than_its_server_waits(self, serve):
        client = serve(reverb.Table.queue("table", 2))
        writer = client.trajectory_writer(1, max_pending_bytes=200_000)
        made = []

        def write():
            for i in range(50):
                writer.append(np.full(20_000, i, np.uint8))
                writer.create_item("table", 1.0, writer.history[-1:])
                made.append(i)

        writing = Background(write)
        eventually(lambda: len(made) >= 8)
        assert len(made) < 20
        for i in range(50):
            assert flat(client)[0][0][0] == i
        writing.result()

    def test_an_item_larger_than_the_limit_is_still_sent(self, client):
        writer = client.trajectory_writer(1, max_pending_bytes=1000)
        writer.append(np.zeros(100_000))
        writer.create_item("table", 1.0, writer.history[-1:])
        eventually(lambda: info_of(client).current_size == 1)
