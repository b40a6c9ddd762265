"""The items that adders make from the steps of one environment, or of a vector of environments."""

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import adders

GAMMA = 0.9


@pytest.fixture
def client(serve):
    return serve(make_table(max_times_sampled=1))


def take_all(client):
    """Returns the items in order, each a flat list of its columns as Python values."""
    size = info_of(client).current_size
    return [[np.asarray(column).tolist() for column in sample.data] for sample in (draw(client, size) if size else [])]


def n_step_targets(rewards, terminated, n):
    """Returns the n-step transitions of one episode, from their definition: begin, reward, discount, next."""
    items = []
    for begin in range(len(rewards)):
        end = min(begin + n, len(rewards))
        total, factor = 0.0, 1.0
        for i in range(begin, end):
            total += factor * rewards[i]
            factor *= GAMMA * (0.0 if terminated and i == len(rewards) - 1 else 1.0)
        items.append((begin, total, factor, end))
    return items


def check_transitions(got, expected):
    # Columns in the order of their names: action, discount, next_observation, observation, reward.
    assert len(got) == len(expected)
    for (action, discount, after, observation, reward), (begin, total, factor, end) in zip(got, expected, strict=True):
        assert (action, observation, after) == (100 + begin, begin, end)
        assert reward == pytest.approx(total, rel=1e-6)
        assert discount == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("length", [1, 2, 4, 9])
def test_n_step_transitions_follow_their_definition(client, n, terminated, length):
    rewards = np.random.default_rng(7).standard_normal(length)
    with adders.NStepTransitionAdder(client, "table", n=n, discount=GAMMA, dtype=np.float64) as adder:
        for _ in range(2):
            for i, reward in enumerate(rewards):
                ends = i == length - 1
                adder.add(i, 100 + i, reward, i + 1, terminated=ends and terminated, truncated=ends and not terminated)
    expected = sorted(n_step_targets(rewards, terminated, n))
    got = take_all(client)
    half = len(got) // 2
    for episode in (got[:half], got[half:]):
        check_transitions(sorted(episode, key=lambda item: item[3]), expected)


def test_transitions_of_a_vector_equal_those_of_separate_environments(client):
    lengths = [3, 5, 2]
    rewards = np.random.default_rng(7).standard_normal((10, 3))
    steps = np.zeros(3, np.int64)
    episodes = [[], [], []]
    expected = []
    with adders.NStepTransitionAdder(client, "table", n=3, discount=GAMMA, num_envs=3, dtype=np.float64) as adder:
        for t in range(10):
            ends = steps + 1 == lengths
            adder.add(steps, 100 + steps, rewards[t], steps + 1, terminated=ends)
            for env in range(3):
                episodes[env].append(rewards[t, env])
                if ends[env]:
                    expected += n_step_targets(episodes[env], True, 3)
                    episodes[env] = []
            steps = np.where(ends, 0, steps + 1)
        unfinished = [n_step_targets(rewards, False, 3)[: max(0, len(rewards) - 2)] for rewards in episodes]
    expected += [item for items in unfinished for item in items]

    def by_value(item):
        return tuple(round(float(value), 9) for value in item)

    got = sorted(by_value((o, r, d, after)) for _, d, after, o, r in take_all(client))
    assert got == sorted(map(by_value, expected))


def windows(num_steps, length, period, end):
    """Returns the windows of one episode, from their definition."""
    made = [list(range(first, first + length)) for first in range(0, max(0, num_steps - length) + 1, period)]
    made = [window for window in made if window[-1] < num_steps]
    reached = made[-1][-1] + 1 if made else 0
    if reached == num_steps or end == "drop":
        return made
    first = made[-1][0] + period if made else 0
    rest = list(range(first, num_steps))
    if not rest:
        return made
    return [*made, rest if end == "truncate" else rest + [0] * (length - len(rest))]


@pytest.mark.parametrize("end", ["truncate", "pad", "drop"])
@pytest.mark.parametrize(("length", "period"), [(4, 4), (4, 2), (4, 1), (3, 5), (1, 1)])
@pytest.mark.parametrize("num_envs", [None, 2])
def test_windows_follow_their_definition(client, end, length, period, num_envs):
    with adders.SequenceAdder(client, "table", length=length, period=period, end=end, num_envs=num_envs) as adder:
        expected = []
        for num_steps in (1, 3, 4, 5, 9, 12):
            for i in range(num_steps):
                adder.add({"x": i if num_envs is None else np.full(num_envs, i)}, last=i == num_steps - 1)
            expected += windows(num_steps, length, period, end) * (num_envs or 1)
    got = [item[0] for item in take_all(client)]
    if num_envs is None:
        assert got == expected
    else:
        assert sorted(got) == sorted(expected)


def test_windows_of_environments_whose_episodes_end_at_different_times(client):
    with adders.SequenceAdder(client, "table", length=3, period=3, end="pad", num_envs=2) as adder:
        steps = np.zeros(2, np.int64)
        for _ in range(8):
            ends = steps + 1 == [2, 4]
            adder.add({"x": steps + np.array([10, 20])}, last=ends)
            steps = np.where(ends, 0, steps + 1)
    got = sorted(item[0] for item in take_all(client))
    assert got == sorted([[10, 11, 0]] * 4 + [[20, 21, 22], [23, 0, 0]] * 2)


@pytest.mark.parametrize("num_envs", [None, 3])
def test_an_episode_is_one_item(client, num_envs):
    with adders.EpisodeAdder(client, "table", max_length=5, num_envs=num_envs) as adder:
        for num_steps in (1, 5, 2):
            for i in range(num_steps):
                adder.add({"x": i if num_envs is None else np.full(num_envs, i)}, last=i == num_steps - 1)
    assert [item[0] for item in take_all(client)] == [
        list(range(num_steps)) for num_steps in (1, 5, 2) for _ in range(num_envs or 1)
    ]


def test_an_episode_that_is_too_long_is_refused(client):
    adder = adders.EpisodeAdder(client, "table", max_length=2)
    adder.add(1)
    adder.add(2)
    with pytest.raises(ValueError, match="`max_length` is 2"):
        adder.add(3)


@pytest.mark.parametrize(
    "make",
    [
        lambda client: adders.NStepTransitionAdder(client, "table", n=0, discount=0.9),
        lambda client: adders.NStepTransitionAdder(client, "table", n=1, discount=1.1),
        lambda client: adders.SequenceAdder(client, "table", length=0, period=1),
        lambda client: adders.SequenceAdder(client, "table", length=1, period=0),
        lambda client: adders.SequenceAdder(client, "table", length=1, period=1, end="stop"),
        lambda client: adders.EpisodeAdder(client, "table", max_length=0),
        lambda client: adders.EpisodeAdder(client, "table", max_length=1, num_envs=0),
    ],
)
def test_numbers_out_of_range_are_refused(client, make):
    with pytest.raises(ValueError, match="must"):
        make(client)
