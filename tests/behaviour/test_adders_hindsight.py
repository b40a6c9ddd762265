"""Transitions whose goal is replaced by one that the episode reached."""

import collections

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import _protos, adders

LENGTHS = (1, 4, 6)
PIXELS = 3


@pytest.fixture
def client(serve):
    return serve(make_table(max_size=10_000, max_times_sampled=1))


def reward_of(achieved, desired, info):
    """Takes one goal at a time, as the environments of Gymnasium-Robotics may."""
    assert np.shape(achieved) == np.shape(desired) == (2,)
    assert set(info) == {"bonus"}
    return info["bonus"] - float(np.linalg.norm(achieved - desired) > 0.5)


def observed(episode, t, num_envs=None):
    """The observation before step `t`, whose achieved goal tells the step."""
    envs = np.zeros(()) if num_envs is None else np.arange(num_envs)
    number = 10_000 * envs + 100 * episode + t
    return {
        "observation": np.repeat(number[..., None], PIXELS, -1).astype(np.float32),
        "achieved_goal": np.stack([number, -number], -1),
        "desired_goal": np.stack([-1 - envs, -1 - envs], -1),
    }


def play(adder, num_envs=None, episodes=(0, 1, 2), lengths=LENGTHS):
    for episode in episodes:
        length = lengths[episode]
        for t in range(length):
            number = np.float32(100 * episode + t)
            info = {"bonus": 10.0 * t}
            action, reward = number, 0.5
            if num_envs is not None:
                info = {"bonus": np.full(num_envs, 10.0 * t), "_bonus": np.ones(num_envs, bool)}
                action, reward = np.full(num_envs, number), np.full(num_envs, 0.5)
            is_last = t == length - 1
            adder.add(
                observed(episode, t, num_envs),
                action,
                reward,
                observed(episode, t + 1, num_envs),
                terminated=is_last and episode % 2 == 1,
                truncated=is_last and episode % 2 == 0,
                info=info,
            )


def make(client, **options):
    return adders.HindsightAdder(client, "table", discount=0.9, compute_reward=reward_of, **options)


def take_all(client):
    size = info_of(client).current_size
    return [[np.asarray(column) for column in sample.data] for sample in (draw(client, size) if size else [])]


def check(item, num_envs):
    """Checks an item against the episode, and returns its step and the step of its goal; None for its own goal."""
    action, discount, after_reached, after_goal, after, reached, goal, before, reward = item
    env, number = divmod(int(reached[0]), 10_000)
    episode, t = divmod(number, 100)
    length = LENGTHS[episode]
    assert env < (num_envs or 1)
    assert (before == reached[0]).all()
    assert (after == after_reached[0]).all()
    assert after_reached[0] == reached[0] + 1
    assert action == number
    assert (after_goal == goal).all()
    is_terminal = t == length - 1 and episode % 2 == 1
    assert discount == np.float32(0.0 if is_terminal else 0.9)
    if (goal == -1 - env).all():
        assert reward == 0.5
        return (env, episode, t), None
    assert goal[0] == -goal[1]
    assert int(goal[0]) // 100 == int(reached[0]) // 100
    assert reward == np.float32(10.0 * t - (abs(goal[0] - after_reached[0]) > 0))
    return (env, episode, t), int(goal[0]) % 100


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_each_step_gives_its_transition_and_k_with_reached_goals(client, strategy, num_envs):
    with make(client, strategy=strategy, k=3, num_envs=num_envs, seed=1) as adder:
        play(adder, num_envs)
    goals = collections.defaultdict(list)
    for item in take_all(client):
        step, goal = check(item, num_envs)
        goals[step].append(goal)
    envs = range(num_envs or 1)
    assert sorted(goals) == [(e, n, t) for e in envs for n, length in enumerate(LENGTHS) for t in range(length)]
    before = set()
    for (_, episode, t), chosen in goals.items():
        assert chosen.count(None) == 1
        relabelled = [goal for goal in chosen if goal is not None]
        assert len(relabelled) == 3
        length = LENGTHS[episode]
        earliest = {"future": t + 1, "final": length, "episode": 1}[strategy]
        assert all(earliest <= goal <= length for goal in relabelled)
        before |= {goal - t for goal in relabelled}
    # Random goals vary; only those of `episode` lie before the step.
    assert (min(before) < 1) == (strategy == "episode")
    assert len(before) > 3


def test_no_other_goals(client):
    with make(client, k=0) as adder:
        play(adder)
    assert [check(item, None)[1] for item in take_all(client)] == [None] * sum(LENGTHS)


def test_the_seed_decides_the_goals(serve):
    def goals(seed):
        client = serve(make_table(max_times_sampled=1))
        with make(client, seed=seed) as adder:
            play(adder)
        return [check(item, None) for item in take_all(client)]

    assert goals(5) == goals(5)
    assert goals(5) != goals(6)


