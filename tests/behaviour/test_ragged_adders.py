"""Adders whose steps hold rows of open length, given as a `Ragged` of one item, or of one for each environment."""

import contextlib
import socket

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import Ragged, TensorSpec, adders, errors
from reverb.loaders import NumpyLoader

NUM_STEPS = 5


@pytest.fixture
def client(serve):
    return serve(make_table(max_times_sampled=1))


@pytest.fixture(params=[None, 3], ids=["one", "vector"])
def num_envs(request):
    return request.param


def take_all(client):
    size = info_of(client).current_size
    return [[np.asarray(column).tolist() for column in sample.data] for sample in (draw(client, size) if size else [])]


def row(t, env=0, length=None):
    """The row of an environment at step `t`, whose first value tells both unless it is empty."""
    length = (2 * t + env) % 4 if length is None else length
    return np.arange(length, dtype=np.int32) + 1000 * env + 10 * t


def rows(t, num_envs, length=None):
    """The rows of all environments at step `t`. `length` is that of each, or a list."""
    lengths = length if isinstance(length, list) else [length] * (num_envs or 1)
    each = [row(t, env, lengths[env]) for env in range(num_envs or 1)]
    return Ragged(np.concatenate(each), np.array([len(one) for one in each]))


def number(t, num_envs):
    return np.int64(t) if num_envs is None else 1000 * np.arange(num_envs) + t


def reward_of(num_envs):
    return 1.0 if num_envs is None else np.ones(num_envs)


def transition(t, num_envs, **others):
    """The arguments of `add` for step `t` of an episode."""
    step = {"observation": {"tokens": rows(t, num_envs), "x": number(t, num_envs)}, "action": rows(t + 50, num_envs)}
    step |= {"next_observation": {"tokens": rows(t + 1, num_envs), "x": number(t + 1, num_envs)}}
    step |= {"reward": reward_of(num_envs), "extras": {"mask": rows(t + 20, num_envs)}}
    return step | {"terminated": t == NUM_STEPS - 1} | others


def of_env(t, env):
    return 1000 * env + t


@pytest.mark.parametrize("n", [1, 3])
def test_transitions_have_the_rows_of_their_steps(client, num_envs, n):
    with adders.NStepTransitionAdder(client, "table", n=n, discount=1.0, num_envs=num_envs) as adder:
        for _ in range(2):
            for t in range(NUM_STEPS):
                adder.add(**transition(t, num_envs))
    expected = []
    for env in range(num_envs or 1):
        for t in range(NUM_STEPS):
            end = min(t + n, NUM_STEPS)
            before, after = [row(t, env).tolist(), of_env(t, env)], [row(end, env).tolist(), of_env(end, env)]
            parts = [row(t + 50, env).tolist(), 0.0 if end == NUM_STEPS else 1.0, row(t + 20, env).tolist()]
            expected.append([*parts, *after, *before, float(end - t)])
    assert sorted(take_all(client), key=repr) == sorted(2 * expected, key=repr)


def test_stacks_of_rows_of_one_length(client, num_envs):
    stack = {"observation/tokens": 2}
    with adders.NStepTransitionAdder(client, "table", n=1, discount=1.0, num_envs=num_envs, stack=stack) as adder:
        for t in range(3):
            step = {"observation": {"tokens": rows(t, num_envs, 2)}, "action": number(t, num_envs)}
            adder.add(**step, next_observation={"tokens": rows(t + 1, num_envs, 2)}, reward=reward_of(num_envs))
    got = {item[0]: (item[2], item[3]) for item in take_all(client)}
    expected = {}
    for env in range(num_envs or 1):
        frames = [row(t, env, 2).tolist() for t in (0, 0, 1, 2, 3)]
        expected |= {of_env(t, env): (frames[t + 1 : t + 3], frames[t : t + 2]) for t in range(3)}
    assert got == expected


def windows(length, period, end):
    for first in range(0, NUM_STEPS, period):
        steps = range(first, min(first + length, NUM_STEPS))
        if len(steps) == length or end != "drop":
            yield steps
        if steps[-1] == NUM_STEPS - 1:
            break


