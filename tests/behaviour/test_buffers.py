"""In-process buffers for users of NumPy, and the Python buffer with TF-Agents' interface."""

import collections
import threading

import numpy as np
import pytest

import reverb
from reverb.buffers import EpisodicBuffer, PrioritizedBuffer, UniformBuffer

ArraySpec = collections.namedtuple("ArraySpec", "shape dtype name")
NUMBER = reverb.TensorSpec([], np.int64)


def test_new_frames_replace_the_oldest():
    buffer = UniformBuffer(NUMBER, 5)
    for first in range(0, 12, 3):
        buffer.add(np.arange(first, first + 3))
    assert len(buffer) == buffer.capacity == 5
    assert buffer.all().tolist() == [[7, 8, 9, 10, 11]]


def test_adding_more_frames_than_the_capacity_keeps_the_newest():
    buffer = UniformBuffer(NUMBER, 5)
    buffer.add(np.arange(13))
    assert buffer.all().tolist() == [[8, 9, 10, 11, 12]]


def test_sequences_stay_in_their_segment_and_never_cross_the_newest_frame():
    buffer = UniformBuffer({"x": NUMBER}, 12, segments=3, seed=1)
    for step in range(7):
        buffer.add({"x": np.array([step, 100 + step, 200 + step])})
    sample = buffer.sample(500, num_steps=3)
    starts = collections.Counter(sample.data["x"][:, 0].tolist())
    assert sorted(starts) == [3, 4, 103, 104, 203, 204]
    assert (np.diff(sample.data["x"], axis=1) == 1).all()
    np.testing.assert_allclose(sample.probabilities, 1 / 6)
    assert ((sample.segments * 100 + sample.ids) == sample.data["x"][:, 0]).all()


def test_draws_are_uniform():
    buffer = UniformBuffer(NUMBER, 10, seed=3)
    buffer.add(np.arange(10))
    counts = np.bincount(buffer.sample(50_000).data, minlength=10)
    assert abs(counts / 5000 - 1).max() < 0.1


def test_priorities_set_probabilities_and_importance_weights():
    buffer = PrioritizedBuffer(NUMBER, 4, exponent=0.5, seed=1)
    buffer.add(np.arange(3), [0.0, 1.0, 9.0])
    sample = buffer.sample(40_000, beta=1.0)
    shares = np.bincount(sample.data, minlength=3) / 40_000
    np.testing.assert_allclose(shares, [0, 0.25, 0.75], atol=0.01)
    np.testing.assert_allclose(sample.probabilities, np.array([0, 0.25, 0.75])[sample.data])
    np.testing.assert_allclose(sample.weights, np.where(sample.data == 1, 1.0, 1 / 3), rtol=1e-6)
    buffer.update_priorities(sample, np.where(sample.data == 1, 4.0, 0.0))
    assert set(buffer.sample(100).data.tolist()) == {1}


def test_new_frames_get_the_greatest_priority_and_overwritten_frames_are_skipped():
    buffer = PrioritizedBuffer(NUMBER, 2, exponent=1.0, seed=1)
    buffer.add(np.arange(2), 5.0)
    sample = buffer.sample(10)
    buffer.add(np.arange(2, 4))
    buffer.update_priorities(sample, 0.0)
    np.testing.assert_allclose(buffer.sample(10).probabilities, 0.5)
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="Priority"):
            buffer.add(np.arange(1), bad)
    assert buffer.all().tolist() == [[2, 3]], "a refused add adds nothing"


def test_prioritized_sequences_have_enough_frames():
    buffer = PrioritizedBuffer(NUMBER, 8, seed=1)
    buffer.add(np.arange(11))
    assert set(buffer.sample(500, num_steps=4).data[:, 0].tolist()) == {3, 4, 5, 6, 7}
    with pytest.raises(ValueError, match="fewer than 9 frames"):
        buffer.sample(1, num_steps=9)


