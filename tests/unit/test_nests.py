import collections
import string

import attr
import pytest
import tree
from hypothesis import given
from hypothesis import strategies as st

from reverb.data import nests

Pair = collections.namedtuple("Pair", "second first")


@attr.s
class Step:
    observation = attr.ib()
    action = attr.ib()


def dicts_of(children):
    # The keys' own order: dm-tree flattens by sorted keys, and rebuilds dicts in this order.
    keys = st.text(string.ascii_letters + "'\"\\{}\n", max_size=3)
    return st.lists(st.tuples(keys, children), max_size=4).map(dict)


structures = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.floats(),
    lambda children: st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.tuples(children, children).map(lambda pair: Pair(*pair)),
        dicts_of(children),
        dicts_of(children).map(collections.OrderedDict),
        st.tuples(children, children).map(lambda pair: Step(*pair)),
    ),
    max_leaves=12,
)


@given(structures)
def test_packer_agrees_with_dm_tree(structure):
    leaves = [object() for _ in tree.flatten(structure)]
    packed = nests.compile_packer(structure)(leaves)
    expected = tree.unflatten_as(structure, leaves)
    tree.assert_same_structure(packed, expected, check_types=True)
    assert all(a is b for a, b in zip(tree.flatten(packed), leaves, strict=True))
    assert keys_in_order(packed) == keys_in_order(expected)


def keys_in_order(structure):
    if isinstance(structure, dict):
        return [(key, keys_in_order(value)) for key, value in structure.items()]
    if isinstance(structure, (list, tuple)):
        return [keys_in_order(value) for value in structure]
    return None


@pytest.mark.parametrize("structure", [1, None, [], {"b": (), "a": [1, 2]}, Pair(1, {"x": 2}), (1,)])
@pytest.mark.parametrize("leaves_too_many", [-1, 1])
def test_packer_refuses_another_number_of_leaves(structure, leaves_too_many):
    number = len(tree.flatten(structure)) + leaves_too_many
    if number < 0:
        pytest.skip("there is no smaller number")
    with pytest.raises(ValueError, match=rf"has {number - leaves_too_many} leaves, got {number}"):
        nests.compile_packer(structure)([0] * number)


def test_every_call_makes_new_containers():
    pack = nests.compile_packer({"a": [1]})
    first, second = pack([1]), pack([2])
    assert first == {"a": [1]}
    assert second == {"a": [2]}
    assert first["a"] is not second["a"]


def test_keys_are_never_executed():
    key = "x'); raise SystemExit('"
    assert nests.compile_packer({key: 1})([5]) == {key: 5}