def test_environments_whose_episodes_end_at_different_times(client):
    lengths = np.array([2, 3, 5])
    steps = np.zeros(3, np.int64)
    with make(client, num_envs=3, strategy="final", k=1) as adder:
        for _ in range(15):
            goals = np.stack([steps, -steps], -1)
            rows = {"observation": steps * 1.0, "achieved_goal": goals, "desired_goal": goals * 0 - 7}
            after = {**rows, "observation": steps + 1.0, "achieved_goal": np.stack([steps + 1, -steps - 1], -1)}
            info = {"bonus": np.zeros(3), "_bonus": np.ones(3, bool)}
            adder.add(rows, steps, np.zeros(3), after, truncated=steps + 1 == lengths, info=info)
            steps = (steps + 1) % lengths
    goals = collections.Counter(int(item[6][0]) for item in take_all(client))
    assert goals == {-7: 44, 2: 14, 3: 15, 5: 15}


def test_other_goals_may_end_the_episode(client):
    def is_reached(achieved, desired, info):
        return bool((achieved == desired).all())

    with make(client, strategy="final", k=1, compute_terminated=is_reached) as adder:
        play(adder, episodes=[0], lengths=(3,))
    discounts = [(int(item[0]), check_goal(item), float(item[1])) for item in take_all(client)]
    gamma = float(np.float32(0.9))
    assert discounts == [(t, goal, 0.0 if goal and t == 2 else gamma) for t in range(3) for goal in (False, True)]


def check_goal(item):
    return bool(item[6][0] >= 0)


def test_items_of_a_step_have_its_priority(client):
    with make(client, k=2) as adder:
        for t, priority in enumerate((3.0, None, 5.0)):
            info = {"bonus": 0.0}
            adder.add(observed(0, t), 0, 0.0, observed(0, t + 1), truncated=t == 2, info=info, priority=priority)
    samples = draw(client, info_of(client).current_size)
    assert [sample.info.priority for sample in samples] == [3.0] * 3 + [1.0] * 3 + [5.0] * 3


def test_an_episode_that_is_cut_gives_its_items(client):
    with make(client, k=1) as adder:
        adder.add(observed(0, 0), 0, 0.0, observed(0, 1), info={"bonus": 0.0})
        assert info_of(client).current_size == 0
        adder.end_episode()
        adder.end_episode()
    assert info_of(client).current_size == 2


class TroubleError(Exception):
    """What a program's own function raises."""


def take_steps(client, num_envs=None):
    """The steps of all items, which are checked, with the number of their items."""
    return collections.Counter(check(item, num_envs)[0] for item in take_all(client))


def items_of(episodes, envs=(0,), k=2):
    return {(env, n, t): 1 + k for env in envs for n in episodes for t in range(LENGTHS[n])}


