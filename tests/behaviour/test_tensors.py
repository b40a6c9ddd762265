"""Tensors of PyTorch that NumPy refuses: of dtypes that it lacks, or with a gradient. They are taken as arrays are."""

import numpy as np
import pytest
import tree
from behaviour_support import draw, info_of, make_table

import reverb
from reverb import adders, structured
from reverb.buffers import PrioritizedBuffer
from reverb.loaders import NumpyLoader

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

import ml_dtypes  # noqa: E402

KINDS = {
    "bfloat16": (torch.bfloat16, ml_dtypes.bfloat16),
    "float8_e5m2": (torch.float8_e5m2, ml_dtypes.float8_e5m2),
    "float8_e4m3fn": (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    "float32": (torch.float32, np.float32),
}
VALUES = [[1.0, -2.0], [0.5, 4.0]]


def tensor(values=VALUES, dtype=torch.bfloat16):
    """A tensor with a gradient; not in the order of its memory, if it is a matrix."""
    values = torch.tensor(values)
    values = values.T.contiguous().T if values.ndim == 2 else values
    return values.to(dtype).requires_grad_()


def write(client, kind, step, steps, priority):
    """Creates one item of one step in one of all ways."""
    if kind == "insert":
        client.insert({"x": step}, {"table": priority})
    elif kind == "insert_batch":
        client.insert_batch({"x": steps}, {"table": priority.reshape(1)})
    elif kind == "writer":
        with client.writer(1) as writer:
            writer.append({"x": step})
            writer.create_item("table", 1, priority)
    elif kind == "sequence":
        with client.writer(1) as writer:
            writer.append_sequence({"x": steps})
            writer.create_item("table", 1, priority)
    elif kind == "trajectory_writer":
        with client.trajectory_writer(1) as writer:
            writer.append({"x": step})
            writer.create_item("table", priority, {"x": writer.history["x"][-1:]})
    elif kind == "structured_writer":
        pattern = structured.pattern_from_transform({"x": 0}, lambda x: {"x": x["x"][-1:]})
        with client.structured_writer([structured.create_config(pattern, "table")]) as writer:
            writer.append({"x": step}, priority=priority)
    elif kind == "batched_writer":
        with client.batched_writer(1, 1) as writer:
            writer.append({"x": steps})
            writer.create_items("table", priority, {"x": writer.history["x"][-1:]})
    elif kind == "adder":
        with adders.SequenceAdder(client, "table", length=1, period=1) as adder:
            adder.add({"x": step}, priority=priority)
    elif kind == "envs":
        with adders.SequenceAdder(client, "table", length=1, period=1, num_envs=1) as adder:
            adder.add({"x": steps}, priority=priority.reshape(1))


KINDS_OF_WRITING = (
    "insert",
    "insert_batch",
    "writer",
    "sequence",
    "trajectory_writer",
    "structured_writer",
    "batched_writer",
    "adder",
    "envs",
)


@pytest.mark.parametrize("kind", KINDS_OF_WRITING)
@pytest.mark.parametrize("name", KINDS)
def test_tensors_are_written_with_their_values_and_priorities(serve, kind, name):
    torch_dtype, dtype = KINDS[name]
    client = serve(make_table(max_times_sampled=1))
    values = tensor(dtype=torch_dtype)
    write(client, kind, values, values[None], tensor(2.0, torch_dtype))
    (sample,) = draw(client)
    (found,) = tree.flatten(sample.data)
    assert found.dtype == dtype
    assert found.reshape(2, 2).astype(np.float64).tolist() == VALUES
    assert sample.info.priority == 2.0


@pytest.mark.parametrize("kind", ["n_step", "hindsight", "episode"])
def test_adders_that_make_items_of_several_steps_take_tensors(serve, kind):
    client = serve(make_table(max_times_sampled=1))
    observation, reward = tensor(), tensor(0.5)
    if kind == "n_step":
        with adders.NStepTransitionAdder(client, "table", n=2, discount=1.0) as adder:
            for _ in range(2):
                adder.add(observation, 0, reward, observation)
    elif kind == "episode":
        with adders.EpisodeAdder(client, "table", max_length=5) as adder:
            adder.add({"observation": observation, "reward": reward}, last=True)
    else:
        goal = {"observation": observation, "achieved_goal": tensor(), "desired_goal": tensor()}
        with adders.HindsightAdder(client, "table", discount=1.0, compute_reward=lambda *_: tensor(0.5), k=1) as adder:
            adder.add(goal, 0, reward, goal, terminated=True)
    for sample in draw(client, info_of(client).current_size):
        found = [leaf for leaf in tree.flatten(sample.data) if leaf.dtype == ml_dtypes.bfloat16]
        assert found
        assert all(leaf.reshape(-1, 2, 2)[0].astype(np.float64).tolist() == VALUES for leaf in found if leaf.size > 1)


@pytest.mark.parametrize("name", KINDS)
def test_priorities_of_updates_are_tensors(serve, name):
    dtype = KINDS[name][0]
    client = serve(make_table(sampler="uniform", signature=reverb.TensorSpec([], np.int64)))
    client.insert_batch(np.arange(2), {"table": 1.0})

    def priorities():
        return {sample.info.key: sample.info.priority for sample in draw(client, 40)}

    keys = sorted(priorities())
    client.update_priorities("table", keys, tensor([2.0, 4.0], dtype))
    assert priorities() == dict(zip(keys, [2.0, 4.0], strict=True))
    client.update_priorities("table", keys, tensor(8.0, dtype))
    assert set(priorities().values()) == {8.0}
    client.mutate_priorities("table", updates={keys[0]: tensor(0.5, dtype), keys[1]: tensor([1.5], dtype)})
    assert priorities() == dict(zip(keys, [0.5, 1.5], strict=True))
    with NumpyLoader(client, "table", batch_size=20) as loader:
        loader.update_priorities(next(loader), tensor([3.0] * 20, dtype))
    assert set(priorities().values()) == {3.0}


def test_a_ragged_of_tensors_is_taken(serve):
    client = serve(make_table(signature={"x": reverb.TensorSpec([None, 2], torch.bfloat16)}))
    client.insert_batch({"x": reverb.Ragged(tensor([*VALUES, VALUES[0]]), torch.tensor([2, 1]))}, {"table": 1.0})
    found = client.sample_batch("table", 2).data["x"]
    assert found.row_lengths.tolist() == [2, 2]
    assert found.values.astype(np.float64).tolist() == VALUES * 2


@pytest.mark.parametrize("name", KINDS)
def test_a_list_of_tensors_of_open_length_is_taken(serve, name):
    dtype, expected = KINDS[name]
    client = serve(make_table(max_times_sampled=1, signature={"x": reverb.TensorSpec([None, 2], dtype)}))
    client.insert_batch({"x": [tensor(VALUES, dtype), tensor(VALUES[:1], dtype)]}, {"table": 1.0})
    found = client.sample_batch("table", 2).data["x"]
    assert found.values.dtype == expected
    assert found.row_lengths.tolist() == [2, 1]
    assert found.values.astype(np.float64).tolist() == [*VALUES, VALUES[0]]


def test_priorities_that_count_for_max_are_tensors(serve):
    client = serve(make_table(max_times_sampled=1))
    with adders.SequenceAdder(client, "table", length=1, period=1, priority="max") as adder:
        adder.note_priorities(tensor([2.0, 7.0]))
        adder.add({"x": 1})
    assert draw(client)[0].info.priority == 7.0


def test_values_that_are_refused_still_are(serve):
    client = serve(make_table())
    with pytest.raises(TypeError, match="NumPy cannot convert a value of type .*Tensor"):
        client.insert({"x": torch.ones(2, dtype=torch.float8_e4m3fnuz)}, {"table": 1.0})
    with pytest.raises(TypeError, match="NumPy cannot convert a value of type .*Tensor"):
        client.insert({"x": torch.ones(2).to_sparse()}, {"table": 1.0})
    client.insert({"x": tensor()}, {"table": 1.0})
    assert info_of(client).current_size == 1


@pytest.mark.parametrize("name", KINDS)
def test_a_prioritized_buffer_takes_tensors(name):
    torch_dtype, dtype = KINDS[name]
    buffer = PrioritizedBuffer(reverb.TensorSpec([2], dtype), 4, exponent=1.0)
    buffer.add(tensor(dtype=torch_dtype), tensor([1.0, 0.0], torch_dtype))
    sample = buffer.sample(10)
    assert sample.data.astype(np.float64).tolist() == [VALUES[0]] * 10
    buffer.update_priorities(sample, tensor(0.0, torch_dtype))
    buffer.add(tensor(dtype=torch_dtype), tensor([0.0, 2.0], torch_dtype))
    assert buffer.sample(10).data.astype(np.float64).tolist() == [VALUES[1]] * 10


def test_specs_take_the_shape_and_dtype_of_tensors(serve):
    for name, (torch_dtype, dtype) in KINDS.items():
        values = tensor(dtype=torch_dtype)
        spec = reverb.TensorSpec(values.shape, values.dtype, name)
        assert spec == reverb.TensorSpec([2, 2], dtype, name)
        assert reverb.TensorSpec.from_tensor(values) == reverb.TensorSpec([2, 2], dtype)
        assert spec.is_compatible_with(values)
        client = serve(make_table(signature={"x": spec}))
        client.insert({"x": values}, {"table": 1.0})
        assert client.sample_batch("table", 1).data["x"].dtype == dtype
    assert reverb.TensorSpec(torch.Size([4]), torch.int64) == reverb.TensorSpec([4], np.int64)
    with pytest.raises(TypeError, match="torch.qint8"):
        reverb.TensorSpec([2], torch.qint8)
    with pytest.raises(ValueError, match=r"such as TensorSpec\(torch.Size\(\[2\]\), torch.float32\)"):
        reverb.Table.queue("table", 1, signature={"x": torch.ones(2)})
