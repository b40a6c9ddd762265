"""Nests: how they are flattened, and packed again by a signature."""

import collections
import sys

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reverb.tensor_spec import TensorSpec

Step = collections.namedtuple("Step", ["reward", "action"])

NESTED = {
    "b": (np.float32(1), [np.int32(2), np.int32(3)]),
    "a": {"z": np.zeros(2), "y": np.ones((1, 2))},
    "c": Step(reward=0.5, action=np.uint8(4)),
}
NESTED_SPEC = {
    "b": (TensorSpec([], np.float32), [TensorSpec([], np.int32), TensorSpec([], np.int32)]),
    "a": {"z": TensorSpec([2], np.float64), "y": TensorSpec([1, 2], np.float64)},
    "c": Step(reward=TensorSpec([], np.float64), action=TensorSpec([], np.uint8)),
}


def test_leaves_are_ordered_by_keys_positions_and_fields(client):
    client.insert(NESTED, {"table": 1.0})
    [sample] = draw(client)
    assert [column.dtype.name for column in sample.data] == [
        "float64",
        "float64",
        "float32",
        "int32",
        "int32",
        "float64",
        "uint8",
    ]
    assert [column.shape for column in sample.data] == [(1, 1, 2), (1, 2), (1,), (1,), (1,), (1,), (1,)]


def test_dict_order_does_not_matter(client):
    client.insert({"x": 1, "y": 2}, {"table": 1.0})
    client.insert({"y": 2, "x": 1}, {"table": 1.0})
    for sample in draw(client, 2):
        assert [int(column[0]) for column in sample.data] == [1, 2]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.permutations("zayxb"), st.integers(1, 5), st.booleans()), min_size=1, max_size=6))
def test_order_of_keys_does_not_depend_on_earlier_dicts(client, dicts):
    """Dicts that share keys, all of them or some, whose strings are the same objects or only equal."""
    for keys, count, are_new in dicts:
        chosen = [f"{key}_key" if are_new else sys.intern(f"{key}_key") for key in keys[:count]]
        client.reset("table")
        client.insert({key: ord(key[0]) for key in chosen}, {"table": 1.0})
        [sample] = draw(client)
        assert [int(column[0]) for column in sample.data] == sorted(map(ord, keys[:count]))


def test_sample_has_the_structure_of_the_signature(serve):
    client = serve(make_table(signature=NESTED_SPEC))
    client.insert(NESTED, {"table": 1.0})
    [steps] = client.sample("table", unpack_as_table_signature=True)
    [step] = steps
    data = step.data
    assert list(data) in (["a", "b", "c"], ["b", "a", "c"])
    assert isinstance(data["b"], tuple)
    assert isinstance(data["b"][1], list)
    assert type(data["c"]).__name__ == "Step"
    assert data["c"]._fields == Step._fields
    assert float(data["b"][0]) == 1
    assert [int(leaf) for leaf in data["b"][1]] == [2, 3]
    assert float(data["c"].reward) == 0.5
    np.testing.assert_array_equal(data["a"]["y"], [[1, 1]])


def test_trajectory_has_the_structure_of_the_signature(serve):
    client = serve(make_table(signature=NESTED_SPEC))
    client.insert(NESTED, {"table": 1.0})
    [sample] = client.sample("table", emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data["a"]["y"].shape == (1, 1, 2)
    assert sample.data["c"].reward.shape == (1,)


def test_batch_has_the_structure_of_the_signature(serve):
    client = serve(make_table(signature=NESTED_SPEC))
    client.insert(NESTED, {"table": 1.0})
    data = client.sample_batch("table", 3).data
    assert data["a"]["y"].shape == (3, 1, 1, 2)
    assert data["c"].action.shape == (3, 1)
    data = client.sample_batch("table", 3, squeeze_time=True).data
    assert data["a"]["y"].shape == (3, 1, 2)
    assert data["b"][1][0].shape == (3,)


def test_nest_of_a_batch_gives_one_item_per_row(serve):
    client = serve(make_table(max_times_sampled=1))
    client.insert_batch({"x": np.arange(4), "y": (np.arange(8.0).reshape(4, 2),)}, {"table": 1.0})
    for row, sample in enumerate(draw(client, 4)):
        x, y = sample.data
        assert int(x[0]) == row
        np.testing.assert_array_equal(y, [[2.0 * row, 2.0 * row + 1]])


def test_table_without_signature_gives_the_flat_list(client):
    client.insert({"x": 1, "y": 2.0}, {"table": 1.0})
    [sample] = client.sample("table", emit_timesteps=False, unpack_as_table_signature=True)
    assert isinstance(sample.data, list)
    assert len(sample.data) == 2
    assert len(client.sample_batch("table", 2).data) == 2


def test_bare_leaf_is_a_structure(serve):
    client = serve(make_table(signature=TensorSpec([2], np.float32)))
    client.insert(np.ones(2, np.float32), {"table": 1.0})
    [sample] = client.sample("table", emit_timesteps=False, unpack_as_table_signature=True)
    assert sample.data.shape == (1, 2)
    assert client.sample_batch("table", 4, squeeze_time=True).data.shape == (4, 2)


@pytest.mark.parametrize("empty", [[], {}, (), {"a": []}])
def test_structure_without_leaves_is_refused(client, empty):
    with pytest.raises((ValueError, RuntimeError)):
        client.insert(empty, {"table": 1.0})
    assert info_of(client).current_size == 0


def test_server_returns_the_signature(serve):
    client = serve(make_table(signature=NESTED_SPEC))
    signature = info_of(client).signature
    assert list(signature) == ["a", "b", "c"]
    assert signature["a"]["y"] == TensorSpec([1, 2], np.float64)
    assert signature["b"] == (TensorSpec([], np.float32), [TensorSpec([], np.int32)] * 2)
    assert signature["c"]._fields == Step._fields
