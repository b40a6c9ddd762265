"""Invalid priorities are refused before anything changes."""

import numpy as np
import pytest
from behaviour_support import contents, draw, info_of, insert_values, make_table

import reverb
from reverb import errors, selectors

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("priority", [1, True, np.float32(1), np.int64(1), np.array(1.0)])
def test_values_that_convert_to_a_float_are_priorities(client, priority):
    client.insert(0, {"table": priority})
    [sample] = draw(client)
    assert sample.info.priority == 1.0


@pytest.mark.parametrize("priority", ["high", None, [1.0, 2.0], 1j])
def test_other_things_are_type_errors(client, priority):
    with pytest.raises((TypeError, ValueError)):
        client.insert(0, {"table": priority})
    assert info_of(client).current_size == 0


@pytest.mark.parametrize("priority", [-1.0, 0.0, INF, -INF, 1e300])
def test_tables_that_do_not_draw_by_weight_accept_any_priority_except_nan(serve, priority):
    client = serve(make_table(sampler="uniform", remover="min_heap"))
    insert_values(client, [0], priority=priority)
    [sample] = draw(client)
    assert sample.info.priority == priority


@pytest.mark.parametrize("sampler", ["fifo", "uniform", "max_heap", "prioritized"])
def test_nan_is_refused_by_every_table(serve, sampler):
    client = serve(make_table(sampler=sampler))
    with pytest.raises(errors.InvalidPriorityError, match="(?i)nan") as caught:
        insert_values(client, [0], priority=NAN)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(errors.InvalidPriorityError, match="(?i)nan"):
        client.insert_batch(np.zeros(3), {"table": [1.0, NAN, 1.0]})
    assert info_of(client).current_size == 0


@pytest.mark.parametrize("priority", [-1.0, INF, -INF, 1e200])
@pytest.mark.parametrize("roles", [("prioritized", "fifo"), ("fifo", "prioritized")])
def test_table_that_draws_by_weight_refuses_priorities_without_a_finite_weight(serve, roles, priority):
    squared = {"prioritized": selectors.Prioritized(2.0), "fifo": selectors.Fifo()}
    sampler, remover = (squared[role] for role in roles)
    client = serve(make_table(sampler=sampler, remover=remover))
    insert_values(client, [0, 1])
    with pytest.raises(errors.InvalidPriorityError):
        insert_values(client, [2], priority=priority)
    with pytest.raises(errors.InvalidPriorityError):
        client.insert_batch(np.arange(3), {"table": [1.0, 1.0, priority]})
    assert info_of(client).current_size == 2
    # The draws are unchanged after the refusals.
    insert_values(client, [3])
    assert draw(client, 10)[0].info.table_size == 3


@pytest.mark.parametrize("priority", [-1.0, INF, NAN])
def test_update_with_one_bad_priority_applies_nothing(serve, priority):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, range(4))
    keys = contents(client)
    with pytest.raises(errors.InvalidPriorityError):
        client.mutate_priorities("table", updates={keys[0]: 5.0, keys[1]: priority}, deletes=[keys[2]])
    with pytest.raises(errors.InvalidPriorityError):
        client.update_priorities("table", np.array([keys[0], keys[1]], np.uint64), np.array([5.0, priority]))
    assert contents(client) == keys
    for sample in draw(client, 100):
        assert (sample.info.priority, sample.info.probability) == (1.0, 0.25)


@pytest.mark.parametrize("sampler", ["fifo", "max_heap"])
def test_update_to_nan_is_refused_by_every_table(serve, sampler):
    client = serve(make_table(sampler=sampler))
    insert_values(client, [0])
    [sample] = draw(client)
    with pytest.raises(errors.InvalidPriorityError, match="(?i)nan"):
        client.mutate_priorities("table", updates={sample.info.key: NAN})
    assert draw(client)[0].info.priority == 1.0


def test_bad_priority_for_one_of_two_tables_changes_neither(serve):
    client = serve(make_table("free"), make_table("weighted", sampler="prioritized"))
    with pytest.raises(errors.InvalidPriorityError):
        client.insert(0, {"free": -1.0, "weighted": -1.0})
    assert info_of(client, "free").current_size == 0
    assert info_of(client, "weighted").current_size == 0