@pytest.mark.parametrize("end", ["truncate", "pad", "drop"])
@pytest.mark.parametrize("length", [1, 3])
def test_windows_have_the_row_of_their_first_step(client, num_envs, end, length):
    options = {"length": length, "period": 2, "end": end, "first": "tokens"}
    with adders.SequenceAdder(client, "table", num_envs=num_envs, **options) as adder:
        for _ in range(2):
            for t in range(NUM_STEPS):
                adder.add({"tokens": rows(t, num_envs), "x": number(t, num_envs)}, last=t == NUM_STEPS - 1)
    expected = []
    for env in range(num_envs or 1):
        for steps in windows(length, 2, end):
            padding = [0] * (length - len(steps)) if end == "pad" else []
            expected.append([row(steps[0], env).tolist(), [of_env(t, env) for t in steps] + padding])
    assert sorted(take_all(client), key=repr) == sorted(2 * expected, key=repr)


# The lengths of the rows of an episode, for each environment.
LENGTHS = ([2, 0, 3], [1, 4, 1])


@pytest.mark.parametrize("end", ["truncate", "pad"])
def test_windows_of_several_rows_of_one_length(client, num_envs, end):
    with adders.SequenceAdder(client, "table", length=3, period=3, end=end, num_envs=num_envs) as adder:
        for lengths in LENGTHS:
            for t in range(NUM_STEPS):
                # The last step is ended by itself, the first episode by `end_episode`.
                is_last = t == NUM_STEPS - 1 and lengths is LENGTHS[1]
                adder.add({"tokens": rows(t, num_envs, lengths), "x": number(t, num_envs)}, last=is_last)
            adder.end_episode()
    expected = []
    for env in range(num_envs or 1):
        for lengths in LENGTHS:
            for steps in ((0, 1, 2), (3, 4)):
                missing = 3 - len(steps) if end == "pad" else 0
                tokens = [row(t, env, lengths[env]).tolist() for t in steps]
                numbers = [of_env(t, env) for t in steps]
                expected.append([tokens + [[0] * lengths[env]] * missing, numbers + [0] * missing])
    assert sorted(take_all(client), key=repr) == sorted(expected, key=repr)


def test_padding_has_the_length_of_the_row_before_it_in_each_environment(client):
    texts = [[b"a", b"bb"], [b"c"]]
    both = Ragged(np.array(texts[0] + texts[1], object), np.array([2, 1]))
    with adders.SequenceAdder(client, "table", length=2, period=2, end="pad", num_envs=2) as adder:
        adder.add({"text": both}, last=[False, True])
        # The rows of an environment without a step are ignored.
        adder.add({"text": Ragged(np.array([b"x"] * 7, object), np.array([2, 5]))}, mask=[True, False])
        adder.add({"text": Ragged(np.array([b"y"] * 5, object), np.array([4, 1]))}, last=[False, True])
        adder.add({"text": Ragged(np.array([b"z"] * 9, object), np.array([4, 5]))}, mask=[True, False], last=True)
    assert sorted(take_all(client)) == [
        [[texts[0], [b"x", b"x"]]],
        [[texts[1], [b""]]],
        [[[b"y"], [b""]]],
        [[[b"y"] * 4, [b"z"] * 4]],
    ]


def whole_episodes(num_envs, num_rows, num_steps):
    """The items of the episodes with rows of `LENGTHS`, in order."""
    items = [
        [[row(t, env, lengths[env]).tolist() for t in range(num_rows)], [of_env(t, env) for t in range(num_steps)]]
        for lengths in LENGTHS
        for env in range(num_envs or 1)
    ]
    return sorted(items, key=repr)


@pytest.mark.parametrize("kind", ["sequence", "episode"])
def test_final_columns_may_have_open_length(client, num_envs, kind):
    if kind == "sequence":
        adder = adders.SequenceAdder(client, "table", length=9, period=9, final="tokens", num_envs=num_envs)
    else:
        adder = adders.EpisodeAdder(client, "table", max_length=9, final="tokens", num_envs=num_envs)
    with adder:
        for lengths in LENGTHS:
            for t in range(2):
                step = {"tokens": rows(t, num_envs, lengths), "x": number(t, num_envs)}
                adder.add(step, final={"tokens": rows(t + 1, num_envs, lengths)}, last=t == 1)
    assert sorted(take_all(client), key=repr) == whole_episodes(num_envs, 3, 2)


