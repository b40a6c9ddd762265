"""Parallel environments of several agents, as PettingZoo has them, whose steps go into an adder by themselves."""

import collections

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import adders

spaces = pytest.importorskip("gymnasium", reason="Gymnasium comes with the extra `minari`").spaces

AGENTS = ("walker_0", "walker_1", "walker_2")
GAMMA = 0.9


class Walkers:
    """Agents that leave at different times. Observations count steps from 1000 for each episode and 100 for each agent.

    Args:
      seed: Seed of the lives, of the rewards, and of who terminates rather than being truncated.
      omits_final: Whether agents that leave get no observation.
    """

    possible_agents = list(AGENTS)  # noqa: RUF012
    metadata = {"name": "walkers"}  # noqa: RUF012
    spaces = dict.fromkeys(AGENTS, (spaces.Box(0, np.inf, (1,), np.float32), spaces.Discrete(50)))

    def __init__(self, seed=0, *, omits_final=False):
        self.random = np.random.default_rng(seed)
        self.omits_final = omits_final
        self.episodes = []

    def observation_space(self, agent):
        return self.spaces[agent][0]

    def action_space(self, agent):
        return self.spaces[agent][1]

    def observe(self, agent):
        step = self.steps if agent in self.agents else self.lives[agent]
        return np.array([1000 * len(self.episodes) + 100 * AGENTS.index(agent) + step], np.float32)

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(AGENTS), 0
        self.lives = {agent: int(self.random.integers(1, 7)) for agent in AGENTS}
        self.terminates = {agent: bool(self.random.integers(2)) for agent in AGENTS}
        self.episodes.append({"lives": self.lives, "terminates": self.terminates, "rewards": [], "steps": 0})
        return {agent: self.observe(agent) for agent in AGENTS}, {agent: {} for agent in AGENTS}

    def step(self, actions):
        self.steps += 1
        acting, episode = list(self.agents), self.episodes[-1]
        rewards = {agent: float(self.random.standard_normal()) for agent in acting}
        episode["rewards"].append(rewards)
        episode["steps"] = self.steps
        left = {agent: self.steps == self.lives[agent] for agent in acting}
        self.agents = [agent for agent in acting if not left[agent]]
        seen = self.agents if self.omits_final else acting
        return (
            {agent: self.observe(agent) for agent in seen},
            rewards,
            {agent: left[agent] and self.terminates[agent] for agent in acting},
            {agent: left[agent] and not self.terminates[agent] for agent in acting},
            {agent: {"steps": self.steps} for agent in acting},
        )


def run(env, steps=60, act=lambda observation: int(observation[0]) % 50, **options):
    """Steps an environment, and resets it where all agents have left. Returns the number of steps."""
    observations, _ = env.reset(seed=0)
    for _ in range(steps):
        actions = {agent: act(observations[agent]) for agent in env.agents}
        observations, *_ = env.step(actions, **options)
        if not env.agents:
            observations, _ = env.reset()


def window_of(episode, number, agent, begin, end, omits_final=False):
    """What an agent has of a window of steps: observation, action, return, discount, last observation, alive."""
    life = min(episode["lives"][agent], episode["steps"])
    first = 1000 * number + 100 * AGENTS.index(agent)
    until = min(end, life)
    has_left = episode["lives"][agent] <= episode["steps"]
    seen = life - (omits_final and has_left)
    if begin >= life:
        return first + seen, 0, 0.0, 0.0, first + seen, False
    total = sum(GAMMA ** (t - begin) * episode["rewards"][t][agent] for t in range(begin, until))
    is_terminal = until == life and has_left and episode["terminates"][agent]
    discount = 0.0 if is_terminal else GAMMA ** (until - begin)
    return first + begin, (first + begin) % 50, total, discount, first + min(until, seen), True


def windows(length, n):
    """The windows of n steps of an episode, and the shorter ones at its end."""
    return [(begin, min(begin + n, length)) for begin in range(length)]


@pytest.fixture
def client(serve):
    return serve(make_table(max_size=100_000, max_times_sampled=1))


def take_all(client):
    """The items in order of insertion, each a list of columns in the order of the sorted names."""
    size = info_of(client).current_size
    return [[np.asarray(column) for column in sample.data] for sample in (draw(client, size) if size else [])]


