"""Environments of Gymnasium whose steps go into an adder by themselves, in each autoreset mode."""

import collections

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import adders

gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium comes with the extra `minari`")
AutoresetMode = gymnasium.vector.AutoresetMode

NUM_ENVS = 3
NUM_STEPS = 40


class Count(gymnasium.Env):
    """Counts steps from 100 for each episode. Episodes take 2, 3, 4, 2, ... steps; each second one is truncated."""

    def __init__(self, *, is_dict=False):
        space = gymnasium.spaces.Box(0, np.inf, (1,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"a": space, "b": space}) if is_dict else space
        self.action_space = gymnasium.spaces.Discrete(2)
        self._is_dict = is_dict
        self._episode = 0

    def _observation(self):
        value = np.array([100 * self._episode + self._steps], np.float32)
        return {"a": value, "b": -value} if self._is_dict else value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._episode += 1
        self._steps = 0
        return self._observation(), {"began": self._episode}

    def step(self, action):
        self._steps += 1
        is_over = self._steps == 2 + self._episode % 3
        is_truncated = self._episode % 2 == 0
        return self._observation(), float(self._steps), is_over and not is_truncated, is_over and is_truncated, {}


def make_vector(mode, **options):
    return gymnasium.vector.SyncVectorEnv([lambda: Count(**options)] * NUM_ENVS, autoreset_mode=mode)


@pytest.fixture
def client(serve):
    return serve(make_table(max_size=10_000, max_times_sampled=1))


def take_all(client):
    size = info_of(client).current_size
    return [[np.asarray(column) for column in sample.data] for sample in (draw(client, size) if size else [])]


def run(envs, mode=None, steps=NUM_STEPS):
    envs.reset(seed=0)
    for t in range(steps):
        _, _, terminated, truncated, _ = envs.step(np.full(NUM_ENVS, t % 2))
        ended = terminated | truncated
        if mode is AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})


def check_transition(observation, reward, discount, following):
    """Whether a transition over one step is one that the environment has made."""
    episode, step = divmod(int(observation), 100)
    length = 2 + episode % 3
    assert 0 <= step < length
    assert (int(following), int(reward)) == (100 * episode + step + 1, step + 1)
    assert discount == (0.0 if step + 1 == length and episode % 2 else 1.0)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("is_dict", [False, True])
