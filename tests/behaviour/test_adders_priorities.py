"""The priorities of the items that adders make."""

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

import reverb
from reverb import adders, structured


@pytest.fixture
def client(serve):
    return serve(make_table(max_times_sampled=1))


def priorities(client):
    """The priorities of all items, in the order of their inserts."""
    size = info_of(client).current_size
    return [sample.info.priority for sample in draw(client, size)] if size else []


def items(client):
    size = info_of(client).current_size
    return [([np.asarray(x).tolist() for x in s.data], s.info.priority) for s in draw(client, size)]


def transitions(client, **options):
    return adders.NStepTransitionAdder(client, "table", n=1, discount=0.9, **options)


def test_a_step_gives_the_transition_that_it_completes_its_priority(client):
    with adders.NStepTransitionAdder(client, "table", n=2, discount=0.5, priority=9.0) as adder:
        adder.add(0, 0, 0.0, 1, priority=1.0)
        adder.add(1, 0, 0.0, 2, priority=2.0)
        adder.add(2, 0, 0.0, 3)
        adder.add(3, 0, 0.0, 4, terminated=True, priority=4.0)
    # In the order of their names: action, discount, next_observation, observation, reward.
    assert [(data[3], priority) for data, priority in items(client)] == [(0, 2.0), (1, 9.0), (2, 4.0), (3, 4.0)]