def by_agent(item, num_columns):
    """The columns of an item with all agents: for each agent its values."""
    values = [float(column.squeeze()) for column in item]
    assert len(values) == num_columns * len(AGENTS)
    return {agent: values[place :: len(AGENTS)] for place, agent in enumerate(AGENTS)}


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("omits_final", [False, True])
def test_returns_of_rows_are_those_of_each_agent(client, n, omits_final):
    env = Walkers(seed=n, omits_final=omits_final)
    options = {"n": n, "discount": GAMMA, "dtype": np.float64, "num_envs": len(AGENTS)}
    with adders.NStepTransitionAdder(client, "table", **options) as adder:
        run(adder.add_from(env))
        adder.end_episode()
    expected = collections.Counter()
    for number, episode in enumerate(env.episodes, start=1):
        for agent in AGENTS:
            life = min(episode["lives"][agent], episode["steps"])
            for begin, end in windows(life, n):
                wanted = window_of(episode, number, agent, begin, end, omits_final)
                expected[tuple(np.round(wanted[:5], 6))] += 1
    got = collections.Counter()
    for item in take_all(client):
        action, discount, after, observation, reward = (float(column.squeeze()) for column in item)
        got[tuple(np.round((observation, action, reward, discount, after), 6))] += 1
    assert got == expected
    assert got.total() > 60


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("omits_final", [False, True])
def test_returns_of_items_with_all_agents_are_those_of_each_agent(client, n, omits_final):
    env = Walkers(seed=n, omits_final=omits_final)
    with adders.NStepTransitionAdder(client, "table", n=n, discount=GAMMA, dtype=np.float64) as adder:
        run(adder.add_from(env))
        adder.end_episode()
    expected = collections.Counter()
    num_left = 0
    for number, episode in enumerate(env.episodes, start=1):
        for begin, end in windows(episode["steps"], n):
            parts = [window_of(episode, number, agent, begin, end, omits_final) for agent in AGENTS]
            num_left += sum(not part[5] for part in parts)
            expected[tuple(np.round(np.concatenate(parts), 6))] += 1
    got = collections.Counter()
    for item in take_all(client):
        parts = []
        for action, alive, discount, after, observation, reward in by_agent(item, 6).values():
            parts.append((observation, action, reward, discount, after, alive))
        got[tuple(np.round(np.concatenate(parts), 6))] += 1
    assert got == expected
    assert got.total() == 60
    assert num_left > 20


def test_sequences_of_rows_end_with_the_life_of_their_agent(client):
    env = Walkers(seed=4)
    with adders.SequenceAdder(client, "table", length=10, period=10, num_envs=3, final=("observation",)) as adder:
        run(adder.add_from(env, transform=lambda step: {name: step[name] for name in ("observation", "reward")}))
        adder.end_episode()
    got = sorted(observation[:, 0].tolist() for observation, _ in take_all(client))
    expected = []
    for number, episode in enumerate(env.episodes, start=1):
        for place, agent in enumerate(AGENTS):
            life = min(episode["lives"][agent], episode["steps"])
            expected.append([1000 * number + 100 * place + step for step in range(life + 1)])
    assert got == sorted(one for one in expected if len(one) > 1)


@pytest.mark.parametrize("kind", ["sequence", "episode"])
def test_sequences_with_all_agents_last_until_the_last_has_left(client, kind):
    env = Walkers(seed=5)
    options = {"final": ("observation",)}
    make = {
        "sequence": lambda: adders.SequenceAdder(client, "table", length=10, period=10, **options),
        "episode": lambda: adders.EpisodeAdder(client, "table", max_length=10, **options),
    }
    with make[kind]() as adder:
        run(adder.add_from(env))
        adder.end_episode()
    items = take_all(client)
    played = [episode for episode in env.episodes if episode["steps"]]
    assert len(items) == len(played)
    for number, (item, episode) in enumerate(zip(items, played, strict=True), start=1):
        steps = episode["steps"]
        action, alive, observation, reward, terminated, truncated = (
            item[3 * place : 3 * place + 3] for place in range(6)
        )
        for place, agent in enumerate(AGENTS):
            life = min(episode["lives"][agent], steps)
            first = 1000 * number + 100 * place
            assert observation[place][:, 0].tolist() == [first + min(step, life) for step in range(steps + 1)]
            assert alive[place].tolist() == [step < life for step in range(steps)]
            acted = [(first + step) % 50 if step < life else 0 for step in range(steps)]
            assert action[place].tolist() == acted
            assert reward[place].tolist() == [episode["rewards"][step].get(agent, 0.0) for step in range(steps)]
            ended = [step + 1 >= episode["lives"][agent] for step in range(steps)]
            flags, others = (terminated, truncated) if episode["terminates"][agent] else (truncated, terminated)
            assert flags[place].tolist() == ended
            assert not others[place].any()