def test_episodes_of_rows_of_one_length(client, num_envs):
    with adders.EpisodeAdder(client, "table", max_length=4, num_envs=num_envs) as adder:
        for lengths in LENGTHS:
            for t in range(4):
                adder.add({"tokens": rows(t, num_envs, lengths), "x": number(t, num_envs)}, last=t == 3)
    assert sorted(take_all(client), key=repr) == whole_episodes(num_envs, 4, 4)


def add_and_flush(adder, steps):
    """Adds an episode, and returns the errors of its items."""
    errors = []
    for index, step in enumerate(steps):
        try:
            adder.add({"tokens": step}, last=index == len(steps) - 1)
        except ValueError as error:
            errors.append(error)
    # The same call must not be repeated.
    assert all(error.step_taken for error in errors)
    while True:
        try:
            adder.flush()
        except ValueError as error:
            errors.append(error)
        else:
            return [str(error) for error in errors]


@pytest.mark.parametrize("kind", ["sequence", "episode"])
def test_an_item_of_rows_of_different_length_is_refused_and_no_other(client, num_envs, kind):
    if kind == "sequence":
        adder = adders.SequenceAdder(client, "table", length=2, period=2, num_envs=num_envs)
    else:
        adder = adders.EpisodeAdder(client, "table", max_length=2, num_envs=num_envs)
    with adder:
        errors = add_and_flush(adder, [rows(0, num_envs, [2, 1, 3]), rows(1, num_envs, [1, 1, 3])])
        assert len(errors) == 1
        assert "incompatible shapes" in errors[0]
        assert add_and_flush(adder, [rows(0, num_envs, 3), rows(1, num_envs, 3)]) == []
    expected = [[[row(t, env, length).tolist() for t in range(2)]] for env, length in ((1, 1), (2, 3))]
    expected = [] if num_envs is None else expected
    expected += [[[row(t, env, 3).tolist() for t in range(2)]] for env in range(num_envs or 1)]
    assert sorted(take_all(client)) == sorted(expected)


def wrong(num_envs, length=2):
    """Each `Ragged` that a step may not have, with what its error says."""
    count = (num_envs or 1) + 1
    lengths = np.full(count, length)
    yield Ragged(np.zeros(length * count, np.int32), lengths), f"tokens: .*Ragged of {count} items"
    yield Ragged(np.zeros(5, np.int32), lengths[1:]), "tokens: .*row_lengths"
    yield Ragged(np.zeros(length, np.int32), lengths[1:].astype(np.float32)), "tokens: .*row_lengths"


def add_transition(adder, tokens, t, num_envs):
    step = transition(t, num_envs)
    adder.add(**step | {"observation": {**step["observation"], "tokens": tokens}})


def add_step(adder, tokens, t, num_envs):
    adder.add({"tokens": tokens, "x": number(t, num_envs)}, last=t == NUM_STEPS - 1)


MAKERS = {
    "n-step": (adders.NStepTransitionAdder, {"n": 2, "discount": 1.0}, add_transition),
    "first": (adders.SequenceAdder, {"length": 3, "period": 2, "first": "tokens"}, add_step),
    "pad": (adders.SequenceAdder, {"length": 3, "period": 2, "end": "pad"}, add_step),
    "episode": (adders.EpisodeAdder, {"max_length": NUM_STEPS}, add_step),
}


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_refused_row_leaves_no_trace(client, kind, num_envs, at):
    make, options, add = MAKERS[kind]
    got = []
    for has_wrong in (False, True):
        with make(client, "table", num_envs=num_envs, **options) as adder:
            for _ in range(2):
                for t in range(NUM_STEPS):
                    for tokens, text in wrong(num_envs) if has_wrong and t == at else ():
                        with pytest.raises((ValueError, TypeError), match=text):
                            add(adder, tokens, t, num_envs)
                    add(adder, rows(t, num_envs, 2), t, num_envs)
            adder.flush()
        got.append(take_all(client))
    assert len(got[0]) >= 2 * (num_envs or 1)
    assert got[1] == got[0]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_column_may_have_plain_rows_first(client, kind, num_envs):
    make, options, add = MAKERS[kind]
    got = []
    for is_plain in (False, True):
        with make(client, "table", num_envs=num_envs, **options) as adder:
            for t in range(NUM_STEPS):
                tokens = rows(t, num_envs, 2)
                plain = tokens.values if num_envs is None else tokens.values.reshape(num_envs, 2)
                add(adder, plain if is_plain and t < 2 else tokens, t, num_envs)
        got.append(take_all(client))
    assert got[0]
    assert got[1] == got[0]


