import pickle

import ml_dtypes
import numpy as np
import pytest

import reverb
from reverb import tensor_spec
from reverb.tensor_spec import BoundedTensorSpec, TensorShape, TensorSpec

SHAPES = [(None, "<unknown>", None), ([], "()", 0), ([2, None], "(2, None)", 2), (3, "(3,)", 1), ((0,), "(0,)", 1)]


@pytest.mark.parametrize(("dims", "text", "rank"), SHAPES)
def test_shape_equals_the_dimensions_it_was_made_of(dims, text, rank):
    shape = TensorShape(dims)
    assert str(shape) == text
    assert shape.rank == shape.ndims == rank
    assert shape == TensorShape(shape)
    assert hash(shape) == hash(TensorShape(shape))
    assert pickle.loads(pickle.dumps(shape)) == shape
    assert bool(shape) == (dims is not None)


def test_shape_behaves_like_a_tuple():
    shape = TensorShape([2, None])
    assert shape == (2, None) == shape.as_list() or shape == [2, None]
    assert shape != (2, 3)
    assert list(shape) == [2, None]
    assert len(shape) == 2
    assert shape[1] is None
    assert shape[1:] == [None]
    assert (4,) + shape + [5] == [4, 2, None, 5]
    assert np.zeros(TensorShape([2, 3])).shape == (2, 3)


def test_shape_of_unknown_rank_has_no_length():
    shape = TensorShape(None)
    for read in (len, list, TensorShape.as_list):
        with pytest.raises(ValueError, match="rank"):
            read(shape)
    assert shape.num_elements() is None
    assert not shape.is_fully_defined()


@pytest.mark.parametrize("dims", ["ab", [-1], [1.5], {1}, object()])
def test_invalid_shapes_are_refused(dims):
    with pytest.raises((TypeError, ValueError)):
        TensorShape(dims)


@pytest.mark.parametrize(
    ("first", "second", "compatible"),
    [([2], [2], True), ([None], [2], True), (None, [2], True), ([2], [3], False), ([2], [2, 1], False)],
)
def test_shapes_are_compatible_if_one_array_can_have_both(first, second, compatible):
    assert TensorShape(first).is_compatible_with(second) == compatible
    assert TensorShape(second).is_compatible_with(first) == compatible


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.float32, "float32"),
        (float, "float64"),
        (">i4", "int32"),
        (bool, "bool"),
        (str, "object"),
        (bytes, "object"),
        ("S5", "object"),
        (object, "object"),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    ],
)
def test_dtype_is_native_and_strings_are_objects(given, dtype):
    assert TensorSpec([], given).dtype == np.dtype(dtype)
    assert TensorSpec([], given).dtype.isnative


@pytest.mark.parametrize("dtype", [None, np.longdouble, "M8[s]", [("a", "f4"), ("b", "f4")], "no dtype"])
def test_dtypes_that_cannot_be_stored_are_refused(dtype):
    with pytest.raises(TypeError):
        TensorSpec([], dtype)


def test_spec_defaults_to_float32_without_a_name():
    spec = TensorSpec([2, None])
    assert spec.dtype == np.float32
    assert spec.name is None
    assert repr(spec) == "TensorSpec(shape=(2, None), dtype=float32, name=None)"


def test_specs_are_equal_if_shape_dtype_name_and_bounds_are():
    spec = TensorSpec([2], np.float32, "a")
    assert spec == TensorSpec((2,), "f4", "a")
    assert hash(spec) == hash(TensorSpec((2,), "f4", "a"))
    bounded = BoundedTensorSpec([2], np.float32, 0, 1, "a")
    assert bounded == BoundedTensorSpec([2], np.float32, 0.0, 1.0, "a")
    others = [
        TensorSpec([3], np.float32, "a"),
        TensorSpec([2], np.float64, "a"),
        TensorSpec([2], np.float32),
        bounded,
        "a",
    ]
    assert all(spec != other and other != spec for other in others)
    assert bounded != BoundedTensorSpec([2], np.float32, 0, 2, "a")
    for each in (spec, bounded):
        assert pickle.loads(pickle.dumps(each)) == each
        assert type(each).from_spec(each) == each
        assert type(each).from_spec(each, "b").name == "b"