def test_an_agent_that_comes_later_has_zeros_before(client):
    class Late(Walkers):
        def reset(self, seed=None, options=None):
            observations, infos = super().reset()
            self.lives = dict.fromkeys(AGENTS, 4)
            self.agents = list(AGENTS[:2])
            return {agent: observations[agent] for agent in self.agents}, infos

        def step(self, actions):
            if self.steps == 1:
                _, *others = super().step(actions)
                self.agents = list(AGENTS)
                return {agent: self.observe(agent) for agent in AGENTS}, *others
            return super().step(actions)

    with adders.EpisodeAdder(client, "table", max_length=10) as adder:
        run(adder.add_from(Late()), steps=4)
    with adders.EpisodeAdder(client, "table", max_length=10, num_envs=3) as adder:
        run(adder.add_from(Late()), steps=4)
    one, *rows = take_all(client)
    action, alive, observation = one[2], one[5], one[8]
    assert alive.tolist() == [False, False, True, True]
    assert observation[:, 0].tolist() == [0, 0, 1202, 1203]
    assert action.tolist() == [0, 0, 2, 3]
    assert sorted(row[1][:, 0].tolist() for row in rows) == [
        [1000, 1001, 1002, 1003],
        [1100, 1101, 1102, 1103],
        [1202, 1203],
    ]


def test_a_reset_ends_the_episodes_of_all_agents(client):
    env = Walkers()
    with adders.EpisodeAdder(client, "table", max_length=10) as adder:
        recorded = adder.add_from(env)
        recorded.reset()
        env.lives = dict.fromkeys(AGENTS, 6)
        for _ in range(2):
            recorded.step(dict.fromkeys(AGENTS, 0))
        recorded.reset(seed=1, options={"any": 1})
        adder.flush()
        assert [len(column) for column in take_all(client)[0]] == [2] * 18


def test_one_that_leaves_without_a_flag_is_truncated(client):
    class Silent(Walkers):
        def step(self, actions):
            observations, rewards, terminated, _, infos = super().step(actions)
            return observations, rewards, dict.fromkeys(terminated, False), {}, infos

    env = Silent()
    with adders.NStepTransitionAdder(client, "table", n=3, discount=GAMMA, num_envs=3) as adder:
        recorded = adder.add_from(env)
        recorded.reset()
        env.lives = {"walker_0": 1, "walker_1": 6, "walker_2": 6}
        recorded.step(dict.fromkeys(AGENTS, 0))
        adder.flush()
        [item] = take_all(client)
        assert float(item[1].squeeze()) == np.float32(GAMMA)


def test_items_with_all_agents_are_complete_when_the_last_has_left(client):
    env = Walkers()
    with adders.NStepTransitionAdder(client, "table", n=3, discount=GAMMA) as adder:
        recorded = adder.add_from(env)
        recorded.reset()
        for step in range(max(env.lives.values())):
            adder.flush()
            assert info_of(client).current_size == max(0, step - 2)
            recorded.step(dict.fromkeys(AGENTS, 0))
        adder.flush()
        assert info_of(client).current_size == max(env.lives.values())


def test_priorities_and_extras_are_those_of_the_step(client):
    env = Walkers(seed=2)
    with adders.NStepTransitionAdder(client, "table", n=1, discount=GAMMA, num_envs=3) as adder:
        recorded = adder.add_from(env)
        recorded.reset()
        env.lives = dict.fromkeys(AGENTS, 6)
        extras = {"state": np.arange(6.0).reshape(3, 2)}
        recorded.step(dict.fromkeys(AGENTS, 0), priority=np.array([2.0, 3.0, 4.0]), extras=extras)
    samples = draw(client, 3)
    assert [(sample.info.priority, sample.data[2].tolist()) for sample in samples] == [
        (2.0, [0.0, 1.0]),
        (3.0, [2.0, 3.0]),
        (4.0, [4.0, 5.0]),
    ]
    with adders.NStepTransitionAdder(client, "table", n=1, discount=GAMMA) as adder:
        recorded = adder.add_from(env)
        recorded.reset()
        recorded.step(dict.fromkeys(AGENTS, 0), priority=5.0, extras={"state": np.arange(2.0)})
        adder.end_episode()
    [sample] = draw(client, 1)
    assert sample.info.priority == 5.0
    assert [0.0, 1.0] in [column.ravel().tolist() for column in sample.data]


def test_the_environment_is_used_as_before(client):
    env = Walkers(seed=3)
    with adders.NStepTransitionAdder(client, "table", n=1, discount=GAMMA) as adder:
        recorded = adder.add_from(env)
        assert recorded.possible_agents == list(AGENTS)
        observations, infos = recorded.reset(seed=7)
        assert (set(observations), infos["walker_0"]) == (set(AGENTS), {})
        returned = recorded.step(dict.fromkeys(AGENTS, 0))
        assert [set(part) for part in returned] == [set(AGENTS)] * 5
        assert recorded.agents == env.agents


