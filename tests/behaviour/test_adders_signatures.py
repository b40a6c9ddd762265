"""`signature` of adders: the signature of the table for the steps of an environment."""

import numpy as np
import pytest
from behaviour_support import make_table

import reverb
from reverb.adders import EpisodeAdder, HindsightAdder, NStepTransitionAdder, SequenceAdder

gymnasium = pytest.importorskip("gymnasium", reason="Gymnasium comes with the extra `minari`")
NUM_ENVS = 3
NOWHERE = "localhost:1"


class Goals(gymnasium.Env):
    """An environment with goals whose episodes have four steps. Its rewards have a dtype of their own."""

    def __init__(self, reward=np.float32):
        space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gymnasium.spaces.Dict(dict.fromkeys(names, space))
        self.action_space = gymnasium.spaces.MultiDiscrete([2, 3])
        self._reward = reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action):
        self._steps += 1
        return self._observe(), self._reward(1), False, self._steps == 4, {}

    def _observe(self):
        return {name: np.full(2, self._steps, np.float32) for name in self.observation_space.spaces}


def cart_pole(kind):
    """An environment of each kind, and its number of environments."""
    if kind == "single":
        return gymnasium.make("CartPole-v1"), None
    mode = "vector_entry_point" if kind == "vector" else "sync"
    return gymnasium.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode=mode), NUM_ENVS


ADDERS = {
    "windows": lambda client, **options: SequenceAdder(client, "table", length=4, period=2, **options),
    "padded windows": lambda client, **options: SequenceAdder(
        client, "table", length=4, period=4, end="pad", final=("observation",), stack={"observation": 2}, **options
    ),
    "transitions": lambda client, **options: NStepTransitionAdder(client, "table", n=3, discount=0.9, **options),
    "stacks": lambda client, **options: NStepTransitionAdder(
        client, "table", n=2, discount=0.9, stack={"observation": 3}, dtype=np.float64, **options
    ),
    "episodes": lambda client, **options: EpisodeAdder(client, "table", max_length=600, final="observation", **options),
}


def write(adder, env, steps, extras=None, **options):
    recorder = adder.add_from(env, **options)
    recorder.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(steps):
        _, _, terminated, truncated, _ = recorder.step(env.action_space.sample(), extras=extras)
        if adder.num_envs is None and (terminated or truncated):
            recorder.reset()
    adder.end_episode()
    adder.flush(timeout=20)


def specs_of(signature):
    """The shape and dtype of each column of the signature of a table of rewards and observations."""
    return {name: (spec.shape.as_list(), spec.dtype) for name, spec in signature.items()}


@pytest.mark.parametrize("kind", ["single", "vector", "sync"])
@pytest.mark.parametrize("make", ADDERS.values(), ids=ADDERS.keys())
def test_the_items_of_an_adder_have_its_signature(serve, make, kind):
    env, num_envs = cart_pole(kind)
    signature = make(NOWHERE, num_envs=num_envs).signature(env)
    client = serve(make_table(signature=signature, max_size=10_000))
    with make(client, num_envs=num_envs) as adder:
        write(adder, env, 60)
    assert client.server_info()["table"].current_size > 1
    batch = client.sample_batch("table", 3).data
    assert batch.keys() == signature.keys()
    for name, spec in signature.items():
        column = batch[name]
        values = column.values if isinstance(column, reverb.Ragged) else column
        assert values.dtype == spec.dtype


@pytest.mark.parametrize(("kind", "dtype"), [("single", np.float64), ("vector", np.float32), ("sync", np.float64)])
def test_rewards_have_the_dtype_that_the_environment_gives_them(kind, dtype):
    env, num_envs = cart_pole(kind)
    adder = SequenceAdder(NOWHERE, "table", length=5, period=5, num_envs=num_envs, final=("observation",))
    assert specs_of(adder.signature(env)) == {
        "action": ([None], np.int64),
        "observation": ([None, 4], np.float32),
        "reward": ([None], dtype),
        "terminated": ([None], np.bool_),
        "truncated": ([None], np.bool_),
    }


def test_lengths_that_never_vary_are_fixed():
    env, num_envs = cart_pole("vector")
    for end in ("drop", "pad"):
        adder = SequenceAdder(NOWHERE, "table", length=5, period=5, end=end, num_envs=num_envs, final=("observation",))
        specs = specs_of(adder.signature(env))
        assert (specs["observation"][0], specs["reward"][0]) == ([6, 4], [5])


