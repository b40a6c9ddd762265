"""`reverb.Ragged`: its length and items, and how it is split and padded."""

import copy
import pickle

import numpy as np
import pytest
import tree

from reverb import Ragged

LENGTHS = [1, 0, 3, 2]


def make_ragged(lengths=LENGTHS):
    rows = sum(lengths)
    return Ragged(np.arange(2 * rows, dtype=np.float32).reshape(rows, 2), np.array(lengths, np.int64))


def items_of(ragged):
    return [rows.tolist() for rows in ragged.split()]


ITEMS = items_of(make_ragged())


def test_an_item_is_its_rows():
    ragged = make_ragged()
    assert ITEMS == [[[0, 1]], [], [[2, 3], [4, 5], [6, 7]], [[8, 9], [10, 11]]]
    assert len(ragged) == 4
    for place in range(-4, 4):
        assert ragged[place].tolist() == ITEMS[place]
        assert ragged[np.int64(place)].tolist() == ITEMS[place]
    assert np.shares_memory(ragged[2], ragged.values)
    for place in (4, -5):
        with pytest.raises(IndexError):
            ragged[place]


@pytest.mark.parametrize(
    "items",
    [
        slice(None),
        slice(1, 3),
        slice(2, None),
        slice(-1, None),
        slice(3, 1),
        slice(9, None),
        slice(None, None, 2),
        slice(None, None, -1),
        slice(3, 0, -2),
    ],
)
def test_a_slice_is_a_ragged_of_its_items(items):
    part = make_ragged()[items]
    assert isinstance(part, Ragged)
    assert items_of(part) == ITEMS[items]
    assert part.row_lengths.tolist() == LENGTHS[items]
    assert part.values.shape == (sum(LENGTHS[items]), 2)


def test_padding_gives_an_array_and_its_mask():
    ragged = make_ragged()
    for length, expected in ((None, 3), (3, 3), (5, 5)):
        padded, mask = ragged.to_padded(length)
        assert (padded.shape, mask.shape) == ((4, expected, 2), (4, expected))
        assert (padded.dtype, mask.dtype) == (np.float32, bool)
        assert mask.sum(axis=1).tolist() == LENGTHS
        assert [rows[kept].tolist() for rows, kept in zip(padded, mask, strict=True)] == ITEMS
        assert not padded[~mask].any()
    with pytest.raises(ValueError, match="`length` must be at least 3.*got 2"):
        ragged.to_padded(2)


def test_strings_are_padded_with_empty_ones():
    padded, _ = Ragged(np.array([b"a", b"b", b"c"], object), np.array([2, 1])).to_padded()
    assert padded.tolist() == [[b"a", b"b"], [b"c", b""]]


def test_items_without_rows_and_no_items_at_all_can_be_padded():
    padded, mask = make_ragged([0, 0]).to_padded()
    assert (padded.shape, mask.shape) == ((2, 0, 2), (2, 0))
    padded, mask = make_ragged([]).to_padded(3)
    assert (padded.shape, mask.shape) == ((0, 3, 2), (0, 3))
    assert not len(make_ragged([]))


def test_a_ragged_is_a_named_tuple_to_nests():
    ragged = make_ragged()
    values, row_lengths = ragged
    assert values is ragged.values
    assert row_lengths is ragged.row_lengths
    assert ragged._fields == ("values", "row_lengths")
    assert list(ragged._asdict()) == ["values", "row_lengths"]
    assert ragged._replace(values=1) == (1, row_lengths)
    doubled = tree.map_structure(lambda array: array * 2, {"x": ragged})["x"]
    assert isinstance(doubled, Ragged)
    assert doubled.values.sum() == 2 * ragged.values.sum()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda ragged: pickle.loads(pickle.dumps(ragged))])
def test_copies_and_pickles_have_the_same_items(duplicate):
    other = duplicate(make_ragged())
    assert type(other) is Ragged
    assert items_of(other) == ITEMS
