"""After an exception at any point of an adder's calls, the items of the next episode are exactly right."""

import functools

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

import reverb
from reverb import adders, errors

LENGTH = 4
MAKERS = {
    "windows": lambda *args, **kw: adders.SequenceAdder(*args, length=2, period=1, **kw),
    "adjacent": lambda *args, **kw: adders.SequenceAdder(*args, length=3, period=3, **kw),
    "padded": lambda *args, **kw: adders.SequenceAdder(*args, length=3, period=3, end="pad", **kw),
    "first": lambda *args, **kw: adders.SequenceAdder(*args, length=3, period=3, first=("y",), **kw),
    "final": lambda *args, **kw: adders.SequenceAdder(*args, length=2, period=1, final=("x",), **kw),
    "stacked": lambda *args, **kw: adders.SequenceAdder(*args, length=2, period=1, stack={"x": 3}, **kw),
    "episodes": lambda *args, **kw: adders.EpisodeAdder(*args, max_length=LENGTH + 1, **kw),
    "final episodes": lambda *args, **kw: adders.EpisodeAdder(*args, max_length=LENGTH + 1, final=("x",), **kw),
    "transitions": lambda *args, **kw: adders.NStepTransitionAdder(*args, n=2, discount=0.5, **kw),
    "frames": lambda *args, **kw: adders.NStepTransitionAdder(*args, n=2, discount=0.5, stack={"observation": 3}, **kw),
    "hindsight": lambda *args, **kw: adders.HindsightAdder(
        *args, discount=0.5, compute_reward=lambda *_: 0.0, k=1, strategy="final", **kw
    ),
}


class Interrupted(BaseException):
    """As Ctrl-C, whenever the test wants it."""


@pytest.fixture
def client():
    with reverb.Server([make_table(max_size=10_000, max_times_sampled=1)]) as server:
        yield server.localhost_client()


def add(adder, number, *, is_last=False, bad=False):
    """Adds a step, whose numbers say which it is. A bad one has an array of another shape."""
    num_envs = adder.num_envs
    value = np.float64(number) if num_envs is None else number + 1000.0 * np.arange(num_envs)
    wrong = np.zeros((*np.shape(value), 2)) if bad else value
    if isinstance(adder, adders.NStepTransitionAdder):
        adder.add(value, wrong, np.full_like(value, 0.5), value + 1, terminated=is_last)
    elif isinstance(adder, adders.HindsightAdder):
        before, after = ({"observation": v, "achieved_goal": v, "desired_goal": v} for v in (value, value + 1))
        adder.add(before, wrong, np.full_like(value, 0.5), after, terminated=is_last)
    else:
        # The columns `first` and `final` of a step are not always read.
        step = {"x": wrong, "y": value} if getattr(adder, "_first", ()) else {"x": value, "y": wrong}
        adder.add(step, last=is_last, final={"x": value + 1} if adder._final else None)


def play(adder, episode):
    for step in range(LENGTH):
        add(adder, 100 * episode + step, is_last=step == LENGTH - 1)
    adder.flush()


def items_of(client, episode):
    """The items that have numbers of an episode, as sorted texts. The others are dropped."""
    size = info_of(client).current_size
    texts = []
    for sample in draw(client, size) if size else []:
        columns = [np.asarray(column).tolist() for column in sample.data]
        numbers = {number % 1000 // 100 for column in sample.data for number in np.ravel(column)}
        if episode in numbers:
            texts.append(str(columns))
    return sorted(texts)


def expected_items(client, make, num_envs):
    adder = make(client, "table", num_envs=num_envs)
    play(adder, 2)
    adder.close()
    return items_of(client, 2)


KINDS = pytest.mark.parametrize("kind", MAKERS)
ENVS = pytest.mark.parametrize("num_envs", [None, 2])


@KINDS
@ENVS
@pytest.mark.parametrize(("at", "is_ended"), [(0, False), (0, True), (1, True)])
def test_a_refused_value(client, kind, num_envs, at, is_ended):
    make = MAKERS[kind]
    expected = expected_items(client, make, num_envs)
    adder = make(client, "table", num_envs=num_envs)
    play(adder, 0)
    for step in range(at):
        add(adder, 100 + step)
    # An adder that keeps whole episodes notices at their end.
    with pytest.raises(errors.ReverbError):
        add(adder, 100 + at, bad=True, is_last=kind == "hindsight")
    if is_ended:
        adder.end_episode()
    play(adder, 2)
    assert items_of(client, 2) == expected


def interrupting(adder, monkeypatch, number, *, is_done):
    """Interrupts the writer's call of this number, before or after it has done its work. Returns the numbers so far."""
    calls = []

    def call(method, *args, **kwargs):
        calls.append(method)
        if len(calls) != number + 1:
            return method(*args, **kwargs)
        if is_done:
            method(*args, **kwargs)
        raise Interrupted

    for name in ("append", "create_items", "finish_episode"):
        if hasattr(adder._writer, name):
            monkeypatch.setattr(adder._writer, name, functools.partial(call, getattr(adder._writer, name)))
    return calls


@KINDS
@ENVS
@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("steps", [0, 1, LENGTH - 1])
@pytest.mark.parametrize("where", ["add", "last", "end_episode"])
def test_ctrl_c(client, monkeypatch, kind, num_envs, is_done, steps, where):
    make = MAKERS[kind]
    expected = expected_items(client, make, num_envs)
    for number in range(100):
        adder = make(client, "table", num_envs=num_envs)
        play(adder, 0)
        for step in range(steps):
            add(adder, 100 + step)
        with monkeypatch.context() as patch:
            calls = interrupting(adder, patch, number, is_done=is_done)
            try:
                if where == "end_episode":
                    adder.end_episode()
                else:
                    add(adder, 100 + steps, is_last=where == "last")
            except Interrupted:
                pass
        was_interrupted = len(calls) > number
        # A first step that was not added leaves nothing, also without the end of its episode.
        if steps or not was_interrupted:
            adder.end_episode()
        play(adder, 2)
        adder.close()
        assert items_of(client, 2) == expected, (number, was_interrupted)
        if not was_interrupted:
            return
    pytest.fail("an adder makes fewer calls")