def test_bounds_are_read_only_arrays_of_the_dtype():
    spec = BoundedTensorSpec([2], np.int8, 0, [1, 2])
    assert spec.minimum.dtype == spec.maximum.dtype == np.int8
    assert spec.minimum.shape == ()
    with pytest.raises(ValueError, match="read-only"):
        spec.maximum[0] = 3
    with pytest.raises(ValueError, match="`maximum`"):
        BoundedTensorSpec([2], np.int8, 0, [1, 2, 3])


def test_spec_of_an_array_fits_it():
    array = np.zeros((2, 3), np.int16)
    spec = TensorSpec.from_tensor(array, "a")
    assert spec == TensorSpec([2, 3], np.int16, "a")
    assert spec.is_compatible_with(array)
    assert not spec.is_compatible_with(array.astype(np.int32))
    assert not spec.is_compatible_with(array[0])
    assert TensorSpec([None, 3], np.int16).is_compatible_with(spec)
    assert TensorSpec.from_tensor(1.5) == TensorSpec([], np.float64)


class Description:
    """A description of an array as in other libraries."""

    shape = (2,)
    dtype = np.dtype(np.int32)


def test_descriptions_of_other_libraries_become_specs():
    specs = pytest.importorskip("dm_env.specs")
    assert tensor_spec.spec_from_leaf(specs.Array((2,), np.float32, "a")) == TensorSpec([2], np.float32, "a")
    bounded = specs.BoundedArray((2,), np.float32, 0, 1, "a")
    assert tensor_spec.spec_from_leaf(bounded) == BoundedTensorSpec([2], np.float32, 0, 1, "a")
    assert tensor_spec.spec_from_leaf(Description()) == TensorSpec([2], np.int32)


@pytest.mark.parametrize("leaf", [np.zeros(3), np.float32(1), None, 3, "a", np.float32, np.dtype("f4"), Description])
def test_values_that_are_not_specs_are_refused(leaf):
    with pytest.raises(ValueError, match="^Unsupported signature spec: "):
        tensor_spec.spec_from_leaf(leaf)


def test_specs_are_exported_at_the_top():
    assert reverb.TensorSpec is TensorSpec
    assert reverb.BoundedTensorSpec is BoundedTensorSpec


@pytest.mark.tensorflow
def test_specs_equal_those_of_tensorflow():
    tf = pytest.importorskip("tensorflow")
    from tensorflow.python.framework import tensor_spec as tf_tensor_spec

    bounded = tf_tensor_spec.BoundedTensorSpec([2], tf.float32, 0, [1, 2], "a")
    assert TensorSpec([2, None], np.float32, "n") == tf.TensorSpec([2, None], tf.float32, "n")
    assert TensorSpec(None, str) == tf.TensorSpec(None, tf.string)
    assert TensorSpec([], tf.bfloat16) == tf.TensorSpec([], tf.bfloat16)
    assert TensorSpec([]) != tf.TensorSpec([1])
    assert BoundedTensorSpec([2], np.float32, 0, [1, 2], "a") == bounded
    assert BoundedTensorSpec([2], np.float32, 0, [1, 3], "a") != bounded
    assert TensorSpec([2], np.float32, "a") != bounded
    assert tensor_spec.spec_from_leaf(bounded) == bounded


@pytest.mark.tensorflow
def test_only_dense_specs_of_tensorflow_are_accepted():
    tf = pytest.importorskip("tensorflow")
    for leaf in (tf.RaggedTensorSpec([2, None]), tf.SparseTensorSpec([2]), tf.constant(1.0), tf.float32):
        with pytest.raises(ValueError, match="^Unsupported signature spec: "):
            tensor_spec.spec_from_leaf(leaf)