def test_structures_and_shapes_are_checked():
    buffer = UniformBuffer({"a": reverb.TensorSpec([2]), "b": (NUMBER,)}, 4)
    for data, message in (
        ({"a": np.zeros((1, 2))}, "keys"),
        ({"a": np.zeros((1, 2)), "b": [np.zeros(1), np.zeros(1)]}, "tuple of 1 parts"),
        ({"a": np.zeros((1, 3)), "b": (np.zeros(1),)}, r"expected frames \[n, 2\], got shape \(1, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            buffer.add(data)
    with pytest.raises(ValueError, match="multiple of 2"):
        UniformBuffer(NUMBER, 4, segments=2).add(np.arange(3))
    with pytest.raises(TypeError, match="strings"):
        UniformBuffer(reverb.TensorSpec([], str), 4)
    with pytest.raises(ValueError, match="known shape"):
        UniformBuffer(reverb.TensorSpec([None], np.int64), 4)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)


def test_specs_that_are_named_tuples_are_leaves():
    buffer = UniformBuffer((ArraySpec((2,), np.float32, "x"), {"n": ArraySpec((), np.int64, "n")}), 4)
    buffer.add((np.ones((1, 2)), {"n": np.array([3])}))
    data = buffer.sample(1).data
    assert isinstance(data, tuple)
    assert data[1]["n"].tolist() == [3]


@pytest.mark.parametrize("make", [UniformBuffer, PrioritizedBuffer])
def test_a_saved_buffer_is_restored_and_can_be_written_to(tmp_path, make):
    buffer, other = make(NUMBER, 6, segments=2), make(NUMBER, 6, segments=2)
    for step in range(5):
        buffer.add(np.array([step, 100 + step]))
    buffer.save(tmp_path / "buffer.npz")
    other.load(tmp_path / "buffer.npz")
    for one in (buffer, other):
        one.add(np.array([5, 105]))
    assert other.all().tolist() == buffer.all().tolist() == [[3, 4, 5], [103, 104, 105]]
    assert set(other.sample(100).ids.tolist()) == {3, 4, 5}
    with pytest.raises(ValueError, match="other leaves"):
        make(NUMBER, 4, segments=1).load(tmp_path / "buffer.npz")


def test_a_saved_buffer_keeps_its_priorities(tmp_path):
    buffer, other = (PrioritizedBuffer(NUMBER, 8, exponent=1.0, segments=2, seed=1) for _ in range(2))
    for step in range(6):
        buffer.add(np.array([step, 10 + step]), [float(step), 0.0])
    sample = buffer.sample(200)
    buffer.update_priorities(sample._replace(segments=1 - sample.segments), np.where(sample.ids == 4, 9.0, 0.0))
    buffer.save(tmp_path / "buffer.npz")
    other.load(tmp_path / "buffer.npz")

    def probabilities(of):
        drawn = of.sample(2000)
        return dict(zip(drawn.data.tolist(), drawn.probabilities.tolist(), strict=True))

    assert probabilities(buffer) == probabilities(other)
    assert probabilities(other) == pytest.approx({2: 2 / 23, 3: 3 / 23, 4: 4 / 23, 5: 5 / 23, 14: 9 / 23})
    # New frames have the greatest priority so far.
    for one in (buffer, other):
        one.add(np.array([6, 16]))
    assert (
        probabilities(other)
        == probabilities(buffer)
        == pytest.approx({3: 3 / 39, 4: 4 / 39, 5: 5 / 39, 14: 9 / 39, 6: 9 / 39, 16: 9 / 39})
    )


@pytest.mark.parametrize("exponent", [0.0, 0.6])
def test_a_file_without_priorities_gives_each_frame_the_priority_1(tmp_path, exponent):
    uniform, buffer = UniformBuffer(NUMBER, 4), PrioritizedBuffer(NUMBER, 4, exponent=exponent)
    uniform.add(np.arange(4))
    uniform.save(tmp_path / "uniform.npz")
    buffer.add(np.arange(2), 50.0)
    buffer.load(tmp_path / "uniform.npz")
    buffer.add(np.arange(4, 6))
    assert set(buffer.sample(100).probabilities) == {0.25}
    # And back: a UniformBuffer does not need them.
    buffer.save(tmp_path / "buffer.npz")
    uniform.load(tmp_path / "buffer.npz")
    assert uniform.all().tolist() == [[2, 3, 4, 5]]


def test_many_large_frames_keep_their_contents():
    buffer = UniformBuffer({"image": reverb.TensorSpec([32, 32, 3], np.uint8), "n": NUMBER}, 1000)
    for first in range(0, 2500, 50):
        numbers = np.arange(first, first + 50)
        images = np.broadcast_to((numbers % 251).astype(np.uint8)[:, None, None, None], (50, 32, 32, 3))
        buffer.add({"image": images, "n": numbers})
    sample = buffer.sample(200, num_steps=4).data
    assert sample["n"].min() >= 1500
    assert (sample["image"] == (sample["n"] % 251).astype(np.uint8)[..., None, None, None]).all()


def test_threads_can_write_and_read_concurrently():
    buffer = UniformBuffer({"a": NUMBER, "b": NUMBER}, 64)
    buffer.add({"a": np.arange(64), "b": np.arange(64)})
    stop = threading.Event()

    def write():
        number = 64
        while not stop.is_set():
            buffer.add({"a": np.array([number]), "b": np.array([number])})
            number += 1

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(500):
            data = buffer.sample(32).data
            assert (data["a"] == data["b"]).all(), "a frame is written as a whole"
    finally:
        stop.set()
        for writer in writers:
            writer.join()


def test_episodes_are_drawn_whole_and_new_ones_replace_the_oldest():
    buffer = EpisodicBuffer(NUMBER, 3, seed=1)
    first = buffer.begin_episode()
    for length in (2, 3, 4):
        assert buffer.add(buffer.begin_episode(), np.arange(length) + 10 * length)
    assert not buffer.add(first, np.arange(1)), "it had to make room"
    assert (len(buffer), buffer.num_frames) == (3, 9)
    assert {buffer.sample_episode()[0].tolist()[-1] for _ in range(100)} == {21, 32, 43}
    data, episodes = buffer.sample(300, num_steps=3)
    assert {tuple(row) for row in data.tolist()} == {(30, 31, 32), (40, 41, 42), (41, 42, 43)}
    assert set(episodes.tolist()) == {2, 3}
    with pytest.raises(ValueError, match="no episode of 5 frames"):
        buffer.sample(1, num_steps=5)


def test_py_uniform_replay_buffer_stores_frames_as_a_subclass_encodes_them():
    from reverb.buffers.py_uniform_replay_buffer import PyUniformReplayBuffer

    deleted = []

    class Halved(PyUniformReplayBuffer):
        def _encoded_data_spec(self):
            return ArraySpec((), np.float16, "x")

        def _encode(self, item):
            return item / 2

        def _decode(self, item):
            return np.float64(item * 2)

        def _on_delete(self, encoded_item):
            deleted.append(float(encoded_item))

    buffer = Halved(ArraySpec((), np.float64, "x"), 2)
    for number in (1.0, 2.0, 3.0):
        buffer.add_batch(np.array([number]))
    assert deleted == [0.5]
    assert {float(buffer.get_next()) for _ in range(50)} == {2.0, 3.0}
    assert buffer.get_next(4, 2).tolist() == [[2.0, 3.0]] * 4
    assert buffer.gather_all().tolist() == [[3.0, 2.0]]
