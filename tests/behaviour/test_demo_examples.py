"""Examples from the reference's notebook and from the survey of its clients."""

import numpy as np
import pytest
from behaviour_support import Background, draw, info_of, make_table

import reverb
from reverb import _protos, errors, rate_limiters, selectors

ALPHA = 0.8
RNG = np.random.default_rng(0)
STEP = [np.zeros(4), np.ones(1), np.ones(1), np.zeros(4), np.zeros(1)]


def prioritized_table(name, limiter=None, **options):
    return make_table(name, sampler=selectors.Prioritized(ALPHA), limiter=limiter, max_size=1_000_000, **options)


def observe():
    return RNG.integers(0, 256, (10, 10)).astype(np.uint8)


def act():
    return RNG.integers(0, 2, 2).astype(np.float32)


def test_overlapping_trajectories(serve):
    signature = {
        "actions": reverb.TensorSpec([3, 2], np.float32),
        "observations": reverb.TensorSpec([3, 10, 10], np.uint8),
    }
    client = serve(prioritized_table("my_table", rate_limiters.MinSize(2), signature=signature))
    observations, actions = [], []
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in range(4):
            observations.append(observe())
            actions.append(act())
            writer.append({"action": actions[-1], "observation": observations[-1]})
            if step >= 2:
                writer.create_item(
                    table="my_table",
                    priority=1.5,
                    trajectory={
                        "actions": writer.history["action"][-3:],
                        "observations": writer.history["observation"][-3:],
                    },
                )
    info = info_of(client, "my_table")
    assert info.current_size == 2
    assert info.signature["observations"].shape.as_list() == [3, 10, 10]
    seen = {0: 0, 1: 0}
    for sample in client.sample("my_table", 40, emit_timesteps=False, unpack_as_table_signature=True):
        first = next(i for i in seen if np.array_equal(sample.data["actions"], actions[i : i + 3]))
        np.testing.assert_array_equal(sample.data["observations"], observations[first : first + 3])
        assert (sample.info.priority, sample.info.probability) == (1.5, 0.5)
        seen[first] += 1
    assert min(seen.values()) > 0


def test_complete_episodes(serve):
    length, episodes = 50, 4
    signature = {
        "actions": reverb.TensorSpec([length, 2], np.float32),
        "observations": reverb.TensorSpec([length + 1, 10, 10], np.uint8),
    }
    client = serve(prioritized_table("my_table", rate_limiters.MinSize(2), signature=signature))
    with client.trajectory_writer(num_keep_alive_refs=length + 1) as writer:
        for _ in range(episodes):
            for _ in range(length):
                writer.append({"action": act(), "observation": observe()})
            assert writer.episode_steps == length
            # The last observation has no action.
            writer.append({"observation": observe()})
            with pytest.raises(ValueError, match="None data references"):
                writer.history["action"][:]
            writer.create_item(
                table="my_table",
                priority=1.5,
                trajectory={"actions": writer.history["action"][:-1], "observations": writer.history["observation"][:]},
            )
            writer.end_episode(timeout_ms=10_000)
            assert (len(writer.history["action"]), writer.episode_steps) == (0, 0)
    info = info_of(client, "my_table")
    assert (info.current_size, info.num_episodes) == (episodes, episodes)
    batch = client.sample_batch("my_table", 128)
    assert batch.data["observations"].shape == (128, length + 1, 10, 10)
    assert batch.data["actions"].shape == (128, length, 2)
    np.testing.assert_allclose(batch.info.probability, 1 / episodes)


def test_several_tables(serve):
    client = serve(prioritized_table("my_table_a"), prioritized_table("my_table_b"))
    steps = []
    with client.trajectory_writer(num_keep_alive_refs=3) as writer:
        for step in range(4):
            steps.append(observe())
            writer.append({"timestep": steps[-1]})
            if step >= 1:
                writer.create_item("my_table_b", 4 - step, writer.history["timestep"][-2:])
            if step >= 2:
                writer.create_item("my_table_a", 4 - step, writer.history["timestep"][-3:])
    for name, span, priorities in (("my_table_a", 3, (2.0, 1.0)), ("my_table_b", 2, (3.0, 2.0, 1.0))):
        assert info_of(client, name).current_size == len(priorities)
        weights = {p: p**ALPHA / sum(q**ALPHA for q in priorities) for p in priorities}
        for timesteps in client.sample(name, num_samples=20):
            first = timesteps[0]
            assert len(timesteps) == span
            np.testing.assert_allclose(first.info.probability, weights[first.info.priority])
            end = int(4 - first.info.priority) + 1
            np.testing.assert_array_equal(np.stack([t.data[0] for t in timesteps]), np.stack(steps[end - span : end]))


