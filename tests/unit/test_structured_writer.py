import collections
import copy
import pickle
import subprocess
import sys

import attr
import numpy as np
import pytest

import reverb
from reverb import structured_writer as sw
from reverb.cc import patterns_pb2
from reverb.structured_writer import Condition
from reverb.tensor_spec import TensorSpec

Pair = collections.namedtuple("Pair", "second first")
Fields = attr.make_class("Fields", ["first", "second"])
STEP = {"a": None, "b": [1, (2,)], "c": Pair(3, 4)}
SPEC = {
    "a": TensorSpec((), np.float32),
    "b": TensorSpec((3, 3), np.int64),
    "c": TensorSpec((None, 2), str),
    "d": TensorSpec(None, np.int32),
}


def fields(message):
    """Returns the fields of a message that are set, as a dict."""
    return {field.name: value for field, value in message.ListFields()}


def spec_config(transform, table="t"):
    return sw.create_config(sw.pattern_from_transform(SPEC, transform), table)


def infer(*transforms):
    return sw.infer_signature([spec_config(transform) for transform in transforms], SPEC)


def test_module_is_known_under_both_names():
    assert reverb.structured is reverb.structured_writer is sw
    assert sw.Config is patterns_pb2.StructuredWriterConfig
    assert sw.ConditionProto is patterns_pb2.Condition
    assert sw.PatternNode is patterns_pb2.PatternNode


def test_reference_step_numbers_leaves_in_flat_order():
    step = sw.create_reference_step(STEP)
    assert type(step["c"]) is Pair
    nodes = [step["a"], step["b"][0], step["b"][1][0], step["c"].second, step["c"].first]
    assert [node[-1].flat_source_index for node in nodes] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (-1, {"stop": -1}),
        (np.int64(-2), {"stop": -2}),
        (0, {"stop": 0}),
        (slice(None, -2), {"stop": -2}),
        (slice(-3, None), {"start": -3}),
        (slice(-3, 0), {"start": -3, "stop": 0}),
        (slice(np.int32(-5), None, np.int64(2)), {"start": -5, "step": 2}),
        (slice(None), {}),
    ],
)
def test_key_of_a_node_sets_the_matching_field(key, wanted):
    # `stop: 0` is set, not absent: each field is a separate oneof.
    assert fields(sw.create_reference_step([0, 1])[1][key]) == {"flat_source_index": 1, **wanted}


@pytest.mark.parametrize("key", ["a", None, (1, 2), -1.0])
def test_key_of_a_node_is_an_int_or_a_slice(key):
    with pytest.raises(ValueError, match="Key must be int or slice by got"):
        sw.create_reference_step(0)[key]


def test_parts_of_keys_must_fit_the_message():
    node = sw.create_reference_step(0)
    with pytest.raises(TypeError, match="The start of a slice must be an int, got -3.0"):
        node[-3.0:]
    with pytest.raises(ValueError, match="32 bits, got 1099511627776"):
        node[2**40]
    with pytest.raises(TypeError, match="not iterable"):
        list(node)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (lambda b: b == 3, {"eq": 3}),
        (lambda b: b == np.int64(3), {"eq": 3}),
        (lambda b: np.int64(3) == b, {"eq": 3}),
        (lambda b: b == True, {"eq": 1}),  # noqa: E712
        (lambda b: b == np.bool_(True), {"eq": 1}),
        (lambda b: 3 == b, {"eq": 3}),  # noqa: SIM300
        (lambda b: b != 3, {"eq": 3, "inverse": True}),
        (lambda b: b >= 3, {"ge": 3}),
        (lambda b: b > 3, {"ge": 4}),
        (lambda b: 3 < b, {"ge": 4}),  # noqa: SIM300
        (lambda b: np.int32(3) < b, {"ge": 4}),
        (lambda b: b < 3, {"ge": 3, "inverse": True}),
        (lambda b: b <= 3, {"ge": 4, "inverse": True}),
        (lambda b: b % 3 == 1, {"mod_eq": patterns_pb2.Condition.ModuloEq(mod=3, eq=1)}),
        (lambda b: b % np.int8(3) != 0, {"mod_eq": patterns_pb2.Condition.ModuloEq(mod=3), "inverse": True}),
        (lambda b: b == -1, {"eq": -1}),
    ],
)
def test_comparison_makes_a_condition(condition, wanted):
    assert fields(condition(Condition.step_index())) == {"step_index": True, **wanted}
    assert fields(condition(Condition.steps_since_applied())) == {"steps_since_applied": True, **wanted}
    assert fields(condition(Condition.data(STEP)["c"].first)) == {"flat_source_index": 4, **wanted}


def test_end_of_episode_is_a_whole_condition():
    assert fields(Condition.is_end_episode()) == {"is_end_episode": True, "eq": 1}