def test_each_environment_gives_its_own_priority(client):
    with transitions(client, num_envs=3) as adder:
        zeros = np.zeros(3)
        adder.add(np.arange(3), zeros, zeros, zeros, priority=[1.0, 2.0, 3.0], mask=[True, False, True])
        adder.add(np.arange(3), zeros, zeros, zeros, priority=5.0)
    assert sorted(priorities(client)) == [1.0, 3.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("end", ["truncate", "pad"])
def test_a_step_gives_the_windows_that_it_completes_its_priority(client, num_envs, end):
    def step(i):
        return {"x": i if num_envs is None else np.full(num_envs, i)}

    with adders.SequenceAdder(client, "table", length=3, period=2, end=end, num_envs=num_envs) as adder:
        for i in range(4):
            adder.add(step(i), last=i == 3, priority=10.0 + i)
    assert sorted(priorities(client)) == sorted([12.0, 13.0] * (num_envs or 1))


@pytest.mark.parametrize("num_envs", [None, 2])
def test_the_last_step_gives_the_episode_its_priority(client, num_envs):
    step = {"x": 1 if num_envs is None else np.ones(num_envs)}
    with adders.EpisodeAdder(client, "table", max_length=3, num_envs=num_envs) as adder:
        adder.add(step)
        adder.add(step, last=True, priority=3.0 if num_envs is None else [3.0, 4.0])
    assert priorities(client) == ([3.0] if num_envs is None else [3.0, 4.0])


def test_max_is_the_largest_priority_so_far(client):
    with transitions(client, priority="max") as adder:
        for given in (None, 0.5, None, 3.0, None, 2.0, None):
            adder.add(0, 0, 0.0, 1, priority=given)
        adder.note_priorities(np.array([[7.0, np.nan], [1.0, 2.0]]))
        adder.add(0, 0, 0.0, 1)
    assert priorities(client) == [1.0, 0.5, 1.0, 3.0, 3.0, 2.0, 3.0, 7.0]


@pytest.mark.parametrize("update", ["update_priorities", "mutate_priorities", "loader"])
def test_max_hears_of_updates_by_clients_of_this_process(serve, update):
    client = serve(make_table(sampler="lifo"))
    learner = reverb.Client(client.server_address)
    with transitions(client, priority="max", num_envs=2) as adder:
        zeros = np.zeros(2)
        adder.add(zeros, zeros, zeros, zeros)
        adder.flush()
        if update == "loader":
            with reverb.loaders.NumpyLoader(learner, "table", batch_size=2) as loader:
                loader.update_priorities(next(iter(loader)), [4.0, 5.0])
        else:
            keys = [sample.info.key for sample in draw(learner, 1)]
            if update == "mutate_priorities":
                learner.mutate_priorities("table", {keys[0]: 5.0})
            else:
                learner.update_priorities("table", keys, [5.0])
        adder.add(zeros, zeros, zeros, zeros)
    assert next(iter(draw(client))).info.priority == 5.0
    assert info_of(client).current_size == 4


def test_max_ignores_updates_of_other_tables(serve):
    client = serve(make_table(), make_table("other"))
    with transitions(client, priority="max") as adder:
        client.insert(1, {"other": 1.0})
        client.update_priorities("other", [next(iter(draw(client, 1, "other"))).info.key], 8.0)
        adder.add(0, 0, 0.0, 1)
    assert priorities(client) == [1.0]


def td_error_priority(errors, weight):
    return weight * max(errors) + (1 - weight) * sum(errors) / len(errors)


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("kind", ["sequence", "episode"])
def test_priority_is_the_formula_of_r2d2(client, kind, num_envs):
    errors = [-0.5, 0.25, 1.0, -2.0, 0.125]
    step = {"td_error": np.float32(0), "x": 0}
    formula = structured.td_error(0.75, step, lambda step: step["td_error"])
    options = {"priority": formula, "num_envs": num_envs}
    if kind == "sequence":
        adder = adders.SequenceAdder(client, "table", length=2, period=2, **options)
        windows = [[0.5, 0.25], [1.0, 2.0], [0.125]]
    else:
        adder = adders.EpisodeAdder(client, "table", max_length=5, **options)
        windows = [[0.5, 0.25, 1.0, 2.0, 0.125]]
    with adder:
        for _ in range(2):
            for i, error in enumerate(errors):
                values = {"td_error": np.float32(error), "x": i}
                if num_envs is not None:
                    values = {name: np.full(num_envs, value) for name, value in values.items()}
                adder.add(values, last=i == len(errors) - 1)
    expected = [td_error_priority(window, 0.75) for window in windows] * 2 * (num_envs or 1)
    assert sorted(priorities(client)) == pytest.approx(sorted(expected))


def test_sequence_configs_take_the_formula(client):
    step = {"td_error": np.float32(0)}
    formula = structured.td_error(1.0, step, lambda step: step["td_error"])
    configs = adders.sequence_configs(step, "table", length=2, period=2, priority=formula)
    with client.structured_writer(configs) as writer:
        for error in (0.5, -3.0):
            writer.append({"td_error": np.float32(error)})
    assert priorities(client) == [3.0]


def test_a_formula_without_its_column_is_refused(client):
    formula = structured.td_error(1.0, {"x": 0}, lambda step: step["x"])
    with pytest.raises(ValueError, match=r"give TD errors with the steps, as `add\(\.\.\., priority=\)`"):
        transitions(client, priority=formula)


def test_other_words_are_refused(client):
    with pytest.raises(ValueError, match="a number, 'max', or a formula .*, got 'largest'"):
        adders.SequenceAdder(client, "table", length=1, period=1, priority="largest")


def test_priorities_of_another_number_of_environments_are_refused(client):
    with transitions(client, num_envs=2) as adder, pytest.raises(ValueError, match=r"priority has shape \[3\]; this"):
        adder.add(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2), priority=[1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("num_envs", "text"),
    [
        (None, r"last has shape \[8\]; this adder was made without num_envs \(num_envs=8\?\)"),
        (4, r"last has shape \[8\]; this adder was made with num_envs=4\."),
    ],
)
@pytest.mark.parametrize("kind", ["sequence", "episode"])
def test_flags_of_another_number_of_environments_say_so(client, kind, num_envs, text):
    if kind == "sequence":
        adder = adders.SequenceAdder(client, "table", length=1, period=1, num_envs=num_envs)
    else:
        adder = adders.EpisodeAdder(client, "table", max_length=2, num_envs=num_envs)
    with pytest.raises(ValueError, match=text):
        adder.add({"x": np.zeros(8)}, last=np.zeros(8, bool))


@pytest.mark.parametrize("name", ["reward", "terminated", "truncated"])
def test_a_vector_for_an_adder_of_one_environment_says_so(client, name):
    values = {"reward": 0.0, "terminated": False, "truncated": False, name: np.zeros(8)}
    text = rf"{name} has shape \[8\]; this adder was made without num_envs \(num_envs=8\?\)"
    with pytest.raises(ValueError, match=text):
        transitions(client).add(np.zeros(8), np.zeros(8), next_observation=np.zeros(8), **values)


def test_returns_leave_out_steps_that_other_environments_made(client):
    with adders.NStepTransitionAdder(client, "table", n=2, discount=0.5, num_envs=2, dtype=np.float64) as adder:
        for t, mask in enumerate([[True, True], [True, False], [True, True]]):
            step = np.full(2, t)
            adder.add(step, step, np.array([1.0, 10.0]) * (t + 1), step + 1, mask=mask)
    rewards = sorted(data[4] for data, _ in items(client))
    assert rewards == [1 + 0.5 * 2, 2 + 0.5 * 3, 10 + 0.5 * 30]
