import collections
import json
import pathlib
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverb import reverb_types
from reverb.data import signatures
from reverb.tensor_spec import BoundedTensorSpec, TensorSpec

Pair = collections.namedtuple("Pair", "second first")
GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "data" / "table_info.json").read_text())["vectors"]
OF_THE_REFERENCE = {
    "sig_bounded_array": BoundedTensorSpec([2], np.int32, [0, 1], [5, 6]),
    "sig_bounded_scalar": BoundedTensorSpec([2], np.float32, 0, 1, "bd"),
    "sig_dict": {"a": TensorSpec([], np.uint64), "b": TensorSpec([], np.int16)},
    "sig_leaf": TensorSpec([2, 3], np.float32, "nm"),
    "sig_list": [TensorSpec([], np.float64), TensorSpec([1], str)],
    "sig_nested": {
        "o": (
            {"k": TensorSpec([None], np.int64)},
            (TensorSpec([], ml_dtypes.bfloat16), TensorSpec([], np.complex128)),
        )
    },
    "sig_scalar": TensorSpec([], bool),
    "sig_tuple": (TensorSpec([], np.int8),),
    "sig_unknown_dim": TensorSpec([None, 4], np.uint8),
    "sig_unknown_rank": TensorSpec(None, np.int32),
}

dtypes = st.sampled_from(
    [np.float32, np.float16, np.int8, np.uint16, np.int64, np.uint64, bool, np.complex64, ml_dtypes.bfloat16]
)
dims = st.none() | st.lists(st.none() | st.integers(0, 5), max_size=3)
names = st.none() | st.text(min_size=1, max_size=3)
specs = st.builds(TensorSpec, dims, dtypes | st.just(str), names) | st.builds(
    BoundedTensorSpec, st.none(), dtypes, st.integers(0, 1), st.lists(st.integers(0, 100), max_size=3), names
)
nests = st.recursive(
    specs,
    lambda children: st.one_of(
        st.lists(children, min_size=1, max_size=3),
        st.lists(children, min_size=1, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), children, min_size=1, max_size=3),
        st.tuples(children, children).map(lambda pair: Pair(*pair)),
    ),
    max_leaves=8,
)


def decoded(signature):
    return signatures.decode(signatures.parse(signatures.encode(signature)))


@given(nests)
def test_decoded_signature_equals_the_original(signature):
    again = decoded(signature)
    assert signature == again
    assert type(again) is type(signature) or type(again).__name__ in ("Pair", type(signature).__name__)
    assert signatures.flat_specs(signatures.encode(signature)) == signatures.flat_specs(signature)
    assert signature == pickle.loads(pickle.dumps(again))


@pytest.mark.parametrize("vector", [v for v in GOLDEN if v["signature_hex"]], ids=lambda v: v["name"])
def test_signature_of_the_reference_is_read_and_written_back(vector):
    message = signatures.parse(bytes.fromhex(vector["signature_hex"]))
    signature = signatures.decode(message)
    assert signatures.parse(signatures.encode(signature)) == message
    if vector["name"] in OF_THE_REFERENCE:
        assert OF_THE_REFERENCE[vector["name"]] == signature


def test_named_tuple_of_the_reference_has_its_name_and_fields():
    (vector,) = [v for v in GOLDEN if v["name"] == "sig_namedtuple"]
    signature = signatures.decode(signatures.parse(bytes.fromhex(vector["signature_hex"])))
    assert type(signature).__name__ == "P"
    assert {"x": TensorSpec([], np.float16), "y": [TensorSpec([], np.complex64)]} == signature._asdict()


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: v["name"])
def test_table_info_of_the_reference_is_read(vector):
    info = reverb_types.TableInfo.from_serialized_proto(bytes.fromhex(vector["hex"]))
    assert info == reverb_types.TableInfo.from_serialized_proto(bytes.fromhex(vector["hex"]))
    assert (info.signature is None) == (vector["signature_hex"] is None)
    info.table_worker_time.sleeping_ms = 0
    assert pickle.loads(pickle.dumps(info)) == info


def test_equal_named_tuples_have_one_class():
    signature = Pair(TensorSpec([]), TensorSpec([]))
    assert type(decoded(signature)) is type(decoded(signature))
    assert type(decoded(signature)) is not Pair


def test_dicts_are_decoded_in_the_order_of_their_keys():
    assert list(decoded({"b": TensorSpec([]), "a": TensorSpec([])})) == ["a", "b"]


@pytest.mark.parametrize("nothing", [None, {}, (), []])
def test_empty_nests_are_not_signatures(nothing):
    assert signatures.encode(nothing) is None
    assert signatures.flat_specs(nothing) is None


def test_flat_specs_have_path_number_and_dimensions():
    signature = {
        "c": (TensorSpec([3], str), TensorSpec(None, np.int32)),
        "a": TensorSpec([None, 2], np.float32, "aa"),
        "d": Pair([TensorSpec([], ml_dtypes.bfloat16)], ()),
    }
    assert signatures.flat_specs(signature) == [
        ("a/aa", 1, [-1, 2]),
        ("c/0", 7, [3]),
        ("c/1", 3, None),
        ("d/second/0", 14, []),
    ]
    assert signatures.flat_specs(TensorSpec([])) == [("", 1, [])]
    assert signatures.flat_specs(TensorSpec([], name="own")) == [("own", 1, [])]


@pytest.mark.parametrize("leaf", [None, 1, np.zeros(2), "x"])
def test_leaves_that_are_not_specs_are_refused(leaf):
    with pytest.raises(ValueError, match="\nUnsupported signature spec: "):
        signatures.encode({"a": [leaf]})


def test_keys_must_be_strings():
    with pytest.raises(TypeError, match="got 1"):
        signatures.encode({1: TensorSpec([])})


def test_a_message_that_is_not_a_signature_is_refused():
    with pytest.raises(ValueError, match="Saw unsupported encoded subtree in signature"):
        signatures.decode(signatures.parse(b"\x70\x01"))


def test_absurd_bounds_are_refused_before_they_take_memory():
    message = signatures.parse(signatures.encode(BoundedTensorSpec(None, np.float32, 0, 1)))
    message.bounded_tensor_spec_value.minimum.tensor_shape.dim.add().size = 2**50
    with pytest.raises(ValueError, match="bound"):
        signatures.decode(message)


@pytest.mark.tensorflow
def test_signature_is_written_as_tensorflow_writes_it():
    tf = pytest.importorskip("tensorflow")
    from tensorflow.python.framework import tensor_spec
    from tensorflow.python.saved_model import nested_structure_coder

    bounded = tensor_spec.BoundedTensorSpec
    signature = {
        "z": Pair(tf.TensorSpec([2, None], tf.float32, "nm"), [tf.TensorSpec(None, tf.string)]),
        "b": (bounded([2], tf.float32, 0, [1, 2]), bounded([], tf.half, 0, 3.5), bounded([], tf.bool, False, True)),
        "c": [
            bounded([], tf.uint8, 0, 255),
            bounded([], tf.complex64, 0, 1j),
            bounded([], tf.uint64, 0, 2**64 - 1),
            bounded([], tf.int64, -(2**63), 2**63 - 1),
            bounded([], tf.float64, 0, 1),
            tf.TensorSpec([], tf.qint8),
        ],
    }
    theirs = nested_structure_coder.encode_structure(signature).SerializeToString(deterministic=True)
    assert signatures.encode(signature) == theirs
    again = signatures.decode(signatures.parse(theirs))
    assert again == signature
    assert isinstance(again["z"].second, tf.TensorSpec)
