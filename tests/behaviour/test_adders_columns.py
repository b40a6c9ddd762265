"""Columns that adders treat differently: stored once a window, with a row after the last step, or stacked frames."""

import numpy as np
import pytest
from behaviour_support import draw, eventually, info_of, make_table

from reverb import _protos, adders

PERIOD = 3


@pytest.fixture
def client(serve):
    return serve(make_table(max_times_sampled=1))


def take_all(client):
    size = info_of(client).current_size
    return [[np.asarray(column) for column in sample.data] for sample in (draw(client, size) if size else [])]


def rows(num_envs, **columns):
    """One step: the values alone, or once for each environment, told apart by their thousands."""
    if num_envs is None:
        return {name: np.float32(value) for name, value in columns.items()}
    offsets = 1000 * np.arange(num_envs, dtype=np.float32)
    return {name: np.float32(value) + offsets for name, value in columns.items()}


def stored_bytes(client, table):
    """The bytes of a table's data, as `reverb info` shows them."""
    status_class = _protos.message_class("reverb.replay.v1.TableStatus")
    statuses = [status_class.FromString(status) for status in client.engine.table_statuses(20.0)]
    return next(status.size_bytes for status in statuses if status.info.name == table)


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("end", ["truncate", "pad", "drop"])
def test_first_columns_have_the_value_of_the_first_step(client, num_envs, end):
    options = {"length": 4, "period": PERIOD, "end": end, "num_envs": num_envs, "first": ("state",)}
    with adders.SequenceAdder(client, "table", **options) as adder:
        for num_steps in (2, 4, 9):
            for i in range(num_steps):
                adder.add(rows(num_envs, state=100 + i, x=i), last=i == num_steps - 1)
    got = take_all(client)
    assert got
    for state, x in got:
        assert state.shape == ()
        assert x.ndim == 1
        assert state == 100 + x[0]
    lengths = {"truncate": [2, 4, 4, 4, 3], "pad": [4, 4, 4, 4, 4], "drop": [4, 4, 4]}[end]
    assert sorted(len(x) for _, x in got) == sorted(lengths * (num_envs or 1))


def test_first_columns_of_environments_that_begin_at_different_times(client):
    with adders.SequenceAdder(client, "table", length=2, period=2, num_envs=3, first="state") as adder:
        steps = np.zeros(3, np.int64)
        for t in range(12):
            mask = np.array([True, t % 3 != 0, t > 4])
            ends = steps + 1 == [3, 4, 5]
            adder.add({"state": 100 + steps, "x": steps}, last=ends, mask=mask)
            steps = np.where(mask, np.where(ends, 0, steps + 1), steps)
    got = take_all(client)
    assert len(got) > 10
    assert all(state == 100 + x[0] for state, x in got)


def test_names_that_the_step_lacks_are_refused(client):
    with (
        adders.SequenceAdder(client, "table", length=2, period=2, first=("stat",)) as adder,
        pytest.raises(ValueError, match="`first` names 'stat', but the step has: state/c, state/h, x"),
    ):
        adder.add({"state": {"c": 1, "h": 2}, "x": 1})


@pytest.mark.parametrize("num_envs", [None, 4])
def test_other_values_of_first_columns_are_not_stored(serve, num_envs):
    client = serve(make_table("first"), make_table("all"))
    state = np.zeros((num_envs or 1, 512), np.float32)
    state = state if num_envs else state[0]
    for table, first in (("first", ("state",)), ("all", ())):
        with adders.SequenceAdder(client, table, length=40, period=20, num_envs=num_envs, first=first) as adder:
            for i in range(200):
                adder.add({"state": state, **rows(num_envs, x=i)}, last=i == 199)
        eventually(lambda table=table: info_of(client, table).current_size == 9 * (num_envs or 1))
    assert stored_bytes(client, "first") * 15 < stored_bytes(client, "all")


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("end", ["truncate", "pad", "drop"])
@pytest.mark.parametrize("kind", ["sequence", "episode"])
def test_final_columns_also_have_the_value_after_the_last_step(client, num_envs, end, kind):
    if kind == "sequence":
        options = {"length": 4, "period": PERIOD, "end": end}
        adder = adders.SequenceAdder(client, "table", num_envs=num_envs, final=("observation",), **options)
        lengths = {"truncate": [2, 4, 4, 4, 3], "pad": [4, 4, 4, 4, 4], "drop": [4, 4, 4]}[end]
    else:
        adder = adders.EpisodeAdder(client, "table", max_length=9, num_envs=num_envs, final="observation")
        lengths = [2, 4, 9]
    with adder:
        for num_steps in (2, 4, 9):
            for i in range(num_steps):
                following = rows(num_envs, observation=10 + i + 1)
                adder.add(rows(num_envs, observation=10 + i, x=i), last=i == num_steps - 1, final=following)
    got = take_all(client)
    assert sorted(len(x) for _, x in got) == sorted(lengths * (num_envs or 1))
    for observation, x in got:
        assert len(observation) == len(x) + 1
        steps = np.flatnonzero(observation)[:-1]
        assert observation[steps].tolist() == (10 + x[steps]).tolist()
        assert observation[len(steps)] == 10 + x[steps[-1]] + 1