def goals(t, num_envs):
    plain = number(t, num_envs)
    return {
        "observation": {"tokens": rows(t, num_envs), "x": plain},
        "achieved_goal": np.stack([plain, plain], -1),
        "desired_goal": np.stack([-plain, -plain], -1),
    }


def test_transitions_in_hindsight_have_the_rows_of_their_steps(client, num_envs):
    options = {"discount": 1.0, "compute_reward": lambda *_: 7.0, "k": 1, "seed": 1, "num_envs": num_envs}
    with adders.HindsightAdder(client, "table", **options) as adder:
        for episode in range(2):
            for t in range(NUM_STEPS):
                for tokens, text in wrong(num_envs) if t in (0, 2) else ():
                    bad = goals(t, num_envs) | {"observation": {"tokens": tokens, "x": number(t, num_envs)}}
                    with pytest.raises((ValueError, TypeError), match=text):
                        adder.add(bad, number(t, num_envs), 0.5, goals(t + 1, num_envs))
                for name in ("achieved_goal", "desired_goal"):
                    bad = goals(t + 1, num_envs) | {name: rows(t, num_envs)}
                    with pytest.raises(ValueError, match=f"next_observation/{name}.*Ragged"):
                        adder.add(goals(t, num_envs), number(t, num_envs), 0.5, bad)
                ended = {"truncated": t == NUM_STEPS - 1 and episode == 0}
                before, after = goals(t, num_envs), goals(t + 1, num_envs)
                adder.add(before, rows(t + 50, num_envs), np.full(num_envs or 1, 0.5), after, **ended)
                # The arrays are the caller's again.
                before["observation"]["tokens"].values[:] = -1
        adder.end_episode()
    got = take_all(client)
    assert len(got) == 2 * 2 * NUM_STEPS * (num_envs or 1)
    for action, _, _, _, tokens_after, x_after, _, _, tokens, x, reward in got:
        env, t = divmod(x, 1000)
        assert x_after == x + 1
        assert tokens == row(t, env).tolist()
        assert tokens_after == row(t + 1, env).tolist()
        assert action == row(t + 50, env).tolist()
        assert reward in (0.5, 7.0)


def test_rewards_are_numbers(client, num_envs):
    adder = adders.NStepTransitionAdder(client, "table", n=1, discount=1.0, num_envs=num_envs)
    for length in (1, 2):
        with pytest.raises(ValueError, match="reward.*Ragged"):
            adder.add(**transition(0, num_envs, reward=rows(0, num_envs, length)))
    adder.add(**transition(0, num_envs))
    adder.flush()
    assert info_of(client).current_size == (num_envs or 1)


