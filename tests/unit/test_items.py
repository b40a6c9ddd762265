import numpy as np
import pytest

from reverb import _items
from reverb.replay_sample import Ragged, ReplaySample, SampleInfo


def infos_of(batch):
    return (
        np.arange(batch, dtype=np.uint64) + np.uint64(2**63),
        np.full(batch, 0.5),
        np.full(batch, 7),
        np.arange(batch, dtype=np.float64),
        np.ones(batch, dtype=np.int32),
    )


def test_whole_items_are_views_with_their_time_axis():
    column = np.arange(12.0).reshape(2, 3, 2)
    ragged = Ragged(np.arange(5), np.array([1, 4]))
    squeezed = np.array([10, 20], dtype=np.int16)
    first, second = _items.whole(infos_of(2), [column, ragged, squeezed], [False, False, True], list)
    assert isinstance(first, ReplaySample)
    assert first.info == SampleInfo(2**63, 0.5, 7, 0.0, 1)
    assert [type(value) for value in first.info] == [int, float, int, float, int]
    np.testing.assert_array_equal(first.data[0], column[0])
    np.testing.assert_array_equal(first.data[1], [0])
    np.testing.assert_array_equal(second.data[1], [1, 2, 3, 4])
    assert second.data[2].shape == ()
    assert second.data[2].dtype == np.int16
    assert isinstance(second.data[2], np.ndarray)
    assert np.shares_memory(second.data[0], column)


def test_steps_of_an_item_share_its_info():
    column = np.arange(12.0).reshape(2, 3, 2)
    scalars = np.arange(6).reshape(2, 3)
    items = list(_items.steps(infos_of(2), [column, scalars], [False, False], list))
    assert [len(item) for item in items] == [3, 3]
    assert all(step.info is items[1][0].info for step in items[1])
    np.testing.assert_array_equal(items[1][2].data[0], [10.0, 11.0])
    assert items[1][2].data[1].shape == ()
    assert isinstance(items[1][2].data[1], np.ndarray)
    assert items[1][2].data[1] == 5


def test_steps_of_ragged_items():
    ragged = Ragged(np.arange(10).reshape(5, 2), np.array([1, 4]))
    items = list(_items.steps(infos_of(2), [ragged], [False], tuple))
    assert [[step.data[0].tolist() for step in item] for item in items] == [
        [[0, 1]],
        [[2, 3], [4, 5], [6, 7], [8, 9]],
    ]


def test_strings_stay_in_arrays():
    column = np.array([[b"a"], [b""]], dtype=object)
    for item in (
        next(_items.steps(infos_of(2), [column], [False], list))[0].data[0],
        next(_items.whole(infos_of(2), [column[:, 0]], [True], list)).data[0],
    ):
        assert isinstance(item, np.ndarray)
        assert item.shape == ()
        assert item.item() == b"a"


def test_items_of_uneven_columns_do_not_split_but_those_before_do():
    columns = [Ragged(np.arange(4), np.array([1, 3])), Ragged(np.arange(3), np.array([1, 2]))]
    items = _items.steps(infos_of(2), columns, [False, False], list)
    assert len(next(items)) == 1
    with pytest.raises(ValueError, match=r"^Can't split non timestep trajectory into timesteps\.$"):
        next(items)


def test_items_of_squeezed_columns_do_not_split():
    columns = [np.zeros((2, 1)), np.zeros(2)]
    with pytest.raises(ValueError, match=r"^Can't split non timestep trajectory into timesteps\.$"):
        next(_items.steps(infos_of(2), columns, [False, True], list))


def test_infos_that_a_program_makes_itself_may_leave_out_how_often_they_were_sampled():
    assert SampleInfo(key=1, probability=0.5, table_size=2, priority=3.0) == (1, 0.5, 2, 3.0, 1)
