"""Vectors of Gymnasium environments, whose steps are written as they are made."""

import collections

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import adders
from reverb.tensor_spec import spec_from_leaf

gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium comes with the extra `minari`")

NUM_ENVS = 8
NUM_STEPS = 120
GAMMA = 0.9


@pytest.fixture
def client(serve):
    return serve(make_table(max_size=10_000, max_times_sampled=1))


def test_spaces_are_specs(serve):
    spaces = gymnasium.spaces
    for space in (
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiDiscrete(np.full((2, 3), 5), dtype=np.int32),
        spaces.Discrete(3),
        spaces.MultiBinary(2),
        spaces.Box(0, 1, (2, 2), np.float32),
    ):
        spec = spec_from_leaf(space)
        assert (spec.shape, spec.dtype) == (space.shape, space.dtype)
        client = serve(make_table(signature={"action": space}))
        client.insert({"action": space.sample()}, {"table": 1.0})
        assert client.sample_batch("table", 1).data["action"].dtype == space.dtype


def walk():
    """Steps CartPoles: yields observations, actions, rewards, next observations, both kinds of end, and the mask."""
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=25)] * NUM_ENVS)
    random = np.random.default_rng(3)
    observations, _ = envs.reset(seed=3)
    is_reset = np.zeros(NUM_ENVS, bool)
    for _ in range(NUM_STEPS):
        actions = random.integers(0, 2, NUM_ENVS)
        following, rewards, terminated, truncated, _ = envs.step(actions)
        # `step` returns the same arrays each time.
        yield observations.copy(), actions, rewards.copy(), following.copy(), terminated, truncated, ~is_reset
        is_reset = terminated | truncated
        observations = following.copy()


def episodes_of(steps):
    """Returns the steps of each episode by environment and time. The last episode of each may be unfinished."""
    episodes = [[[]] for _ in range(NUM_ENVS)]
    for *values, terminated, truncated, mask in steps:
        for env in np.flatnonzero(mask):
            episodes[env][-1].append([value[env] for value in values] + [terminated[env]])
            if terminated[env] or truncated[env]:
                episodes[env].append([])
    return episodes


def contents(client):
    """Counts how often each item is in the table, given by the bytes of its columns."""
    size = info_of(client).current_size
    return collections.Counter(
        tuple(np.asarray(column).tobytes() for column in sample.data) for sample in draw(client, size)
    )


def test_n_step_transitions_of_cart_poles_match_their_episodes(client):
    steps = list(walk())
    with adders.NStepTransitionAdder(client, "table", n=3, discount=GAMMA, num_envs=NUM_ENVS) as adder:
        for observation, action, reward, following, terminated, truncated, mask in steps:
            adder.add(observation, action, reward, following, terminated=terminated, truncated=truncated, mask=mask)
    expected = collections.Counter()
    num_ended = 0
    for episodes in episodes_of(steps):
        num_ended += len(episodes) - 1
        for number, episode in enumerate(episodes):
            for begin in range(len(episode)):
                window = episode[begin : begin + 3]
                if len(window) < 3 and number == len(episodes) - 1:
                    continue  # The episode has not ended yet.
                reward = sum(GAMMA**k * step[2] for k, step in enumerate(window))
                discount = 0.0 if window[-1][4] else GAMMA ** len(window)
                # In the order of their names: action, discount, next_observation, observation, reward.
                columns = (window[0][1], np.float32(discount), window[-1][3], window[0][0], np.float32(reward))
                expected[tuple(np.asarray(column).tobytes() for column in columns)] += 1
    assert num_ended > NUM_ENVS
    assert contents(client) == expected


def test_episodes_of_cart_poles_are_items_without_the_steps_that_only_reset(client):
    steps = list(walk())
    with adders.EpisodeAdder(client, "table", max_length=25, num_envs=NUM_ENVS) as adder:
        for observation, _, reward, _, terminated, truncated, mask in steps:
            step = {"observation": observation, "reward": reward}
            adder.add(step, last=terminated | truncated, mask=mask)
    expected = collections.Counter(
        (np.array([step[0] for step in episode]).tobytes(), np.array([step[2] for step in episode]).tobytes())
        for episodes in episodes_of(steps)
        for episode in episodes[:-1]
    )
    assert contents(client) == expected


def test_a_mask_without_a_vector_is_refused(client):
    with (
        adders.SequenceAdder(client, "table", length=2, period=2) as adder,
        pytest.raises(ValueError, match="made without `num_envs`"),
    ):
        adder.add({"x": 1}, mask=[True])
