"""Errors about signatures say first what was given, what the table takes, and what to do."""

import numpy as np
import pytest
from behaviour_support import draw, info_of, make_table

from reverb import errors, structured_writer
from reverb.tensor_spec import TensorSpec

SIGNATURE = {
    "obs": {"vec": TensorSpec([3], np.float32)},
    "reward": TensorSpec([], np.float32),
    "value": TensorSpec([], np.float32),
}
STEP = {"obs": {"vec": np.zeros(3, np.float32)}, "reward": np.float32(0), "value": np.float32(0)}
STACK_THEM = "One step: insert. A list of steps: stack them first."


@pytest.fixture
def client(serve):
    return serve(make_table("t", signature=SIGNATURE))


def refusal(call, *args):
    """Returns the lines of the error that a call raises."""
    with pytest.raises(errors.InvalidArgumentError) as caught:
        call(*args)
    return str(caught.value).splitlines()


def insert(client, step):
    client.insert(step, {"t": 1.0})


def create_item(client, step):
    with client.trajectory_writer(1) as writer:
        writer.append(step)
        history = writer.history
        writer.create_item(
            "t",
            1.0,
            {"obs": {"vec": history["obs"]["vec"][-1]}, "reward": history["reward"][-1], "value": history["value"][-1]},
        )


def create_row_item(client, step):
    with client.writer(1) as writer:
        writer.append(step)
        writer.create_item("t", 1, 1.0)


def append_to_patterns(client, step):
    pattern = structured_writer.pattern_from_transform(
        step,
        lambda ref: {"obs": {"vec": ref["obs"]["vec"][-1]}, "reward": ref["reward"][-1], "value": ref["value"][-1]},
    )
    with client.structured_writer([structured_writer.create_config(pattern, "t")]) as writer:
        writer.append(step)
        writer.flush()


@pytest.mark.parametrize("put", [insert, create_item, create_row_item, append_to_patterns])
def test_wrong_dtype_is_named_in_the_words_of_numpy(client, put):
    first, *rest = refusal(put, client, {**STEP, "reward": 1.0})
    assert first.endswith('reward: got float64 [], table "t" takes float32 []. np.float32(x) makes one.')
    assert "saw a tensor of dtype double" in rest[0] or "but got a double [] tensor" in rest[0]
    assert info_of(client, "t").current_size == 0


def test_wrong_dtype_in_a_batch_is_named_like_that_of_a_step(client):
    batch = {"obs": {"vec": np.zeros((2, 3), np.float32)}, "reward": np.zeros(2), "value": np.zeros(2, np.float32)}
    first, *rest = refusal(client.insert_batch, batch, {"t": 1.0})
    assert first == 'reward: got float64 [], table "t" takes float32 []. np.float32(x) makes one.'
    assert rest[0].startswith("Unable to CreateItem in table 't'")


def test_wrong_shape_has_no_advice_about_dtypes(client):
    first, *_ = refusal(insert, client, {**STEP, "obs": {"vec": np.zeros(4)}})
    assert first == 'obs/vec: got float64 [4], table "t" takes float32 [3].'


def test_strings_cannot_be_converted(client):
    first, *_ = refusal(insert, client, {**STEP, "reward": "high"})
    assert first == 'reward: got string [], table "t" takes float32 [].'


@pytest.mark.parametrize("put", [insert, create_row_item])
@pytest.mark.parametrize(("kind", "name"), [(list, "a list"), (tuple, "a tuple")])
def test_list_that_became_columns_is_recognised(client, put, kind, name):
    first, *rest = refusal(put, client, {**STEP, "obs": {"vec": kind([1.0, 2.0, 3.0])}})
    assert first.startswith(f"obs/vec is {name} of 3 leaves; np.asarray makes one array")
    assert "was called with 5 tensors, but table requires 3" in rest[-1]


def test_list_that_became_columns_is_recognised_in_a_trajectory(client):
    writer = client.trajectory_writer(1)
    writer.append(STEP)
    rewards = [writer.history["reward"][-1]] * 3
    item = {"obs": {"vec": rewards}, "reward": rewards[0], "value": rewards[0]}
    first, *rest = refusal(writer.create_item, "t", 1.0, item)
    assert first.startswith("obs/vec is a list of 3 leaves; np.asarray makes one array")
    assert "has 5 columns but the table signature has 3 columns" in rest[1]
    writer.close()