class Texts:
    """A vector of environments whose observations have rows of open length; episode e of environment n has 2 + n steps.

    Args:
      num_envs: Number of environments; None for a single one.
      mode: Autoreset mode of the vector.
      is_listed: Whether the last observations of the mode `SameStep` are an array of those of single environments.
    """

    def __init__(self, num_envs, mode, *, is_listed=False):
        self.metadata = {"autoreset_mode": mode}
        self._mode, self._is_listed, self._count = mode, is_listed, num_envs or 1
        if num_envs is not None:
            self.num_envs = num_envs

    def _observed(self, steps=None):
        steps = self._steps if steps is None else steps
        each = [row(t, env) for env, t in enumerate(steps)]
        numbers = np.array([of_env(t, env) for env, t in enumerate(steps)])
        tokens = Ragged(np.concatenate(each), np.array([len(one) for one in each]))
        return {"tokens": tokens, "x": numbers if hasattr(self, "num_envs") else numbers[0]}

    def _single(self, env):
        tokens = row(self._steps[env], env)
        return {"tokens": Ragged(tokens, np.array([len(tokens)])), "x": of_env(self._steps[env], env)}

    def reset(self, *, seed=None, options=None):
        mask = np.ones(self._count, bool) if options is None else options["reset_mask"]
        self._steps = np.where(mask, 0, getattr(self, "_steps", 0))
        self._ended = np.zeros(self._count, bool)
        return self._observed(), {}

    def step(self, action):
        infos = {}
        begins = self._ended if self._mode == "NextStep" else np.zeros(self._count, bool)
        self._steps = np.where(begins, 0, self._steps + 1)
        ended = self._ended = self._steps == 2 + np.arange(self._count)
        if self._mode == "SameStep" and ended.any():
            final = np.array([None] * self._count, object)
            for env in np.flatnonzero(ended):
                final[env] = self._single(env)
            infos = {"final_obs": final if self._is_listed else self._observed()}
            self._steps = np.where(ended, 0, self._steps)
        flags = ended if hasattr(self, "num_envs") else bool(ended[0])
        reward = np.ones(self._count) if hasattr(self, "num_envs") else 1.0
        return self._observed(), reward, flags, np.zeros_like(flags), infos


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_steps_of_environments(client, num_envs, mode, is_listed):
    if num_envs is None and mode != "Disabled":
        pytest.skip("single environments do not reset themselves")
    with adders.NStepTransitionAdder(client, "table", n=1, discount=1.0, num_envs=num_envs) as adder:
        envs = adder.add_from(Texts(num_envs, mode, is_listed=is_listed))
        envs.reset()
        for _ in range(24):
            *_, ended, _, _ = envs.step(rows(0, num_envs))
            if mode == "Disabled" and np.any(ended):
                envs.reset(options=None if num_envs is None else {"reset_mask": ended})
    got = take_all(client)
    seen = set()
    for action, discount, tokens_after, x_after, tokens, x, _ in got:
        env, t = divmod(x, 1000)
        assert x_after == x + 1
        assert tokens == row(t, env).tolist()
        assert tokens_after == row(t + 1, env).tolist()
        assert action == row(0, env).tolist()
        assert discount == (0.0 if t + 1 == 2 + env else 1.0)
        seen.add((env, t))
    assert seen == {(env, t) for env in range(num_envs or 1) for t in range(2 + env)}
    assert len(got) == 24 * (num_envs or 1) - (0 if mode != "NextStep" else 8 + 6 + 4)


def test_tables_and_loaders_give_ragged_columns(serve, num_envs):
    signature = {"tokens": TensorSpec([None], np.int32), "x": TensorSpec([None], np.int64)}
    client = serve(make_table(signature=signature, max_times_sampled=1))
    count = num_envs or 1
    adder = adders.SequenceAdder(client, "table", length=1, period=1, first="tokens", num_envs=num_envs)
    with adder:
        for t in range(4):
            adder.add({"tokens": rows(t, num_envs), "x": number(t, num_envs)})
    batch = client.sample_batch("table", 2 * count)
    expected = [row(t, env).tolist() for t in range(4) for env in range(count)]
    assert [one.tolist() for one in batch.data["tokens"].split()] == expected[: 2 * count]
    with NumpyLoader(client, "table", batch_size=count) as loader:
        for t in range(2, 4):
            got = next(loader).data["tokens"].split()
            assert [one.tolist() for one in got] == [row(t, env).tolist() for env in range(count)]


def test_what_a_batch_gave_goes_into_an_adder(serve):
    signature = {"tokens": TensorSpec([None], np.int32)}
    client = serve(make_table(signature=signature), make_table("other"))
    client.insert_batch({"tokens": rows(0, 3)}, {"table": 1.0})
    batch = client.sample_batch("table", 3)
    with adders.EpisodeAdder(client, "other", max_length=1, num_envs=3) as adder:
        adder.add(batch.data, last=True)
    got = [sample.data[0][0].tolist() for sample in draw(client, 3, "other")]
    assert got == [one.tolist() for one in batch.data["tokens"].split()]


