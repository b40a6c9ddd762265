"""Buffers with TF-Agents' interface, beyond what the example script shows."""

import pytest
from behaviour_support import run_program

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from reverb.buffers.episodic_replay_buffer import (  # noqa: E402
    Episodes,
    EpisodicReplayBuffer,
    StatefulEpisodicReplayBuffer,
)
from reverb.buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer  # noqa: E402

NUMBER = tf.TensorSpec([], tf.int64, "x")


def filled(count, **options):
    buffer = TFUniformReplayBuffer(NUMBER, batch_size=2, **options)
    for number in range(count):
        buffer.add_batch(tf.constant([number, 100 + number], tf.int64))
    return buffer


def test_all_calls_work_in_graphs():
    buffer = filled(0, max_length=4)

    @tf.function
    def step(number):
        buffer.add_batch(tf.stack([number, 100 + number]))
        items, info = buffer.get_next(3, 1)
        return items, info, buffer.num_frames(), buffer.gather_all()

    for number in range(6):
        items, info, frames, everything = step(tf.constant(number, tf.int64))
    assert (items.shape, info.probabilities.shape, int(frames)) == ([3, 1], [3], 8)
    assert everything.numpy().tolist() == [[2, 3, 4, 5], [102, 103, 104, 105]]


def test_frames_must_fit_the_data_spec():
    buffer = filled(0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch of 2 frames, got 3"):
        buffer.add_batch(tf.constant([1, 2, 3], tf.int64))
    with pytest.raises(ValueError, match="int64, got int32"):
        buffer.add_batch(tf.constant([1, 2]))
    with pytest.raises(ValueError, match="lists"):
        TFUniformReplayBuffer([NUMBER], 1).as_dataset()
    with pytest.raises(TypeError):
        buffer.as_dataset(sequence_preprocess_fn=lambda item: item)


def test_a_frame_without_batch_axis_is_added_to_all_segments():
    buffer = filled(0)
    buffer.add_batch(tf.constant(7, tf.int64))
    assert buffer.gather_all().numpy().tolist() == [[7], [7]]


def test_one_pass_keeps_segments_apart_after_the_ring_wrapped_around():
    passed = [int(item) for item, _ in filled(7, max_length=4).as_dataset(single_deterministic_pass=True)]
    assert passed == [3, 4, 5, 6, 103, 104, 105, 106]


def test_a_dataset_made_before_the_first_frame_works_later():
    buffer = filled(0)
    dataset = buffer.as_dataset(2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="empty"):
        next(iter(dataset))
    buffer.add_batch(tf.constant([1, 2], tf.int64))
    assert set(next(iter(dataset))[0].numpy().tolist()) <= {1, 2}


def test_checkpoints_and_files_restore_frames(tmp_path):
    buffer = filled(7, max_length=4)
    path = tf.train.Checkpoint(buffer=buffer).save(str(tmp_path / "checkpoint"))
    buffer.save(tmp_path / "file")
    by_checkpoint, by_file = filled(0, max_length=4), filled(0, max_length=4)
    tf.train.Checkpoint(buffer=by_checkpoint).restore(path).assert_consumed()
    by_file.load(tmp_path / "file")
    for other in (by_checkpoint, by_file):
        other.add_batch(tf.constant([7, 107], tf.int64))
        assert other.gather_all().numpy().tolist() == [[4, 5, 6, 7], [104, 105, 106, 107]]


def episodes(**options):
    buffer = EpisodicReplayBuffer(
        NUMBER, capacity=3, begin_episode_fn=lambda t: t % 100 == 0, end_episode_fn=lambda t: t % 100 == 2, **options
    )
    ids = buffer.create_episode_ids(2)
    for frames in ([0, 100], [1, 101], [2, 103], [200, 104]):
        ids = buffer.add_batch(tf.constant(frames, tf.int64), ids)
    return buffer


def test_an_episode_is_drawn_with_its_own_id():
    found = {}
    for items, id_ in episodes().as_dataset().take(60):
        found[int(id_)] = items.numpy().tolist()
    assert found == {0: [0, 1, 2], 1: [100, 101, 103, 104], 2: [200]}


def test_windows_lie_within_episodes():
    dataset = episodes(seed=1).as_dataset(sample_batch_size=5, num_steps=3)
    rows = {tuple(row) for items, _ in dataset.take(30) for row in items.numpy().tolist()}
    assert rows == {(0, 1, 2), (100, 101, 103), (101, 103, 104)}


def test_a_checkpoint_restores_episodes(tmp_path):
    buffer = episodes()
    path = tf.train.Checkpoint(buffer=buffer).save(str(tmp_path / "checkpoint"))
    other = EpisodicReplayBuffer(NUMBER, capacity=3, completed_only=True)
    tf.train.Checkpoint(buffer=other).restore(path)
    assert other.gather_all().numpy().tolist() == [[0, 1, 2]]
    assert other.get_valid_ids_mask(tf.constant([0, 2, 3], tf.int64)).numpy().tolist() == [True, True, False]


def test_a_stateful_buffer_can_be_an_observer():
    buffer = StatefulEpisodicReplayBuffer(
        EpisodicReplayBuffer(NUMBER, begin_episode_fn=lambda t: t == 0, end_episode_fn=lambda t: t == 1), 2
    )
    for frame in (0, 1, 0):
        buffer.add_batch(tf.constant([frame, frame], tf.int64))
    assert buffer.gather_all().numpy().tolist() == [[0, 1, 0, 1, 0, 0]]
    assert buffer.episode_ids.numpy().tolist() == [2, 3]


def lists_of(*frames):
    """Makes lists of frames, each of which is a list of numbers."""
    return tf.stack(
        [
            tf.raw_ops.TensorListFromTensor(tensor=tf.constant(part, tf.int64), element_shape=tf.constant([], tf.int32))
            for part in frames
        ]
    )


def extension(*frames, completed=None):
    lengths = [len(part) for part in frames]
    return Episodes(
        tf.constant(lengths, tf.int64), tf.constant(completed or [0] * len(frames), tf.uint8), lists_of(*frames)
    )


def contents(buffer):
    return {
        int(id_): items.numpy().tolist()
        for items, id_ in ((i, n.ids) for i, n in (buffer.get_next() for _ in range(60)))
    }


@pytest.mark.parametrize("in_graph", [False, True])
def test_episodes_are_extended_at_their_indices(in_graph):
    begins = [[False], [False, True]]
    buffer = EpisodicReplayBuffer(
        NUMBER, capacity=4, begin_episode_fn=lambda _: begins[0], end_episode_fn=lambda _: False
    )
    extend = tf.function(buffer.extend_episodes) if in_graph else buffer.extend_episodes
    ids = extend(buffer.create_episode_ids(4), tf.constant([0, 1, 2]), extension([100, 200], [999], [1, 2, 3]))
    assert ids.numpy().tolist() == [0, 1, 2, -1]
    begins.pop(0)
    extend = tf.function(buffer.extend_episodes) if in_graph else buffer.extend_episodes
    ids = extend(ids, tf.constant([1, 2]), extension([888], [4, 5, 6], completed=[0, 1]))
    assert ids.numpy().tolist() == [0, 1, 3, -1]
    assert contents(buffer) == {0: [100, 200], 1: [999, 888], 2: [1, 2, 3], 3: [4, 5, 6]}
    assert int(buffer.num_frames()) == 10
    assert buffer.extract(tf.constant([3, 0])).completed.numpy().tolist() == [1, 0]


@pytest.mark.parametrize("in_graph", [False, True])
def test_episodes_move_from_one_buffer_to_another(in_graph):
    one = episodes()
    other = EpisodicReplayBuffer(NUMBER, capacity=3, begin_episode_fn=lambda _: False, end_episode_fn=lambda _: False)

    def move(places):
        return other.extend_episodes(
            other.create_episode_ids(3), tf.constant([0, 2]), one.extract(places, clear_data=True)
        )

    move = tf.function(move) if in_graph else move
    assert move(tf.constant([1, 0], tf.int64)).numpy().tolist() == [0, -1, 1]
    assert contents(other) == {0: [100, 101, 103, 104], 1: [0, 1, 2]}
    assert other.extract([0, 1]).completed.numpy().tolist() == [0, 1]
    assert contents(one) == {2: [200]}
    # The episodes are still held, and can be extended.
    one.add_batch(tf.constant([5], tf.int64), tf.constant([1], tf.int64))
    assert contents(one) == {1: [5], 2: [200]}
    assert one.extract([1]).completed.numpy().tolist() == [0]


def test_an_evicted_episode_is_not_extended():
    buffer = EpisodicReplayBuffer(NUMBER, capacity=2, begin_episode_fn=lambda _: False, end_episode_fn=lambda _: False)
    buffer.extend_episodes(tf.constant([-1, -1, -1], tf.int64), [0, 1, 2], extension([0], [1], [2]))
    buffer.extend_episodes(tf.constant([0, 1], tf.int64), [0, 1], extension([7], [8], completed=[1, 0]))
    assert contents(buffer) == {1: [1, 8], 2: [2]}
    assert [int(length) for length in buffer.extract([0, 1]).length] == [1, 2]


def test_a_stateful_buffer_extends_its_current_episodes():
    inner = EpisodicReplayBuffer(NUMBER, begin_episode_fn=lambda _: False, end_episode_fn=lambda _: False)
    buffer = StatefulEpisodicReplayBuffer(inner, 3)
    assert buffer.extend_episodes([2, 0], extension([1, 2], [3])).numpy().tolist() == [1, -1, 0]
    buffer.extend_episodes([0], extension([4]))
    assert buffer.episode_ids.numpy().tolist() == [1, -1, 0]
    assert contents(inner) == {0: [1, 2], 1: [3, 4]}


def test_extensions_must_fit_the_buffer():
    buffer = EpisodicReplayBuffer(NUMBER, begin_episode_fn=lambda _: False, end_episode_fn=lambda _: False)
    ids = buffer.create_episode_ids(2)
    good = extension([1], [2])
    for indices, bad, message in (
        ([0, 1], good._replace(length=tf.constant([1, 2], tf.int64)), r"expected lists of \[1, 2\] frames"),
        ([0], good, "expected lists|shapes|broadcast|Incompatible"),
        ([0, 2], good, r"indices must lie in \[0, 2\), got \[0, 2\]"),
        ([0, 1], good._replace(tensor_lists=other_lists()), "dtype|data type"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            buffer.extend_episodes(ids, indices, bad)
    with pytest.raises(ValueError, match=r"expected lists of tensors, variants \[episodes\], got int64"):
        buffer.extend_episodes(ids, [0, 1], good._replace(tensor_lists=tf.zeros([2, 1], tf.int64)))
    with pytest.raises(ValueError, match="must be vectors"):
        buffer.extend_episodes(ids, [[0, 1]], good)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"locations must lie in \[0, 1000\), got \[1000\]"):
        buffer.extract([1000])
    assert int(buffer.num_frames()) == 0


def other_lists():
    """Makes lists of texts."""
    shape = tf.constant([], tf.int32)
    return tf.stack([tf.raw_ops.TensorListFromTensor(tensor=tf.constant(["a"]), element_shape=shape)] * 2)


def test_frames_without_is_first_and_is_last_need_functions():
    buffer = EpisodicReplayBuffer(NUMBER)
    with pytest.raises(TypeError, match="begin_episode_fn"):
        buffer.add_batch(tf.constant([1], tf.int64), buffer.create_episode_ids(1))


EXITING = """
    import tensorflow as tf
    from reverb.buffers.tf_uniform_replay_buffer import TFUniformReplayBuffer
    buffer = TFUniformReplayBuffer(tf.TensorSpec([1000], tf.float32, "x"), 1)
    buffer.add_batch(tf.zeros([1, 1000]))
    iterator = iter(buffer.as_dataset(32, 1, num_parallel_calls=2).prefetch(3))
    for _ in range(50):
        next(iterator)
"""


@pytest.mark.timeout(180)
def test_a_program_ends_while_its_iterators_are_running():
    for _ in range(3):
        run_program(EXITING)
