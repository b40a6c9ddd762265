"""The older writer, whose items consist of the last steps, with all their columns."""

import threading

import numpy as np
import pytest
from behaviour_support import Background, draw, eventually, info_of, make_table

import reverb
from reverb import errors


def size(client):
    return info_of(client).current_size


def take(client, count):
    """Returns the first column of the oldest items, and removes these items."""
    taken = []
    for _ in range(count):
        [sample] = draw(client)
        taken.append(sample.data[0].tolist())
        client.mutate_priorities("table", deletes=[sample.info.key])
    return taken


def test_items_are_sent_with_the_chunk_of_their_last_step(client):
    writer = client.writer(10, chunk_length=4)
    for i in range(3):
        writer.append(np.int64(i))
    writer.create_item("table", 2, 1.0)
    assert size(client) == 0
    writer.append(np.int64(3))
    eventually(lambda: size(client) == 1)
    writer.create_item("table", 4, 1.0)
    eventually(lambda: size(client) == 2)
    writer.append(np.int64(4))
    writer.create_item("table", 5, 1.0)
    writer.flush()
    assert size(client) == 3
    assert take(client, 3) == [[1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("chunk_length", [1, 2, 3, 4])
def test_windows_over_chunks_of_any_length(client, chunk_length):
    with client.writer(4, chunk_length=chunk_length) as writer:
        for i in range(10):
            writer.append({"x": np.full(3, i), "y": float(i)})
            if i >= 3:
                writer.create_item("table", 4, 1.0)
            if i == 5:
                writer.flush()
    assert [np.array(rows)[:, 0].tolist() for rows in take(client, 7)] == [list(range(i, i + 4)) for i in range(7)]


def test_items_are_counted_in_real_steps_also_after_a_short_chunk(client):
    writer = client.writer(4, chunk_length=4)
    writer.append(0)
    writer.create_item("table", 1, 1.0)
    writer.flush()
    writer.append(1)
    with pytest.raises(ValueError, match="`num_timesteps` is larger than number of buffered timesteps"):
        writer.create_item("table", 3, 1.0)
    writer.create_item("table", 2, 1.0)
    writer.flush()
    assert take(client, 2) == [[0], [0, 1]]


def test_sequences_are_appended_step_by_step(client):
    writer = client.writer(3, chunk_length=2)
    writer.append_sequence({"a": np.arange(3), "b": np.arange(6).reshape(3, 2)})
    writer.append_sequence({"a": np.zeros(0, np.int64), "b": np.zeros((0, 2), np.int64)})
    writer.create_item("table", 3, 1.0)
    writer.close()
    [sample] = draw(client)
    assert [column.tolist() for column in sample.data] == [[0, 1, 2], [[0, 1], [2, 3], [4, 5]]]


@pytest.mark.parametrize(
    ("sequence", "text"),
    [
        ({}, "AppendSequence called with empty data."),
        ([1.0], "AppendSequence called with scalar tensor at index 0."),
        ([np.zeros(3), np.zeros((2, 2))], "AppendSequence called with tensors of non equal batch dimension: 0: "),
    ],
)
def test_a_value_that_is_not_a_sequence_is_refused(client, sequence, text):
    with pytest.raises(ValueError, match=text):
        client.writer(3).append_sequence(sequence)


def test_steps_of_a_chunk_have_equal_shapes_and_later_chunks_may_differ(client):
    writer = client.writer(2, chunk_length=2)
    writer.append(np.zeros(3))
    for wrong, text in ((np.zeros(2), "incompatible shape"), (np.zeros(3, np.int64), "wrong dtype")):
        with pytest.raises(ValueError, match=text):
            writer.append(wrong)
    with pytest.raises(
        ValueError, match="Number of tensors per timestep was inconsistent. Previously it was 1, but is now 2"
    ):
        writer.append([np.zeros(3), 1])
    writer.append(np.ones(3))
    writer.append([np.int32(1), 2.0])
    with pytest.raises(ValueError, match="same dtypes and shapes"):
        writer.create_item("table", 2, 1.0)
    writer.create_item("table", 1, 1.0)
    writer.close()
    [sample] = draw(client)
    assert [column.tolist() for column in sample.data] == [[1], [2.0]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_sequence_length": 0}, r"max_sequence_length \(0\) must be a positive integer"),
        ({"max_sequence_length": 2, "chunk_length": 3}, r"chunk_length \(3\) must be a positive integer le to"),
        ({"max_sequence_length": 2, "chunk_length": 0}, r"chunk_length \(0\) must be a positive integer le to"),
        ({"max_sequence_length": 2, "max_in_flight_items": 0}, r"max_in_flight_items \(0\) must be a positive integer"),
    ],
)
def test_numbers_out_of_range_are_refused(client, arguments, text):
    with pytest.raises(ValueError, match=text):
        client.writer(**arguments)


def test_impossible_items_are_refused(client):
    writer = client.writer(2)
    writer.append(1)
    for count, text in ((0, "must be a positive integer"), (2, "larger than number of buffered timesteps")):
        with pytest.raises(ValueError, match=text):
            writer.create_item("table", count, 1.0)
    writer.append(2)
    writer.append(3)
    with pytest.raises(ValueError, match="`num_timesteps` must be <= `max_timesteps`"):
        writer.create_item("table", 3, 1.0)
    with pytest.raises(ValueError, match="`priority` must not be nan"):
        writer.create_item("table", 1, float("nan"))
    with pytest.raises(ValueError, match="nowhere"):
        writer.create_item("nowhere", 1, 1.0)
    writer.close()
    assert size(client) == 0


def test_items_that_span_chunks_fit_a_signature_of_one_step(serve):
    client = serve(make_table(signature={"x": reverb.TensorSpec([2], np.int64)}))
    with client.writer(3, chunk_length=2) as writer:
        for index in range(4):
            writer.append({"x": np.array([index, 1])})
            if index >= 2:
                writer.create_item("table", 3, 1.0)
    drawn = client.sample_batch("table", 2).data["x"]
    assert drawn[:, :, 0].tolist() == [[0, 1, 2], [0, 1, 2]]
    with client.writer(3, chunk_length=2) as writer:
        for _ in range(3):
            writer.append({"x": np.array([1, 1, 1])})
        with pytest.raises(ValueError, match="inconsistent with the table signature"):
            writer.create_item("table", 3, 1.0)


def test_signatures_may_describe_one_step_or_the_whole_item(serve):
    client = serve(
        make_table("step", signature=reverb.TensorSpec([2], np.float32)),
        make_table("whole", signature=reverb.TensorSpec([3, 2], np.float32)),
    )
    writer = client.writer(5)
    for _ in range(4):
        writer.append(np.zeros(2, np.float32))
    writer.create_item("step", 2, 1.0)
    writer.create_item("whole", 3, 1.0)
    with pytest.raises(errors.SignatureMismatchError, match="At timestep offset 0, flattened index 0, saw a tensor"):
        writer.create_item("whole", 2, 1.0)
    writer.close()
    assert info_of(client, "step").current_size == info_of(client, "whole").current_size == 1


def test_items_in_flight_are_limited(serve):
    client = serve(reverb.Table.queue("table", 1))
    writer = client.writer(1, max_in_flight_items=1)
    made = threading.Semaphore(0)

    def write():
        for i in range(3):
            writer.append(i)
            writer.create_item("table", 1, 1.0)
            made.release()

    writing = Background(write)
    assert made.acquire(timeout=20)
    assert made.acquire(timeout=20)
    assert not made.acquire(timeout=0.2)
    assert draw(client)[0].data[0].tolist() == [0]
    assert made.acquire(timeout=20)
    writing.result()
    assert [draw(client)[0].data[0].tolist() for _ in range(2)] == [[1], [2]]
    writer.close()


def test_calls_of_a_closed_writer_are_refused(client):
    writer = client.writer(1)
    writer.append(1)
    writer.close()
    with pytest.raises(ValueError, match=r"close\(\) has already been called on Writer\."):
        writer.close()
    for name, call in (
        ("Append", lambda: writer.append(1)),
        ("CreateItem", lambda: writer.create_item("table", 1, 1.0)),
        ("Flush", writer.flush),
    ):
        with pytest.raises(RuntimeError, match=f"Calling method {name} after Close has been called"):
            call()
    with pytest.raises(ValueError, match="Cannot reuse already closed Writer"):
        writer.__enter__()


def test_with_delivers_the_items_even_if_the_body_raises(client):
    def body():
        with client.writer(1) as writer:
            writer.append(1)
            writer.create_item("table", 1, 1.0)
            raise KeyError("body")

    with pytest.raises(KeyError):
        body()
    assert size(client) == 1


def test_a_dropped_writer_warns_and_delivers_its_items(client, caplog):
    writer = client.writer(2, chunk_length=2)
    writer.append(1)
    writer.create_item("table", 1, 1.0)
    del writer
    eventually(lambda: size(client) == 1)
    assert "Writer-object deleted without calling .close explicitly." in caplog.messages


def test_close_without_retries_drops_items_at_once_and_names_them(serve_far, caplog):
    client = serve_far(make_table())
    writer = client.writer(1)
    writer.append(1)
    writer.create_item("table", 1, 1.0)
    writer.flush()
    serve_far.server.stop(returns=True)
    eventually(lambda: not writer._writer.has_server)
    writer.append(2)
    writer.create_item("table", 1, 1.0)
    writer.close(retry_on_unavailable=False)
    assert any("1 items were not confirmed and are given up (1 for table `table`)" in m for m in caplog.messages)


def test_repr_shows_the_state(client):
    writer = client.writer(15)
    text = repr(writer)
    assert text.startswith(
        "Writer(chunk_length=10, max_timesteps=15, delta_encoded=0, max_in_flight_items=25, episode_id="
    )
    assert text.endswith("index_within_episode=0, closed=0), closed: False")
    writer.close()
