"""Calls to a server as TensorFlow operations."""

import ml_dtypes
import numpy as np
import pytest
from behaviour_support import contents, info_of, make_table

import reverb

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow


@pytest.fixture(params=["eager", "graph"])
def run(request):
    """Calls a function eagerly or in a graph."""

    def in_graph(call):
        def body():
            result = call()
            return None if isinstance(result, tf.Operation) else result

        return tf.function(body)()

    return (lambda call: call()) if request.param == "eager" else in_graph


@pytest.fixture
def tf_client(serve):
    serve(make_table(sampler="uniform"), make_table("other", sampler="prioritized"))
    return reverb.TFClient(serve.address)


def test_inserted_data_can_be_sampled(serve, tf_client, run):
    data = [tf.constant([1.5, 2.5]), tf.constant(7, tf.int64), tf.constant("text")]
    run(lambda: tf_client.insert(data, tf.constant(["table"]), tf.constant([3.0], tf.float64)))
    sample = run(lambda: tf_client.sample("table", [tf.float32, tf.int64, tf.string]))
    assert isinstance(sample, reverb.ReplaySample)
    assert isinstance(sample.info, reverb.SampleInfo)
    assert [np.asarray(leaf).tolist() for leaf in sample.data] == [[1.5, 2.5], 7, b"text"]
    assert (sample.info.key.dtype, sample.info.priority.numpy(), sample.info.table_size.numpy()) == (tf.uint64, 3.0, 1)
    assert all(field.shape == [] for field in sample.info)


def test_calls_with_any_number_of_tensors_follow_each_other(serve, tf_client):
    # With more than one shape TensorFlow relaxes its graphs, which fails for different numbers of inputs.
    for shapes in ([[2]], [[3]], [[2], [2]], [[3], []], [[4]]):
        data = [tf.ones(shape) for shape in shapes]
        tf_client.insert(data, tf.constant(["table"]), tf.constant([1.0], tf.float64))
    assert info_of(serve.connect()).current_size == 5


def test_one_insert_makes_an_item_for_every_table_even_if_named_twice(serve, tf_client):
    tf_client.insert(
        [tf.constant(1)], tf.constant(["table", "other", "table"]), tf.constant([1.0, 2.0, 3.0], tf.float64)
    )
    client = serve.connect()
    assert (info_of(client).current_size, info_of(client, "other").current_size) == (2, 1)


def test_priorities_are_updated_in_a_graph(serve, tf_client, run):
    client = serve.connect()
    client.insert_batch([np.arange(2)], {"table": 1.0})
    key = contents(client)[1]
    run(lambda: tf_client.update_priorities("table", [key, 5], tf.constant([9.0, 1.0], tf.float64)))
    assert {s.info.priority for s in client.sample("table", 100, emit_timesteps=False)} == {1.0, 9.0}


def test_nests_of_dtypes_give_nests_of_data(serve, tf_client):
    serve.connect().insert({"b": np.float32(1), "a": {"c": np.int32(2)}}, {"table": 1.0})
    data = tf_client.sample("table", {"a": {"c": tf.int32}, "b": tf.float32}).data
    assert (data["a"]["c"].numpy(), data["b"].numpy()) == (2, 1.0)


@pytest.mark.parametrize("dtype", ["bool", "uint64", "float16", "bfloat16", "complex128"])
def test_dtypes_survive_insert_and_sample(tf_client, dtype):
    value = np.ones([2], getattr(ml_dtypes, dtype, dtype))
    tf_client.insert([tf.constant(value)], tf.constant(["table"]), tf.constant([1.0], tf.float64))
    (leaf,) = tf_client.sample("table", [tf.as_dtype(value.dtype)]).data
    assert leaf.dtype.name == dtype
    assert leaf.numpy().tolist() == value.tolist()


def test_errors_have_tensorflow_classes(serve, tf_client, run):
    one = tf.constant([1.0], tf.float64)
    serve.connect().insert(np.float32(1), {"table": 1.0})
    errors = tf.errors
    for call, kind, text in (
        (lambda: tf_client.sample("nowhere", [tf.float32]), errors.NotFoundError, "nowhere was not found"),
        (lambda: tf_client.sample("table", [tf.float32] * 2), errors.InvalidArgumentError, "Got 6 but wanted 7"),
        (lambda: tf_client.insert([one], tf.constant(["nowhere"]), one), errors.InvalidArgumentError, "nowhere"),
        (lambda: tf_client.insert([one], tf.constant(["other"]), -one), errors.InvalidArgumentError, "negative"),
        (
            lambda: tf_client.update_priorities("nowhere", tf.constant([1], tf.uint64), one),
            errors.NotFoundError,
            "nowhere",
        ),
        (
            lambda: tf_client.update_priorities("table", tf.constant([1, 2], tf.uint64), one),
            errors.InvalidArgumentError,
            r"do not match in shape \(\[2\] vs. \[1\]\)",
        ),
    ):
        with pytest.raises(kind, match=text):
            run(call)


def test_other_dtypes_than_those_of_the_table_fail_as_tensorflow_lets_them_fail(serve, tf_client):
    serve.connect().insert([np.float32(1), b"text"], {"table": 1.0})
    for dtypes, index, actual, expected in (
        ([tf.int64, tf.string], 5, "float", "int64"),
        ([tf.float32, tf.float64], 6, "string", "double"),
    ):

        def sample(dtypes=dtypes):
            return tf_client.sample("table", dtypes).data

        with pytest.raises(
            tf.errors.InvalidArgumentError, match=f"Type mismatch: actual {actual} vs. expect {expected}"
        ):
            sample()
        with pytest.raises(
            tf.errors.InternalError,
            match=f"Output {index} of type {actual} does not match declared output type {expected}",
        ):
            tf.function(sample)()


def test_arguments_of_the_wrong_kind_are_value_errors(tf_client):
    one = tf.constant([1.0], tf.float64)
    with pytest.raises(ValueError, match="tables must be a string tensor of rank 1"):
        tf_client.insert([one], tf.constant("table"), one)
    with pytest.raises(ValueError, match="priorities must be a float64 tensor of rank 1"):
        tf_client.insert([one], tf.constant(["table"]), tf.constant([1.0]))
    with pytest.raises(ValueError, match="same shape"):
        tf_client.insert([one], tf.constant(["table", "other"]), one)


def test_a_v1_graph_works(serve, tf_client):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf_client.insert([tf.constant(4)], tf.constant(["table"]), tf.constant([1.0], tf.float64)))
        sample = tf_client.sample("table", [tf.int32])
        assert sample.data[0].shape.rank is None
        assert session.run(sample.data[0]) == 4


def test_data_are_checked_against_the_signature(serve):
    serve(make_table(signature=[reverb.TensorSpec([], np.float32)]))
    tf_client = reverb.TFClient(serve.address)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf_client.insert([tf.constant([1.0, 2.0])], tf.constant(["table"]), tf.constant([1.0], tf.float64))


def test_keys_of_less_than_64_bits_are_refused(tf_client, run):
    one = tf.constant([1.0], tf.float64)
    for keys in (np.array([1], np.int32), tf.constant([1], tf.uint32), [np.int32(1)]):
        with pytest.raises(TypeError, match="Keys of items are uint64, got u?int32"):
            run(lambda keys=keys: tf_client.update_priorities("table", keys, one))