@pytest.mark.parametrize("error", [TroubleError, KeyboardInterrupt])
@pytest.mark.parametrize("function", ["compute_reward", "compute_terminated"])
@pytest.mark.parametrize("at", [0, 5])
def test_an_error_of_a_function_drops_one_episode(client, function, error, at):
    calls = []

    def fails(achieved, desired, info):
        calls.append(1)
        if len(calls) == at + 1 + 2 * LENGTHS[0]:
            raise error
        # A step is terminal for another goal as it was for its own.
        return reward_of(achieved, desired, info) if function == "compute_reward" else bool(info["bonus"] == 30.0)

    options = {"compute_reward": reward_of, function: fails}
    with adders.HindsightAdder(client, "table", discount=0.9, k=2, **options) as adder:
        play(adder, episodes=[0])
        with pytest.raises(error):
            play(adder, episodes=[1])
        # Nothing is left that could end.
        adder.end_episode()
        play(adder, episodes=[2])
    items = take_all(client)
    if function == "compute_reward":
        assert collections.Counter(check(item, None)[0] for item in items) == items_of([0, 2])
    else:
        assert {int(item[5][0]) // 100 for item in items} == {0, 2}
        assert len(items) == 3 * (LENGTHS[0] + LENGTHS[2])


@pytest.mark.parametrize("method", ["append", "create_items"])
@pytest.mark.parametrize("error", [TroubleError, KeyboardInterrupt])
def test_an_error_in_the_midst_of_an_episode_leaves_the_next_whole(client, monkeypatch, method, error):
    adder = make(client, k=2)
    play(adder, episodes=[0, 1])
    adder.flush()
    before = take_steps(client)
    writer, original, calls = adder._writer, getattr(adder._writer, method), []

    def fails(*given, **named):
        calls.append(1)
        if len(calls) == 8:
            raise error
        return original(*given, **named)

    monkeypatch.setattr(writer, method, fails)
    with pytest.raises(error):
        play(adder, episodes=[0, 1])
    monkeypatch.undo()
    # What was made of the episode before the error.
    adder.flush()
    take_all(client)
    play(adder)
    adder.flush()
    assert before == items_of([0, 1])
    assert take_steps(client) == items_of([0, 1, 2])
    adder.close()


def test_an_error_in_one_environment_takes_no_other_with_it(client):
    failing = []

    def fails(achieved, desired, info):
        if failing and achieved[0] // 10_000 == failing[0]:
            raise TroubleError
        return reward_of(achieved, desired, info)

    with adders.HindsightAdder(client, "table", discount=0.9, compute_reward=fails, k=2, num_envs=3) as adder:
        failing.append(1)
        with pytest.raises(TroubleError):
            play(adder, 3, episodes=[0])
        failing.clear()
        adder.end_episode()
        play(adder, 3)
    got = take_steps(client, 3)
    once, twice = items_of([0, 1, 2], [0, 1, 2]), items_of([0], [0, 2])
    assert got == {step: number + twice.get(step, 0) for step, number in once.items()}


def test_a_step_that_is_refused_in_one_environment_is_added_in_none(client):
    with make(client, k=2, num_envs=2) as adder:
        short = {**observed(0, 0, 2), "observation": np.zeros((1, PIXELS), np.float32)}
        for before, after in ((short, observed(0, 1, 2)), (observed(0, 0, 2), short)):
            with pytest.raises(ValueError, match="made with num_envs=2"):
                adder.add(before, np.zeros(2, np.float32), 0.5, after, info=None)
        play(adder, 2)
    assert take_steps(client, 2) == items_of([0, 1, 2], [0, 1])


def test_items_share_their_observations(serve):
    client = serve(make_table(max_size=1000))
    with make(client, k=4) as adder:
        for t in range(100):
            before, after = ({**observed(0, i), "observation": np.full(1000, i, np.float32)} for i in (t, t + 1))
            adder.add(before, 0, 0.0, after, truncated=t == 99, info={"bonus": 0.0})
    assert info_of(client).current_size == 500
    status_class = _protos.message_class("reverb.replay.v1.TableStatus")
    (status,) = client.engine.table_statuses(20.0)
    # Ten observations of 4 kB for each step, if they were copied.
    assert status_class.FromString(status).size_bytes / 100 < 4500


def test_steps_come_from_environments(client):
    gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium comes with the extra `minari`")

    class Reach(gymnasium.Env):
        """Walks to the right; an episode is cut off after three steps."""

        def __init__(self):
            box = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
            names = ("achieved_goal", "desired_goal", "observation")
            self.observation_space = gymnasium.spaces.Dict(dict.fromkeys(names, box))
            self.action_space = gymnasium.spaces.Discrete(2)

        def _observed(self):
            place = np.array([self._steps, 0.0])
            return {"achieved_goal": place, "desired_goal": np.array([9.0, 0.0]), "observation": place}

        def reset(self, *, seed=None, options=None):
            self._steps = 0
            return self._observed(), {"bonus": 0.0}

        def step(self, action):
            self._steps += 1
            return self._observed(), -1.0, False, self._steps == 3, {"bonus": float(self._steps)}

    for mode in gymnasium.vector.AutoresetMode:
        if mode is gymnasium.vector.AutoresetMode.DISABLED:
            continue
        envs = gymnasium.vector.SyncVectorEnv([Reach] * 2, autoreset_mode=mode)
        with make(client, k=1, num_envs=2, strategy="final") as adder:
            recorded = adder.add_from(envs)
            recorded.reset()
            for _ in range(3):
                recorded.step(np.zeros(2, np.int64))
        got = take_all(client)
        expected = [(t, goal) for t in range(3) for goal in (9.0, 3.0)] * 2
        assert sorted((int(item[5][0]), item[6][0]) for item in got) == sorted(expected)
        assert {float(item[8]) for item in got if item[6][0] == 3.0} == {0.0, 1.0, 3.0}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"strategy": "past"}, "must be 'future', 'final' or 'episode', got 'past'"),
        ({"k": -1}, "`k` must be at least 0"),
        ({"discount": 1.5}, r"`discount` must be in \[0, 1\]"),
        ({"priority": "most"}, "must be a number or 'max', got 'most'"),
    ],
)
def test_wrong_arguments_are_refused(client, options, text):
    with pytest.raises(ValueError, match=text):
        adders.HindsightAdder(client, "table", **{"discount": 0.9, "compute_reward": reward_of, **options})


def test_observations_without_goals_are_refused(client):
    with pytest.raises(ValueError, match="`observation` must be a dict of observation, achieved_goal, desired_goal"):
        make(client).add({"observation": 1}, 0, 0.0, observed(0, 1))
    with pytest.raises(ValueError, match=r"observation/achieved_goal has shape \[2\]; this adder was made with"):
        make(client, num_envs=3).add(observed(0, 0), np.zeros(3), 0.0, observed(0, 1))
