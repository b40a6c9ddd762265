"""Cuts batches that a server of this process draws."""

import numpy as np
import pytest

import reverb
from reverb import _binding
from reverb.data.endpoint import Endpoint
from reverb.replay_sample import ReplaySample, SampleInfo

NOT_STEPS = r"^Can't split non timestep trajectory into timesteps\.$"


@pytest.fixture
def draw():
    """Draws all items of a queue, each given by its columns: arrays `[time, ...]`, or scalars without a time axis."""
    server = reverb.Server([reverb.Table.queue("queue", 100)])
    address = f"localhost:{server.port}"

    def draw(*items):
        for columns in items:
            insert(reverb.Client(address), columns)
        sampled, drawn = _binding.Client(Endpoint(address)).sample("queue", len(items), len(items), 0, 10.0, False)
        drawn.received()
        return sampled

    yield draw
    server.stop()


def insert(client, columns):
    rows = [np.atleast_1d(column) for column in columns]
    with client.trajectory_writer(10, validate_items=False) as writer:
        for step in range(max(map(len, rows))):
            # Columns of one item may differ in length.
            writer.append([column[step] if step < len(column) else None for column in rows])
        pairs = zip(writer.history, columns, strict=True)
        trajectory = [history[: len(column)] if np.ndim(column) else history[0] for history, column in pairs]
        writer.create_item("queue", 1.5, trajectory)


def cut(sampled, of_steps, **options):
    return _binding.ItemIterator(sampled, _binding.BatchMaker(**options), of_steps=of_steps)


def test_whole_items_are_views_with_their_time_axis(draw):
    column = np.arange(12.0).reshape(2, 3, 2)
    ragged = [np.arange(1), np.arange(1, 5)]
    squeezed = np.array([10, 20], dtype=np.int16)
    sampled = draw(*zip(column, ragged, squeezed, strict=True))
    first, second = cut(sampled, False)
    assert isinstance(first, ReplaySample)
    assert isinstance(first.info, SampleInfo)
    assert first.info[1:] == (1.0, 2, 1.5, 1)
    assert [type(value) for value in first.info] == [int, float, int, float, int]
    assert first.info.key == sampled.info.key[0]
    np.testing.assert_array_equal(first.data[0], column[0])
    np.testing.assert_array_equal(first.data[1], [0])
    np.testing.assert_array_equal(second.data[1], [1, 2, 3, 4])
    assert second.data[2].shape == ()
    assert second.data[2].dtype == np.int16
    assert isinstance(second.data[2], np.ndarray)
    assert second.data[2] == 20
    assert np.shares_memory(second.data[0], sampled.columns[0])


def test_steps_of_an_item_share_its_info(draw):
    column = np.arange(12.0).reshape(2, 3, 2)
    scalars = np.arange(6).reshape(2, 3)
    items = list(cut(draw(*zip(column, scalars, strict=True)), True))
    assert [len(item) for item in items] == [3, 3]
    assert all(step.info is items[1][0].info for step in items[1])
    np.testing.assert_array_equal(items[1][2].data[0], [10.0, 11.0])
    assert items[1][2].data[1].shape == ()
    assert isinstance(items[1][2].data[1], np.ndarray)
    assert items[1][2].data[1] == 5


def test_steps_of_ragged_items(draw):
    rows = np.arange(10).reshape(5, 2)
    items = list(cut(draw([rows[:1]], [rows[1:]]), True, pack=tuple))
    assert [[step.data[0].tolist() for step in item] for item in items] == [
        [[0, 1]],
        [[2, 3], [4, 5], [6, 7], [8, 9]],
    ]


def test_strings_stay_in_arrays(draw):
    sampled = draw([np.array([b"a"], object), b"a"], [np.array([b""], object), b""])
    for item in (next(cut(sampled, True, columns=[0]))[0].data[0], next(cut(sampled, False)).data[1]):
        assert isinstance(item, np.ndarray)
        assert item.shape == ()
        assert item.item() == b"a"


def test_strings_of_ragged_items(draw):
    sampled = draw([np.array([b"a"], object)], [np.array([b"", b"bc"], object)])
    assert [item.data[0].tolist() for item in cut(sampled, False)] == [[b"a"], [b"", b"bc"]]
    assert [[step.data[0].item() for step in item] for item in cut(sampled, True)] == [[b"a"], [b"", b"bc"]]


def test_items_of_uneven_columns_do_not_split_but_those_before_do(draw):
    items = cut(draw([np.arange(1), np.arange(1)], [np.arange(1, 4), np.arange(1, 3)]), True)
    assert len(next(items)) == 1
    with pytest.raises(ValueError, match=NOT_STEPS):
        next(items)


def test_items_of_squeezed_columns_do_not_split(draw):
    with pytest.raises(ValueError, match=NOT_STEPS):
        cut(draw([np.zeros(1), 0.0]), True)


def test_an_iterator_that_is_at_its_end_stays_there(draw):
    items = cut(draw([np.zeros(1)]), False)
    assert len(list(items)) == 1
    assert list(items) == []


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({}, [0, 1]),
        ({"columns": [1]}, [1]),
        ({"keys": [("b", 1), ("a", 0)]}, {"b": 1, "a": 0}),
        ({"pack": tuple}, (0, 1)),
        ({"columns": [1, 0], "keys": [("x", 0), ("y", 1)]}, {"x": 1, "y": 0}),
        ({"names": ["x", "y"], "to_leaves": lambda columns, names: [name + "!" for name in names]}, ["x!", "y!"]),
        ({"to_leaves": lambda columns, names: names}, ["0", "1"]),
    ],
    ids=["flat", "columns", "keys", "pack", "columns and keys", "to_leaves with names", "to_leaves"],
)
def test_the_data_are_what_the_makers_options_say(draw, options, data):
    sampled = draw([0, 1])
    (item,) = cut(sampled, False, **options)
    assert item.data == data
    assert _binding.BatchMaker(**options).data([0, 1][: len(options.get("columns", [0, 1]))]) is not None


def test_a_maker_refuses_columns_that_are_not_there(draw):
    sampled = draw([0, 1])
    with pytest.raises(IndexError, match="the batch has no column 2"):
        _binding.BatchMaker(columns=[2]).sample(sampled)
    with pytest.raises(ValueError, match=r"The structure has 1 leaves, got 2\."):
        _binding.BatchMaker(keys=[("a", 0)]).sample(sampled)


def test_infos_made_by_a_program_can_omit_times_sampled():
    assert SampleInfo(key=1, probability=0.5, table_size=2, priority=3.0) == (1, 0.5, 2, 3.0, 1)