def test_highest_first_and_lowest_leaves(serve):
    max_size = 1000
    client = serve(
        make_table(
            "my_priority_queue",
            sampler="max_heap",
            remover="min_heap",
            max_size=max_size,
            limiter=rate_limiters.MinSize(int(0.95 * max_size)),
            max_times_sampled=1,
        )
    )
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for value in range(max_size + 5):
            writer.append(value)
            writer.create_item("my_priority_queue", float(value), writer.history[-1:])
    assert info_of(client, "my_priority_queue").current_size == max_size
    drawn = [next(client.sample("my_priority_queue"))[0].info.priority for _ in range(3)]
    assert drawn == [1004.0, 1003.0, 1002.0]
    assert info_of(client, "my_priority_queue").current_size == max_size - 3


def test_rate_limits(serve):
    table = prioritized_table(
        "my_table", rate_limiters.SampleToInsertRatio(samples_per_insert=3.0, min_size_to_sample=3, error_buffer=3.0)
    )
    limits = table.info.rate_limiter_info
    assert (limits.min_diff, limits.max_diff) == (6.0, 12.0)
    client = serve(table)

    def put(value, timeout_ms=None):
        with client.trajectory_writer(num_keep_alive_refs=1) as writer:
            writer.append(value)
            writer.create_item("my_table", 1.0, writer.history[-1:])
            writer.flush(timeout_ms=timeout_ms)

    for value in range(4):
        put(value)
    assert (table.can_insert(1), table.can_sample(6), table.can_sample(7)) == (False, True, False)
    inserter = Background(put, 4)
    assert info_of(client, "my_table").current_size == 4
    assert inserter.is_running
    assert len(list(client.sample("my_table", 3))) == 3
    inserter.result()
    assert info_of(client, "my_table").current_size == 5
    with pytest.raises(errors.DeadlineExceededError):
        put(5, timeout_ms=200)


def test_three_ways_to_save_checkpoints(serve):
    client = serve(prioritized_table("table"), prioritized_table("other"))
    client.insert(STEP, priorities={"table": 1.0, "other": np.ones(1)})
    with client.writer(max_sequence_length=3) as writer:
        writer.append(STEP)
        writer.create_item("table", num_timesteps=1, priority=1.0)
        writer.append(STEP)
        writer.append(STEP)
        writer.create_item("table", num_timesteps=3, priority=1.0)
    assert isinstance(writer, reverb.Writer)
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        writer.append(STEP)
        writer.create_item("table", 1.0, [column[-1:] for column in writer.history])
    assert (info_of(client).current_size, info_of(client, "other").current_size) == (4, 1)
    lengths = set()
    for item in client.sample("table", num_samples=64):
        lengths.add(len(item))
        for step in item:
            assert [column.shape for column in step.data] == [(4,), (1,), (1,), (4,), (1,)]
        assert (item[0].info.table_size, item[0].info.probability) == (4, 0.25)
    assert lengths == {1, 3}


def test_atari_like_stacks_store_each_frame_once(serve):
    client = serve(make_table())
    frames = 400
    with client.trajectory_writer(num_keep_alive_refs=4) as writer:
        for i in range(frames):
            writer.append({"frame": np.full((84, 84), i % 256, np.uint8), "reward": np.float32(i)})
            if i >= 3:
                history = writer.history
                writer.create_item("table", 1.0, {"stack": history["frame"][-4:], "reward": history["reward"][-1]})
    batch = client.sample_batch("table", 1)
    assert batch.data[1].shape == (1, 4, 84, 84)
    assert batch.data[1][0, :, 0, 0].tolist() == [0, 1, 2, 3]
    # Bytes of all chunks that the items refer to.
    status_class = _protos.message_class("reverb.replay.v1.TableStatus")
    [status] = client.engine.table_statuses(None)
    assert status_class.FromString(status).size_bytes <= 1.1 * frames * 84 * 84
    assert draw(client)[0].data[0].shape == ()