@pytest.mark.parametrize(
    ("condition", "error", "text"),
    [
        (lambda b: b % 2 >= 1, TypeError, "After `%` a condition takes `==` or `!=`, got `step_index % 2 >= 1`"),
        (lambda b: b % 2 < 1, TypeError, "step_index % 2 < 1"),
        (lambda b: b % 0 == 0, ValueError, "must be at least 1, got 0"),
        (lambda b: b % -3 == 0, ValueError, "must be at least 1, got -3"),
        (lambda b: b % 2 % 3 == 0, TypeError, "one `%`"),
        (lambda b: b % 2 == -1, ValueError, "at least 0, got -1"),
        (lambda b: b == b, TypeError, "must be an int, got step_index"),
        (lambda b: b == 1.5, TypeError, "must be an int, got 1.5"),
        (lambda b: b == None, TypeError, "must be an int, got None"),  # noqa: E711
        (lambda b: b % 2.0 == 1, TypeError, "must be an int, got 2.0"),
        (lambda b: b == 2**31, ValueError, "32 bits, got 2147483648"),
        (lambda b: b > 2**31 - 1, ValueError, "32 bits, got 2147483648"),
        (lambda b: 0 <= b < 5, TypeError, "several conditions"),
        (lambda b: b >= 1 and b < 5, TypeError, "several conditions"),
        (lambda b: not b == 1, TypeError, "several conditions"),  # noqa: SIM201
        (lambda b: b and b == 1, TypeError, "not a condition yet"),
    ],
)
def test_comparisons_that_no_condition_can_express_are_refused(condition, error, text):
    with pytest.raises(error, match=text.replace("(", r"\(").replace("%", "%")):
        condition(Condition.step_index())


def test_conditions_can_still_be_compared_and_serialized():
    condition = Condition.step_index() >= 3
    assert condition == sw.ConditionProto(step_index=True, ge=3)
    assert condition != sw.ConditionProto(step_index=True, ge=4)
    assert copy.deepcopy(condition) == pickle.loads(pickle.dumps(condition)) == condition


def test_config_has_nodes_in_flat_order_and_the_constant_one():
    step = sw.create_reference_step(STEP)
    pattern = {"y": (step["b"][0][-3::2],), "x": step["a"][-1]}
    config = sw.create_config(pattern, "t", [Condition.step_index() >= 3, Condition.is_end_episode()])
    assert [node.flat_source_index for node in config.flat] == [0, 1]
    assert config.table == "t"
    assert config.HasField("pattern_structure")
    assert config.priority.constant_fn.value == 1.0
    assert list(config.conditions) == [Condition.step_index() >= 3, Condition.is_end_episode()]


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s["a"][-1],
        lambda s: [s["a"][-1], s["b"][0][-2:]],
        lambda s: (),
        lambda s: {"x": Pair(s["a"][-1], (s["c"].first[-2:],)), "e": [], "b": {"z": s["a"][-1], "k": s["a"][-2]}},
    ],
)
def test_pattern_is_unpacked_to_its_structure(make):
    pattern = make(sw.create_reference_step(STEP))
    assert sw.unpack_pattern(sw.create_config(pattern, "t")) == pattern


def test_attrs_objects_of_a_pattern_become_named_tuples():
    step = sw.create_reference_step(Fields({"z": 1, "a": 2}, 3))
    config = sw.create_config(Fields({"k": step.first["a"][-1]}, step.second[-2:]), "t")
    assert [node.flat_source_index for node in config.flat] == [0, 2]
    pattern = sw.unpack_pattern(config)
    assert pattern == ({"k": step.first["a"][-1]}, step.second[-2:])
    assert (type(pattern).__name__, pattern._fields) == ("Fields", ("first", "second"))
    assert sw.infer_signature([config], Fields({"z": SPEC["d"], "a": SPEC["a"]}, SPEC["b"])).second.shape == [2, 3, 3]


def test_pattern_without_structure_is_a_list():
    config = spec_config(lambda s: {"x": s["a"][-1], "y": s["b"][-1]})
    config.ClearField("pattern_structure")
    assert sw.unpack_pattern(config) == list(config.flat)
    assert sw.infer_signature([config], SPEC)[0].dtype == np.float32


def test_nodes_that_do_not_fill_their_structure_are_refused():
    config = spec_config(lambda s: {"x": s["a"][-1]})
    config.flat.add(stop=-1)
    with pytest.raises(ValueError, match="1 leaves, got 2"):
        sw.unpack_pattern(config)
    with pytest.raises(ValueError, match="2 nodes for the 1 leaves"):
        sw.infer_signature([config], SPEC)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (lambda s: ({"x": s["a"]}, "t"), "Say which rows"),
        (lambda s: ({"x": None}, "t"), "must be pattern nodes, got None"),
        (lambda s: ({1: s["a"][-1]}, "t"), "must be str, got 1"),
        (lambda s: (s["a"][-1], 1), "`table` must be a str"),
        (lambda s: (s["a"][-1], "t", [Condition.step_index()]), r"`conditions\[0\]` must be .* Compare it with an int"),
        (lambda s: (s["a"][-1], "t", [Condition.is_end_episode() == 1]), "takes no comparison"),
        (lambda s: (s["a"][-1], "t", (), 3.0), "`priority` must be a Priority message, got 3.0"),
    ],
)
def test_parts_of_configs_must_be_messages(arguments, text):
    with pytest.raises(TypeError, match=text):
        sw.create_config(*arguments(sw.create_reference_step(STEP)))


