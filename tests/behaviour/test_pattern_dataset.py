"""Items that patterns make from a dataset of steps."""

import collections

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import reverb  # noqa: E402
from reverb import pattern_dataset, structured  # noqa: E402

pytestmark = pytest.mark.tensorflow

STEP = {"a": None, "b": None}


def steps(count=5):
    return tf.data.Dataset.from_tensor_slices({"a": np.arange(count), "b": np.arange(2 * count).reshape(count, 2)})


def config(pattern, *conditions, step=STEP):
    return structured.create_config(structured.pattern_from_transform(step, pattern), "table", conditions)


def items(pattern, *conditions, respect=True, is_end=lambda step: step["a"] == 2, count=5):
    dataset = reverb.PatternDataset(steps(count), [config(pattern, *conditions)], respect, is_end)
    return [tf.nest.map_structure(lambda leaf: leaf.tolist(), item) for item in dataset.as_numpy_iterator()]


def test_items_span_episodes_only_if_allowed():
    assert items(lambda x: {"x": x["a"][-2:], "y": x["b"][-1]}) == [
        {"x": [0, 1], "y": [2, 3]},
        {"x": [1, 2], "y": [4, 5]},
        {"x": [3, 4], "y": [8, 9]},
    ]
    assert items(lambda x: {"x": x["a"][-2:]}, respect=False) == [{"x": [i, i + 1]} for i in range(4)]


def test_the_end_of_an_episode_is_a_condition_that_unfinished_episodes_never_meet():
    assert items(lambda x: {"x": x["a"][-2:]}, structured.Condition.is_end_episode()) == [{"x": [1, 2]}]


def test_strides_select_the_rows_asked_for():
    assert items(lambda x: x["a"][-5::2], is_end=lambda step: False) == [[0, 2, 4]]


def test_steps_may_be_named_tuples_and_items_lists():
    step_type = collections.namedtuple("Step", ["a", "b"])
    dataset = steps().map(lambda step: step_type(step["a"], step["b"]))
    pattern = config(lambda x: [x.a[-1], x.b[-2:]], step=step_type(None, None))
    made = reverb.PatternDataset(dataset, [pattern], True, lambda step: step.a == 2)
    assert [[leaf.tolist() for leaf in item] for item in made.as_numpy_iterator()] == [
        [1, [[0, 1], [2, 3]]],
        [2, [[2, 3], [4, 5]]],
        [4, [[6, 7], [8, 9]]],
    ]


def test_specs_are_those_of_the_items():
    dataset = reverb.PatternDataset(steps(), [config(lambda x: {"x": x["b"][-3:]})], True, lambda step: False)
    assert dataset.element_spec == {"x": tf.TensorSpec([3, 2], tf.int64)}
    assert isinstance(dataset, tf.data.Dataset)


def test_with_info_each_item_is_a_sample():
    configs = [config(lambda x: {"x": x["a"][-1]})]
    dataset = pattern_dataset.pattern_dataset_with_info(steps(), configs, True, lambda step: False)
    samples = list(dataset)
    assert [int(sample.data["x"]) for sample in samples] == list(range(5))
    assert isinstance(samples[0], reverb.ReplaySample)
    assert (samples[0].info.key.dtype, samples[0].info.priority.dtype) == (tf.int32, tf.float32)


def test_the_configs_are_not_modified():
    one = config(lambda x: {"x": x["a"][-2:]})
    before = one.SerializeToString()
    list(reverb.PatternDataset(steps(), [one], True, lambda step: False))
    assert one.SerializeToString() == before


def test_bad_arguments_are_refused_at_once():
    good = config(lambda x: {"x": x["a"][-1]})
    with pytest.raises(ValueError, match="must return `bool`"):
        reverb.PatternDataset(steps(), [good], True, lambda step: step["a"])
    with pytest.raises(ValueError, match="At least one config"):
        reverb.PatternDataset(steps(), [], True, lambda step: False)
    bad = config(lambda x: {"x": x["a"][-1]})
    bad.table = ""
    with pytest.raises(ValueError, match="table"):
        reverb.PatternDataset(steps(), [bad], True, lambda step: False)


def test_sessions_of_tensorflow_1_iterate_as_often_as_they_like():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = reverb.PatternDataset(
            steps(), [config(lambda x: {"x": x["a"][-2:], "y": x["b"][-1]})], True, lambda step: tf.equal(step["a"], 2)
        )
        iterator = made.batch(2).make_initializable_iterator()
        element = iterator.get_next()
        for _ in range(2):
            session.run(iterator.initializer)
            assert session.run(element)["x"].tolist() == [[0, 1], [1, 2]]
            assert session.run(element)["y"].tolist() == [[8, 9]]
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(element)


def test_iterators_are_independent_of_each_other():
    dataset = reverb.PatternDataset(steps(), [config(lambda x: {"x": x["a"][-2:]})], True, lambda step: False)
    first, second = iter(dataset), iter(dataset)
    assert [next(one)["x"].numpy().tolist() for one in (first, first, second)] == [[0, 1], [1, 2], [0, 1]]


def test_strings_of_steps_become_items():
    strings = tf.data.Dataset.from_tensor_slices({"a": [b"x", b"yy", b"zzz"], "b": [1, 2, 3]})
    dataset = reverb.PatternDataset(strings, [config(lambda x: {"x": x["a"][-2:]})], True, lambda step: False)
    assert [item["x"].tolist() for item in dataset.as_numpy_iterator()] == [[b"x", b"yy"], [b"yy", b"zzz"]]
