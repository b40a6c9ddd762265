"""Priorities that a step brings for the items that patterns create from it."""

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import errors, structured

STEP = {"x": np.int64(0), "error": np.float32(0)}


@pytest.fixture
def client(serve):
    return serve(make_table(max_times_sampled=1))


def configs():
    pattern = structured.pattern_from_transform(STEP, lambda step: {"x": step["x"][-1], "error": step["error"][-1:]})
    last = structured.pattern_from_transform(STEP, lambda step: {"x": step["x"][-2], "error": step["error"][-2:]})
    priority = structured.td_error(1.0, STEP, lambda step: step["error"])
    return [
        structured.create_config(pattern, "table", priority=priority),
        structured.create_config(last, "table", [structured.Condition.is_end_episode()], priority),
    ]


def priorities_by_value(client):
    return sorted((int(s.data[1]), s.info.priority) for s in draw(client, info_of(client).current_size))


def test_a_given_priority_replaces_that_of_the_config(client):
    with client.structured_writer(configs()) as writer:
        writer.append({"x": 1, "error": np.float32(0.5)})
        writer.append({"x": 2, "error": np.float32(0.25)}, priority=7)
        writer.end_episode(priority=9.0)
    assert priorities_by_value(client) == [(1, 0.5), (1, 9.0), (2, 7.0)]


def test_each_environment_has_its_own_priority(client):
    with client.batched_writer(2, configs=configs()) as writer:
        error = np.array([0.5, 0.25], np.float32)
        writer.append({"x": np.array([1, 2]), "error": error}, priorities=[3.0, 4.0])
        writer.append({"x": np.array([3, 4]), "error": error})
        writer.append({"x": np.array([5, 6]), "error": error}, priorities=8.0, episode_end=[False, True])
    assert priorities_by_value(client) == [(1, 3.0), (2, 4.0), (3, 0.5), (4, 0.25), (4, 8.0), (5, 8.0), (6, 8.0)]


def test_nan_is_refused_where_an_item_gets_it_and_ignored_elsewhere(client):
    with client.batched_writer(2, configs=configs()[1:]) as writer:
        step = {"x": np.array([1, 2]), "error": np.zeros(2, np.float32)}
        writer.append(step, priorities=[np.nan, np.nan])
        with pytest.raises(errors.InvalidPriorityError, match="must not be nan"):
            writer.append(step, priorities=[np.nan, 2.0], episode_end=np.array([True, True]))
    assert priorities_by_value(client) == [(2, 2.0)]


@pytest.mark.parametrize("priorities", [[1.0, 2.0, 3.0], np.ones((2, 1))])
def test_priorities_of_another_shape_are_refused(client, priorities):
    with client.batched_writer(2, configs=configs()) as writer, pytest.raises(ValueError, match="have shape \\[2\\]"):
        writer.append({"x": np.array([1, 2]), "error": np.zeros(2, np.float32)}, priorities=priorities)