def test_transitions_are_those_that_the_environments_made(client, mode, is_dict):
    with adders.NStepTransitionAdder(client, "table", n=1, discount=1.0, num_envs=NUM_ENVS) as adder:
        run(adder.add_from(make_vector(mode, is_dict=is_dict)), mode)
    got = take_all(client)
    seen = collections.Counter()
    for _, discount, *columns, reward in got:
        following, observation = columns[0], columns[len(columns) // 2]
        check_transition(observation[0], reward, discount, following[0])
        seen[int(observation[0])] += 1
        if is_dict:
            assert columns[1] == -following
            assert columns[3] == -observation
    # Each environment makes the same steps, none of them twice, and leaves none out.
    assert set(seen.values()) == {NUM_ENVS}
    last = max(seen)
    steps = [100 * e + s for e in range(1, last // 100 + 1) for s in range(2 + e % 3)]
    assert sorted(seen) == [step for step in steps if step <= last]
    if mode is not AutoresetMode.NEXT_STEP:
        assert len(got) == NUM_ENVS * NUM_STEPS


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", ["sequence", "episode"])
def test_sequences_and_episodes_carry_the_last_observation(client, mode, kind):
    if kind == "sequence":
        adder = adders.SequenceAdder(client, "table", length=4, period=4, num_envs=NUM_ENVS, final=("observation",))
    else:
        adder = adders.EpisodeAdder(client, "table", max_length=4, num_envs=NUM_ENVS, final=("observation",))
    with adder:
        envs = adder.add_from(make_vector(mode))
        observation, _ = envs.reset()
        for _ in range(NUM_STEPS):
            actions = np.zeros(NUM_ENVS, np.int64)
            observation, _, terminated, truncated, _ = envs.step(actions, extras={"state": observation[:, 0]})
            ended = terminated | truncated
            if mode is AutoresetMode.DISABLED and ended.any():
                envs.reset(options={"reset_mask": ended})
    got = take_all(client)
    assert len(got) > 5 * NUM_ENVS
    # In the order of their names: action, observation, reward, state, terminated, truncated.
    for _, observation, reward, _, terminated, truncated in got:
        episode = int(observation[0, 0]) // 100
        length = 2 + episode % 3
        assert observation[:, 0].tolist() == [100 * episode + step for step in range(length + 1)]
        assert reward.tolist() == [step + 1 for step in range(length)]
        assert (terminated[-1], truncated[-1]) == (episode % 2 == 1, episode % 2 == 0)
        assert not (terminated[:-1] | truncated[:-1]).any()


@pytest.mark.parametrize("is_autoreset", [False, True])
def test_a_single_environment(client, is_autoreset):
    env = gymnasium.wrappers.Autoreset(Count()) if is_autoreset else Count()
    with adders.NStepTransitionAdder(client, "table", n=1, discount=1.0) as adder:
        env = adder.add_from(env)
        env.reset(seed=0)
        for _ in range(30):
            _, _, terminated, truncated, _ = env.step(0)
            if (terminated or truncated) and not is_autoreset:
                env.reset()
    got = take_all(client)
    for _, discount, following, observation, reward in got:
        check_transition(observation[0], reward, discount, following[0])
    assert len(got) == len({int(item[3][0]) for item in got})
    assert len(got) == 30 if not is_autoreset else 20 < len(got) < 30


def test_a_step_of_an_ended_environment_is_refused(client):
    with adders.NStepTransitionAdder(client, "table", n=1, discount=1.0) as adder:
        env = adder.add_from(Count())
        with pytest.raises(RuntimeError, match="call `reset` before `step`"):
            env.step(0)
        env.reset()
        for _ in range(3):
            env.step(0)
        with pytest.raises(RuntimeError, match="the episode has ended: call `reset`"):
            env.step(0)
    with adders.NStepTransitionAdder(client, "table", n=1, discount=1.0, num_envs=NUM_ENVS) as adder:
        envs = adder.add_from(make_vector(AutoresetMode.DISABLED))
        with pytest.raises(RuntimeError, match="environments 0, 1, 2 have ended"):
            run(envs)


def test_an_early_reset_ends_the_episode(client):
    with adders.NStepTransitionAdder(client, "table", n=3, discount=0.5, num_envs=NUM_ENVS) as adder:
        envs = adder.add_from(make_vector(AutoresetMode.NEXT_STEP))
        envs.reset()
        envs.step(np.zeros(NUM_ENVS, np.int64))
        envs.step(np.zeros(NUM_ENVS, np.int64))
        envs.reset()
        envs.step(np.zeros(NUM_ENVS, np.int64))
    got = sorted((float(o[0]), float(after[0]), float(d), float(r)) for _, d, after, o, r in take_all(client))
    assert got == [(100.0, 102.0, 0.25, 2.0)] * NUM_ENVS + [(101.0, 102.0, 0.5, 2.0)] * NUM_ENVS


def test_priorities_and_columns_of_ones_own(client):
    step = {"observation": np.zeros((NUM_ENVS, 1)), "td": np.zeros(NUM_ENVS)}
    with adders.SequenceAdder(client, "table", length=1, period=1, num_envs=NUM_ENVS) as adder:
        transform = lambda parts: {name: parts[name] for name in step}  # noqa: E731
        envs = adder.add_from(make_vector(AutoresetMode.SAME_STEP), transform=transform)
        envs.reset()
        priority = np.arange(NUM_ENVS) + 5.0
        envs.step(np.zeros(NUM_ENVS, np.int64), extras={"td": priority}, priority=priority)
    samples = draw(client, NUM_ENVS)
    assert sorted(sample.info.priority for sample in samples) == priority.tolist()
    assert all(sample.data[1][0] == sample.info.priority and len(sample.data) == 2 for sample in samples)


def test_attributes_are_those_of_the_environment(client):
    envs = make_vector(AutoresetMode.NEXT_STEP)
    recorder = adders.EpisodeAdder(client, "table", max_length=1, num_envs=NUM_ENVS).add_from(envs)
    assert recorder.num_envs == NUM_ENVS
    assert recorder.single_observation_space == envs.single_observation_space
    assert recorder.env is envs
    with pytest.raises(AttributeError):
        recorder.no_such_name  # noqa: B018


def test_an_unknown_autoreset_mode_is_refused(client):
    envs = make_vector(AutoresetMode.NEXT_STEP)
    envs.metadata = {}
    adder = adders.NStepTransitionAdder(client, "table", n=1, discount=1.0, num_envs=NUM_ENVS)
    with pytest.raises(ValueError, match="does not name its autoreset mode.*give `autoreset_mode`"):
        adder.add_from(envs)
    with pytest.raises(ValueError, match="must be 'NextStep', 'SameStep' or 'Disabled', got 'never'"):
        adder.add_from(envs, autoreset_mode="never")
    for mode in (*AutoresetMode, "NextStep", "same_step"):
        adder.add_from(envs, autoreset_mode=mode)


@pytest.mark.parametrize("num_envs", [None, 4])
def test_another_number_of_environments_is_refused(client, num_envs):
    adder = adders.NStepTransitionAdder(client, "table", n=1, discount=1.0, num_envs=num_envs)
    made = "without num_envs" if num_envs is None else "with num_envs=4"
    with pytest.raises(ValueError, match=f"has 3 environments, but this adder was made {made}"):
        adder.add_from(make_vector(AutoresetMode.NEXT_STEP))
    if num_envs:
        with pytest.raises(ValueError, match="is a single environment, but this adder was made with num_envs=4"):
            adder.add_from(Count())
