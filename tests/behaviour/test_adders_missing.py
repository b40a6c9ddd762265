"""Steps without a value in a column: refused by name, and the adder goes on as if they had not been given."""

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import adders

NUM_STEPS = 8
STACK = {"stack": {"observation": 2}}


@pytest.fixture
def client(serve):
    return serve(make_table(max_times_sampled=1))


def take_all(client):
    size = info_of(client).current_size
    samples = draw(client, size) if size else []
    return [[np.asarray(column).tolist() for column in sample.data] for sample in samples]


def value(number, num_envs):
    return np.float32(number) if num_envs is None else number + 1000 * np.arange(num_envs, dtype=np.float32)


def transition(t, num_envs, **missing):
    """The arguments of `add` for a transition; `missing` replaces some of them."""
    parts = {"observation": value(t, num_envs), "action": value(10 + t, num_envs), "reward": value(0.5, num_envs)}
    parts |= {"next_observation": value(t + 1, num_envs), "terminated": t == NUM_STEPS - 1}
    return parts | missing


def run(adder, arguments, bad, num_envs, at):
    """Adds an episode twice, with a bad step before step `at`."""
    for _ in range(2):
        for t in range(NUM_STEPS):
            if t == at and bad is not None:
                missing, text = bad
                with pytest.raises(ValueError, match=text):
                    adder.add(**arguments(t, num_envs, **missing))
            adder.add(**arguments(t, num_envs))
    adder.flush()


N_STEP = {
    "observation": ({}, {"observation": None}, "observation is None"),
    "action": ({}, {"action": None}, "action is None"),
    "next": ({}, {"next_observation": {"x": None, "y": np.ones(2)}}, "next_observation/x is None"),
    "stacked": (STACK, {"next_observation": None}, "next_observation is None"),
}


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("case", N_STEP)
def test_a_transition_without_a_value_is_refused(client, case, num_envs, at):
    options, missing, text = N_STEP[case]
    got = []
    for bad in (None, (missing, text)):
        with adders.NStepTransitionAdder(client, "table", n=3, discount=0.9, num_envs=num_envs, **options) as adder:
            run(adder, transition, bad, num_envs, at)
        got.append(take_all(client))
    assert len(got[0]) == 2 * NUM_STEPS * (num_envs or 1)
    assert got[1] == got[0]


def test_extras_are_needed_at_each_step_if_the_first_has_them(client):
    with adders.NStepTransitionAdder(client, "table", n=1, discount=0.9) as adder:
        adder.add(**transition(0, None), extras={"logits": np.float32(1)})
        with pytest.raises(ValueError, match="extras is None"):
            adder.add(**transition(1, None))
        with pytest.raises(ValueError, match="extras/logits is None"):
            adder.add(**transition(1, None), extras={"logits": None})
        adder.add(**transition(1, None), extras={"logits": np.float32(2)})
    assert len(take_all(client)) == 2


def test_frames_before_the_first_step_need_its_observation(client):
    with adders.NStepTransitionAdder(client, "table", n=1, discount=0.9, **STACK) as adder:
        with pytest.raises(ValueError, match="observation is None"):
            adder.add(**transition(0, None, observation=None))
        adder.add(**transition(0, None))
        # Later ones are those after the step before.
        adder.add(**transition(1, None, observation=None))
    assert len(take_all(client)) == 2


def sequence(t, num_envs, **missing):
    step = {"x": value(t, num_envs), "y": value(10 + t, num_envs)}
    return {"step": step | missing, "last": t == NUM_STEPS - 1}


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("end", ["truncate", "pad", "drop"])
@pytest.mark.parametrize("options", [{}, {"first": ("x",)}, {"stack": {"x": 2}}], ids=["plain", "first", "stack"])
def test_a_step_of_a_sequence_without_a_value_is_refused(client, options, end, num_envs, at):
    got = []
    for bad in (None, ({"y": None}, "y is None")):
        made = adders.SequenceAdder(client, "table", length=4, period=3, end=end, num_envs=num_envs, **options)
        with made as adder:
            run(adder, sequence, bad, num_envs, at)
        got.append(take_all(client))
    assert got[0]
    assert got[1] == got[0]


def test_first_columns_need_a_value_where_a_window_begins(client):
    with adders.SequenceAdder(client, "table", length=2, period=2, first="state") as adder:
        for t in range(4):
            if t % 2 == 0:
                with pytest.raises(ValueError, match="state is None"):
                    adder.add({"state": None, "x": t})
            adder.add({"state": None if t % 2 else t, "x": t}, last=t == 3)
    assert take_all(client) == [[0, [0, 1]], [2, [2, 3]]]


def test_final_columns_need_a_value_before_and_after_a_step(client):
    with adders.SequenceAdder(client, "table", length=2, period=2, final="x") as adder:
        with pytest.raises(ValueError, match="x is None"):
            adder.add({"x": None, "y": 0}, final={"x": 1})
        with pytest.raises(ValueError, match="x is None"):
            adder.add({"x": 0, "y": 0}, final={"x": None})
        adder.add({"x": 0, "y": 0}, final={"x": 1})
        # The value before a later step is that after the step before.
        adder.add({"x": None, "y": 1}, final={"x": 2}, last=True)
    assert take_all(client) == [[[0, 1, 2], [0, 1]]]


def test_a_step_of_no_environment_needs_no_values(client):
    with adders.SequenceAdder(client, "table", length=1, period=1, num_envs=2) as adder:
        adder.add({"x": np.ones(2)})
        adder.add({"x": None}, mask=[False, False])
        adder.add({"x": np.ones(2)})
    assert len(take_all(client)) == 4
