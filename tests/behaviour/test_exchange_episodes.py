"""Imports of RLDS episodes into tables."""

import contextlib

import numpy as np
import pytest
from behaviour_support import Background, make_table, run_program

import reverb
from reverb import adders, checkpointers, errors, exchange, rate_limiters


@pytest.fixture
def client():
    server = reverb.Server([make_table()])
    yield server.localhost_client()
    server.stop()


def steps_of(episode, length, *, terminal=True):
    """Yields steps whose observation is `100 * episode + index`."""
    for index in range(length):
        is_last = index == length - 1
        yield {
            "observation": {"x": np.array([100 * episode + index], np.float32), "name": b"\0a\0"},
            "action": np.int32(index),
            "reward": np.float32(0.0 if is_last else index + 1),
            "discount": np.float32(not is_last),
            "is_first": np.bool_(index == 0),
            "is_last": np.bool_(is_last),
            "is_terminal": np.bool_(is_last and terminal),
        }


def episodes_of(*lengths, **options):
    return [{"steps": steps_of(number, length, **options)} for number, length in enumerate(lengths)]


def items(client):
    return [item.data for item in checkpointers.open(client.checkpoint()).table("table")]


def test_patterns_make_the_items_of_each_episode(client):
    def windows(step):
        return adders.sequence_configs(step, "table", length=3, period=2)

    imported = exchange.from_rlds(client, iter(episodes_of(5, 2)), windows)
    assert imported == (2, 7)
    # In dm-tree's order of keys, the observation's `x` is column 6.
    observations = [[int(value) for value in item[6].ravel()] for item in items(client)]
    assert observations == [[0, 1, 2], [2, 3, 4], [100, 101]]
    assert [name for item in items(client) for name in item[5]] == [b"\0a\0"] * 8