def test_number_of_columns_is_compared_with_the_names_of_the_table(client):
    first, second = refusal(insert, client, [np.float32(0)])
    assert first == 'table "t" takes 3 columns (obs/vec, reward, value), got 1.'
    assert second.startswith("Unable to CreateItem in table 't'")


def test_a_step_given_to_insert_batch_is_recognised(client):
    assert refusal(client.insert_batch, STEP, {"t": 1.0}) == [
        f"insert_batch takes n stacked steps, arrays [n, ...]; obs/vec is [3], reward []. {STACK_THEM}"
    ]


def test_a_list_of_steps_given_to_insert_batch_is_recognised(client):
    assert refusal(client.insert_batch, [STEP, STEP], {"t": 1.0}) == [
        f"insert_batch takes n stacked steps, arrays [n, ...]; 0/obs/vec is [3], 0/reward []. {STACK_THEM}"
    ]


def test_steps_of_which_all_arrays_have_the_same_length_are_recognised_by_the_signature(serve):
    spec = TensorSpec([3], np.float32)
    client = serve(make_table("t", signature={"a": spec, "b": spec}))
    step = {"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float32)}
    client.insert_batch({"a": np.zeros((2, 3), np.float32), "b": np.zeros((2, 3), np.float32)}, {"t": 1.0})
    first, *_ = refusal(client.insert_batch, step, {"t": 1.0})
    assert (
        first
        == f"insert_batch takes n stacked steps, arrays [n, ...]; a is [3], b is [3], which is one step. {STACK_THEM}"
    )
    first, *_ = refusal(client.insert_batch, [step] * 4, {"t": 1.0})
    assert first == f"insert_batch takes n stacked steps, arrays [n, ...]; got a list of 4 steps. {STACK_THEM}"


def test_a_scalar_given_to_insert_batch_is_named(serve):
    client = serve(make_table("t"))
    assert refusal(client.insert_batch, 1.0, {"t": 1.0})[0].startswith(
        "insert_batch takes n stacked steps, arrays [n, ...]; the data is []."
    )


@pytest.mark.parametrize("put", [insert, create_row_item])
def test_other_errors_of_a_signature_keep_the_writer_usable(client, put):
    refusal(put, client, {**STEP, "reward": 1.0})
    put(client, STEP)
    assert len(draw(client, table="t")[0].data) == 3


def put_columns(client, steps):
    with client.trajectory_writer(steps) as writer:
        for _ in range(steps):
            writer.append(STEP["obs"]["vec"])
        writer.create_item("t", 1.0, writer.history[:])


def put_rows(client, steps):
    with client.writer(steps) as writer:
        for _ in range(steps):
            writer.append(STEP["obs"]["vec"])
        writer.create_item("t", steps, 1.0)


def put_patterns(client, steps):
    step = STEP["obs"]["vec"]
    pattern = structured_writer.pattern_from_transform(step, lambda ref: ref[-steps:])
    with client.structured_writer([structured_writer.create_config(pattern, "t")]) as writer:
        for _ in range(steps):
            writer.append(step)


def put_batches(client, steps):
    with client.batched_writer(1, steps) as writer:
        for _ in range(steps):
            writer.append(STEP["obs"]["vec"][None])
        writer.create_items("t", 1.0, writer.history[-steps:])


@pytest.mark.parametrize("put", [put_columns, put_rows, put_patterns, put_batches])
@pytest.mark.parametrize("shape", [[3], [5, 3], [None, 3], None], ids=str)
def test_a_spec_describes_one_step_or_all_steps_of_an_item_in_every_way_in(serve, put, shape):
    client = serve(make_table("t", signature=TensorSpec(shape, np.float32)))
    put(client, 5)
    assert draw(client, table="t")[0].data[0].shape == (5, 3)


@pytest.mark.parametrize("shape", [[2], [4, 3], [3, 5], [5, 3, 1]], ids=str)
def test_a_spec_of_neither_is_refused(serve, shape):
    client = serve(make_table("t", signature=TensorSpec(shape, np.float32)))
    for put in (put_columns, put_rows):
        refusal(put, client, 5)
    assert info_of(client, "t").current_size == 0
