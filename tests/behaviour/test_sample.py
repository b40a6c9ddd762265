"""`client.sample`, a generator of items or of their steps."""

import types

import numpy as np
import pytest
from behaviour_support import draw_values, info_of, insert_values, make_table, num_samples

import reverb
from reverb import errors
from reverb.tensor_spec import TensorSpec


def test_nothing_happens_before_the_first_next(client):
    generator = client.sample("nowhere", num_samples=-5)
    assert isinstance(generator, types.GeneratorType)


def test_items_are_lists_of_steps_by_default(client):
    client.insert({"x": np.arange(2.0), "y": 3}, {"table": 1.0})
    [steps] = client.sample("table")
    assert isinstance(steps, list)
    [step] = steps
    assert isinstance(step, reverb.ReplaySample)
    assert isinstance(step.info, reverb.SampleInfo)
    x, y = step.data
    assert (x.shape, y.shape) == ((2,), ())
    assert isinstance(y, np.ndarray)
    assert int(y) == 3


def test_items_are_whole_without_emit_timesteps(client):
    client.insert({"x": np.arange(2.0), "y": 3}, {"table": 1.0})
    [sample] = client.sample("table", emit_timesteps=False)
    assert isinstance(sample, reverb.ReplaySample)
    assert isinstance(sample.data, list)
    assert [column.shape for column in sample.data] == [(1, 2), (1,)]


def test_sample_yields_the_requested_number_of_items(client):
    insert_values(client, [0])
    for count in (1, 2, 17, 150):
        assert len(list(client.sample("table", count))) == count


def test_options_after_num_samples_are_keyword_only(client):
    with pytest.raises(TypeError):
        client.sample("table", 1, True)


@pytest.mark.parametrize("count", [0, -2, -10])
def test_impossible_counts_are_refused_on_the_first_next(client, count):
    generator = client.sample("table", num_samples=count)
    with pytest.raises(ValueError, match=rf"max_samples \({count}\) must be -1 or >= 1"):
        next(generator)


def test_minus_one_yields_nothing(client):
    insert_values(client, [0])
    assert list(client.sample("table", num_samples=-1)) == []


@pytest.mark.parametrize("count", [1.5, "two", None])
def test_counts_that_are_not_ints_are_type_errors(client, count):
    with pytest.raises(TypeError):
        next(client.sample("table", num_samples=count))


def test_unknown_table_is_reported_on_the_first_next(client):
    generator = client.sample("nowhere")
    with pytest.raises(RuntimeError, match="Priority table nowhere was not found"):
        next(generator)


def test_unknown_table_is_reported_with_the_known_ones_when_unpacking(serve):
    client = serve(make_table("a"), make_table("b"))
    generator = client.sample("nowhere", unpack_as_table_signature=True)
    with pytest.raises(ValueError, match='Could not find table "nowhere". The following tables exists: (a, b|b, a).'):
        next(generator)


def test_unpacked_steps_have_the_structure_of_the_signature(serve):
    client = serve(make_table(signature={"x": TensorSpec([2], np.float64), "y": TensorSpec([], np.int64)}))
    client.insert({"x": np.arange(2.0), "y": 3}, {"table": 1.0})
    [[step]] = client.sample("table", unpack_as_table_signature=True)
    assert step.data["x"].shape == (2,)
    assert int(step.data["y"]) == 3
    [sample] = client.sample("table", emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data["x"].shape == (1, 2)


def test_generator_can_be_abandoned_early(client):
    insert_values(client, range(5))
    generator = client.sample("table", num_samples=1000)
    next(generator)
    generator.close()
    assert len(list(client.sample("table", 3))) == 3


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_queue_keeps_items_that_an_abandoned_generator_did_not_yield(serve, taken):
    client = serve(reverb.Table.queue("table", max_size=10))
    insert_values(client, range(10))
    generator = client.sample("table", num_samples=10, emit_timesteps=False)
    first = [int(next(generator).data[0][0]) for _ in range(taken)]
    generator.close()
    assert first == list(range(taken))
    assert draw_values(client, 10 - taken) == list(range(taken, 10))


def test_limiter_counts_only_the_samples_that_were_yielded(serve):
    limiter = reverb.rate_limiters.SampleToInsertRatio(10.0, 1, 100.0)
    client = serve(make_table(limiter=limiter))
    insert_values(client, [0])
    generator = client.sample("table", num_samples=50)
    next(generator)
    next(generator)
    generator.close()
    assert num_samples(client) == 2


def test_samples_follow_changes_of_the_table_between_calls(client):
    insert_values(client, [0])
    assert draw_values(client) == [0]
    client.reset("table")
    insert_values(client, [1])
    assert draw_values(client) == [1]
    assert info_of(client).current_size == 1


def test_sample_with_a_timeout_raises_if_no_item_is_available(client):
    with pytest.raises(errors.DeadlineExceededError, match="table"):
        next(client.sample("table", timeout=0.1))


def test_sample_with_a_timeout_yields_available_items_first(serve):
    client = serve(reverb.Table.queue("table", max_size=10))
    insert_values(client, range(3))
    generator = client.sample("table", num_samples=5, emit_timesteps=False, timeout=0.3)
    assert [int(next(generator).data[0][0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(errors.DeadlineExceededError):
        next(generator)


def test_all_steps_of_a_sample_share_its_info(client):
    insert_values(client, [0, 1])
    for steps in client.sample("table", num_samples=3):
        assert len({id(step.info) for step in steps}) == 1