def test_mistakes_are_named(client):
    env = Walkers(seed=1)
    with adders.NStepTransitionAdder(client, "table", n=1, discount=GAMMA) as adder:
        recorded = adder.add_from(env)
        with pytest.raises(RuntimeError, match="call `reset` before `step`"):
            recorded.step({})
        recorded.reset()
        with pytest.raises(ValueError, match="missing: walker_1, walker_2"):
            recorded.step({"walker_0": 0})
        assert env.steps == 0
        while env.agents:
            recorded.step(dict.fromkeys(AGENTS, 0))
        with pytest.raises(RuntimeError, match="all agents have left: call `reset`"):
            recorded.step(dict.fromkeys(AGENTS, 0))
    with pytest.raises(ValueError, match="has 3 possible agents, but .* num_envs=2: give num_envs=3"):
        adders.SequenceAdder(client, "table", length=1, period=1, num_envs=2).add_from(env)

    class Turns(Walkers):
        def agent_iter(self):
            raise NotImplementedError

    with pytest.raises(ValueError, match=r"take turns: use pettingzoo.utils.aec_to_parallel"):
        adders.SequenceAdder(client, "table", length=1, period=1).add_from(Turns())


def test_agents_of_different_spaces_are_no_rows(client):
    class Different(Walkers):
        def observe(self, agent):
            return np.repeat(super().observe(agent), 1 + AGENTS.index(agent))

    env = Different(seed=1)
    with adders.NStepTransitionAdder(client, "table", n=1, discount=GAMMA, num_envs=3) as adder:
        recorded = adder.add_from(env)
        recorded.reset()
        with pytest.raises(ValueError, match="^observation: agents can be rows only if"):
            recorded.step(dict.fromkeys(AGENTS, 0))
        with pytest.raises(RuntimeError, match="call `reset`"):
            recorded.step(dict.fromkeys(AGENTS, 0))
    with adders.NStepTransitionAdder(client, "table", n=1, discount=GAMMA) as adder:
        run(adder.add_from(env), steps=5, act=lambda observation: 0)
        adder.end_episode()
    assert info_of(client).current_size == 5


def test_goals_of_agents_are_relabelled_as_rows_only(client):
    class Goals(Walkers):
        def observe(self, agent):
            value = super().observe(agent)
            return {"observation": value, "achieved_goal": value, "desired_goal": value + 5}

    infos = []

    def compute_reward(achieved, desired, info):
        infos.append(info)
        return float(achieved[0] == desired[0])

    def run_goals(**options):
        with adders.HindsightAdder(client, "table", discount=GAMMA, compute_reward=compute_reward, **options) as adder:
            env = Goals(seed=1)
            run(adder.add_from(env), steps=10, act=lambda observation: 0)
            adder.end_episode()
            return env

    env = run_goals(num_envs=3, k=1, strategy="final", seed=0)
    num_steps = sum(min(life, one["steps"]) for one in env.episodes for life in one["lives"].values())
    assert info_of(client).current_size == 2 * num_steps
    assert {tuple(info) for info in infos} == {("steps",)}
    with pytest.raises(ValueError, match="one goal: give num_envs=3 for agents as rows"):
        run_goals()


def test_the_environment_of_this_file_has_the_interface_of_pettingzoo():
    pettingzoo = pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test

    class Conforming(Walkers, pettingzoo.ParallelEnv):
        pass

    parallel_api_test(Conforming(seed=3), num_cycles=20)


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("kind", ["n_step", "sequence", "episode"])
def test_the_signature_of_an_environment_fits_its_items(serve, kind, num_envs):
    def make(client):
        options = {"num_envs": num_envs}
        if kind == "n_step":
            return adders.NStepTransitionAdder(client, "table", n=2, discount=GAMMA, **options)
        if kind == "sequence":
            return adders.SequenceAdder(client, "table", length=2, period=2, final=("observation",), **options)
        return adders.EpisodeAdder(client, "table", max_length=10, final=("observation",), **options)

    env = Walkers(seed=1)
    signature = make("localhost:1").signature(env)
    client = serve(make_table(max_size=10_000, signature=signature))
    with make(client) as adder:
        run(adder.add_from(env), steps=10)
        adder.end_episode()
    data = client.sample_batch("table", 4).data
    assert data.keys() == signature.keys()
    assert ("alive" in data) == (num_envs is None)
    if num_envs is None:
        assert all(list(by_agent) == list(AGENTS) for by_agent in data.values())