def test_transitions_have_rewards_of_the_dtype_of_their_adder():
    env, num_envs = cart_pole("sync")
    adder = NStepTransitionAdder(NOWHERE, "table", n=3, discount=0.9, num_envs=num_envs)
    assert specs_of(adder.signature(env)) == {
        "action": ([], np.int64),
        "discount": ([], np.float32),
        "next_observation": ([4], np.float32),
        "observation": ([4], np.float32),
        "reward": ([], np.float32),
    }


@pytest.mark.parametrize("num_envs", [None, NUM_ENVS])
@pytest.mark.parametrize("make", [ADDERS["windows"], ADDERS["transitions"]], ids=["windows", "transitions"])
def test_extras_are_columns_too(serve, make, num_envs):
    env, num_envs = cart_pole("single" if num_envs is None else "vector")
    log_prob = np.zeros((), np.float32) if num_envs is None else np.zeros(num_envs, np.float32)
    extras = {"log_prob": log_prob}
    signature = make(NOWHERE, num_envs=num_envs).signature(env, extras=extras)
    client = serve(make_table(signature=signature, max_size=10_000))
    with make(client, num_envs=num_envs) as adder:
        write(adder, env, 20, extras)
    assert client.server_info()["table"].current_size > 1
    names = [spec.name for spec in (signature.get("extras") or signature).values()]
    assert any(name.endswith("log_prob") for name in names)


def test_the_transform_of_the_steps_is_that_of_the_signature(serve):
    def transform(step):
        return {"pixels": step["observation"].astype(np.float64), "reward": step["reward"]}

    env, num_envs = cart_pole("vector")
    signature = ADDERS["windows"](NOWHERE, num_envs=num_envs).signature(env, transform=transform)
    assert specs_of(signature) == {"pixels": ([None, 4], np.float64), "reward": ([None], np.float32)}
    client = serve(make_table(signature=signature, max_size=10_000))
    with ADDERS["windows"](client, num_envs=num_envs) as adder:
        write(adder, env, 20, transform=transform)
    assert client.server_info()["table"].current_size > 1
    for name in ("transitions",):
        with pytest.raises(ValueError, match="`transform` is for sequences"):
            ADDERS[name](NOWHERE, num_envs=num_envs).signature(env, transform=transform)


@pytest.mark.parametrize("num_envs", [None, NUM_ENVS])
@pytest.mark.parametrize("reward", [np.float32, float, int])
def test_nested_observations_and_goals(serve, num_envs, reward):
    env = Goals(reward) if num_envs is None else gymnasium.vector.SyncVectorEnv([lambda: Goals(reward)] * num_envs)

    def hindsight(client):
        return HindsightAdder(
            client, "table", discount=0.9, compute_reward=lambda *_: 0.0, k=1, num_envs=num_envs, seed=0
        )

    for make in (hindsight, lambda client: ADDERS["windows"](client, num_envs=num_envs)):
        signature = make(NOWHERE).signature(env)
        client = serve(make_table(signature=signature, max_size=10_000))
        with make(client) as adder:
            write(adder, env, 9)
        assert client.server_info()["table"].current_size > 1
        assert client.sample_batch("table", 2).data.keys() == signature.keys()
        assert signature["observation"].keys() == {"observation", "achieved_goal", "desired_goal"}


def test_the_environment_must_have_the_number_of_the_adder():
    env, _ = cart_pole("vector")
    with pytest.raises(ValueError, match="has 3 environments, but this adder was made without num_envs"):
        ADDERS["windows"](NOWHERE, num_envs=None).signature(env)
    with pytest.raises(ValueError, match="`final` names 'pixels'"):
        SequenceAdder(NOWHERE, "table", length=2, period=2, num_envs=3, final="pixels").signature(env)


def test_a_seeded_action_space_draws_as_before():
    env, _ = cart_pole("single")
    env.action_space.seed(3)
    expected = [env.action_space.sample() for _ in range(20)]
    env.action_space.seed(3)
    ADDERS["windows"](NOWHERE).signature(env)
    assert [env.action_space.sample() for _ in range(20)] == expected