def test_priorities():
    assert sw.constant_priority_fn(3).constant_fn.value == 3.0
    priority = sw.td_error(0.75, STEP, lambda step: step["c"].first)
    assert priority.td_error.max_priority_weight == 0.75
    assert priority.td_error.flat_source_index == 4
    with pytest.raises(TypeError, match="must return a leaf of the step"):
        sw.td_error(0.75, STEP, lambda step: step)


def test_signature_has_the_lengths_of_slices_rounded_up():
    signature = infer(lambda s: {"x": s["a"][-1], "y": s["b"][-2:], "z": (s["c"][-5::2], s["c"][-1])})
    assert signature == {
        "x": TensorSpec((), np.float32, "x"),
        "y": TensorSpec((2, 3, 3), np.int64, "y"),
        "z": (TensorSpec((3, None, 2), str, "z/0"), TensorSpec((None, 2), str, "z/1")),
    }
    assert infer(lambda s: s["a"][-6:-1:2]) == TensorSpec((3,), np.float32, "")
    assert infer(lambda s: Pair(s["a"][-1], [s["a"][-1]])) == Pair(
        TensorSpec((), np.float32, "second"), [TensorSpec((), np.float32, "first/0")]
    )


def test_first_dimension_that_differs_is_unknown():
    assert infer(lambda s: s["a"][-2:], lambda s: s["a"][-3:]) == TensorSpec((None,), np.float32, "")
    short, long = TensorSpec((3, 3), np.int64), TensorSpec((4, 3), np.int64)
    step = sw.create_reference_step([0, 1])
    configs = [sw.create_config({"x": node[-1]}, "t") for node in step]
    assert sw.infer_signature(configs, [short, long]) == {"x": TensorSpec((None, 3), np.int64, "x")}


def test_signature_of_arrays():
    steps = {"a": np.zeros((2,), np.float16), "b": np.array("text")}
    pattern = sw.pattern_from_transform(steps, lambda s: {"x": s["a"][-1:], "y": s["b"][-1]})
    assert sw.infer_signature([sw.create_config(pattern, "t")], steps) == {
        "x": TensorSpec((1, 2), np.float16, "x"),
        "y": TensorSpec((), str, "y"),
    }


@pytest.mark.parametrize(
    ("transforms", "text"),
    [
        ([], "At least one config must be provided."),
        (
            [lambda s: {"x": s["a"][-1]}, lambda s: {"y": s["a"][-1]}],
            "All configs must have exactly the same pattern_structure.",
        ),
        (
            [lambda s: {"x": s["b"][-1]}, lambda s: {"x": s["a"][-1]}],
            "Configs produce trajectories with multiple dtypes at ('x',). Got [tf.int64, tf.float32].",
        ),
        (
            [lambda s: [s["a"][-1]], lambda s: [s["a"][-1:]]],
            "Configs produce trajectories with incompatible shapes at (0,). Got [TensorShape([]), TensorShape([1])].",
        ),
        (
            [lambda s: s["b"][-3:], lambda s: s["b"][-1]],
            "Configs produce trajectories with incompatible shapes at (). Got "
            "[TensorShape([3, 3, 3]), TensorShape([3, 3])].",
        ),
        ([lambda s: s["d"][-1]], "Cannot iterate over a shape with unknown rank."),
    ],
)
def test_configs_that_fit_no_signature(transforms, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        infer(*transforms)
    assert str(caught.value) == text


def test_configs_of_two_tables_fit_no_signature():
    configs = [spec_config(lambda s: s["a"][-1], table) for table in "qp"]
    with pytest.raises(ValueError, match="All configs must target the same table but provided configs included p, q."):
        sw.infer_signature(configs, SPEC)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"flat_source_index": 9, "stop": -1}, "column 9 of steps that have 4"),
        ({"flat_source_index": -1, "stop": -1}, "column -1"),
        ({"start": -1, "stop": -3}, "refers to no rows"),
        ({"start": -3, "step": 0}, "refers to no rows"),
    ],
)
def test_nodes_that_refer_to_nothing_fit_no_signature(node, text):
    with pytest.raises(ValueError, match=text):
        sw.infer_signature([sw.create_config(sw.PatternNode(**node), "t")], SPEC)


def test_type_names_can_be_used_in_annotations():
    code = (
        "import sys, reverb\n"
        "from typing import Callable, Sequence\n"
        "def f(a: Sequence[reverb.structured_writer.Config],\n"
        "      b: Callable[[reverb.structured_writer.ReferenceStep], reverb.structured_writer.Pattern],\n"
        "      c: Sequence[reverb.structured_writer.ConditionProto], d: reverb.structured_writer.Condition): pass\n"
        "print(sorted({'tensorflow', 'torch', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