def test_configs_can_be_a_list_and_steps_can_be_transformed(client):
    def keep(step):
        return {"x": step["observation"]["x"]}

    configs = adders.sequence_configs({"x": 0}, "table", length=2, period=2)
    assert exchange.from_rlds(client, episodes_of(4), configs, transform=keep) == (1, 4)
    assert [item[0].ravel().tolist() for item in items(client)] == [[0.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize("terminal", [True, False])
def test_transitions_end_with_discount_zero_only_where_the_environment_terminated(client, terminal):
    with adders.NStepTransitionAdder(client, "table", n=2, discount=0.5) as adder:
        exchange.from_rlds(client, episodes_of(3, terminal=terminal), adder=adder)
    action, discount, _, next_x, _, x, reward = zip(*items(client), strict=True)
    assert [int(value) for value in action] == [0, 1]
    assert [float(value) for value in reward] == [1 + 0.5 * 2, 2.0]
    assert [float(value) for value in discount] == ([0.0, 0.0] if terminal else [0.25, 0.5])
    assert [value.item() for value in x] == [0.0, 1.0]
    assert [value.item() for value in next_x] == [2.0, 2.0]


def test_whole_episodes_become_items_of_their_lengths(client):
    with adders.EpisodeAdder(client, "table", max_length=4) as adder:
        assert exchange.from_rlds(client, episodes_of(4, 1), adder=adder) == (2, 5)
    assert [len(item[0]) for item in items(client)] == [4, 1]
    assert [item[5].tolist() for item in items(client)] == [[b"\0a\0"] * 4, [b"\0a\0"]]


def goal_steps(episode, length, *, terminal=True):
    """Steps of an environment whose goal is a place on a line, at which observation `100 * episode + index` is."""
    for step in steps_of(episode, length, terminal=terminal):
        place = step["observation"]["x"]
        goals = {"observation": place, "achieved_goal": place + 0.5, "desired_goal": np.array([-1], np.float32)}
        yield {**step, "observation": goals}


def reached(achieved, desired, info):
    assert info == {}
    return float(abs(achieved - desired)[0] < 0.1)


def hindsight(client, compute_reward=reached, **options):
    return adders.HindsightAdder(
        client, "table", discount=0.5, compute_reward=compute_reward, k=1, strategy="final", seed=1, **options
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_hindsight_sees_the_goals_of_a_data_set(client, terminal):
    with hindsight(client) as adder:
        episodes = [{"steps": goal_steps(number, 3, terminal=terminal)} for number in range(2)]
        assert exchange.from_rlds(client, episodes, adder=adder) == (2, 6)
    read = items(client)
    # Two transitions an episode, each with its own goal and with the last one that was reached.
    assert len(read) == 8
    action, discount, *following, _, _, place, reward = zip(*read, strict=True)
    _, next_goal, next_place = following
    assert [int(value) for value in action] == [0, 0, 1, 1] * 2
    assert [float(value) for value in reward] == [1.0, 0.0, 2.0, 1.0] * 2
    assert [float(value) for value in discount] == [0.5, 0.5, *[0.0 if terminal else 0.5] * 2] * 2
    assert [value.item() for value in place] == [0, 0, 1, 1, 100, 100, 101, 101]
    assert [value.item() for value in next_place] == [1, 1, 2, 2, 101, 101, 102, 102]
    assert [value.item() for value in next_goal] == [-1, 2.5, -1, 2.5, -1, 102.5, -1, 102.5]


def adder_of(kind, client, **options):
    return {
        "hindsight": lambda: hindsight(client, **options),
        "transitions": lambda: adders.NStepTransitionAdder(client, "table", n=2, discount=0.5, **options),
        "sequences": lambda: adders.SequenceAdder(client, "table", length=4, period=4, **options),
        "episodes": lambda: adders.EpisodeAdder(client, "table", max_length=4, **options),
    }[kind]()


def episodes_in(items):
    """The numbers of the episodes of which each item has steps."""
    # Observations and goals that were reached are in the hundreds of their episode, and no other number is above 99.
    numbers = [np.concatenate([leaf.ravel() for leaf in item if leaf.dtype.kind in "if"]) for item in items]
    return [{number // 100 for number in each if number > 99} for each in numbers]


@pytest.mark.parametrize("kind", ["hindsight", "transitions", "sequences", "episodes"])
def test_an_adder_begins_another_episode_after_an_import_that_failed(client, kind):
    adder = adder_of(kind, client)
    torn = [*goal_steps(1, 4)][:3]
    with adder:
        with pytest.raises(TypeError, match="episode 0, step 2: a step must be a dict"):
            exchange.from_rlds(client, [{"steps": [*torn, 3]}], adder=adder)
        exchange.from_rlds(client, [{"steps": goal_steps(5, 3)}], adder=adder)
    of_episodes = episodes_in(items(client))
    assert {5} in of_episodes
    assert all(len(episodes) == 1 for episodes in of_episodes), of_episodes


@pytest.mark.parametrize(
    ("kind", "num_items"), [("hindsight", 4), ("transitions", 2), ("sequences", 1), ("episodes", 1)]
)
def test_an_adder_begins_another_episode_after_ctrl_c_while_its_items_wait(kind, num_items):
    def interrupted():
        yield from [*goal_steps(2, 4)][:3]
        raise KeyboardInterrupt

    limiter = rate_limiters.SampleToInsertRatio(1.0, 1, (-1e9, 1))
    with reverb.Server([make_table(limiter=limiter, max_times_sampled=1)]) as server:
        client = server.localhost_client()
        client.insert(0, {"table": 1.0})
        adder = adder_of(kind, client, max_in_flight_items=num_items)
        # The items of the first episode fill the table's queue, so that there is no room for those of the second.
        with pytest.raises(KeyboardInterrupt):
            exchange.from_rlds(client, [{"steps": goal_steps(1, 3)}, {"steps": interrupted()}], adder=adder)
        adding = Background(exchange.from_rlds, client, [{"steps": goal_steps(5, 3)}], adder=adder)
        found = []
        while adding.is_running or client.server_info()["table"].current_size:
            with contextlib.suppress(errors.DeadlineExceededError):
                found += [sample.data for sample in client.sample("table", timeout=0.2, emit_timesteps=False)]
        adding.result()
        adder.close()
    of_episodes = episodes_in(found[1:])
    assert {5} in of_episodes
    assert all(len(episodes) == 1 for episodes in of_episodes), of_episodes


def test_importing_no_episodes_inserts_nothing(client):
    assert exchange.from_rlds(client, [], lambda step: []) == (0, 0)


def broken(change):
    steps = list(steps_of(0, 3))
    change(steps)
    return [{"steps": steps_of(0, 2)}, {"steps": steps}]


BAD = {
    "no steps": (
        [{"episode_id": 1}],
        ValueError,
        r"episode 0 must be a dict with `steps`, got the keys \['episode_id'\]",
    ),
    "an episode that is not a dict": ([3], ValueError, "episode 0 must be a dict with `steps`, got int"),
    "stacked": ([{"steps": {"reward": np.zeros(3)}}], ValueError, "`steps` of episode 0 must be an iterable of dicts"),
    "empty": ([{"steps": []}], ValueError, "episode 0 has no steps"),
    "a step that is not a dict": (
        broken(lambda steps: steps.append(3)),
        TypeError,
        "episode 1, step 2: a step must be a dict",
    ),
    "steps after the last": (
        broken(lambda steps: steps.insert(0, steps[-1])),
        ValueError,
        "episode 1, step 0: `is_last` is set, but another step follows",
    ),
    "a missing field": (
        broken(lambda steps: steps[1].pop("reward")),
        ValueError,
        r"episode 1, step \d: .*reward",
    ),
    "another dtype": (
        broken(lambda steps: steps[1].update(reward="much")),
        (ValueError, TypeError),
        r"episode 1, step \d: ",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_episode_is_named_in_the_error(client, case):
    episodes, kind, message = BAD[case]
    adder = adders.NStepTransitionAdder(client, "table", n=1, discount=1.0)
    with adder, pytest.raises(kind, match=message):
        exchange.from_rlds(client, episodes, adder=adder)


def test_import_needs_either_configs_or_an_adder(client):
    adder = adders.EpisodeAdder(client, "table", max_length=4)
    for arguments in ({}, {"configs": [], "adder": adder}):
        with pytest.raises(ValueError, match="give exactly one of `configs` and `adder`"):
            exchange.from_rlds(client, episodes_of(2), **arguments)
    with pytest.raises(TypeError, match=r"`adder` must be one of reverb.adders, got str"):
        exchange.from_rlds(client, episodes_of(2), adder="mine")
    adder.close()


def test_an_item_that_the_server_refuses_is_an_error(client):
    with pytest.raises((errors.ReverbError, ValueError), match="nowhere"):
        exchange.from_rlds(
            client, episodes_of(2), lambda step: adders.sequence_configs(step, "nowhere", length=1, period=1)
        )


@pytest.mark.tensorflow
def test_tensorflow_datasets_are_read_directly(client):
    tf = pytest.importorskip("tensorflow")
    kinds = {
        "observation": {"x": tf.TensorSpec([1]), "name": tf.TensorSpec([], tf.string)},
        "action": tf.TensorSpec([], tf.int32),
        "reward": tf.TensorSpec([]),
        "discount": tf.TensorSpec([]),
        "is_first": tf.TensorSpec([], tf.bool),
        "is_last": tf.TensorSpec([], tf.bool),
        "is_terminal": tf.TensorSpec([], tf.bool),
    }

    def steps(number):
        return tf.data.Dataset.from_generator(lambda n: steps_of(int(n), 3), output_signature=kinds, args=[number])

    episodes = tf.data.Dataset.range(2).map(lambda number: {"steps": steps(number)})
    with adders.EpisodeAdder(client, "table", max_length=4) as adder:
        assert exchange.from_rlds(client, episodes, adder=adder) == (2, 6)
    assert [item[6].ravel().tolist() for item in items(client)] == [[0.0, 1.0, 2.0], [100.0, 101.0, 102.0]]
    assert [item[5].tolist() for item in items(client)] == [[b"\0a\0"] * 3] * 2


SECURED = """
    import sys, numpy as np, reverb
    from reverb import adders, exchange
    steps = [
        {"x": np.float32(number), "is_first": number == 0, "is_last": number == 3, "is_terminal": number == 3}
        for number in range(4)
    ]
    def keep(step):
        return {"x": step["x"]}
    configs = adders.sequence_configs({"x": 0}, "table", length=2, period=2)
    episodes, client = [{"steps": steps}], reverb.Client(sys.argv[1])
    print(*exchange.from_rlds(client, episodes, configs, transform=keep, progress=False))
"""


def test_imports_show_the_token_of_the_environment(serve_secured):
    server, address = serve_secured(make_table())
    assert run_program(SECURED, address)[0] == "1 4\n"
    assert server.localhost_client().server_info()["table"].current_size == 2