def test_configs_of_windows_are_made_from_steps_with_rows_of_open_length(client):
    step = {"tokens": rows(0, None), "x": np.float32(0)}
    configs = adders.sequence_configs(step, "table", length=2, period=2, first="tokens")
    with client.structured_writer(configs) as writer:
        for t in range(2):
            writer.append({"tokens": rows(t, None), "x": np.float32(t)})
    assert take_all(client) == [[row(0).tolist(), [0.0, 1.0]]]


SPECS = {"tokens": TensorSpec([None], np.int32), "x": TensorSpec([], np.int64)}


def in_time(specs):
    return {name: TensorSpec([None, *spec.shape], spec.dtype) for name, spec in specs.items()}


SIGNATURES = {
    "n-step": {
        "action": TensorSpec([None], np.int32),
        "discount": TensorSpec([], np.float32),
        "extras": {"mask": TensorSpec([None], np.int32)},
        "next_observation": SPECS,
        "observation": SPECS,
        "reward": TensorSpec([], np.float32),
    },
    "first": in_time(SPECS) | {"tokens": SPECS["tokens"]},
    "pad": in_time(SPECS),
    "episode": in_time(SPECS),
}


def listed(step):
    """The same step with a list of arrays for each Ragged."""
    if isinstance(step, Ragged):
        return step.split()
    return {name: listed(value) for name, value in step.items()} if isinstance(step, dict) else step


# All rows have the length 1, too: then a list of one environment looks like a column.
@pytest.mark.parametrize("length", [3, 1])
@pytest.mark.parametrize("kind", MAKERS)
def test_lists_of_arrays_are_rows_where_the_table_has_an_open_length(serve, kind, length):
    client = serve(make_table(signature=SIGNATURES[kind], max_times_sampled=1))
    make, options, _ = MAKERS[kind]
    for num_envs in (None, 1, 3):
        got = []
        for change in (lambda step: step, listed):
            with make(client, "table", num_envs=num_envs, **options) as adder:
                for t in range(NUM_STEPS):
                    last = t == NUM_STEPS - 1
                    if kind == "n-step":
                        step = transition(t, num_envs)
                        for name in ("observation", "next_observation"):
                            step[name] = {**step[name], "tokens": rows(t, num_envs, length)}
                        adder.add(**change(step))
                    else:
                        step = change({"tokens": rows(t, num_envs, length), "x": number(t, num_envs)})
                        final = {"final": step} if last and kind == "episode" else {}
                        adder.add(step, last=last, **final)
            got.append(take_all(client))
        assert got[0]
        assert got[1] == got[0]


def test_a_list_of_another_number_of_arrays_is_refused_by_name(serve):
    client = serve(make_table(signature=in_time(SPECS), max_times_sampled=1))
    with adders.EpisodeAdder(client, "table", max_length=NUM_STEPS, num_envs=2) as adder:
        for _ in range(2):
            with pytest.raises(ValueError, match="tokens: .*Ragged of 3 items"):
                adder.add({"tokens": rows(0, 3).split(), "x": number(0, 2)})
            adder.add({"tokens": [row(0, 0, 2), row(0, 1, 2)], "x": number(0, 2)}, last=True)
    assert [item[0] for item in take_all(client)] == 2 * [[[0, 1]], [[1000, 1001]]]


@pytest.mark.parametrize("make", [adders.SequenceAdder, adders.EpisodeAdder])
def test_a_list_waits_for_a_server_only_as_long_as_the_call(make):
    with contextlib.closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        length = {"length": 1, "period": 1} if make is adders.SequenceAdder else {"max_length": 1}
        adder = make(f"127.0.0.1:{silent.getsockname()[1]}", "table", num_envs=2, **length)
        with adder, pytest.raises(errors.DeadlineExceededError):
            adder.add({"tokens": [row(0, 0, 2), row(0, 1, 2)]}, timeout=0.1)