def test_final_columns_are_needed_with_each_step(client):
    with (
        adders.SequenceAdder(client, "table", length=2, period=2, final=("observation",)) as adder,
        pytest.raises(ValueError, match="`final` must have 'observation' after the step"),
    ):
        adder.add({"observation": 1, "x": 1})


def frames_of(num_steps):
    return np.arange(num_steps + 1, dtype=np.int64) + 1


def stacked(frames, t, count):
    """The last `count` frames up to that of step `t`; the first is repeated, as Gymnasium's wrapper does."""
    return [int(frames[max(0, t - i)]) for i in reversed(range(count))]


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("n", [1, 3])
def test_transitions_have_the_last_frames(client, num_envs, n):
    def one(value):
        return value if num_envs is None else np.full(num_envs, value)

    options = {"n": n, "discount": 1.0, "num_envs": num_envs, "stack": {"observation/pixels": 4}}
    expected = []
    with adders.NStepTransitionAdder(client, "table", **options) as adder:
        for num_steps in (1, 2, 7):
            frames = frames_of(num_steps)
            for t in range(num_steps):
                now, after = ({"pixels": one(frames[i]), "t": one(i)} for i in (t, t + 1))
                adder.add(now, one(t), one(1.0), after, truncated=t == num_steps - 1)
            for t in range(num_steps):
                last = min(t + n, num_steps)
                expected.append((stacked(frames, t, 4), t, stacked(frames, last, 4), last, last - t))
    # In the order of their names: action, discount, next_observation, observation, reward.
    got = [
        (before.tolist(), int(t), after.tolist(), int(last), int(reward))
        for action, _, after, last, before, t, reward in take_all(client)
        if action == t
    ]
    assert sorted(got) == sorted(expected * (num_envs or 1))


def test_frames_of_environments_whose_episodes_begin_at_different_times(client):
    stack = {"observation": 3}
    steps = np.zeros(3, np.int64)
    lengths = np.array([2, 3, 5])
    with adders.NStepTransitionAdder(client, "table", n=1, discount=1.0, num_envs=3, stack=stack) as adder:
        for _ in range(15):
            adder.add(steps, steps, np.zeros(3), steps + 1, terminated=steps + 1 == lengths)
            steps = (steps + 1) % lengths
    got = take_all(client)
    assert len(got) == 45
    for action, _, after, before, _ in got:
        assert before.tolist() == stacked(np.arange(9), int(action), 3)
        assert after.tolist() == stacked(np.arange(9), int(action) + 1, 3)


@pytest.mark.parametrize("final", [(), ("observation",)])
@pytest.mark.parametrize("num_envs", [None, 2])
def test_windows_begin_with_the_frames_before_their_first_step(client, num_envs, final):
    options = {"length": 3, "period": 2, "num_envs": num_envs, "stack": {"observation": 4}, "final": final}
    with adders.SequenceAdder(client, "table", **options) as adder:
        for num_steps in (2, 6):
            for i in range(num_steps):
                following = rows(num_envs, observation=10 + i + 1) if final else None
                adder.add(rows(num_envs, observation=10 + i, x=i), last=i == num_steps - 1, final=following)
    got = take_all(client)
    assert sorted(len(x) for _, x in got) == sorted([2, 3, 3, 2] * (num_envs or 1))
    for observation, x in got:
        offset, first, count = x[0] // 1000 * 1000, int(x[0] % 1000), len(x) + len(final)
        expected = [offset + 10 + max(0, first + i) for i in range(-3, count)]
        assert observation.tolist() == expected


def test_items_share_their_frames(serve):
    """56 kB an item are 8 frames of 84 x 84: two stacks of 4."""
    client = serve(make_table("shared", max_size=1000), make_table("copied", max_size=1000))
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (201, 84, 84), np.uint8)
    with adders.NStepTransitionAdder(client, "shared", n=1, discount=0.99, stack={"observation": 4}) as adder:
        for t in range(200):
            adder.add(frames[t], t, 0.0, frames[t + 1], truncated=t == 199)
    with adders.NStepTransitionAdder(client, "copied", n=1, discount=0.99) as adder:
        for t in range(10):
            adder.add(np.stack([frames[t]] * 4), t, 0.0, np.stack([frames[t + 1]] * 4), truncated=t == 9)
    assert info_of(client, "shared").current_size == 200
    assert stored_bytes(client, "shared") / 200 < 7500
    assert stored_bytes(client, "copied") / 10 > 56_000
