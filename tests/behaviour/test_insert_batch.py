"""Many inserts in one call."""

import contextlib

import numpy as np
import pytest
from behaviour_support import draw, draw_values, info_of, insert_values, make_table, num_inserts

from reverb import errors


def test_each_row_is_an_item_of_one_step(serve):
    client = serve(make_table(max_times_sampled=1))
    client.insert_batch(np.arange(6).reshape(3, 2), {"table": 1.0})
    samples = draw(client, 3)
    assert [sample.data[0].tolist() for sample in samples] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert len({sample.info.key for sample in samples}) == 3


def test_batch_and_single_inserts_leave_the_same_table(serve):
    client = serve(make_table("batch", max_size=7), make_table("single", max_size=7))
    client.insert_batch(np.arange(20), {"batch": 1.0})
    insert_values(client, range(20), table="single")
    batch, single = info_of(client, "batch"), info_of(client, "single")
    for field in ("current_size", "num_episodes", "num_deleted_episodes", "num_unique_samples", "rate_limiter_info"):
        assert getattr(batch, field) == getattr(single, field), field
    assert draw_values(client, 1, "batch") == draw_values(client, 1, "single") == [13]


def test_priorities_can_be_one_number_or_one_per_row(serve):
    client = serve(make_table("one", sampler="max_heap"), make_table("each", sampler="max_heap"))
    client.insert_batch(np.arange(3), {"one": 2.5, "each": np.array([1.0, 9.0, 4.0])})
    assert draw(client, 1, "one")[0].info.priority == 2.5
    [sample] = draw(client, 1, "each")
    assert (int(sample.data[0][0]), sample.info.priority) == (1, 9.0)


def test_priorities_may_be_a_list(serve):
    client = serve(make_table(sampler="max_heap"))
    client.insert_batch([np.arange(3)], {"table": [1, 2, 3]})
    assert draw_values(client) == [2]


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_wrong_number_of_priorities_is_refused(client, count):
    with pytest.raises(ValueError, match="priorit"):
        client.insert_batch(np.arange(3), {"table": np.ones(count)})
    assert info_of(client).current_size == 0


def test_columns_of_different_lengths_are_refused(client):
    with pytest.raises(ValueError, match="(?s)3.*4|4.*3"):
        client.insert_batch({"x": np.zeros(3), "y": np.zeros(4)}, {"table": 1.0})
    assert info_of(client).current_size == 0


@pytest.mark.parametrize("leaf", [3, np.float64(1.0), np.array(5)])
def test_leaves_without_a_row_axis_are_refused(client, leaf):
    with pytest.raises(ValueError, match="x"):
        client.insert_batch({"x": leaf}, {"table": 1.0})


def test_bad_row_is_named_and_nothing_is_inserted(serve):
    client = serve(make_table(sampler="prioritized"))
    insert_values(client, [0])
    with pytest.raises(errors.InvalidPriorityError, match=r"\b3\b"):
        client.insert_batch(np.arange(5), {"table": [1.0, 1.0, 1.0, -2.0, 1.0]})
    assert (info_of(client).current_size, num_inserts(client)) == (1, 1)


def test_bad_row_of_one_table_keeps_all_tables_unchanged(serve):
    client = serve(make_table("a", sampler="prioritized"), make_table("b"))
    with pytest.raises(errors.InvalidPriorityError, match=r"\b1\b"):
        client.insert_batch(np.arange(2), {"a": [1.0, -1.0], "b": 1.0})
    assert info_of(client, "a").current_size == 0
    assert info_of(client, "b").current_size == 0


def test_empty_batch_inserts_nothing(client):
    with contextlib.suppress(ValueError):
        client.insert_batch(np.zeros((0, 3)), {"table": 1.0})
    assert info_of(client).current_size == 0


def test_batch_without_priorities_is_refused(client):
    with pytest.raises(ValueError, match="^priorities must contain at least one item$") as caught:
        client.insert_batch(np.zeros(2), {})
    assert caught.type is ValueError


def test_batch_larger_than_the_table_keeps_its_last_rows(serve):
    client = serve(make_table(max_size=5, max_times_sampled=1))
    client.insert_batch(np.arange(1000), {"table": 1.0})
    assert draw_values(client, 5) == [995, 996, 997, 998, 999]
    assert num_inserts(client) == 1000


def test_items_of_a_batch_are_deleted_one_by_one(serve):
    client = serve(make_table(sampler="lifo"))
    client.insert_batch(np.arange(4), {"table": 1.0})
    for expected in (3, 2, 1, 0):
        [sample] = draw(client)
        assert int(sample.data[0][0]) == expected
        client.mutate_priorities("table", deletes=[sample.info.key])
    assert info_of(client).current_size == 0