def test_importance_weights_follow_the_paper(serve):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, range(5), priority=[1.0, 2.0, 3.0, 4.0, 5.0])
    info = client.sample_batch("table", 64).info
    for beta in (0.0, 0.4, 1.0):
        expected = (info.table_size * info.probability) ** -beta
        weights = reverb.importance_weights(info, beta)
        assert weights.shape == (64,)
        np.testing.assert_allclose(weights, expected / expected.max(), rtol=1e-6)


def test_importance_weights_of_uniform_draws_are_one(serve):
    client = serve(make_table(sampler="uniform"))
    insert_values(client, range(5))
    info = client.sample_batch("table", 16).info
    np.testing.assert_allclose(reverb.importance_weights(info, 0.7), np.ones(16))


def test_the_number_of_changed_priorities_is_returned(serve):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, [0, 1, 2])
    keys = contents(client)
    assert client.update_priorities("table", [keys[0], keys[1], 5], 2.0) == 2
    assert client.update_priorities("table", [5, 6], 2.0) == 0
    assert client.update_priorities("table", [], []) == 0
    assert client.mutate_priorities("table", {keys[0]: 1.0, 5: 1.0}) == 1
    assert client.mutate_priorities("table", {keys[0]: 1.0, keys[1]: 1.0}, deletes=[keys[1], keys[2], 6]) == 3
    assert client.mutate_priorities("table") == 0


def test_the_number_of_changed_priorities_of_many_steps_is_returned(serve):
    client = serve(make_table(sampler="uniform", max_size=20_000))
    client.insert_batch(np.zeros(20_000), {"table": 1.0})
    keys = np.unique(client.sample_batch("table", 100).info.key)
    many = np.concatenate([np.resize(keys, 40_000), np.zeros(3, np.uint64)])
    assert client.update_priorities("table", many, 2.0) == 40_000
    assert client.mutate_priorities("table", deletes=many) == len(keys)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int16, np.uint8], ids=lambda dtype: dtype.__name__)
def test_keys_of_less_than_64_bits_are_refused(client, dtype):
    insert_values(client, [0])
    text = f"Keys of items are uint64, got {np.dtype(dtype)}"
    for keys in (np.array([1, 2], dtype), dtype(1), [dtype(1)], np.array(1, dtype), np.zeros(0, dtype)):
        with pytest.raises(TypeError, match=text):
            client.update_priorities("table", keys, 1.0)
    with pytest.raises(TypeError, match=text):
        client.mutate_priorities("table", {dtype(1): 1.0})
    with pytest.raises(TypeError, match=text):
        client.mutate_priorities("table", deletes=np.array([1], dtype))


def test_keys_in_64_bits_and_python_ints_are_taken(client):
    insert_values(client, [0])
    [sample] = draw(client)
    # A key below 2**63, so that int64 holds it.
    key = sample.info.key
    for keys in (key, [key], np.uint64(key), np.array([key], np.uint64), (key, 0, 2**64 - 1)):
        assert client.update_priorities("table", keys, 1.0) == 1
    assert client.update_priorities("table", np.array([3, 4], np.int64), 1.0) == 0
    assert client.mutate_priorities("table", {np.uint64(key): 1.0}) == 1


def test_negative_keys_are_explained(client):
    with pytest.raises(ValueError, match=r"keys are uint64: keys\.view\(np\.uint64\)"):
        client.update_priorities("table", np.array([1, -2]), 1.0)
    with pytest.raises(TypeError, match=r"keys are uint64: keys\.view\(np\.uint64\)"):
        client.mutate_priorities("table", {np.int64(-2): 1.0})


@pytest.mark.parametrize("updates", [np.arange(3), [1, 2], [(1, 2.0)], 5], ids=str)
def test_updates_that_are_no_mapping_are_refused(client, updates):
    with pytest.raises(TypeError, match="updates: expected a mapping from keys to priorities, got"):
        client.mutate_priorities("table", updates)
